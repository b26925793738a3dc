"""Compares two runs on the same examples: is one better, or is the difference chance?

    python -m tools.compare_runs output/one output/two

The arguments are the --output_dir of two runs that evaluated the same file, A and B. The tool reads
`eval_predictions.tsv` there, or else `predictions.tsv` if the test file has labels. It prints how
many examples only one of the runs gets right, with McNemar's exact test, and for each metric the
difference with a 95% interval from a paired bootstrap over the examples. It works for classes,
numbers, tags, multiple choice and SQuAD.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.compare_runs")

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from absl import flags

from bert_tf.engine.measures import pearson, spearman
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import storage
from bert_tf.runs.flags import command_flags
from bert_tf.runs.results.tables import EVALUATED, read_table
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.tagging.entities import entities

FLAGS = flags.FLAGS
FILES = (f"{EVALUATED}.tsv", "predictions.tsv")
CONFIDENCE = 0.95

Table = Mapping[str, Sequence[str]]
# Numbers of examples, int [any] -> a run's score on them.
Score = Callable[[np.ndarray], float]
# The word for examples; which examples are right, None for a regression; the metrics by name.
Scores = tuple[str, np.ndarray | None, dict[str, Score]]

# The columns with outputs of a model; the others must be equal in both runs.
_OUTPUTS = {"prediction", "probability", "difference", "rank_difference", "wrong", "loss"}
_OUTPUTS |= {"answer", "exact", "f1"}  # for questions
# The start of column names that end in a label, if an example can have several labels.
_PROBABILITY_OF = "probability "
# Labels and predictions of questions, of sentences with tags, and of everything else.
_NEEDED = (("exact", "f1"), ("tags", "prediction"), ("label", "prediction"))

_EVALUATE = "evaluate with --do_eval, or predict a test file that has labels"
_ABSOLUTE_ERROR = "mean absolute error"  # the only metric where lower is better


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of two runs. `difference` is B's score minus A's, between `low` and `high`."""

    name: str
    a: float
    b: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        return self.b - self.a


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs on the same examples, sentences or questions (`unit`)."""

    num_examples: int
    unit: str
    # (A is right, B is right) -> number of examples; {} for a regression
    right: dict[tuple[bool, bool], int]
    p_value: float | None  # of McNemar's exact test; None for a regression
    metrics: list[Metric]


def read_pair(folder_a: str, folder_b: str, file: str | None = None) -> tuple[str, Table, Table]:
    """Returns the name of the compared file, and its columns in both folders.

    The default file is the first of `FILES` that both folders have.
    """
    folders, names = (folder_a, folder_b), [file] if file else FILES
    for folder in folders:
        storage.check_file_system(folder, None)
        if not storage.first_file(folder, names):
            raise UserError(
                f"{folder} must be the --output_dir of a run that evaluated, but it has no"
                f" {' or '.join(names)}; {_EVALUATE}"
            )
    for name in names:
        paths = [os.path.join(folder, name) for folder in folders]
        if all(map(tf.io.gfile.exists, paths)):
            break
    else:
        raise UserError(
            f"{folder_a} and {folder_b} must have evaluated the same file: run both with the same"
            " of --do_eval and --do_predict"
        )
    tables = [read_table(path) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        needed = next((names for names in _NEEDED if names[0] in table), ("label", "prediction"))
        has_several = any(column.startswith(_PROBABILITY_OF) for column in table)
        if not table.keys() >= set(needed) or "" in table[needed[0]] and not has_several:
            raise UserError(
                f"{path} must have {' and '.join(needed)} of every example; {_EVALUATE}"
            )
    _check_same(paths, tables)
    return name, *tables


def _check_same(paths: Sequence[str], tables: Sequence[Table]) -> None:
    a, b = tables
    if list(a) != list(b):
        raise UserError(
            f"The runs must be of the same task: {paths[0]} has the columns {listed(a)},"
            f" {paths[1]} has {listed(b)}"
        )
    # The context of a question is cut around the answer.
    ignored = {*_OUTPUTS, "context"} if "question" in a else _OUTPUTS
    columns = [x for x in a if x not in ignored and not x.startswith(_PROBABILITY_OF)]
    rows = (zip(*(table[column] for column in columns), strict=True) for table in tables)
    for i, pair in enumerate(itertools.zip_longest(*rows)):
        if pair[0] != pair[1]:
            raise UserError(
                "Both runs must have evaluated the same examples in the same order, but example"
                f" {i} (counted from 0) is {quoted(pair[0])} in {paths[0]} and {quoted(pair[1])}"
                f" in {paths[1]}. Evaluate both on one file"
            )
    if not next(iter(a.values())):
        raise UserError(f"{paths[0]} has no examples")


def compare(a: Table, b: Table, num_resamples: int, seed: int) -> Comparison:
    from scipy import stats  # here, because the import takes a second

    (unit, right_a, scores_a), (_, right_b, scores_b) = _scores(a), _scores(b)
    count = len(next(iter(a.values())))
    every = np.arange(count)
    right, p_value = {}, None
    if right_a is not None:
        right = {
            (x, y): int(np.sum((right_a == x) & (right_b == y)))
            for x, y in itertools.product((True, False), repeat=2)
        }
        only_a, only_b = right[True, False], right[False, True]
        test = stats.binomtest(only_a, only_a + only_b) if only_a + only_b else None
        p_value = float(test.pvalue) if test else 1.0
    metrics = []
    for name, of_a in scores_a.items():
        of_b = scores_b[name]
        low = high = of_b(every) - of_a(every)
        if count > 1:
            found = stats.bootstrap(
                [every],
                lambda rows, of_a=of_a, of_b=of_b: of_b(rows) - of_a(rows),
                vectorized=False,
                n_resamples=num_resamples,
                confidence_level=CONFIDENCE,
                method="percentile",
                rng=np.random.default_rng(seed),
            )
            low, high = map(float, found.confidence_interval)
        metrics.append(Metric(name, of_a(every), of_b(every), low, high))
    return Comparison(count, unit, right, p_value, metrics)


def _scores(table: Table) -> Scores:
    if "exact" in table:
        exact, f1 = _numbers(table, "exact"), _numbers(table, "f1")
        scores = {
            "exact match": lambda rows: exact[rows].mean(),
            "F1": lambda rows: f1[rows].mean(),
        }
        return "questions", exact > 0, scores
    if "wrong" in table:
        return _tag_scores(table)
    if "probability" in table:
        return _class_scores(table)
    names = [x.removeprefix(_PROBABILITY_OF) for x in table if x.startswith(_PROBABILITY_OF)]
    return _label_scores(table, names) if names else _number_scores(table)


def _class_scores(table: Table) -> Scores:
    # A run may predict a class that no label has. The class gets no metric, so that both runs have
    # the same metrics.
    classes = np.unique(table["label"])
    wanted, found = (np.array(table[x])[:, None] == classes for x in ("label", "prediction"))
    right, f1 = (wanted == found).all(axis=1), _f1(wanted, found)
    scores: dict[str, Score] = {"accuracy": lambda rows: right[rows].mean()}
    scores["macro F1"] = lambda rows: f1(rows, 0).mean()
    if len(classes) == 2:
        for i, name in enumerate(classes):
            scores[f"F1 of {name}"] = lambda rows, i=i: f1(rows, 0)[i]
    return "examples", right, scores


def _label_scores(table: Table, names: Sequence[str]) -> Scores:
    wanted, found = (_label_matrix(table[column], names) for column in ("label", "prediction"))
    right, f1 = (wanted == found).all(axis=1), _f1(wanted, found)
    scores = {
        "all labels right": lambda rows: right[rows].mean(),
        "micro F1": lambda rows: f1(rows, None),
        "macro F1": lambda rows: f1(rows, 0).mean(),
    }
    return "examples", right, scores


def _f1(wanted: np.ndarray, found: np.ndarray) -> Callable[[np.ndarray, int | None], np.ndarray]:
    """Returns a function: rows -> the F1 of each class (axis 0), or of all together (axis None).

    `wanted` and `found` are bool [examples, classes].
    """
    hits, sizes = wanted & found, wanted.astype(int) + found

    def f1(rows: np.ndarray, axis: int | None) -> np.ndarray:
        return 2 * hits[rows].sum(axis=axis) / np.maximum(sizes[rows].sum(axis=axis), 1)

    return f1


def _label_matrix(cells: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Returns whether each example has each label, bool [examples, labels].

    The labels in a cell are separated by a character that occurs in none of them.
    """
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    label = re.compile(rf"\s*({'|'.join(longest_first)})\s*(?:.|$)")
    matrix = np.zeros([len(cells), len(names)], bool)
    for i, text in enumerate(cells):
        place = 1 if text.startswith("'") and not label.match(text) else 0
        while place < len(text):
            found = label.match(text, place)
            if not found:
                raise UserError(f"Example {i} (counted from 0) has unknown labels: {quoted(text)}")
            matrix[i, names.index(found[1])] = True
            place = found.end()
    return matrix


