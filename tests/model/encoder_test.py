"""Tests of the attention in bert_tf.model.encoder."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.encoder import SelfAttention
from tests.support import numpy_bert
from tests.support.numpy_bert import assert_near

B, S, H, N = 2, 7, 24, 3


def _config(hidden_size=H, num_attention_heads=N):
    return BertConfig(
        53,
        hidden_size=hidden_size,
        num_attention_heads=num_attention_heads,
        attention_probs_dropout_prob=0.0,
    )


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
    assert_near(tf.reshape(context, [B, S, H]), expected_context, 0.02)


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
