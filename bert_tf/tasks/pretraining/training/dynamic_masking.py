"""Masks drawn during training, in the input pipeline: RoBERTa's (section 4.1) and ELECTRA's.

RoBERTa's masks follow `masking`, but TensorFlow masks a batch at once. In packed rows
each sequence is masked separately.
"""

import dataclasses
from typing import Any, Self

import numpy as np
import tensorflow as tf

from bert_tf.engine.input_pipeline import Batch
from bert_tf.model.inputs import get_shape_list
from bert_tf.seeds import below, hash_numbers, uniform
from bert_tf.tasks.pretraining.records.masking import MASKED, UNCHANGED
from bert_tf.tasks.pretraining.schema import predictions_per_row
from bert_tf.text.base_tokenizer import Tokenizer

# The random draws: the choice of tokens for an example; fate and replacement for each token.
_CHOICE, _FATE, _REPLACEMENT = range(3)
ELECTRA_MASKED = 0.85  # probability that a predicted place becomes [MASK]
# ELECTRA's random draws: the places to predict, and whether each becomes [MASK].
_PLACES, _NOISE = range(2)


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """Masks batches of unmasked records; an `input_pipeline.Augment`."""

    mask_id: int
    vocab_size: int  # random replacements are ids below it
    max_predictions_per_seq: int
    masked_lm_prob: float  # share of a sequence's tokens to predict
    whole_words: bool
    max_sequences_per_pack: int = 1  # K, the places for sequences in a row; 1 if not packed
    never_drawn: tuple[int, ...] = ()  # ids that are never random replacements, ascending

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer, *numbers: Any) -> Self:
        """Returns the masking for a vocabulary; `numbers` are fields from the third on."""
        vocab, never_drawn = tokenizer.vocab, tuple(sorted(tokenizer.never_drawn))
        size = max(vocab.values()) + 1
        return cls(vocab[tokenizer.mask_token], size, *numbers, never_drawn=never_drawn)

    def __call__(self, features: Batch, keys: tf.Tensor) -> Batch:
        """Returns the features of masked records.

        Args:
            features: a batch of unmasked records (see `pretraining_schema`), int32 [B, S] each.
            keys: uint64 [B]; an example's masks are a function of its key and its tokens.

        Returns:
            `features` without `word_ids`, with masked `input_ids`, and with `masked_lm_positions`
            and `masked_lm_ids`, int32 [B, P], and `masked_lm_weights`, float32 [B, P]; P is
            `predictions_per_row`.
        """
        features = dict(features)
        word_ids, input_ids = features.pop("word_ids"), features["input_ids"]
        length = input_ids.shape[1]
        number = predictions_per_row(self.max_predictions_per_seq, self.max_sequences_per_pack)
        sequences = features["input_mask"]
        num_tokens = _sums(tf.ones_like(sequences), sequences, self.max_sequences_per_pack)
        # tf.round and Python's round both round halves to even.
        wanted = tf.cast(tf.round(tf.cast(num_tokens, tf.float32) * self.masked_lm_prob), tf.int32)
        wanted = tf.minimum(tf.maximum(wanted, 1), self.max_predictions_per_seq)
        wanted = tf.where(num_tokens > 0, wanted, 0)  # [B, K]
        # All predictions fit, unless --max_predictions_per_seq is too small for the row's length.
        wanted = tf.clip_by_value(number - tf.cumsum(wanted, axis=1, exclusive=True), 0, wanted)
        keys = keys[:, tf.newaxis]
        choose = _choose_words if self.whole_words else _choose_tokens
        chosen = choose(word_ids, sequences, wanted, hash_numbers(keys, _CHOICE))  # [B, S]

        fate = uniform(hash_numbers(keys, _FATE, tf.range(length)))
        num_drawn = self.vocab_size - len(self.never_drawn)
        random_ids = below(hash_numbers(keys, _REPLACEMENT, tf.range(length)), num_drawn)
        for special_id in self.never_drawn:
            random_ids += tf.cast(random_ids >= special_id, random_ids.dtype)
        masked = tf.where(fate < MASKED, self.mask_id, random_ids)
        unchanged = (fate >= MASKED) & (fate < MASKED + (1.0 - MASKED) * UNCHANGED)
        features["input_ids"] = tf.where(chosen & ~unchanged, masked, input_ids)

        # The chosen positions in ascending order, then padding, which gets weight 0.
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


