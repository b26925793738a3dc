"""Tests of the attention in bert_tf.model.encoder."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.activations import gelu, gelu_erf, get_activation
from bert_tf.model.attention import attend, attention_probs
from bert_tf.model.configuration import BertConfig
from bert_tf.model.encoder import SelfAttention
from bert_tf.model.layers import dropout
from tests.support import numpy_bert
from tests.support.numpy_bert import assert_near

B, S, H, N = 2, 7, 24, 3


def _config(hidden=H, heads=N):
    sizes = {"hidden_size": hidden, "num_attention_heads": heads}
    return BertConfig(53, **sizes, attention_probs_dropout_prob=0.0)


def _attention(hidden, input_mask, query_scale):
    """Returns context and probabilities of a layer of random weights, and numpy's."""
    attention = SelfAttention(_config(), "float32")
    attention.build()
    rng = np.random.default_rng(4)
    weights = {}
    for name, scale in (("query", query_scale), ("key", 1.0), ("value", 0.3)):
        dense = getattr(attention, name)
        dense.kernel.assign(rng.normal(size=(H, H)) * scale)
        dense.bias.assign(rng.normal(size=H) * scale)
        weights |= {f"x/{name}/{w.name}": w.numpy() for w in (dense.kernel, dense.bias)}
    context, probs = attention(hidden.reshape(-1, H), input_mask)
    reference = numpy_bert.NumpyBert(_config().to_dict(), weights)
    return context, probs, *reference.attention(hidden.astype(np.float64), input_mask, "x")


def test_a_masked_score_of_10000_less_can_still_win():
    """-10000 is added, so scores that far apart tell it from -inf and from -1e9."""
    hidden = numbers(B, S, H)
    input_mask = np.array([[1] * S, [1] * 4 + [0] * 3], np.int32)
    context, probs, expected_context, expected = _attention(hidden, input_mask, 500.0)
    to_masked = expected[1][:, :, input_mask[1] == 0].sum(-1)  # [N, S]
    assert (to_masked > 0.9).any() and (to_masked < 0.1).any()
    np.testing.assert_allclose(probs, expected, atol=0.02)  # scores have an error of 1e-3
    assert_near(tf.reshape(context, [B, S, H]), expected_context, 0.02)


def test_a_row_that_is_all_padding_attends_as_if_it_had_no_mask():
    hidden, mask = numbers(B, S, H), np.ones((B, S), np.int32)
    _, unmasked, _, _ = _attention(hidden, mask, 0.3)
    mask[1] = 0
    _, probs, _, expected = _attention(hidden, mask, 0.3)
    np.testing.assert_allclose(probs, expected, atol=2e-3)
    np.testing.assert_allclose(probs, unmasked, atol=2e-3)
    assert np.abs(probs - 1 / S).max() > 0.5  # -1e9 would have drowned the scores


def test_the_mask_is_not_rounded_to_bfloat16():
    """-10000 would become -9984, and a score 9992 higher would tell."""
    for dtype in ("float32", keras.DTypePolicy("mixed_bfloat16")):
        attention = SelfAttention(_config(1, 1), dtype)
        attention.build()
        attention.key.kernel.assign([[1.0]])
        attention.value.kernel.assign([[1.0]])
        attention.query.bias.assign([78.0])  # 78 * 128 = 9984: exact in bfloat16
        hidden = tf.constant([[0.0], [128.0]], attention.compute_dtype)
        _, probs = attention(hidden, tf.constant([[1, 0]]))
        np.testing.assert_allclose(probs[0, 0, 0, 1], 1 / (1 + np.exp(16.0)), rtol=1e-2)


BATCH, HEADS, LENGTH, SIZE = 2, 3, 10, 5
SEED = tf.constant([3, 4])


