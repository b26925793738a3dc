"""Model input from token ids: truncates pairs or splits them into windows, packs and pads them."""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Layout:
    """The special tokens of a sequence: [CLS] a [SEP] b [SEP], or the model's equivalents.

    In the functions below the second text is None if there is only one.
    """

    cls_id: int
    sep_id: int
    separators: int = 1  # number of [SEP] between two texts
    second_segment: int = 1  # segment id of the second text
    # As in the package `tokenizers`: a second text without tokens still has a [SEP], and
    # `truncate_longer` differs.
    hugging_face: bool = False

    def is_pair(self, ids_b: Sequence[int] | None) -> bool:
        """Returns whether a sequence with this second text has the special tokens of a pair."""
        return ids_b is not None and (len(ids_b) > 0 or self.hugging_face)

    def num_special(self, is_pair: bool) -> int:
        return 2 + self.separators if is_pair else 2

    def check_length(self, max_seq_length: int, num_tokens: int) -> None:
        """Raises UserError if a pair with `num_tokens` tokens of text is too long."""
        least = self.num_special(is_pair=True) + num_tokens
        if max_seq_length < least:
            more = f" and {num_tokens} of text" if num_tokens else ""
            raise UserError(
                f"--max_seq_length must be at least {least}, for the special tokens of a pair"
                f"{more}; received {max_seq_length}"
            )

    def second_start(self, length_a: int) -> int:
        """Returns where the second text begins if the first has `length_a` tokens."""
        return 1 + length_a + self.separators


def truncate_pair(
    length_a: int, length_b: int, max_num_tokens: int, rng: random.Random
) -> tuple[int, int, int, int]:
    """Truncates two sequences at random ends; returns (start_a, end_a, start_b, end_b) to keep.

    Drops one token at a time from the longer sequence (b if equal), at its front or its back with
    equal probability; each drop takes one random number (original: `truncate_seq_pair` in
    create_pretraining_data.py).
    """
    start_a, end_a, start_b, end_b = 0, length_a, 0, length_b
    for _ in range(length_a + length_b - max_num_tokens):
        drop_front = rng.random() < 0.5
        if end_a - start_a > end_b - start_b:
            if drop_front:
                start_a += 1
            else:
                end_a -= 1
        elif drop_front:
            start_b += 1
        else:
            end_b -= 1
    return start_a, end_a, start_b, end_b


