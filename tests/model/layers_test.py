"""Tests of the pieces in bert_tf.model.layers, one by one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.model import configuration, layers
from tests.support import numpy_bert

B, S, H, N = 2, 7, 24, 3


def _config(hidden_size=H, num_attention_heads=N):
    return configuration.BertConfig(
        53,
        hidden_size=hidden_size,
        num_attention_heads=num_attention_heads,
        attention_probs_dropout_prob=0.0,
    )


def _assert_near(actual, expected, bound, name=""):
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, name
    assert np.abs(actual - expected).max() <= bound * np.abs(expected).max(), name


def test_gelu_is_the_tanh_form():
    x = np.linspace(-6, 6, 1001)
    actual = configuration.gelu(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(actual, numpy_bert.gelu(x), atol=1e-6)
    exact = 0.5 * x * (1 + tf.math.erf(x / np.sqrt(2)).numpy())
    assert np.abs(actual - exact).max() > 3e-4


@pytest.mark.parametrize("deviation", [1.0, 1e-4, 1e-6, 1e-7])
def test_layer_norm_epsilon_is_1e_12(deviation):
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(B, S, H)) * deviation).astype(np.float32)
    gamma, beta = rng.normal(size=(2, H)).astype(np.float32)
    norm = layers.LayerNorm()
    norm.build((None, None, H))
    norm.gamma.assign(gamma)
    norm.beta.assign(beta)
    expected = numpy_bert.layer_norm(x.astype(np.float64), gamma, beta)
    _assert_near(norm(x), expected, 1e-5)
    if deviation < 1e-5:
        without = numpy_bert.layer_norm(x.astype(np.float64), gamma, beta, epsilon=0.0)
        assert np.abs(expected - without).max() > 0.1


def _attention(hidden, input_mask, query_scale):
    """Returns context and probabilities of a layer of random weights, and numpy's."""
    attention = layers.SelfAttention(_config(), "float32")
    attention.build()
    rng = np.random.default_rng(4)
    weights = {}
    for name, scale in (("query", query_scale), ("key", 1.0), ("value", 0.3)):
        dense = getattr(attention, name)
        dense.kernel.assign(rng.normal(size=(H, H)) * scale)
        dense.bias.assign(rng.normal(size=H) * scale)
        weights[f"x/{name}/kernel"], weights[f"x/{name}/bias"] = (
            w.numpy() for w in (dense.kernel, dense.bias)
        )
    context, probs = attention(hidden.reshape(-1, H), input_mask)
    reference = numpy_bert.NumpyBert(_config().to_dict(), weights)
    return context, probs, *reference.attention(hidden.astype(np.float64), input_mask, "x")


def test_a_masked_score_of_10000_less_can_still_win():
    """-10000 is added, so scores that far apart tell it from -inf and from -1e9."""
    rng = np.random.default_rng(5)
    hidden = rng.normal(size=(B, S, H)).astype(np.float32)
    input_mask = np.array([[1] * S, [1] * 4 + [0] * 3], np.int32)
    context, probs, expected_context, expected = _attention(hidden, input_mask, 500.0)
    to_masked = expected[1][:, :, input_mask[1] == 0].sum(-1)  # [N, S]
    assert (to_masked > 0.9).any() and (to_masked < 0.1).any()
    np.testing.assert_allclose(probs, expected, atol=0.02)  # scores have an error of 1e-3
    _assert_near(tf.reshape(context, [B, S, H]), expected_context, 0.02)


def test_a_row_that_is_all_padding_attends_as_if_it_had_no_mask():
    rng = np.random.default_rng(6)
    hidden = rng.normal(size=(B, S, H)).astype(np.float32)
    input_mask = np.ones((B, S), np.int32)
    input_mask[1] = 0
    _, probs, _, expected = _attention(hidden, input_mask, 0.3)
    np.testing.assert_allclose(probs, expected, atol=2e-3)
    _, unmasked, _, _ = _attention(hidden, np.ones((B, S), np.int32), 0.3)
    np.testing.assert_allclose(probs, unmasked, atol=2e-3)
    assert np.abs(probs - 1 / S).max() > 0.5  # -1e9 would have drowned the scores


def test_get_shape_list():
    assert layers.get_shape_list(tf.zeros([3, 5]), expected_rank=[2, 3]) == [3, 5]
    with pytest.raises(UserError, match="hidden must have rank 2 or 4, not 3"):
        layers.get_shape_list(tf.zeros([1, 2, 3]), [2, 4], name="hidden")

    @tf.function(input_signature=[tf.TensorSpec([None, 5])])
    def second_half(x):
        batch_size, width = layers.get_shape_list(x)
        assert isinstance(batch_size, tf.Tensor) and width == 5
        return batch_size

    assert second_half(tf.zeros([3, 5])).numpy() == 3


def test_the_mask_is_not_rounded_to_bfloat16():
    """-10000 would become -9984, and a score 9992 higher would tell."""
    for dtype in ("float32", keras.DTypePolicy("mixed_bfloat16")):
        attention = layers.SelfAttention(_config(1, 1), dtype)
        attention.build()
        attention.key.kernel.assign([[1.0]])
        attention.value.kernel.assign([[1.0]])
        attention.query.bias.assign([78.0])  # 78 * 128 = 9984: exact in bfloat16
        hidden = tf.constant([[0.0], [128.0]], attention.compute_dtype)
        _, probs = attention(hidden, tf.constant([[1, 0]]))
        np.testing.assert_allclose(probs[0, 0, 0, 1], 1 / (1 + np.exp(16.0)), rtol=1e-2)


def test_dropout_has_its_rate_and_scale():
    x = np.full((200, 300), 3.0, np.float32)
    for rate in (0.1, 0.5, 0.9):
        y = layers.dropout(tf.constant(x), rate, tf.constant([5, 6])).numpy()
        assert abs((y == 0).mean() - rate) < 0.006
        np.testing.assert_allclose(y[y != 0], 3.0 / (1 - rate), rtol=1e-6)


def test_dropout_is_off_without_a_seed_or_a_rate():
    x = tf.ones([3, 4])
    assert layers.dropout(x, 0.5, None) is x
    assert layers.dropout(x, 0.0, tf.constant([1, 2])) is x
    assert layers.dropout(x, None, tf.constant([1, 2])) is x


def test_a_dropout_mask_is_a_function_of_its_seed_under_xla_too():
    x = tf.ones([40, 50])
    first = layers.dropout(x, 0.3, tf.constant([1, 2])).numpy()
    np.testing.assert_array_equal(layers.dropout(x, 0.3, tf.constant([1, 2])), first)
    for jit_compile in (False, True):
        compiled = tf.function(layers.dropout, jit_compile=jit_compile)
        np.testing.assert_array_equal(compiled(x, 0.3, tf.constant([1, 2])) != 0, first != 0)
    for seed in ([1, 3], [2, 2], [2, 1]):
        other = layers.dropout(x, 0.3, tf.constant(seed)).numpy()
        # Independent masks agree where both keep or both drop.
        assert abs(((other != 0) == (first != 0)).mean() - (0.7**2 + 0.3**2)) < 0.05


def test_dropout_gradient_has_the_mask_of_the_output():
    x = tf.ones([20, 30])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.dropout(x, 0.25, tf.constant([1, 2]))
    np.testing.assert_array_equal(tape.gradient(y, x), y)
