"""Tests of bert_tf.tasks.sentences.model, against the numpy model."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertConfig
from bert_tf.tasks.sentences.loss import in_batch_negatives
from bert_tf.tasks.sentences.model import SentenceModel
from bert_tf.tasks.sentences.schema import IN_BATCH_NEGATIVES
from tests.support import numpy_bert
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.small_pretraining import SMALL, difference, tensors

B, T, S, H = 5, 2, 7, 24


def make_features(seed=0, num_texts=T):
    """Returns the numpy features of a batch, with padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, S, size=(B, num_texts, 1))
    mask = (np.arange(S) < lengths).astype(np.int32)
    return {
        "input_ids": rng.integers(0, 53, (B, num_texts, S), dtype=np.int32),
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "label_ids": rng.uniform(0, 4, B).astype(np.float32),
    }


def make_model(**options):
    """Returns the model and its random weights by name."""
    model = SentenceModel(BertConfig.from_dict(SMALL), **options)
    return model, set_random_weights(model)


@pytest.fixture(scope="module")
def made():
    return make_model(score_scale=4.0)


def expected_vectors(weights, features):
    """Returns float64 [B, T, H]: the mean of each text without its padding, of length 1."""
    bert = numpy_bert.NumpyBert(SMALL, weights)
    num_texts = features["input_ids"].shape[1]
    vectors = np.zeros((B, num_texts, H))
    for t in range(num_texts):
        names = ("input_ids", "input_mask", "segment_ids")
        hidden = bert.forward(*(features[name][:, t] for name in names))["sequence_output"]
        for b in range(B):
            size = features["input_mask"][b, t].sum()
            mean = hidden[b, :size].mean(axis=0)
            vectors[b, t] = mean / np.sqrt(np.sum(mean**2))
    return vectors


def expected_cosines(vectors):
    return np.array([first @ second for first, second in vectors])


def test_vectors_cosines_and_their_loss_are_numpys(made):
    model, weights = made
    features = make_features()
    vectors = expected_vectors(weights, features)
    cosines = expected_cosines(vectors)
    losses = (cosines - features["label_ids"] / 4.0) ** 2
    batch = tensors(features)
    found = predict(model, batch)
    assert found.keys() == {"vectors", "outputs", "label_ids", "per_example_loss"}
    assert np.abs(found["vectors"] - vectors).max() < 1e-6
    assert np.abs(found["outputs"] - cosines).max() < 1e-6
    assert difference(found["per_example_loss"], losses) < 2e-6
    np.testing.assert_array_equal(found["label_ids"], features["label_ids"])
    loss, sums = compute(model, batch)
    assert difference(loss, losses.mean()) < 2e-6 and sums == {}


def test_single_texts_have_only_vectors(made):
    model, weights = made
    features = make_features(seed=1, num_texts=1)
    found = predict(model, tensors(features))
    assert found.keys() == {"vectors"}
    assert np.abs(found["vectors"] - expected_vectors(weights, features)).max() < 1e-6


def numpy_in_batch(first, second, scale):
    """Returns the losses of the pairs, mean of both directions, by a plain loop."""
    losses = np.zeros(len(first))
    for i in range(len(first)):
        for mine, theirs in ((first, second), (second, first)):
            logits = scale * np.array([mine[i] @ other for other in theirs])
            losses[i] -= (logits[i] - np.log(np.sum(np.exp(logits)))) / 2
    return losses


def test_in_batch_negatives_are_numpys():
    model, weights = make_model(loss=IN_BATCH_NEGATIVES, similarity_scale=7.0)
    features = make_features()
    vectors = expected_vectors(weights, features)
    expected = numpy_in_batch(vectors[:, 0], vectors[:, 1], 7.0)
    right = np.argmax(vectors[:, 0] @ vectors[:, 1].T, axis=1) == np.arange(B)
    batch = tensors(features)
    loss, sums = compute(model, batch)
    assert difference(loss, expected.mean()) < 2e-6
    assert [x.numpy() for x in sums["accuracy"]] == [right.sum(), B]
    assert predict(model, batch).keys() == {"vectors", "outputs", "label_ids"}


def unit_vectors(seed, count=6):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 9))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_padding_is_not_used_as_a_negative():
    first, second = unit_vectors(3), unit_vectors(4)
    second[5] = first[0]  # would be the nearest of all
    weights = tf.constant([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    losses, right = in_batch_negatives(first, second, weights, 5.0)
    alone, alone_right = in_batch_negatives(first[:4], second[:4], weights[:4], 5.0)
    np.testing.assert_allclose(losses[:4], alone, rtol=1e-5)
    np.testing.assert_array_equal(right[:4], alone_right)
    assert np.isfinite(losses).all()