def _choose_tokens(
    word_ids: tf.Tensor, sequences: tf.Tensor, wanted: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
    """Returns which tokens to mask, bool [B, S]; never a token whose word id is 0.

    `sequences`, int32 like `word_ids`, number each token's sequence from 1 to K, 0 for padding;
    `wanted`, int32 [B, K], says how many tokens of each sequence to mask; `keys` are uint64 [B, 1].
    """
    allowed = word_ids > 0
    order = _shuffled(keys, tf.range(word_ids.shape[1]), allowed, sequences)
    rank = tf.argsort(order, axis=1)  # of each token in the random order
    counts = _sums(tf.cast(allowed, tf.int32), sequences, wanted.shape[1])
    stop = tf.cumsum(counts, axis=1, exclusive=True) + wanted  # [B, K]
    return (rank < _of_sequence(stop, sequences)) & allowed


def _choose_words(
    word_ids: tf.Tensor, sequences: tf.Tensor, wanted: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
    """Like `_choose_tokens`, but whole words in random order, together at most `wanted` tokens.

    A word that does not fit is skipped; later words may still fit.
    """
    length = word_ids.shape[1]
    numbers = tf.range(1, length + 1)
    # Number of tokens of each word, and number of its sequence, int32 [B, S], word 1 first.
    sizes = _sums(tf.ones_like(word_ids), word_ids, length)
    owners = tf.math.floordiv(_sums(sequences, word_ids, length), tf.maximum(sizes, 1))
    order = _shuffled(keys, numbers, sizes > 0, owners)
    # From here on in the random order: the words of a sequence are next to each other.
    sizes = tf.gather(sizes, order, batch_dims=1)
    owners = tf.gather(owners, order, batch_dims=1)

    def candidates(left: tf.Tensor, taken: tf.Tensor) -> tf.Tensor:
        """Returns the words that still fit. Other words never will, because room only shrinks."""
        return (sizes > 0) & (sizes <= _of_sequence(left, owners)) & ~taken

    def take(left: tf.Tensor, taken: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Takes a sequence's candidates in order, up to the first that does not fit."""
        next_sizes = tf.where(candidates(left, taken), sizes, 0)
        before = tf.cumsum(_sums(next_sizes, owners, wanted.shape[1]), axis=1, exclusive=True)
        stop = _of_sequence(before + left, owners)
        taken |= (next_sizes > 0) & (tf.cumsum(next_sizes, axis=1) <= stop)
        used = _sums(tf.where(taken, sizes, 0), owners, wanted.shape[1])
        return wanted - used, taken

    _, taken = tf.while_loop(
        lambda left, taken: tf.reduce_any(candidates(left, taken)),
        take,
        (wanted, tf.zeros_like(sizes, tf.bool)),
    )
    rank = tf.argsort(order, axis=1)
    of_words = tf.gather(taken, rank, batch_dims=1)  # [B, S], word 1 first
    return (word_ids > 0) & tf.gather(of_words, tf.maximum(word_ids - 1, 0), batch_dims=1)


def _sums(values: tf.Tensor, numbers: tf.Tensor, count: int) -> tf.Tensor:
    """Returns the sums of the values with each number from 1 to `count`, int32 [B, count].

    `values` and `numbers` are int32 [B, N]; values with the number 0 are not summed.
    """
    size = count + 1
    sums = tf.math.bincount(numbers, weights=values, minlength=size, maxlength=size, axis=-1)
    return tf.ensure_shape(sums[:, 1:], [None, count])


def _of_sequence(values: tf.Tensor, sequences: tf.Tensor) -> tf.Tensor:
    """Returns for each position the value of its sequence, int32 [B, N], from int32 [B, K]."""
    return tf.gather(values, tf.maximum(sequences - 1, 0), batch_dims=1)


def _shuffled(
    keys: tf.Tensor, numbers: tf.Tensor, allowed: tf.Tensor, sequences: tf.Tensor
) -> tf.Tensor:
    """Returns indices in a random order, int32 [B, N], the allowed ones (bool [B, N]) first.

    Allowed indices of the same sequence (int32 [B, N]) are next to each other. `numbers`, int32
    [N], are hashed with the keys, uint64 [B, 1], to random values.
    """
    # Equal values, one pair in 2^24, keep their order.
    values = tf.cast(uniform(hash_numbers(keys, numbers)), tf.float64)
    values += tf.cast(sequences, tf.float64)
    return tf.argsort(tf.where(allowed, values, np.inf), axis=1, stable=True)


def write_at(
    ids: tf.Tensor, values: tf.Tensor, positions: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Writes values into ids; returns the new ids, int32, and where it wrote, bool: [B, S] each.

    Values and positions are int32 [B, P]. Nothing is written at position 0. A position that is
    given several times gets the mean of its values, rounded down (original: scatter_update).
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

    Original: pretrain/pretrain_helpers.py, `mask`.
    """

    mask_id: int
    never_masked: tuple[int, ...]  # [CLS], [SEP] and [MASK], which are never predicted
    max_predictions_per_seq: int
    mask_prob: float

    @classmethod
    def of_tokenizer(
        cls, tokenizer: Tokenizer, max_predictions_per_seq: int, mask_prob: float
    ) -> Self:
        mask_id, layout = tokenizer.vocab[tokenizer.mask_token], tokenizer.layout
        special = (layout.cls_id, layout.sep_id, mask_id)
        return cls(mask_id, special, max_predictions_per_seq, mask_prob)

    def __call__(self, features: Batch, keys: tf.Tensor) -> Batch:
        """Returns the features with masked `input_ids`, and the features that `mask` adds.

        For the arguments see `DynamicMasking.__call__`.
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
        """Returns the features with masked `input_ids`, int32 [B, S], and the tokens to predict.

        These are `masked_lm_positions` and `masked_lm_ids`, int32 [B, P], and `masked_lm_weights`,
        float32 [B, P]. All three are 0 beyond an example's number of predictions, which is 0 if no
        place may be predicted. `positions`, int32 [B, P], are drawn from the candidates with
        replacement; where `noise`, float32 [B, P] from 0 to below 1, is below `ELECTRA_MASKED`, a
        place becomes [MASK].
        """
        ids, limit = features["input_ids"], self.max_predictions_per_seq
        num_tokens = tf.cast(tf.reduce_sum(features["input_mask"], axis=1), tf.float32)
        # In float32, rounding halves to even, as in the original.
        wanted = tf.cast(tf.round(num_tokens * self.mask_prob), tf.int32)
        wanted = tf.clip_by_value(wanted, 1, limit)
        # A departure from the original, whose logarithm of 0 / 0 would choose any place.
        wanted = tf.where(tf.reduce_any(self.candidates(features), axis=1), wanted, 0)
        real = tf.cast(tf.range(limit) < wanted[:, tf.newaxis], tf.int32)  # [B, P]
        positions *= real
        masked = positions * tf.cast(noise < ELECTRA_MASKED, tf.int32)
        return {
            **features,
            "input_ids": write_at(ids, tf.fill(tf.shape(positions), self.mask_id), masked)[0],
            "masked_lm_positions": positions,
            "masked_lm_ids": tf.gather(ids, positions, batch_dims=1) * real,
            "masked_lm_weights": tf.cast(real, tf.float32),
        }
