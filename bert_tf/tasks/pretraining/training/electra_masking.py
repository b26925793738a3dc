"""ELECTRA's masks, drawn during training (original: pretrain/pretrain_helpers.py, `mask`)."""

import dataclasses

import tensorflow as tf

from bert_tf.engine.hashed_random import hash_numbers, uniform
from bert_tf.engine.input_pipeline import Batch
from bert_tf.model.shapes import get_shape_list

MASKED = 0.85  # probability that a place to predict becomes [MASK]
# The random draws of an example: the places to predict, and whether each becomes [MASK].
_PLACES, _NOISE = range(2)


def write_at(
    ids: tf.Tensor, values: tf.Tensor, positions: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns ids with values at given positions, int32 [B, S], and which were written, bool.

    Nothing is written at position 0. A position that is given several times gets the mean of its
    values, rounded down (original: scatter_update).

    Args:
        ids: int32 [B, S].
        values: int32 [B, P].
        positions: int32 [B, P].
    """
    batch_size, length = get_shape_list(ids)
    rows = tf.broadcast_to(tf.range(batch_size)[:, tf.newaxis], tf.shape(positions))
    places = tf.stack([rows, positions], axis=-1)  # [B, P, 2]
    counts = tf.scatter_nd(places, tf.ones_like(values), [batch_size, length])
    sums = tf.scatter_nd(places, values, [batch_size, length])
    written = (counts > 0) & (tf.range(length) > 0)
    return tf.where(written, sums // tf.maximum(counts, 1), ids), written


@dataclasses.dataclass(frozen=True)
class ElectraMasking:
    """Masks batches of ELECTRA's records; an `input_pipeline.Augment`.

    never_masked: the ids of [CLS], [SEP] and [MASK], which are never predicted.
    """

    mask_id: int
    never_masked: tuple[int, ...]
    max_predictions_per_seq: int
    mask_prob: float

    def __call__(self, features: Batch, keys: tf.Tensor) -> Batch:
        """Returns the features with masked `input_ids`, and the features that `mask` adds.

        Args:
            features: a batch of records, int32 [B, S] each.
            keys: uint64 [B]; an example's masks are a function of its key and its tokens.
        """
        candidates = self.candidates(features)
        number = tf.range(self.max_predictions_per_seq)
        keys = keys[:, tf.newaxis]
        count = tf.reduce_sum(tf.cast(candidates, tf.uint64), axis=1, keepdims=True)
        drawn = hash_numbers(keys, _PLACES, number) % tf.maximum(count, 1)  # [B, P]
        order = tf.argsort(tf.cast(~candidates, tf.int32), axis=1, stable=True)  # [B, S]
        positions = tf.gather(order, tf.cast(drawn, tf.int32), batch_dims=1)
        return self.mask(features, positions, uniform(hash_numbers(keys, _NOISE, number)))

    def candidates(self, features: Batch) -> tf.Tensor:
        """Returns which places may be predicted, bool [B, S]."""
        candidates = features["input_mask"] > 0
        for special_id in self.never_masked:
            candidates &= features["input_ids"] != special_id
        return candidates

    def mask(self, features: Batch, positions: tf.Tensor, noise: tf.Tensor) -> Batch:
        """Returns the features with masked `input_ids`, and with what is to be predicted.

        These are `masked_lm_positions` and `masked_lm_ids`, int32 [B, P], and `masked_lm_weights`,
        float32 [B, P]. All three are 0 beyond an example's number of predictions, which is 0 if no
        place may be predicted.

        Args:
            features: `input_ids` and `input_mask`, int32 [B, S].
            positions: int32 [B, P], drawn from the candidates with replacement.
            noise: float32 [B, P], from 0 to below 1; below `MASKED` a place becomes [MASK].
        """
        ids, limit = features["input_ids"], self.max_predictions_per_seq
        num_tokens = tf.cast(tf.reduce_sum(features["input_mask"], axis=1), tf.float32)
        # In float32, and rounding halves to even, as the original.
        wanted = tf.cast(tf.round(num_tokens * self.mask_prob), tf.int32)
        wanted = tf.clip_by_value(wanted, 1, limit)
        # A departure: the original's logarithm of 0 / 0 would choose any place.
        wanted = tf.where(tf.reduce_any(self.candidates(features), axis=1), wanted, 0)
        real = tf.cast(tf.range(limit) < wanted[:, tf.newaxis], tf.int32)  # [B, P]
        positions *= real
        masked = positions * tf.cast(noise < MASKED, tf.int32)
        return {
            **features,
            "input_ids": write_at(ids, tf.fill(tf.shape(positions), self.mask_id), masked)[0],
            "masked_lm_positions": positions,
            "masked_lm_ids": tf.gather(ids, positions, batch_dims=1) * real,
            "masked_lm_weights": tf.cast(real, tf.float32),
        }
