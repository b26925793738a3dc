"""Tests of bert_tf.tasks.pretraining.training.heads."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import modeling
from bert_tf.tasks.pretraining.training import heads
from tests.support import numpy_bert
from tests.support.objectives import set_random_weights

B, S, H, V, P = 2, 7, 24, 53, 5
CONFIG = modeling.BertConfig(
    vocab_size=V, hidden_size=H, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20
)


def _inputs(seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(B, S, H)).astype(np.float32),
        rng.normal(size=(B, H)).astype(np.float32),
        rng.integers(0, S, (B, P), dtype=np.int32),
        rng.normal(size=(V, H)).astype(np.float32),
    )


def test_gather_indexes():
    sequence, _, positions, _ = _inputs(1)
    positions[0, :2] = 3  # twice the same, and the last of its sequence
    positions[1, -1] = S - 1
    expected = np.concatenate([sequence[b, positions[b]] for b in range(B)])
    sequence = tf.constant(sequence)
    np.testing.assert_array_equal(heads.gather_indexes(sequence, positions), expected)
    signature = [tf.TensorSpec([None, None, H]), tf.TensorSpec([None, None], tf.int32)]
    dynamic = tf.function(heads.gather_indexes, signature, autograph=False)
    np.testing.assert_array_equal(dynamic(sequence, positions), expected)
    with pytest.raises(ValueError, match="must have rank 3, not 2"):
        heads.gather_indexes(tf.zeros([3, 4]), positions)


@pytest.mark.parametrize("act", ["gelu", "relu", "tanh", "linear"])
def test_logits_against_numpy(act):
    config = modeling.BertConfig.from_dict({**CONFIG.to_dict(), "hidden_act": act})
    layer = heads.PretrainingHeads(config)
    weights = set_random_weights(layer, 2)
    sequence, pooled, positions, table = _inputs(2)
    masked_lm_logits, next_sentence_logits = layer(sequence, pooled, positions, table)
    reference = numpy_bert.NumpyBert({"hidden_act": act}, weights)
    hidden = np.concatenate([sequence[b, positions[b]] for b in range(B)]).astype(np.float64)
    scope = "cls/predictions/transform"
    hidden = reference.activation(reference.dense(hidden, f"{scope}/dense"))
    hidden = reference.norm(hidden, scope)
    expected = hidden @ table.T + weights["cls/predictions/output_bias"]
    assert masked_lm_logits.shape == (B * P, V)
    np.testing.assert_allclose(masked_lm_logits, expected, rtol=1e-4, atol=1e-4)
    expected = pooled @ weights["cls/seq_relationship/output_weights"].T
    expected = expected + weights["cls/seq_relationship/output_bias"]
    assert next_sentence_logits.shape == (B, 2)
    np.testing.assert_allclose(next_sentence_logits, expected, rtol=1e-4, atol=1e-5)