def numbers(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def masks():
    """Returns mask adders: of padding at the end, and of packed rows."""
    padding = np.where(np.arange(LENGTH) < [[7], [LENGTH]], 0.0, -10000.0)
    packed = np.where(np.arange(LENGTH)[:, None] // 4 == np.arange(LENGTH) // 4, 0.0, -10000.0)
    shaped = padding[:, None, None, :], np.stack([packed, np.zeros_like(packed)])[:, None]
    return [tf.constant(mask, tf.float32) for mask in shaped]


def own(query, key, value, mask_adder, rate, seed):
    probs = attention_probs(query, key, mask_adder)
    return attend(query, key, value, probs, rate, seed)


def plain(query, key, value, mask_adder, rate, seed):
    dropped = dropout(attention_probs(query, key, mask_adder), rate, seed)
    return tf.matmul(tf.cast(dropped, value.dtype), value)


TOLERANCES = {"float32": 2e-6, "bfloat16": 0.03}
CASES = [(*x, None) for x in itertools.product(TOLERANCES, (0, 1), (0.0, 0.3))]
# Compiling takes most of the time: each dtype and mask once, in a graph and by XLA.
CASES += [(dtype, mask, 0.3, mask == i) for i, dtype in enumerate(TOLERANCES) for mask in (0, 1)]


@pytest.mark.parametrize("dtype, mask, rate, jit_compile", CASES)
def test_context_and_gradients_are_those_of_plain_operations(dtype, mask, rate, jit_compile):
    shape, adder, tolerance = (BATCH, HEADS, LENGTH, SIZE), masks()[mask], TOLERANCES[dtype]
    upstream, *inputs = (tf.cast(numbers(*shape, i)[..., 0], dtype) for i in (4, 1, 2, 3))

    def context_and_gradients(function):
        def compute(*inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                context = function(*inputs, adder, rate, SEED)
            return context, *tape.gradient(context, inputs, output_gradients=upstream)

        if jit_compile is not None:
            compute = tf.function(compute, jit_compile=jit_compile, autograph=False)
        return [tf.cast(x, tf.float32).numpy() for x in compute(*inputs)]

    found, expected = map(context_and_gradients, (own, plain))
    for mine, other in zip(found, expected, strict=True):
        assert np.abs(other).max() > 0.5
        np.testing.assert_allclose(mine, other, atol=tolerance * np.abs(other).max(), rtol=0)


def test_probabilities_are_a_softmax():
    query, key = numbers(BATCH, HEADS, LENGTH, SIZE), numbers(BATCH, HEADS, LENGTH, SIZE + 1)
    adder = masks()[0]
    scores = np.einsum("bnqd,bnkd->bnqk", query, key[..., 1:]) / np.sqrt(SIZE) + adder.numpy()
    expected = np.exp(scores - scores.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    found = attention_probs(tf.constant(query), tf.constant(key[..., 1:]), adder)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_probabilities_that_are_read_have_their_own_gradient():
    query, key, value = (tf.constant(numbers(BATCH, HEADS, LENGTH, SIZE)) + i for i in range(3))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(query)
        probs = attention_probs(query, key, masks()[0])
        context = attend(query, key, value, probs, 0.0, SEED)
        both = tf.reduce_sum(context**2) + tf.reduce_sum(probs**2)
        product = tf.matmul(probs, value)
        expected = tf.reduce_sum(product**2) + tf.reduce_sum(probs**2)
    found, wanted = (tape.gradient(loss, query).numpy() for loss in (both, expected))
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def test_activations():
    assert (get_activation("GELU"), get_activation("Gelu_Erf")) == (gelu, gelu_erf)
    assert get_activation(tf.nn.elu) is tf.nn.elu
    assert get_activation("linear") is get_activation("") is get_activation(None) is None
    x = tf.constant([-1.5, 0.5, 2.0])
    np.testing.assert_array_equal(get_activation("relu")(x), [0.0, 0.5, 2.0])
    np.testing.assert_allclose(get_activation("tanh")(x), np.tanh(x), rtol=1e-6)
    x = np.linspace(-6, 6, 1001)
    tanh_form = gelu(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(tanh_form, numpy_bert.gelu(x), atol=1e-6)
    exact = get_activation("gelu_erf")(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(exact, numpy_bert.gelu_erf(x), atol=1e-6)
    assert np.abs(tanh_form - exact).max() > 3e-4
