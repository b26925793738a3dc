"""Tests of weights of classes and examples: bert_tf.tasks.class_weights and scores."""

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
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.task import ExampleSet


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
    with pytest.raises(UserError, match=re.escape(message)):
        check_class_settings(text.split(","), 0.0, ["bad", "good"])


def test_a_regression_has_no_classes_to_weigh_or_smooth():
    check_class_settings(None, 0.0, None)
    for name, values in (("class_weights", (["balanced"], 0.0)), ("label_smoothing", (None, 0.1))):
        check_class_settings(*values, ["0", "1"])
        message = f"--{name} is for classes, and this task predicts a number .*; leave --{name} out"
        with pytest.raises(UserError, match=message):
            check_class_settings(*values, None)
    for value in (-0.1, 1.0, 1.5, float("nan")):
        message = f"--label_smoothing={value} must be a finite number of at least 0 and below 1"
        with pytest.raises(UserError, match=message):
            ClassifierSettings(output_dir="unused", vocab_file="unused", label_smoothing=value)


def example_set(name, labels, weights=None):
    weights = weights or [None] * len(labels)
    pairs = zip(labels, weights, strict=True)
    return ExampleSet(
        name,
        [InputExample(f"{name}-1", "a", None, label, weight=weight) for label, weight in pairs],
    )


def weights_of(example_set):
    return [example.weight for example in example_set.examples]


def test_class_weights_multiply_the_weights_of_training_examples_only():
    sets = {"train": [example_set("train", "aab")], "eval": [example_set("dev", "b")]}
    weigh(sets, None, ["a", "b"])
    assert weights_of(sets["train"][0]) == [None] * 3 and weights_of(sets["eval"][0]) == [None]
    training, dev = example_set("train", "aaab", [2.0, None, 0.0, 4.0]), example_set("dev", "ab")
    before = list(training.examples)
    weigh({"train": [training], "eval": [dev]}, ["balanced"], ["a", "b", "c"])
    assert weights_of(training) == pytest.approx([2 * 4 / 6, 4 / 6, 0.0, 4 * 4 / 2])
    assert weights_of(dev) == [1.0, 1.0]
    assert [example.weight for example in before] == [2.0, None, 0.0, 4.0]  # they may serve again
    training, dev = example_set("train", "ab"), example_set("dev", "ab", [None, 0.5])
    weigh({"train": [training], "eval": [dev]}, None, ["a", "b"])
    assert weights_of(training) == [1.0, 1.0] and weights_of(dev) == [1.0, 0.5]


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
    with pytest.raises(UserError, match=message):
        weigh({"train": [example_set("train", labels, weights)]}, given, ["a", "b"])


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