def _numbers(table: Table, column: str) -> np.ndarray:
    return np.array(table[column], np.float64)


def _number_scores(table: Table) -> Scores:
    labels, predicted = _numbers(table, "label"), _numbers(table, "prediction")
    scores: dict[str, Score] = {
        "Pearson": lambda rows: pearson(labels[rows], predicted[rows]),
        "Spearman": lambda rows: spearman(labels[rows], predicted[rows]),
    }
    if "rank_difference" not in table:  # otherwise labels and cosines have different scales
        errors = np.abs(predicted - labels)
        scores[_ABSOLUTE_ERROR] = lambda rows: errors[rows].mean()
    return "examples", None, scores


def _tag_scores(table: Table) -> Scores:
    counts = []
    for cells in zip(table["label"], table["prediction"], strict=True):
        pair = [cell.split(" ") for cell in cells]
        wanted, found = (set(entities(tags)) for tags in pair)
        hits = sum(x == y for x, y in zip(*pair, strict=True))
        counts.append((len(wanted & found), len(wanted) + len(found), hits, len(pair[0])))
    sums = np.array(counts)

    def share(rows: np.ndarray, part: int, whole: int, factor: int) -> float:
        return factor * sums[rows, part].sum() / max(sums[rows, whole].sum(), 1)

    right = sums[:, 2] == sums[:, 3]
    scores = {
        "entity F1": lambda rows: share(rows, 0, 1, 2),
        "accuracy of words": lambda rows: share(rows, 2, 3, 1),
        "sentences without a mistake": lambda rows: right[rows].mean(),
    }
    return "sentences", right, scores


