"""Tests of bert_tf.model.heads."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.heads import OutputLayer, cross_entropy, example_weights, linear
from bert_tf.model.layers import dropout
from bert_tf.seeds import fold_in
from tests.support import numpy_bert
from tests.support.objectives import set_random_weights

B, S, H, LABELS = 3, 5, 24, 4
BFLOAT16 = keras.DTypePolicy("mixed_bfloat16")


def _layer(seed=0, **arguments):
    """Returns an output layer and its random weights by name."""
    layer = OutputLayer(LABELS, H, **arguments)
    return layer, set_random_weights(layer, seed)


def _hidden(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(B, H), (B, S, H)])
@pytest.mark.parametrize("use_bias", [True, False])
def test_logits_against_numpy(shape, use_bias):
    layer, weights = _layer(1, use_bias=use_bias)
    hidden = _hidden(*shape)
    assert list(weights) == ["output_bias", "output_weights"][not use_bias :]
    expected = hidden @ weights["output_weights"].T + weights.get("output_bias", 0.0)
    numpy_bert.assert_near(layer(hidden), expected, 1e-6)


@pytest.mark.parametrize("given", [tf.bfloat16, tf.float32])
def test_a_bfloat16_product_has_float32_variables_bias_logits_and_gradients(given):
    layer, weights = _layer(2, dtype=BFLOAT16)
    assert {v.dtype for v in layer.variables} == {"float32"}
    hidden = tf.cast(_hidden(B, H), tf.bfloat16)
    with tf.GradientTape() as tape:
        logits = layer(tf.cast(hidden, given))
    gradients = tape.gradient(logits, [v.value for v in layer.trainable_variables])
    assert [logits.dtype, *(g.dtype for g in gradients)] == [tf.float32] * 3
    product = tf.matmul(hidden, tf.cast(weights["output_weights"], tf.bfloat16), transpose_b=True)
    expected = tf.cast(product, tf.float32) + weights["output_bias"]  # only the product is rounded
    np.testing.assert_array_equal(logits, expected)
    assert (tf.cast(tf.cast(expected, tf.bfloat16), tf.float32) != expected).numpy().any()


def test_keras_casts_no_float32_logits_or_variables_of_a_head_in_a_bfloat16_model():
    class Outer(keras.Model):
        def __init__(self):
            super().__init__(dtype=BFLOAT16)
            self.head = OutputLayer(LABELS, H, dtype=self.dtype_policy)

        def call(self, hidden):
            return self.head(hidden), self.head.output_bias.value, self.head.output_weights.value

    outer = Outer()
    bias = np.float32([1 / 3, 0.1, 1.001, -7.77])  # none is a bfloat16 number
    outer.head.output_bias.assign(bias)
    logits, *variables = outer(tf.zeros([B, H]))
    np.testing.assert_array_equal(logits, np.tile(bias, (B, 1)))
    assert [logits.dtype, *(v.dtype for v in variables)] == [tf.float32] * 3


def test_the_dropout_mask_follows_from_the_models_seed():
    layer, weights = _layer(4)
    hidden, seed = tf.constant(_hidden(B, H)), tf.constant([1, 2])
    dropped = dropout(hidden, 0.1, fold_in(seed, 2))
    assert (dropped == 0.0).numpy().any()
    expected = linear(dropped, weights["output_weights"], weights["output_bias"])
    np.testing.assert_array_equal(layer(hidden, training=True, dropout_seed=seed), expected)
    undropped = layer(hidden)
    np.testing.assert_array_equal(layer(hidden, training=False, dropout_seed=seed), undropped)
    assert np.abs(expected - undropped).max() > 0.1


def test_cross_entropy_against_numpy():
    logits = _hidden(B, S, LABELS) * 30
    labels = np.random.default_rng(6).integers(0, LABELS, (B, S), dtype=np.int32)
    log_probs = numpy_bert.log_softmax(logits.astype(np.float64))
    expected = -np.take_along_axis(log_probs, labels[..., np.newaxis], -1)[..., 0]
    numpy_bert.assert_near(cross_entropy(logits, labels), expected, 1e-6)


def test_example_weights_are_1_where_a_batch_has_none():
    ids = tf.zeros([B, S], tf.int32)
    np.testing.assert_array_equal(example_weights({"input_ids": ids}), np.ones(B, np.float32))
    weights = tf.constant([1.0, 0.0, 0.5])
    assert example_weights({"input_ids": ids, "example_weight": weights}) is weights
