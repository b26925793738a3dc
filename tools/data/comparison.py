"""Compares two runs on the same examples: McNemar's test, and a paired bootstrap of each metric."""

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_tf.engine.correlation import pearson, spearman
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import storage
from bert_tf.runs.results.review import EVALUATED
from bert_tf.runs.results.tables import read_table
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.tagging.entities import entities

FILES = (f"{EVALUATED}.tsv", "predictions.tsv")
CONFIDENCE = 0.95

Table = Mapping[str, Sequence[str]]
# Examples, as their numbers, int [any] -> a score of one run on them.
Score = Callable[[np.ndarray], float]
# What an example is; which examples are right, None for a regression; the metrics by their names.
Scores = tuple[str, np.ndarray | None, dict[str, Score]]

# The columns that a model made; the others must be equal in both runs.
_OUTPUTS = {"prediction", "probability", "difference", "rank_difference", "wrong", "loss"}
_OUTPUTS |= {"answer", "exact", "f1"}  # of a question
# The rest of the name of a column is a label, if an example can have several.
_PROBABILITY_OF = "probability "
# Labels, and what goes with them: of questions, of sentences with tags, of all else.
_NEEDED = (("exact", "f1"), ("tags", "prediction"), ("label", "prediction"))

_ABSOLUTE_ERROR = "mean absolute error"  # the only metric that is better if it is lower


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of two runs. `difference` is B's score minus A's, `low` and `high` its interval."""

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
    """Two runs on the same examples.

    Attributes:
        num_examples: their number.
        unit: what is right or wrong: examples, sentences, questions.
        right: numbers of examples by whether A and whether B is right; {} for a regression.
        p_value: of McNemar's exact test; None for a regression.
        metrics: the metrics of both.
    """

    num_examples: int
    unit: str
    right: dict[tuple[bool, bool], int]
    p_value: float | None
    metrics: list[Metric]


def read_pair(folder_a: str, folder_b: str, file: str | None = None) -> tuple[str, Table, Table]:
    """Returns the name of the compared file, and its columns in both folders.

    Args:
        file: the file's name; None for the first of `FILES` that both folders have.

    Raises:
        UserError: a folder lacks the file, both are one folder, the file has no labels, or the
            examples differ.
    """
    if os.path.realpath(folder_a) == os.path.realpath(folder_b):
        raise UserError(
            f"{folder_a} and {folder_b} are one folder; name the --output_dir of two runs"
        )
    for folder in (folder_a, folder_b):
        storage.check_file_system(folder, None)
    names = [file] if file else list(FILES)
    has = {
        folder: [name for name in names if tf.io.gfile.exists(os.path.join(folder, name))]
        for folder in (folder_a, folder_b)
    }
    for folder, found in has.items():
        if not found:
            raise UserError(
                f"{folder} must be the --output_dir of a run that has evaluated, but it has no"
                f" {' or '.join(names)}; evaluate with --do_eval, or predict a test file that has"
                " labels"
            )
    both = [name for name in has[folder_a] if name in has[folder_b]]
    if not both:
        raise UserError(
            f"The runs must have evaluated the same file: {folder_a} has {has[folder_a][0]},"
            f" {folder_b} has {has[folder_b][0]}. Run both with the same of --do_eval and"
            " --do_predict"
        )
    name = both[0]
    paths = [os.path.join(folder, name) for folder in (folder_a, folder_b)]
    tables = [read_table(path) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        needed = next((names for names in _NEEDED if names[0] in table), None)
        labels = table[needed[0]] if needed else None
        may_be_empty = any(map(_is_output, table.keys() - _OUTPUTS))
        if labels is None or ("" in labels and not may_be_empty):
            which = "labels" if labels is None else f"label for example {labels.index('')}"
            raise UserError(
                f"{path} has no {which}; evaluate with --do_eval, or predict a test file that has"
                " labels"
            )
        if needed[1] not in table:
            raise UserError(f"{path} has no column {quoted(needed[1])}; evaluate again")
    _check_same(paths, tables)
    return name, *tables


def _is_output(column: str) -> bool:
    return column in _OUTPUTS or column.startswith(_PROBABILITY_OF)


def _check_same(paths: Sequence[str], tables: Sequence[Table]) -> None:
    """Raises UserError at the first example that differs."""
    a, b = tables
    if list(a) != list(b):
        raise UserError(
            f"The runs must be of the same task: {paths[0]} has the columns {listed(a)},"
            f" {paths[1]} has {listed(b)}"
        )
    # The context of a question is cut around the answer.
    ignored = {"context"} if "question" in a else set()
    columns = [name for name in a if not _is_output(name) and name not in ignored]
    differences = (
        (i, column)
        for column in columns
        for i, (cell_a, cell_b) in enumerate(zip(a[column], b[column], strict=False))
        if cell_a != cell_b
    )
    if first := min(differences, default=None):
        i, column = first
        raise UserError(
            "Both runs must have evaluated the same examples in the same order, but example"
            f" {i} (counted from 0) differs: its {column} is {quoted(a[column][i])} in {paths[0]}"
            f" and {quoted(b[column][i])} in {paths[1]}. Evaluate both on one file"
        )
    lengths = [len(next(iter(table.values()))) for table in tables]
    if lengths[0] != lengths[1]:
        raise UserError(
            f"Both runs must have evaluated the same examples, but {paths[0]} has {lengths[0]} and"
            f" {paths[1]} has {lengths[1]}. Evaluate both on one file"
        )
    if not lengths[0]:
        raise UserError(f"{paths[0]} has no examples")


def compare(a: Table, b: Table, num_resamples: int, seed: int) -> Comparison:
    """Returns the comparison of two tables of the same examples.

    Args:
        num_resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    from scipy import stats  # here, because that takes a second

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
        p_value = 1.0
        if only_a + only_b:
            p_value = float(stats.binomtest(only_a, only_a + only_b).pvalue)
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
    if "tags" in table:
        return _tag_scores(table)
    if "probability" in table:
        return _class_scores(table)
    names = [x.removeprefix(_PROBABILITY_OF) for x in table if x.startswith(_PROBABILITY_OF)]
    return _label_scores(table, names) if names else _number_scores(table)


