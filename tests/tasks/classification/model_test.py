"""Tests of bert_tf.tasks.classification.model, against the numpy model."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.classification.model import ClassificationModel
from tests.support import numpy_bert
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.small_pretraining import SMALL, S, difference

B = 5


def make_features(num_labels, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, S + 1, size=(B, 1))
    labels = rng.integers(0, num_labels, B) if num_labels else rng.uniform(0, 5, B)
    return {
        "input_ids": rng.integers(0, 53, (B, S), dtype=np.int32),
        "input_mask": (np.arange(S) < lengths).astype(np.int32),
        "segment_ids": rng.integers(0, 4, (B, S), dtype=np.int32),
        "label_ids": labels.astype(np.int32 if num_labels else np.float32),
        "is_real_example": np.ones(B, np.int32),
    }


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


@pytest.mark.parametrize("num_labels", [2, 3])
def test_classes(num_labels):
    model, weights, reference = make(num_labels)
    features = make_features(num_labels)
    logits = numpy_logits(weights, reference, features)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    losses = -np.log(probabilities[np.arange(B), features["label_ids"]])
    rows = predict(model, features)
    assert difference(rows["outputs"], probabilities) < 1e-5
    assert difference(rows["per_example_loss"], losses) < 1e-5
    np.testing.assert_array_equal(rows["label_ids"], features["label_ids"])
    loss, sums = compute(model, features)
    assert difference(loss, losses.mean()) < 1e-5
    right, count = sums["accuracy"]
    assert right == np.sum(np.argmax(logits, -1) == features["label_ids"]) and count == B


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
