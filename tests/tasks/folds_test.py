"""Tests of cross-validation: bert_tf.tasks.splits and bert_tf.tasks.fine_tuning."""

import collections
import gc
import json
import os
import random
import re
import shutil
import statistics

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.runs.folder import reporting
from bert_tf.runs.results.tables import read_table
from bert_tf.tasks import fine_tuning
from bert_tf.tasks.splits import divide
from bert_tf.tasks.task import Evaluated, FoldKey
from tests.support.refusals import refuses
from tests.support.registered_tasks import REVIEWS, run_in, task_with
from tests.support.small_classification import write_reviews


def keys_of(sizes, group=lambda i: None):
    labels = [label for label, size in sizes.items() for _ in range(size)]
    return [FoldKey(label and (label,), f"{label} {i}", group(i)) for i, label in enumerate(labels)]


def counts_of(keys, folds):
    return [collections.Counter(label for i in held for label in keys[i].labels) for held in folds]


@pytest.mark.parametrize(
    "sizes, folds", [({"a": 50, "b": 10}, 5), ({"a": 7, "b": 4, "c": 9}, 4), ({"x": 2, "y": 2}, 2)]
)
def test_every_fold_has_its_share_of_each_class(sizes, folds):
    keys = keys_of(sizes)
    found = divide(keys, folds)
    assert sorted(i for held in found for i in held) == list(range(len(keys)))
    for label, size in sizes.items():
        shares = {counts[label] for counts in counts_of(keys, found)}
        assert shares <= {size // folds, -(-size // folds)}


@pytest.mark.parametrize("label", ["class", None])
def test_the_order_of_the_file_does_not_matter(label):
    keys = [FoldKey(label and (f"{label} {i % 3}",), f"text {i}") for i in range(40)]
    shuffled = random.Random(1).sample(keys, len(keys))
    found = [[{of[i].text for i in held} for held in divide(of, 4)] for of in (keys, shuffled)]
    assert found[0] == found[1]
    assert [len(held) for held in found[0]] == [10] * 4
    firsts = [sorted(held)[0] for held in divide(keys, 4)]
    assert firsts != [0, 10, 20, 30]  # not in the order of the file, which may be sorted


def test_copies_of_a_text_are_in_one_fold():
    forms = ("Text", "text", "TEXT")
    keys = [FoldKey(("ab"[i % 2],), f"{forms[i // 20]} {i % 20}") for i in range(60)]
    for held in divide(keys, 4):
        texts = collections.Counter(keys[i].text.lower() for i in held)
        assert set(texts.values()) == {3}
    assert [counts["a"] for counts in counts_of(keys, divide(keys, 5))] == [6] * 5


def several(count, seed, num_labels=6, group=lambda i: None):
    """Texts with any of some labels, each rarer than the one before."""
    rng = random.Random(seed)
    shares = {name: 0.5 / (i + 1) ** 1.2 for i, name in enumerate("fedcba"[:num_labels])}
    labels = [tuple(x for x in sorted(shares) if rng.random() < shares[x]) for _ in range(count)]
    return [FoldKey(several, f"text {i}", group(i)) for i, several in enumerate(labels)]


def spread(keys, folds, label):
    """Returns how much folds differ in their number of a label."""
    return np.ptp([one[label] for one in counts_of(keys, folds)])


@pytest.mark.parametrize("count, folds, seed", [(200, 5, 0), (600, 3, 1), (1000, 10, 2)])
def test_every_fold_has_its_share_of_each_of_several_labels(count, folds, seed):
    keys = several(count, seed)
    found = divide(keys, folds)
    assert {len(held) for held in found} <= {count // folds, -(-count // folds)}
    plain = divide([key._replace(labels=None) for key in keys], folds)
    totals = collections.Counter(label for key in keys for label in key.labels)
    assert spread(keys, found, min(totals, key=totals.get)) <= 1
    assert all(spread(keys, found, x) <= max(5, 0.1 * total) for x, total in totals.items())
    ours, theirs = (sum(spread(keys, x, label) for label in totals) for x in (found, plain))
    assert ours < 0.75 * theirs
    shuffled = random.Random(1).sample(keys, count)
    texts = [{keys[i].text for i in held} for held in found]
    assert texts == [{shuffled[i].text for i in held} for held in divide(shuffled, folds)]


def test_strata_of_several_labels(recwarn):
    common, rare = ("a",), ("a", "b")
    keys = [*[common] * 6, *[()] * 6, *[rare] * 2, ("b",), ("b", "c"), *[("c",)] * 3]
    keys = [FoldKey(labels, f"text {i}") for i, labels in enumerate(keys)]
    found = divide(keys, 3)
    for labels, count in ((common, 2), ((), 2), (("c",), 1)):  # those in three texts or more
        assert [sum(keys[i].labels == labels for i in held) for held in found] == [count] * 3
    # The other four texts have b as their rarest label.
    assert sorted(one["b"] for one in counts_of(keys, found)) == [1, 1, 2] and not recwarn.list


def test_groups_with_several_labels():
    keys = several(400, 4, 3, lambda i: f"author {i % 40}")
    found = divide(keys, 4)
    plain = divide([key._replace(labels=None) for key in keys], 4)
    for folds in (found, plain):
        assert len({(keys[i].group, n) for n, held in enumerate(folds) for i in held}) == 40
    ours, theirs = (sum(spread(keys, x, label) for label in "fed") for x in (found, plain))
    assert ours < 0.75 * theirs


BAD = [
    (
        keys_of({"good": 9, "so so": 2, "bad": 3}),
        "--folds=3 must be at most 2, the number of examples of the rarest class, 'so so': every"
        " fold needs one to evaluate. Give fewer folds, or more examples",
    ),
    (keys_of({None: 2}), "--folds=3 must be at most 2, the number of examples: every"),
    (
        keys_of({"a": 9, "b": 9}, lambda i: f"g{i % 2}"),
        "--folds=3 must be at most 2, the number of groups: each belongs to one fold",
    ),
    (
        [FoldKey(("ab"[i % 2],), "same" if i else "other") for i in range(8)],
        "--folds=3 must be at most 2, the number of different texts",
    ),
    (
        keys_of({"a": 9, "b": 4}, lambda i: f"g{i % 4}" if i < 9 else "g7"),
        "--folds=3 must leave examples of every class to train on; all 4 examples of 'b' are in one"
        " group. Add other examples of that class",
    ),
    (
        [FoldKey(("a", "b") if i < 2 else ("b",), f"{i}") for i in range(9)],
        "--folds=3 must be at most 2, the number of examples of the rarest class, 'a'",
    ),
    (
        [FoldKey((), f"{i}") for i in range(2)],
        "--folds=3 must be at most 2, the number of examples: ",
    ),
    (
        [*keys_of({"a": 9}), *[FoldKey(("b",), "b")] * 4],
        "all 4 examples of 'b' have the same text. Add other examples of that class",
    ),
]


@pytest.mark.parametrize("keys, message", BAD)
def test_folds_that_cannot_be(keys, message):
    refuses(re.escape(message), divide, keys, 3)


def test_a_column_of_groups(tmp_path):
    (tmp_path / "train.csv").write_text("text,author,label\na,1,x\nb,2,y\nc,1,x\nd,2,y\n")
    columns = {"text_a_column": "text", "label_column": "label", "fold_group_column": "author"}
    flags = {"data_dir": str(tmp_path), "task_name": "table", "folds": 2, **columns}
    flags |= {"do_train": True, "do_eval": True}
    (train,) = task_with("classification", flags).read_sets("train")
    assert [example.fold_group for example in train.examples] == ["1", "2", "1", "2"]
    (tmp_path / "train.csv").write_text("text,author,label\na,1,x\nb,,y\n")
    with pytest.raises(UserError, match="line 3: the line has no group; fill it in"):
        task_with("classification", flags).read_sets("train")
    message = "--fold_group_column=author needs --folds: it keeps the"
    refuses(message, task_with, "classification", {**flags, "folds": 0, "dev_fraction": 0.5})


FLAGS = {**REVIEWS, "do_train": True, "do_eval": True}


class FakeRuns(list):
    """The settings and the examples of runs that train nothing; one of them may be stopped."""

    stopped_fold = None
    accuracies = (0.0, 1.0, 0.5, 0.25, 0.125)

    def run(self, task, config, strategy):
        train, held = (task.read_sets(purpose)[0] for purpose in ("train", "eval"))
        self.append((task.settings, train.examples, held.examples))
        number = int(task.settings.output_dir.rpartition("-")[2])
        if number == self.stopped_fold:
            raise KeyboardInterrupt
        labels = np.array([["bad", "good"].index(example.label) for example in held.examples])
        os.makedirs(task.settings.output_dir, exist_ok=True)
        answers = 1 - labels if number == 1 else labels  # all answers of the first fold are wrong
        outputs = np.eye(2)[answers] * 0.8 + 0.1
        found = {"label_ids": labels, "outputs": outputs, "per_example_loss": labels * 0.5}
        results = {"eval_accuracy": self.accuracies[number - 1], "global_step": 7}
        return results, [(held, Evaluated(results, found))]


def validate(reviews, config=None, folds=2, **flags):
    return run_in(reviews, "classification", config, folds=folds, **FLAGS | flags)


@pytest.fixture
def reviews(tmp_path):
    return write_reviews(tmp_path)


def read_lines(reviews):
    return (reviews / "train.csv").read_text().splitlines()


def write_lines(reviews, *lines):
    (reviews / "train.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def fake_runs(monkeypatch):
    runs = FakeRuns()
    monkeypatch.setattr(fine_tuning, "_run", runs.run)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # it takes long in a process of many tests
    return runs


def test_results_of_folds_and_what_a_second_run_repeats(reviews, fake_runs):
    out = reviews / "out"
    fake_runs.stopped_fold = 4
    with pytest.raises(KeyboardInterrupt):
        validate(reviews, folds=5)
    assert len(fake_runs) == 4 and not (out / "eval_results.txt").exists()
    fake_runs.stopped_fold = None
    fake_runs.pop()
    results = validate(reviews, folds=5)
    mean, spread = statistics.fmean(FakeRuns.accuracies), np.std(FakeRuns.accuracies, ddof=1)
    expected = {"eval_accuracy": mean, "eval_accuracy_std": spread}
    assert results == pytest.approx(expected)
    assert reporting.read_results(f"{out}/eval_results.txt") == pytest.approx(expected)
    folders = [settings.output_dir for settings, _, _ in fake_runs]
    assert folders == [f"{out}/fold-{number}" for number in (1, 2, 3, 4, 5)]
    for settings, train, held in fake_runs:
        assert settings.folds == 0 and len(train) == 72 and len(held) == 18
        assert not {example.guid for example in train} & {example.guid for example in held}
    table = read_table(f"{out}/eval_predictions.tsv")
    lines = read_lines(reviews)[1:]
    assert table["text_a"] == [line.split(",")[0] for line in lines]
    assert table["label"] == [line.split(",")[1] for line in lines]
    wrong = {example.guid for example in fake_runs[0][2]}
    columns = (table[name] for name in ("id", "label", "prediction"))
    assert {x for x, a, b in zip(*columns, strict=True) if a != b} == wrong
    assert len(read_table(f"{out}/errors.tsv")["id"]) == 18
    assert json.loads((out / "eval_report.json").read_text())["examples"] == 90


CHANGES = {"labels": ["good", "bad"], "keep_best": True, "early_stopping_patience": 2}
CHANGES |= {"dtype": "bfloat16", "evaluate_every_steps": 3, "gradient_accumulation_steps": 2}
CHANGES |= {"recompute_activations": True, "eval_batch_size": 4, "weight_column": "trust"}
CHANGES |= {"long_text": "max", "label_smoothing": 0.1, "text_b_column": "author", "folds": 3}
CHANGES |= {"learning_rate": 1e-3}


def test_folds_of_other_runs_are_not_mixed(reviews, fake_runs):
    """No list names the settings: all count but a few."""
    header, *lines = read_lines(reviews)
    lines = [f"{header},trust,author", *(f"{line},1,Ann" for line in lines)]
    write_lines(reviews, *lines)
    flags = {"evaluate_every_steps": 2}
    validate(reviews, **flags)
    for name, value in CHANGES.items():
        message = f"has folds of a run that differs in .*--{name}\\b.*; their results must not be m"
        refuses(message, validate, reviews, **flags | {name: value})
    write_lines(reviews, *lines[:-1])
    refuses("differs in the training examples; ", validate, reviews, **flags)
    assert len(fake_runs) == 2


def test_settings_that_change_no_result(reviews, fake_runs):
    validate(reviews)
    (reviews / "moved").mkdir()
    for name in ("train.csv", "vocab.txt"):
        (reviews / name).rename(reviews / "moved" / name)
    flags = {"save_checkpoints_steps": 7, "keep_checkpoint_max": 1, "iterations_per_loop": 3}
    flags |= {"data_dir": reviews / "moved", "vocab_file": reviews / "moved/vocab.txt"}
    flags |= {"labels": ["bad", "good"], "dtype": "float32"}  # as they were by default
    validate(reviews, **flags)
    assert len(fake_runs) == 2
    # A flag that came later, with its default.
    note = json.loads((reviews / "out/folds.json").read_text())
    del note["--label_smoothing"]
    (reviews / "out/folds.json").write_text(json.dumps(note))
    validate(reviews, **flags)
    config = {"initializer_range": 0.5}
    refuses("differs in --bert_config_file; ", validate, reviews, config, **flags)
    words = (reviews / "moved/vocab.txt").read_text().split()
    (reviews / "moved/vocab.txt").write_text("\n".join([*words[:-2], *words[:-3:-1]]) + "\n")
    refuses("differs in --vocab_file; ", validate, reviews, **flags)


def test_a_run_that_ended_before_its_first_checkpoint_binds_nobody(reviews, fake_runs):
    fake_runs.stopped_fold = 1
    with pytest.raises(KeyboardInterrupt):
        validate(reviews, max_seq_length=39)
    fake_runs.stopped_fold = None
    validate(reviews)
    refuses("differs in --max_seq_length; ", validate, reviews, max_seq_length=39)


def test_weights_and_groups_of_finished_folds(reviews, fake_runs):
    table = read_lines(reviews)
    flags = {"group_column": "query", "fold_group_column": "author", "weight_column": "w"}

    def run(weight, query):
        queries = [query if i == 2 else i // 9 for i in range(len(table))]
        lines = [f"{line},a{i // 10},{queries[i]},1" for i, line in enumerate(table)]
        lines = [f"{table[0]},author,query,w", *lines[1:-1], f"{lines[-1][:-1]}{weight}"]
        write_lines(reviews, *lines)
        validate(reviews, **flags)

    run(1, 0)
    for changed in ((2, 0), (1, 5)):
        refuses("differs in the training examples; ", run, *changed)
    assert len(fake_runs) == 2


def test_all_folds_are_checked_before_the_first(reviews, fake_runs):
    header, *lines = read_lines(reviews)
    keys = [FoldKey((line.split(",")[1],), line.split(",")[0] + "\n") for line in lines]
    last = divide(keys, 5)[-1]
    rows = [f"{line},{int(i not in last)}" for i, line in enumerate(lines)]
    write_lines(reviews, f"{header},w", *rows)
    message = "^Fold 5 of --folds=5: The weights of the examples to eval must have a sum above 0;"
    refuses(message, validate, reviews, folds=5, weight_column="w")
    rows = [f"{line.split(',')[0]},{int(i < 10)},{i // 10}" for i, line in enumerate(lines)]
    write_lines(reviews, "review,stars,query", *rows)
    message = r"Fold \d of --folds=4: With --group_column at least one group of"
    refuses(message, validate, reviews, folds=4, group_column="query", regression=True)
    write_lines(reviews, header, *lines)
    few = {"train_batch_size": 99, "num_train_epochs": 1.0}
    message = "Fold 1 of --folds=4: Training must have at least one st"
    refuses(message, validate, reviews, folds=4, **few)
    assert not fake_runs and not (reviews / "out").exists()


@pytest.mark.slow
def test_a_fold_is_a_run_on_the_rest(reviews, tmp_path):
    """The same figures as a run with the fold's lines as dev file."""
    flags = {**FLAGS, "max_seq_length": 24, "num_train_epochs": 1.0, "learning_rate": 5e-3}
    results = validate(reviews, **flags)
    header, *lines = read_lines(reviews)
    keys = [FoldKey((line.split(",")[1],), line.split(",")[0] + "\n") for line in lines]
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("vocab.txt", "bert_config.json"):
        shutil.copy(reviews / name, plain)
    losses = []
    for held in divide(keys, 2):
        rest = [line for i, line in enumerate(lines) if i not in held]
        (plain / "train.csv").write_text("\n".join([header, *rest]) + "\n")
        (plain / "dev.csv").write_text("\n".join([header, *(lines[i] for i in held)]) + "\n")
        found = run_in(plain, "classification", **flags, output_dir=f"{plain}/{len(losses)}")
        losses.append(found["eval_loss"])
    assert results["eval_loss"] == pytest.approx(statistics.fmean(losses), rel=1e-6)
    assert results["eval_loss_std"] == pytest.approx(statistics.stdev(losses), rel=1e-5)
    assert losses[0] != losses[1]


def test_means_of_measures_and_the_number_of_all_groups():
    folds = [{"eval_map": value, "eval_groups": n} for value, n in ((0.5, 7), (1.0, 4))]
    folds = [{**fold, "global_step": 9} for fold in folds]
    expected = {"eval_map": 0.75, "eval_map_std": 0.5 / 2**0.5, "eval_groups": 11}
    assert fine_tuning._mean_and_spread(folds) == pytest.approx(expected)