def _class_scores(table: Table) -> Scores:
    # Not only the labels: a class may be predicted that no example has. Sorted, both runs have the
    # same metrics; a class that only one of them predicts has no label, so no F1 of its own.
    classes, labels = np.unique(table["label"], return_inverse=True)
    numbers = {name: i for i, name in enumerate(classes)}
    predicted = np.array([numbers.get(x, len(classes)) for x in table["prediction"]])
    right = labels == predicted

    def f1s(rows: np.ndarray) -> np.ndarray:
        size = len(classes) + 1
        hits = np.bincount(labels[rows][right[rows]], minlength=size)
        total = np.bincount(labels[rows], minlength=size) + np.bincount(predicted[rows], None, size)
        return (2 * hits / np.maximum(total, 1))[:-1]

    scores: dict[str, Score] = {"accuracy": lambda rows: right[rows].mean()}
    scores["macro F1"] = lambda rows: f1s(rows).mean()
    if len(classes) == 2:
        for i, name in enumerate(classes):
            scores[f"F1 of {name}"] = lambda rows, i=i: f1s(rows)[i]
    return "examples", right, scores


def _label_scores(table: Table, names: Sequence[str]) -> Scores:
    wanted, found = (_label_matrix(table[column], names) for column in ("label", "prediction"))
    hits, sizes = wanted & found, wanted.astype(int) + found
    right = (wanted == found).all(axis=1)

    def f1(rows: np.ndarray, axis: int | None) -> float:
        total = np.maximum(sizes[rows].sum(axis=axis), 1)
        return float(np.mean(2 * hits[rows].sum(axis=axis) / total))

    scores = {
        "all labels right": lambda rows: right[rows].mean(),
        "micro F1": lambda rows: f1(rows, None),
        "macro F1": lambda rows: f1(rows, 0),
    }
    return "examples", right, scores


def _label_matrix(cells: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Returns whether each example has each label, bool [examples, labels].

    A cell has labels with one character between them, which is in none of them.
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
    """Returns a column as float64 [examples]; UserError if a cell is not a finite number."""
    values = np.full(len(table[column]), np.nan)
    for i, cell in enumerate(table[column]):
        with contextlib.suppress(ValueError):
            values[i] = float(cell)
        if not np.isfinite(values[i]):
            raise UserError(
                f"{column} must be a finite number in every example; that of example {i} (counted"
                f" from 0) is {quoted(cell)}"
            )
    return values


def _number_scores(table: Table) -> Scores:
    labels, predicted = _numbers(table, "label"), _numbers(table, "prediction")
    scores: dict[str, Score] = {
        "Pearson": lambda rows: pearson(labels[rows], predicted[rows]),
        "Spearman": lambda rows: spearman(labels[rows], predicted[rows]),
    }
    if "rank_difference" not in table:  # else labels and cosines have different scales
        errors = np.abs(predicted - labels)
        scores[_ABSOLUTE_ERROR] = lambda rows: errors[rows].mean()
    return "examples", None, scores


def _tag_scores(table: Table) -> Scores:
    counts = []
    for i, cells in enumerate(zip(table["tags"], table["prediction"], strict=True)):
        pair = [cell.split(" ") for cell in cells]
        if len(pair[0]) != len(pair[1]):
            raise UserError(
                f"Each word must have a tag and a prediction, but example {i} (counted from 0) has"
                f" {len(pair[0])} tags and {len(pair[1])} predictions; evaluate again"
            )
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
    """Returns a comparison in plain sentences."""
    lines = [f"Both have the same {found.num_examples:,} {found.unit}."]
    if found.p_value is not None:
        right, unit = found.right, found.unit
        lines += [
            f"B is right on {_count(right[False, True], unit)} where A is wrong; A is right on"
            f" {_count(right[True, False], unit)} where B is wrong.",
            f"Both are right on {right[True, True]:,} and wrong on {right[False, False]:,}.",
            f"McNemar's exact test: p = {found.p_value:.3g}. {_meaning(found.p_value)}",
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


def _meaning(p_value: float) -> str:
    if p_value < 1.0 - CONFIDENCE:
        return "Two equally good models would rarely differ so much."
    return "Two equally good models would often differ so much."


def _verdict(metric: Metric) -> str:
    if metric.low <= 0.0 <= metric.high:
        return "these examples do not show which is better"
    is_lower_better = metric.name == _ABSOLUTE_ERROR
    return "B is better" if (metric.difference > 0) != is_lower_better else "A is better"
