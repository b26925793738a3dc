"""Masks that are drawn while training, as a part of the input (RoBERTa, section 4.1).

The choice is that of `masking`, made for a whole batch by TensorFlow: the same share of the tokens,
80% [MASK], 10% unchanged, 10% random, and whole words if asked for.
"""

import dataclasses

import tensorflow as tf

from bert_tf.engine.hashed_random import below, hash_numbers, uniform
from bert_tf.engine.input_pipeline import Batch
from bert_tf.tasks.pretraining.masking import MASKED, UNCHANGED

# What is drawn for an example, and for each of its tokens.
_CHOICE, _FATE, _REPLACEMENT = range(3)


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """Masks batches of unmasked records; an `input_pipeline.Augment`.

    mask_id: id of [MASK].
    vocab_size: random replacements are ids below it.
    max_predictions_per_seq: length of the `masked_lm_*` features.
    masked_lm_prob: share of a sequence's tokens to predict.
    whole_words: whether the pieces of a word are masked together.
    """

    mask_id: int
    vocab_size: int
    max_predictions_per_seq: int
    masked_lm_prob: float
    whole_words: bool

    def __call__(self, features: Batch, keys: tf.Tensor) -> Batch:
        """Returns the features of masked records.

        Args:
            features: of a batch of unmasked records: int32 [B, S] `input_ids`, `input_mask` and
                `word_ids`, the number of a token's word, 0 for what is never masked.
            keys: uint64 [B]; an example's masks are a function of its key and of its tokens.

        Returns:
            `features` without `word_ids`, with other `input_ids`, and with `masked_lm_positions`
            and `masked_lm_ids`, int32 [B, P], and `masked_lm_weights`, float32 [B, P].
        """
        features = dict(features)
        word_ids, input_ids = features.pop("word_ids"), features["input_ids"]
        length = input_ids.shape[1]
        num_tokens = tf.cast(tf.reduce_sum(features["input_mask"], axis=1), tf.float32)
        # tf.round and Python's round both round halves to even.
        wanted = tf.cast(tf.round(num_tokens * self.masked_lm_prob), tf.int32)
        wanted = tf.minimum(tf.maximum(wanted, 1), self.max_predictions_per_seq)  # [B]
        keys = keys[:, tf.newaxis]
        choose = _choose_words if self.whole_words else _choose_tokens
        chosen = choose(word_ids, wanted, hash_numbers(keys, _CHOICE))  # [B, S]

        fate = uniform(hash_numbers(keys, _FATE, tf.range(length)))
        random_ids = below(hash_numbers(keys, _REPLACEMENT, tf.range(length)), self.vocab_size)
        masked = tf.where(fate < MASKED, self.mask_id, random_ids)
        unchanged = (fate >= MASKED) & (fate < MASKED + (1.0 - MASKED) * UNCHANGED)
        features["input_ids"] = tf.where(chosen & ~unchanged, masked, input_ids)

        # The chosen positions in their order, then others, which get no weight.
        number = self.max_predictions_per_seq
        order = tf.where(chosen, tf.range(length), length)
        positions = tf.sort(order, axis=1)[:, :number]
        positions = tf.pad(
            positions, [[0, 0], [0, number - min(number, length)]], constant_values=length
        )
        real = positions < length
        positions = tf.where(real, positions, 0)
        ids = tf.gather(input_ids, positions, batch_dims=1)
        features["masked_lm_positions"] = positions
        features["masked_lm_ids"] = tf.where(real, ids, 0)
        features["masked_lm_weights"] = tf.cast(real, tf.float32)
        return features


def _choose_tokens(word_ids: tf.Tensor, wanted: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns which tokens are masked, bool [B, S]: `wanted` of each example's, int32 [B].

    Args:
        word_ids: int32 [B, S], 0 for what is never masked.
        wanted: number of tokens to mask.
        keys: uint64 [B, 1].
    """
    length = word_ids.shape[1]
    order = _shuffled(keys, tf.range(length), word_ids > 0)
    rank = tf.argsort(order, axis=1)  # of each token in the random order
    return (rank < wanted[:, tf.newaxis]) & (word_ids > 0)


def _choose_words(word_ids: tf.Tensor, wanted: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns which tokens are masked, as `_choose_tokens`: whole words, at most `wanted` tokens.

    Words are taken in random order. One that no longer fits is left out, and others may follow.
    """
    length = word_ids.shape[1]
    numbers = tf.range(1, length + 1)
    # Tokens of each word, int32 [B, S], of word 1 first.
    sizes = tf.math.bincount(word_ids, minlength=length + 1, maxlength=length + 1, axis=-1)[:, 1:]
    order = _shuffled(keys, numbers, sizes > 0)
    sizes = tf.gather(sizes, order, batch_dims=1)  # in the random order

    def candidates(left: tf.Tensor, taken: tf.Tensor) -> tf.Tensor:
        """Returns the words that still fit. The others never will: there is ever less room."""
        return (sizes > 0) & (sizes <= left) & ~taken

    def take(left: tf.Tensor, taken: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Takes candidates in their order up to the first that no longer fits."""
        next_sizes = tf.where(candidates(left, taken), sizes, 0)
        taken |= (next_sizes > 0) & (tf.cumsum(next_sizes, axis=1) <= left)
        used = tf.reduce_sum(tf.where(taken, sizes, 0), axis=1, keepdims=True)
        return wanted[:, tf.newaxis] - used, taken

    _, taken = tf.while_loop(
        lambda left, taken: tf.reduce_any(candidates(left, taken)),
        take,
        (wanted[:, tf.newaxis], tf.zeros_like(sizes, tf.bool)),
    )
    rank = tf.argsort(order, axis=1)
    of_words = tf.gather(taken, rank, batch_dims=1)  # [B, S], of word 1 first
    return (word_ids > 0) & tf.gather(of_words, tf.maximum(word_ids - 1, 0), batch_dims=1)


def _shuffled(keys: tf.Tensor, numbers: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
    """Returns indices in a random order, int32 [B, N], those that are allowed first."""
    # Equal values, one pair in 2^24, stay in their order.
    values = uniform(hash_numbers(keys, numbers))
    return tf.argsort(tf.where(allowed, values, 2.0), axis=1, stable=True)
