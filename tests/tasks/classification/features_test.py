"""Tests of classification's records, also by the original's steps, and of weights."""

import os
import random
import re

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from bert_tf.errors import UserError
from bert_tf.runs.folder.reporting import mean_losses
from bert_tf.tasks.class_weights import (
    balanced_weights,
    check_class_settings,
    parse_class_weights,
    weigh,
)
from bert_tf.tasks.classification import scores
from bert_tf.tasks.classification.examples import ClassificationEncoder, InputExample
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.task import ExampleSet
from tests.support.encoded import tokenizer_of
from tests.support.original_features import original_features
from tests.support.record_files import read_records
from tests.support.refusals import refuses

TOKENIZER = tokenizer_of("[PAD] [UNK] [CLS] [SEP] a b c d e ##x ##y .".split())


def write(path, examples, label_list, max_seq_length):
    encoder = ClassificationEncoder(TOKENIZER, max_seq_length, label_list)
    return write_records(str(path), examples, encoder)


def test_weights_are_in_records_only_if_asked_for(tmp_path):
    examples = [InputExample("g", "a", "b", "x", weight=0.25)]
    examples.append(InputExample("h", "a", None, "y", weight=1.0))
    labels, found = ["x", "y"], []
    encoders = [ClassificationEncoder(TOKENIZER, 6, labels, weighted=x) for x in (False, True)]
    for encoder in encoders:
        write_records(str(tmp_path / "f"), examples, encoder)
        found.append(read_records(tmp_path / "f"))
    plain, weighted = found
    assert [record.pop("example_weight") for record in weighted] == [[0.25], [1.0]]
    assert plain == weighted and "example_weight" not in encoders[0].schema


def test_numbers_are_labels_of_regression(tmp_path):
    path = tmp_path / "train.tf_record"
    examples = [InputExample("g", "a", "b", 3.75), InputExample("h", "a", "b", 0.0)]
    write(path, examples, None, 5)
    assert [record["label_ids"] for record in read_records(path)] == [[3.75], [0.0]]


@pytest.mark.parametrize("max_seq_length, count", [(4, 200), (5, 200), (12, 2100), (30, 200)])
def test_random_texts_give_what_the_original_gives(tmp_path, max_seq_length, count):
    reference = TOKENIZER.reference
    rng = random.Random(max_seq_length)

    def text():
        # An accent has no token, so some texts are not empty but have no tokens.
        words = ["ax", "b.", "É", "q", "\u0301"]
        return " ".join(rng.choices(words, k=rng.choice((0, 1, 2, 9))))

    labels = ["x", "y", "z"]
    examples = [
        InputExample(f"g{i}", text(), rng.choice([None, text()]), rng.choice(labels))
        for i in range(count)  # 2100: more than one batch of the tokenizer, the last one not full
    ]
    path = tmp_path / "eval.tf_record"
    assert write(path, examples, labels, max_seq_length) == count
    for record, example in zip(read_records(path), examples, strict=True):
        texts = example.text_a, example.text_b
        _, features = original_features(reference, *texts, max_seq_length)
        label_ids = [labels.index(example.label)]
        assert record == {**features, "label_ids": label_ids, "is_real_example": [1]}


def test_the_first_five_are_logged(tmp_path, caplog):
    caplog.set_level("DEBUG", logger="absl")
    examples = [InputExample(f"dev-{i}", "a", "bx", "1") for i in range(7)]
    write(tmp_path / "f", examples, ["0", "1"], 8)
    lines = caplog.messages
    assert lines[:7] == [
        "*** Example ***",
        "guid: dev-0",
        "tokens: [CLS] a [SEP] b ##x [SEP]",
        "input_ids: 2 4 3 5 9 3 0 0",
        "input_mask: 1 1 1 1 1 1 0 0",
        "segment_ids: 0 0 0 1 1 1 0 0",
        "label: 1 (id = 1)",
    ]
    assert lines.count("*** Example ***") == 5


def test_errors(tmp_path):
    path = tmp_path / "f"
    path.write_text("as it was")
    with pytest.raises(UserError, match="--max_seq_length must be at least 4, .*; received 3"):
        write(path, [], ["0"], 3)
    examples = [InputExample("g1", "a", None, "0"), InputExample("g2", "a", None, "maybe")]
    refuses("maybe", write, path, examples, ["0"], 8, kind=KeyError)
    # The earlier file is unchanged, and no temporary file is left.
    assert path.read_text() == "as it was" and len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("counts", [(1, 9), (5, 5, 1), (3, 70, 11, 2)])
def test_balanced_weights_are_scikit_learn_s(counts):
    labels = [f"class {i}" for i, count in enumerate(counts) for _ in range(count)]
    classes = np.unique(labels)
    expected = compute_class_weight("balanced", classes=classes, y=np.array(labels))
    assert balanced_weights(labels) == pytest.approx(dict(zip(classes, expected, strict=True)))


@pytest.mark.parametrize(
    "given, labels, expected",
    [
        (["1", "4.5"], ["bad", "good"], [1.0, 4.5]),
        (["good:4", "bad:1e-3"], ["bad", "good"], [1e-3, 4.0]),
        (["b:0"], ["a", "b", "c"], [1.0, 0.0, 1.0]),
        (["10:20:3"], ["10:20", "10"], [3.0, 1.0]),
        (["0:2", "1:3"], ["0", "1"], [2.0, 3.0]),
    ],
)
def test_class_weights_by_name_or_in_order(given, labels, expected):
    found = parse_class_weights(given, labels)
    assert list(found) == labels and list(found.values()) == expected


