"""Computes attention: the probabilities and, for training steps, the context with its gradient.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

import contextvars
import math

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert_tf.bounds import scores_are_stored
from bert_tf.model.layers import dropout


def project(dense: keras.layers.Dense, hidden: tf.Tensor) -> tf.Tensor:
    """Applies a dense layer without activation to hidden states, float [B, S, H].

    For a product in three dimensions the TPU's compiler chooses the memory layout that attention
    reads. After a product of matrices it copies the result into that layout.
    """
    with tf.name_scope(dense.name):
        return tf.einsum("bsh,hm->bsm", hidden, dense.kernel) + dense.bias


def attention_probs(query: tf.Tensor, key: tf.Tensor, mask_adder: tf.Tensor) -> tf.Tensor:
    """Returns how much each position attends to every position, [B, N, S, S].

    `query` and `key` are float [B, N, S, D]. `mask_adder`, float [B, 1, 1, S] or [B, 1, S, S], is
    added to the scores; the result has its dtype.
    """
    scores = tf.matmul(query, key, transpose_b=True)
    if scores_are_stored():
        scores = _stored(scores)
    scores = tf.cast(scores, mask_adder.dtype)
    return tf.nn.softmax(scores * (1.0 / math.sqrt(query.shape[-1])) + mask_adder)


# Whether the layer that is traced is computed again for its gradient.
is_recomputed = contextvars.ContextVar("is_recomputed", default=False)


def attend(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    probs: tf.Tensor,
    dropout_prob: float,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Returns the context, float [B, N, S, D]: the probabilities after dropout times `value`.

    The gradient equals TensorFlow's, but reads less memory on a TPU: it keeps the probabilities in
    the dtype of `value`, not in float32; it computes the gradient of the scores once, for two
    products; and it gets the row sums in the softmax's gradient from the context times the
    context's gradient (FlashAttention, https://arxiv.org/abs/2205.14135, appendix B.2).

    Args:
        query, key, value: float [B, N, S, D].
        probs: `attention_probs` of `query` and `key`, which get the gradient instead of `probs`.
        seed: int32 [2], for the dropout mask.
    """
    kept = tf.cast(probs, value.dtype)  # [B, N, S, S]
    if is_recomputed.get():
        # Otherwise the TPU's compiler fuses three products for v6e, and libtpu 0.0.42.1 crashes.
        # Without recomputation the probabilities are in memory for the gradient anyway.
        kept = _stored(tf.stop_gradient(kept))  # `gradient` below replaces their gradient

    @tf.custom_gradient
    def attended(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor):
        dropped = dropout(kept, dropout_prob, seed)
        context = tf.matmul(dropped, value)

        def gradient(by_context: tf.Tensor):
            by_value = tf.matmul(dropped, by_context, transpose_a=True)
            by_dropped = tf.matmul(by_context, value, transpose_b=True)  # [B, N, S, S]
            by_probs = dropout(tf.cast(by_dropped, tf.float32), dropout_prob, seed)
            product = tf.cast(by_context, tf.float32) * tf.cast(context, tf.float32)
            row_sums = tf.reduce_sum(product, -1, keepdims=True)
            scale = tf.constant(1.0 / math.sqrt(query.shape[-1]))
            by_scores = _by_scores(kept, by_probs, row_sums, scale)
            by_key = tf.matmul(by_scores, query, transpose_a=True)
            return tf.matmul(by_scores, key), by_key, by_value

        return context, gradient

    return attended(query, key, value)


@tf.custom_gradient
def _stored(x: tf.Tensor):
    """Returns `x`, after making XLA write it to memory instead of fusing it with its readers."""
    return _barrier(x), lambda by_x: by_x


@tf.function(jit_compile=True, autograph=False)
def _barrier(x: tf.Tensor) -> tf.Tensor:
    return gen_xla_ops.xla_optimization_barrier([x])[0]


# Compiled to make one pass over the memory, also where XLA does not compile the whole step.
@tf.function(jit_compile=True, autograph=False)
def _by_scores(
    probs: tf.Tensor, by_probs: tf.Tensor, row_sums: tf.Tensor, scale: tf.Tensor
) -> tf.Tensor:
    """Returns the gradient of the scores before their scaling, in the dtype of `probs`.

    Without the barrier the TPU's compiler computes this twice, once for each product that uses it.
    """
    by_scores = tf.cast(probs, tf.float32) * (by_probs - row_sums) * scale
    return _barrier(tf.cast(by_scores, probs.dtype))