def sentences(found: Comparison) -> str:
    lines = [f"Both have the same {found.num_examples:,} {found.unit}."]
    if found.p_value is not None:
        right, unit = found.right, found.unit
        often = "rarely" if found.p_value < 1.0 - CONFIDENCE else "often"
        lines += [
            f"B is right on {_count(right[False, True], unit)} where A is wrong; A is right on"
            f" {_count(right[True, False], unit)} where B is wrong.",
            f"Both are right on {right[True, True]:,} and wrong on {right[False, False]:,}.",
            f"McNemar's exact test: p = {found.p_value:.3g}. Two equally good models would {often}"
            " differ so much.",
        ]
    lines.append("")
    for metric in found.metrics:
        lines.append(
            f"{metric.name}: A {metric.a:.4f}, B {metric.b:.4f}; B - A = {metric.difference:+.4f},"
            f" 95% interval {metric.low:+.4f} to {metric.high:+.4f}: {_verdict(metric)}."
        )
    return "\n".join(lines)


def _count(number: int, unit: str) -> str:
    return f"1 {unit.removesuffix('s')}" if number == 1 else f"{number:,} {unit}"


def _verdict(metric: Metric) -> str:
    if metric.low <= 0.0 <= metric.high:
        return "these examples do not show which is better"
    is_lower_better = metric.name == _ABSOLUTE_ERROR
    return "B is better" if (metric.difference > 0) != is_lower_better else "A is better"


def check_words(words: Sequence[str]) -> None:
    if len(words) != 2:
        raise UserError(
            f"name the --output_dir of two runs: python -m tools.compare_runs A B; got {len(words)}"
        )


def main(words: Sequence[str]) -> None:
    name, a, b = read_pair(*words, FLAGS.file)
    print(f"A: {words[0]}\nB: {words[1]}\nfile: {name}\n")
    print(sentences(compare(a, b, FLAGS.num_resamples, FLAGS.random_seed)))


if __name__ == "__main__":
    flags.DEFINE_string(
        "file",
        None,
        "The file to compare, such as eval_predictions_mismatched.tsv. Default:"
        " eval_predictions.tsv, else predictions.tsv.",
    )
    flags.DEFINE_integer(
        "num_resamples", 2000, "Samples of the examples, with replacement.", lower_bound=100
    )
    flags.DEFINE_integer("random_seed", 12345, "Seed of these samples.", lower_bound=0)
    command_flags.run_program(main, takes_words=True, check_words=check_words)