RULE = "--class_weights must be balanced, or a number for each of the 2 classes in the order 'bad',"
BAD_WEIGHTS = {
    "1": RULE,
    "1,2,3": RULE,
    "Balanced": RULE,
    "balanced,balanced": "--class_weights: the weight of 'bad' must be a number between 0 and 1e+16"
    "; got 'balanced'",
    "good:2,1": RULE + " 'good', or LABEL:NUMBER for some of them, each once; got 'good:2,1'",
    "great:2": RULE,
    "good:2,good:3": RULE,
    "bad:-1": "the weight of 'bad' must be a number between 0 and 1e+16; got '-1'",
    "1,nan": "the weight of 'good' must be a number between 0 and 1e+16; got 'nan'",
    "good:inf": "the weight of 'good' must be a number between 0 and 1e+16; got 'inf'",
    "good:": "the weight of 'good' must be a number between 0 and 1e+16; got ''",
    "1,1e-50": "the weight of 'good' must be a number",
}


@pytest.mark.parametrize("text, message", BAD_WEIGHTS.items())
def test_class_weights_that_cannot_be(text, message):
    refuses(re.escape(message), check_class_settings, text.split(","), 0.0, ["bad", "good"])


def test_a_regression_has_no_classes_to_weigh_or_smooth():
    check_class_settings(None, 0.0, None)
    for name, values in (("class_weights", (["balanced"], 0.0)), ("label_smoothing", (None, 0.1))):
        check_class_settings(*values, ["0", "1"])
        message = f"--{name} is for classes, and this task predicts a number .*; leave --{name} out"
        refuses(message, check_class_settings, *values, None)


def set_of(name, labels, weights=None):
    weights = weights or [None] * len(labels)
    pairs = zip(labels, weights, strict=True)
    return ExampleSet(
        name,
        [InputExample(f"{name}-1", "a", None, label, weight=weight) for label, weight in pairs],
    )


def weights_of(set_of):
    return [example.weight for example in set_of.examples]


def test_class_weights_multiply_the_weights_of_training_examples_only():
    sets = {"train": [set_of("train", "aab")], "eval": [set_of("dev", "b")]}
    weigh(sets, None, ["a", "b"])
    assert weights_of(sets["train"][0]) == [None] * 3 and weights_of(sets["eval"][0]) == [None]
    training, dev = set_of("train", "aaab", [2.0, None, 0.0, 4.0]), set_of("dev", "ab")
    before = list(training.examples)
    weigh({"train": [training], "eval": [dev]}, ["balanced"], ["a", "b", "c"])
    assert weights_of(training) == pytest.approx([2 * 4 / 6, 4 / 6, 0.0, 4 * 4 / 2])
    assert weights_of(dev) == [1.0, 1.0]
    assert [example.weight for example in before] == [2.0, None, 0.0, 4.0]  # they may serve again
    training, dev = set_of("train", "ab"), set_of("dev", "ab", [None, 0.5])
    weigh({"train": [training], "eval": [dev]}, None, ["a", "b"])
    assert weights_of(training) == [1.0, 1.0] and weights_of(dev) == [1.0, 0.5]
    several = set_of("train", [["a", "b"], [], ("a",)], [0, 1, 2])
    weigh({"train": [several]}, None, ["a", "b"])
    assert weights_of(several) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "labels, weights, given, message",
    [
        ("ab", [0.0, 0.0], None, "the examples to train must have a sum above 0; all 2 are 0"),
        ("aa", None, ["a:0"], "the examples to train must have a sum above 0; all 2 are 0"),
        ("ab", [1.0, -0.5], None, "Example 'train-1': the weight must be .*; got -0.5"),
        ("ab", [float("nan"), 1.0], None, "Example 'train-1': the weight must be .*; got nan"),
        ("ab", ["x", 1.0], None, "Example 'train-1': the weight must be .*; got 'x'"),
    ],
)
def test_weights_of_examples_that_cannot_be(labels, weights, given, message):
    refuses(message, weigh, {"train": [set_of("train", labels, weights)]}, given, ["a", "b"])


@pytest.mark.parametrize("seed", range(3))
def test_whole_weights_count_like_repeated_examples(seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, 23)
    rows = np.repeat(np.arange(23), weights)
    labels, outputs = rng.integers(0, 2, 23), rng.uniform(size=(23, 2)).astype(np.float32)
    names = ("accuracy", "f1", "matthews_correlation")
    found = scores.evaluate(names, labels, outputs, weights.astype(np.float32))
    assert found == pytest.approx(scores.evaluate(names, labels[rows], outputs[rows]))
    assert found != pytest.approx(scores.evaluate(names, labels, outputs))
    values = rng.integers(0, 6, 23).astype(np.float32)  # several are equal
    predictions = np.round(values + rng.normal(size=23), 1).astype(np.float32)
    names = ("pearson", "spearman")
    found = scores.evaluate(names, values, predictions, weights.astype(np.float32))
    assert found == pytest.approx(scores.evaluate(names, values[rows], predictions[rows]))
    assert found != pytest.approx(scores.evaluate(names, values, predictions))
    losses = rng.uniform(size=23)
    found = mean_losses(losses, 23, weights)
    assert found == pytest.approx(mean_losses(losses[rows], len(rows)))
    labels, predictions = np.array([1.0, 1.0, 2.0]), np.array([3.0, 4.0, 5.0])
    for name in names:  # without the example of weight 0 the labels are all equal
        assert scores.METRICS[name](labels, predictions, np.array([1.0, 1.0, 0.0])) == 0.0


def test_the_estimator_s_loss_is_the_mean_of_the_batches_that_count():
    losses, weights = np.array([1.0, 3.0, 5.0, 7.0, 9.0]), np.array([1.0, 3.0, 0.0, 0.0, 2.0])
    found = mean_losses(losses, 2, weights)
    assert found == pytest.approx({"eval_loss": (1 + 9 + 18) / 6, "loss": (2.5 + 9) / 2})
