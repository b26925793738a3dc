"""Losses of pairs and triplets of vectors of length 1.

Dimension letters and dtypes: see `bert_tf/modeling.py`.

Multiple negatives ranking is from https://arxiv.org/abs/1705.00652, section 4.4. Hard negatives and
the loss of triplets are sentence-transformers' (MultipleNegativesSymmetricRankingLoss; TripletLoss
with the cosine distance), and the sizes of vectors those of https://arxiv.org/abs/2205.13147.
"""

import tensorflow as tf

from bert_tf.model.heads import cross_entropy
from bert_tf.model.shapes import get_shape_list

_MASKED = -1e9  # added to a logit to exclude it from a softmax


def in_batch_negatives(
    first: tf.Tensor,
    second: tf.Tensor,
    weights: tf.Tensor,
    similarity_scale: float,
    negatives: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each pair's loss among the pairs of the batch, and whether it finds its partner.

    Each text must choose its partner among the other side's texts: the cross entropy of a softmax
    over the cosines times `similarity_scale`. The loss is the mean of both directions. The paper
    has only one, from a message to its reply; the order of two paraphrases means nothing.

    Args:
        first, second: float32 [B, H], the vectors of the pairs' texts, each of length 1.
        weights: float32 [B]; a pair of weight 0 is padding, and is not used as a negative.
        similarity_scale: factor of the cosines.
        negatives: float32 [B, H], of texts that the first texts choose among as well.

    Returns:
        The losses, and 1 where the partner has the highest cosine with the first text, else 0;
        both float32 [B].
    """
    logits = similarity_scale * tf.matmul(first, second, transpose_b=True)  # [B, B]
    absent = _MASKED * tf.cast(weights == 0.0, tf.float32)
    from_first, from_second = logits + absent, tf.transpose(logits) + absent
    if negatives is not None:
        more = similarity_scale * tf.matmul(first, negatives, transpose_b=True)  # [B, B]
        from_first = tf.concat([from_first, more + absent], axis=-1)
    partners = tf.range(get_shape_list(logits)[0])
    losses = cross_entropy(from_first, partners) + cross_entropy(from_second, partners)
    best = tf.argmax(from_first, axis=-1, output_type=tf.int32)
    return losses / 2.0, tf.cast(best == partners, tf.float32)


def triplet_losses(vectors: tf.Tensor, margin: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each triplet's loss, and 1 where the second text is nearer than the third, else 0.

    The cosine of the first and the second text must exceed the one of the first and the third by
    `margin`; the loss is by how much it falls short.

    Args:
        vectors: float32 [B, 3, H], each of length 1.
        margin: up to 2.
    """
    gain = cosines(vectors[:, :2]) - cosines(vectors[:, ::2])
    return tf.maximum(margin - gain, 0.0), tf.cast(gain > 0.0, tf.float32)


def cosines(vectors: tf.Tensor) -> tf.Tensor:
    """Returns the cosine of each pair of vectors of length 1: float32 [B, 2, H] -> [B]."""
    return tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)


def truncated(vectors: tf.Tensor, size: int | None) -> tf.Tensor:
    """Returns the first `size` elements of each vector, scaled to length 1; None: the vectors."""
    return vectors if size is None else tf.math.l2_normalize(vectors[..., :size], axis=-1)
