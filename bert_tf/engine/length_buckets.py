"""Length buckets: a few fixed lengths to pad batches to, instead of max_seq_length.

Each length is compiled once. Padding is masked, so its length does not change the outputs.
"""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, quoted
from bert_tf.files import records

MAX_AUTO_LENGTHS = 8  # for `auto`: more would save little, and each must be compiled
LENGTH_MULTIPLE = 16  # for `auto`: multiples fill the vector units
_LEAST_SHARE = 16  # a length is compiled if at least one batch in sixteen needs it


def parse_lengths(text: str, max_seq_length: int) -> tuple[int, ...]:
    """Parses --length_buckets; returns ascending lengths, the last `max_seq_length`.

    `text` is "auto" for up to `MAX_AUTO_LENGTHS` evenly spaced lengths, "none" for only
    `max_seq_length`, or lengths separated by commas.
    """
    if text == "none":
        return (max_seq_length,)
    if text == "auto":
        step = -(-max_seq_length // (MAX_AUTO_LENGTHS * LENGTH_MULTIPLE)) * LENGTH_MULTIPLE
        return (*range(step, max_seq_length, step), max_seq_length)
    if not re.fullmatch(r"[1-9]\d{0,99}(,[1-9]\d{0,99})*", text):
        raise UserError(
            f"--length_buckets must be auto, none, or lengths such as 32,64,128; not {quoted(text)}"
        )
    lengths = sorted({*map(int, text.split(",")), max_seq_length})
    if lengths[-1] > max_seq_length:
        raise UserError(
            f"--length_buckets={quoted(text)}: no length may be above"
            f" --max_seq_length={max_seq_length}"
        )
    return tuple(lengths)


@dataclasses.dataclass(frozen=True)
class Buckets:
    """The lengths that batches are cut to.

    lengths: ascending; the last is at least as long as the longest example.
    sequence_features: the features whose last axis is the sequence.
    """

    lengths: tuple[int, ...]
    sequence_features: tuple[str, ...]

    @classmethod
    def of_schema(cls, lengths: tuple[int, ...], schema: records.Schema) -> "Buckets":
        return cls(lengths, tuple(records.sequence_features(schema)))

    def frequent(self, longest: np.ndarray, least: int = 1) -> "Buckets":
        """Returns the buckets that enough batches need: at least `least`, and one in sixteen.

        Batches of dropped buckets use the next longer one; the longest bucket needed always stays.
        `longest` is the length of the longest example of each batch, int [batches].
        """
        least = max(least, len(longest) // _LEAST_SHARE)
        counts = np.bincount(np.searchsorted(self.lengths, longest), minlength=len(self.lengths))
        longest_needed = longest.max()
        kept, waiting = [], 0
        for length, count in zip(self.lengths, counts, strict=True):
            waiting += count
            if count and (waiting >= least or length >= longest_needed):
                kept.append(length)
                waiting = 0
        return Buckets(tuple(kept), self.sequence_features)

    def index(self, length: tf.Tensor) -> tf.Tensor:
        """Returns the number, int32 [], of the first bucket that `length`, int32 [], fits in."""
        return tf.reduce_sum(tf.cast(length > tf.constant(self.lengths[:-1], tf.int32), tf.int32))

    def trim(self, features: Mapping[str, tf.Tensor], index: int) -> dict[str, tf.Tensor]:
        """Cuts the sequence features of a batch to the length of bucket `index`."""
        length = self.lengths[index]
        return {
            name: value[..., :length] if name in self.sequence_features else value
            for name, value in features.items()
        }


def example_lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """Returns the number of positions that each example needs, int32 [batch].

    `input_mask` is int32 [batch, ..., seq_length], 1 for tokens, which come first, 0 for padding.
    If an example has several sequences, the longest counts.
    """
    lengths = tf.reduce_sum(tf.cast(input_mask, tf.int32), axis=-1)
    return tf.reduce_max(tf.reshape(lengths, [tf.shape(lengths)[0], -1]), axis=1)
