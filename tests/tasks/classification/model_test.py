"""Tests of bert_tf.tasks.classification.model, against the numpy model."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.classification.model import ClassificationModel
from tests.support import numpy_bert
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.small_pretraining import SMALL, difference, make_inputs

B = 5


def make_features(num_labels):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_labels, B) if num_labels else rng.uniform(0, 5, B)
    label_ids = labels.astype(np.int32 if num_labels else np.float32)
    more = {"label_ids": label_ids, "is_real_example": np.ones(B, np.int32)}
    return {**make_inputs(batch_size=B), **more}


def make(num_labels, **changes):
    """Returns the model, its random weights by name and the numpy model with the same ones."""
    config = {**SMALL, **changes}
    model = ClassificationModel(BertConfig.from_dict(config), num_labels)
    weights = set_random_weights(model, 4)
    return model, weights, numpy_bert.NumpyBert(config, weights)


def pooled_output(reference, features):
    names = ("input_ids", "input_mask", "segment_ids")
    return reference.forward(*(features[name] for name in names))["pooled_output"]


def numpy_logits(weights, reference, features):
    pooled = pooled_output(reference, features)
    return pooled @ weights["output_weights"].T + weights["output_bias"]


def test_regression():
    model, weights, reference = make(1)
    features = make_features(None)
    values = numpy_logits(weights, reference, features)[:, 0]
    rows = predict(model, features)
    assert difference(rows["outputs"], values) < 1e-5
    losses = (values - features["label_ids"]) ** 2
    assert difference(rows["per_example_loss"], losses) < 1e-5
    loss, sums = compute(model, features)
    assert difference(loss, losses.mean()) < 1e-5 and sums == {}


def numpy_loss(logits, label_ids, weights, smoothing):
    """The weighted mean of cross entropies with targets (1 - smoothing) * one_hot + even share."""
    classes = logits.shape[1]
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    targets = (1 - smoothing) * np.eye(classes)[label_ids] + smoothing / classes
    losses = -(targets * log_probabilities).sum(axis=-1)
    return (weights * losses).sum() / weights.sum()


@pytest.mark.parametrize("num_labels, smoothing", [(2, 0.0), (3, 0.25), (7, 0.9)])
def test_classes_weights_and_smoothed_targets(num_labels, smoothing):
    """The loss is divided by the sum of the weights; predictions know neither of them."""
    model, weights, reference = make(num_labels)
    model.label_smoothing = smoothing
    importance = np.array([0.5, 3.0, 0.0, 1.25, 7.0], np.float32)
    plain = make_features(num_labels)
    logits, labels = numpy_logits(weights, reference, plain), plain["label_ids"]
    right = np.argmax(logits, -1) == labels
    for features in (plain, {**plain, "example_weight": importance}):
        weight = features.get("example_weight", np.ones(B))
        loss, sums = compute(model, features)
        assert difference(loss, numpy_loss(logits, labels, weight, smoothing)) < 1e-5
        assert difference(sums["accuracy"], [(weight * right).sum(), weight.sum()]) < 1e-5
    rows = predict(model, features)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    losses = -np.log(probabilities[np.arange(B), labels])
    assert difference(rows["outputs"], probabilities) < 1e-5
    assert difference(rows["per_example_loss"], losses) < 1e-5
    np.testing.assert_array_equal(rows["label_ids"], labels)
    np.testing.assert_array_equal(rows["example_weight"], importance)


def test_a_tenth_of_the_pooled_output_is_dropped_whatever_the_configuration():
    """BERT's own dropout is off, so only the head's changes the logits."""
    model, weights, reference = make(2)
    features = make_features(2)
    pooled = pooled_output(reference, features)
    # Output weights of the identity's first two rows show two of the units as they are.
    chosen = np.zeros([2, 24], np.float32)
    chosen[0, 3] = chosen[1, 17] = 1.0
    model.head.output_weights.assign(chosen)
    model.head.output_bias.assign([0.0, 0.0])
    names = ("input_ids", "input_mask", "segment_ids")
    many = {name: np.tile(features[name], [60, 1]) for name in names}
    logits = model(**many, training=True, dropout_seed=tf.constant([3, 7]))
    ratios = np.asarray(logits) / np.tile(pooled[:, [3, 17]], [60, 1])
    dropped = np.abs(ratios) < 1e-6
    np.testing.assert_allclose(ratios[~dropped], 1 / 0.9, rtol=1e-4)
    assert 0.05 < dropped.mean() < 0.15
