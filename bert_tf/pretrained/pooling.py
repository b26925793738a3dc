"""Pooling: makes the vector of a text from BERT's outputs for its tokens.

Dimension letters and dtypes: see `bert_tf/modeling.py`; P is the number of poolings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.start import lazy_tensorflow as tf

if TYPE_CHECKING:
    from bert_tf.modeling import BertOutput

POOLINGS = ("mean", "cls", "pooled", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def text_vectors(
    output: BertOutput, input_mask: tf.Tensor, poolings: Sequence[str], num_skipped: int = 0
) -> tf.Tensor:
    """Returns a vector of each text, float32 [B, P*H]: the results of all poolings, joined.

    `input_mask` is int32 [B, S], 1 for tokens and 0 for padding, which is at the end. The first
    `num_skipped` tokens are left out, except for "pooled".

    Poolings: "mean" of the last layer over all tokens, [CLS] and [SEP] included;
    "mean_sqrt_len_tokens", the sum divided by the square root of the number of tokens;
    "weightedmean", weighted by position, from 1; "max" over the tokens; "cls" or "lasttoken", the
    last layer at the first or the last token; "pooled", the pooler's output.
    """
    from bert_tf.model.layers import weighted_sum  # imports TensorFlow

    layer = tf.cast(output.sequence_output, tf.float32)  # [B, S, H]
    mask = tf.cast(input_mask, tf.float32)  # [B, S]
    positions = tf.range(tf.shape(mask)[1])  # [S]
    if num_skipped:
        mask *= tf.cast(positions >= num_skipped, tf.float32)

    def mean(weights: tf.Tensor, power: float = 1.0) -> tf.Tensor:
        total = weighted_sum(weights, layer)
        count = tf.maximum(tf.reduce_sum(weights, axis=1, keepdims=True), 1e-9)
        return total / (count if power == 1 else count**power)

    def at(index: tf.Tensor) -> tf.Tensor:
        return tf.gather(layer, index, batch_dims=1)

    make = {
        "pooled": lambda: tf.cast(output.pooled_output, tf.float32),
        "cls": lambda: at(tf.argmax(mask, axis=1)) if num_skipped else layer[:, 0],
        "lasttoken": lambda: at(tf.reduce_sum(input_mask, axis=1) - 1),
        "mean": lambda: mean(mask),
        "mean_sqrt_len_tokens": lambda: mean(mask, 0.5),
        "weightedmean": lambda: mean(mask * tf.cast(positions + 1, tf.float32)),
        "max": lambda: tf.reduce_max(
            tf.where(tf.expand_dims(mask, 2) > 0, layer, -float("inf")), axis=1
        ),
    }
    return tf.concat([make[pooling]() for pooling in poolings], axis=-1)


def array_vectors(
    layer: np.ndarray,
    pooled_output: np.ndarray | None,
    input_mask: np.ndarray,
    poolings: Sequence[str],
    num_skipped: int = 0,
) -> np.ndarray:
    """Does the same as `text_vectors` in NumPy; `layer` is the last layer, float32 [B, S, H]."""
    mask = input_mask.astype(np.float32)  # [B, S]
    mask[:, :num_skipped] = 0
    places = np.arange(mask.shape[1])
    ends = input_mask.sum(axis=1)[:, np.newaxis] - 1

    def mean(weights: np.ndarray, power: float = 1.0) -> np.ndarray:
        count = np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1e-9))
        return np.matmul(weights[:, np.newaxis], layer)[:, 0] / count ** np.float32(power)

    make = {
        "pooled": lambda: pooled_output,
        "cls": lambda: layer[np.arange(len(layer)), mask.argmax(axis=1) if num_skipped else 0],
        "lasttoken": lambda: np.take_along_axis(layer, ends[..., np.newaxis], 1)[:, 0],
        "mean": lambda: mean(mask),
        "mean_sqrt_len_tokens": lambda: mean(mask, 0.5),
        "weightedmean": lambda: mean(mask * (places + 1).astype(np.float32)),
        "max": lambda: np.where(mask[..., np.newaxis] > 0, layer, -np.inf).max(axis=1),
    }
    return np.concatenate([make[pooling]() for pooling in poolings], axis=-1)


def similarities(a: np.ndarray, b: np.ndarray, name: str) -> np.ndarray:
    """Returns how similar a[i] and b[i] are, [texts]; both are float32 [texts, width].

    "cosine" needs vectors of length 1; "euclidean" and "manhattan" are negative distances.
    """
    if name == "euclidean":
        return -np.linalg.norm(a - b, axis=1)
    if name == "manhattan":
        return -np.abs(a - b).sum(axis=1)
    return np.einsum("nh,nh->n", a, b)