def truncate_longer(
    length_a: int, length_b: int, max_num_tokens: int, hugging_face: bool = False
) -> tuple[int, int]:
    """Truncates two sequences at their ends; returns the two lengths to keep.

    Drops one token at a time from the longer sequence (b if equal) until both together have at most
    `max_num_tokens` (`_truncate_seq_pair` in the original). If both are cut and `max_num_tokens` is
    odd, a keeps one more. In the package `tokenizers` (`hugging_face`) the longer sequence keeps
    one more, or b if both are equally long.
    """
    more_a = int(length_a > length_b or not hugging_face)
    return (
        min(length_a, max((max_num_tokens + more_a) // 2, max_num_tokens - length_b)),
        min(length_b, max((max_num_tokens + 1 - more_a) // 2, max_num_tokens - length_a)),
    )


def as_pair(ids: Sequence[list[int]]) -> tuple[list[int], list[int] | None]:
    """Splits one or two texts into the first and the second, which may be None."""
    return ids[0], ids[1] if len(ids) > 1 else None


def packed_length(ids_a: Sequence[int], ids_b: Sequence[int] | None, layout: Layout) -> int:
    """Returns the length of a sequence that `pack_pair` makes, without padding."""
    return len(ids_a) + len(ids_b or ()) + layout.num_special(layout.is_pair(ids_b))


def pack_pair(
    ids_a: Sequence[int], ids_b: Sequence[int] | None, max_seq_length: int, layout: Layout
) -> dict[str, list[int]]:
    """Returns `input_ids`, `input_mask` and `segment_ids` of [CLS] a [SEP] b [SEP].

    Each is a list of `max_seq_length` ints, or unpadded if that is 0. `input_mask` is 1 for a
    token, and `segment_ids` is `second_segment` in the second text and the [SEP] after it; the rest
    is 0. The second [SEP] is left out without b and, unless `layout.hugging_face`, if b has no
    tokens.
    """
    part_a, part_b = [layout.cls_id, *ids_a, layout.sep_id], []
    if layout.is_pair(ids_b):
        part_a += [layout.sep_id] * (layout.separators - 1)
        part_b = [*(ids_b or ()), layout.sep_id]
    length = len(part_a) + len(part_b)
    padding = [0] * (max_seq_length - length)
    return {
        "input_ids": part_a + part_b + padding,
        "input_mask": [1] * length + padding,
        "segment_ids": [0] * len(part_a) + [layout.second_segment] * len(part_b) + padding,
    }


def truncate_and_pack(
    ids_a: Sequence[int], ids_b: Sequence[int] | None, max_seq_length: int, layout: Layout
) -> dict[str, list[int]]:
    room = max_seq_length - layout.num_special(layout.is_pair(ids_b))
    length_a, length_b = truncate_longer(len(ids_a), len(ids_b or ()), room, layout.hugging_face)
    cut_b = ids_b and ids_b[:length_b]
    return pack_pair(ids_a[:length_a], cut_b, max_seq_length, layout)


def stack(packed: Sequence[Mapping[str, list[int]]]) -> dict[str, list[int]]:
    """Concatenates the features of several sequences by name."""
    return {name: [value for one in packed for value in one[name]] for name in packed[0]}


def unpadded_tokens(
    features: Mapping[str, Sequence[int]], inv_vocab: Mapping[int, str]
) -> list[str]:
    """Returns the tokens of a record, [CLS] and [SEP] included, where `input_mask` is above 0."""
    return [inv_vocab[i] for i in features["input_ids"][: sum(map(bool, features["input_mask"]))]]


Ids = Sequence[int]


class Span(NamedTuple):
    """`length` tokens of a text, beginning at token `start` (original: _DocSpan)."""

    start: int
    length: int


def make_spans(num_tokens: int, max_tokens: int, stride: int) -> list[Span]:
    """Returns spans of at most `max_tokens` that start `stride` apart and cover all tokens."""
    if not num_tokens:
        return []
    step = min(max_tokens, stride)
    last_start = max(num_tokens - max_tokens, 0)
    starts = range(0, last_start + step, step)
    return [Span(start, min(max_tokens, num_tokens - start)) for start in starts]


def max_context(spans: Sequence[Span]) -> list[np.ndarray]:
    """Returns for each span a bool [length]: True for tokens that have their maximum context there.

    A token in several spans has its maximum context in exactly one: the span with the largest
    min(tokens to its left, tokens to its right) + 0.01 * length. (Original: _check_is_max_context.)
    """
    end = max((span.start + span.length for span in spans), default=0)
    best_score = np.full(end, -1.0)
    best_span = np.zeros(end, np.int64)
    for index, (start, length) in enumerate(spans):
        left = np.arange(length)
        score = np.minimum(left, left[::-1]) + 0.01 * length
        better = score > best_score[start : start + length]
        best_score[start : start + length][better] = score[better]
        best_span[start : start + length][better] = index
    return [best_span[start : start + length] == i for i, (start, length) in enumerate(spans)]


def split_pair(
    ids_a: Ids, ids_b: Ids | None, max_seq_length: int, stride: int, layout: Layout, place: str
) -> list[tuple[Ids, Ids | None]]:
    """Splits a pair that is too long for one sequence; returns the two texts of each window.

    The longer text (b if both are equally long) is split by `make_spans`; every window has the
    whole shorter text. A `stride` of 0 means half a window's room for the longer text.
    """
    if packed_length(ids_a, ids_b, layout) <= max_seq_length:
        return [(ids_a, ids_b)]
    splits_a = ids_b is None or len(ids_a) > len(ids_b)
    split, whole = (ids_a, ids_b or ()) if splits_a else (ids_b or (), ids_a)
    num_special = layout.num_special(layout.is_pair(ids_b))
    room = max_seq_length - num_special - len(whole)
    if room < 1:
        raise UserError(
            f"{place}: the shorter text of a pair is whole in every window, so it must leave room"
            f" for the longer one; it has {len(whole)} word pieces, and max_seq_length"
            f" ({max_seq_length}) has room for {max_seq_length - num_special} beside the special"
            f" tokens. Shorten the text, raise max_seq_length to {len(whole) + num_special + 1} or"
            " more, or set long_text to cut"
        )
    spans = make_spans(len(split), room, stride or max(room // 2, 1))
    parts = (split[start : start + size] for start, size in spans)
    return [(part, ids_b) if splits_a else (ids_a, part) for part in parts]
