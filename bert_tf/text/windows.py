"""Cuts texts that are too long for one sequence into overlapping windows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.text.sequences import Layout, packed_length

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
    min(tokens to its left, tokens to its right). (Original: _check_is_max_context.)
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
    ids_a: Ids, ids_b: Ids, max_seq_length: int, stride: int, layout: Layout, place: str
) -> list[tuple[Ids, Ids]]:
    """Returns the two texts of each window: the texts themselves if they fit into one sequence.

    Otherwise the longer text (b if both are equally long) is split by `make_spans`, and the other
    one, which is empty for a single text, is whole in every window.

    Args:
        ids_a: the ids of the first text.
        ids_b: the ids of the second text; empty for a single text.
        stride: tokens between the starts of windows; 0 for half of the longer text's room in a
            window, so that every two successive windows overlap.
        place: names the texts in messages.

    Raises:
        UserError: the shorter text leaves no room for the longer one.
    """
    if packed_length(ids_a, ids_b, layout) <= max_seq_length:
        return [(ids_a, ids_b)]
    splits_a = len(ids_a) > len(ids_b)
    split, whole = (ids_a, ids_b) if splits_a else (ids_b, ids_a)
    num_special = layout.num_special(len(ids_b) > 0)
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
    return [(part, whole) if splits_a else (whole, part) for part in parts]
