"""Chooses which sequences share a row, from the histogram of lengths and without reading records.

The algorithm is shortest-pack-first histogram packing (https://arxiv.org/abs/2107.02027, section
3.1). It only sees counts of lengths, so it takes as long for a billion sequences as for a
thousand.
"""

import random
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.pretraining.records.shuffling import shuffle

WORTHWHILE = 1.1  # sequences per row; below, packing saves little more than it costs


class Pack(NamedTuple):
    """`count` rows that hold sequences of the same lengths, in each row the longest first."""

    lengths: tuple[int, ...]
    count: int


def pack_histogram(counts: Sequence[int], max_sequences_per_pack: int) -> list[Pack]:
    """Returns rows that hold all sequences.

    From the longest to the shortest, each sequence goes into the row with the fewest tokens, among
    all rows with room for it, or into a new row.

    Args:
        counts: number of sequences of each length, from 0 to the length of a row.
    """
    row_length = len(counts) - 1
    with_room: list[list[Pack]] = [[] for _ in counts]  # by the number of tokens that still fit
    full: list[Pack] = []

    def add(lengths: tuple[int, ...], count: int) -> None:
        room = row_length - sum(lengths)
        ended = not room or len(lengths) == max_sequences_per_pack
        (full if ended else with_room[room]).append(Pack(lengths, count))

    for length in range(row_length, 0, -1):
        left = int(counts[length])
        # A row that got a sequence has less room, so the loop reaches it again.
        for room in range(row_length, length - 1, -1):
            while left and with_room[room]:
                lengths, count = with_room[room].pop()
                taken = min(count, left)
                if count > taken:
                    with_room[room].append(Pack(lengths, count - taken))
                add((*lengths, length), taken)
                left -= taken
        # No row has room: start new rows, each with as many of this length as fit.
        number = min(row_length // length, max_sequences_per_pack)
        if left >= number:
            add((length,) * number, left // number)
        if left % number:
            add((length,) * (left % number), 1)
    return full + [pack for packs in with_room for pack in packs]


class Forecast(NamedTuple):
    """What packing will save, computed from the histogram.

    fill, packed_fill: share of the token positions that are not padding, without and with packing.
    """

    sequences: int
    rows: int
    fill: float
    packed_fill: float

    @property
    def factor(self) -> float:
        """Sequences per row."""
        return self.sequences / self.rows

    def __str__(self) -> str:
        text = (
            f"{self.sequences} sequences fill {self.fill:.4f} of their places; packed into"
            f" {self.rows} rows they fill {self.packed_fill:.4f}: {self.factor:.4f} sequences a row"
        )
        if self.factor < WORTHWHILE:
            text += (
                f". Packing is not worthwhile below {WORTHWHILE} sequences a row: train on the"
                " unpacked records"
            )
        return text


def forecast(counts: Sequence[int], packs: Sequence[Pack]) -> Forecast:
    """Returns what packing will save: `pack_histogram` made `packs` from `counts`, not all 0."""
    sequences, row_length = sum(map(int, counts)), len(counts) - 1
    rows = sum(pack.count for pack in packs)
    tokens = sum(length * int(count) for length, count in enumerate(counts))
    fills = (tokens / (number * row_length) for number in (sequences, rows))
    return Forecast(sequences, rows, *fills)


def rows_of(lengths: Sequence[int], packs: Sequence[Pack], seed: int) -> Iterator[list[int]]:
    """Yields the numbers of the sequences in each row, the longest sequence first.

    The seed determines the order of the rows. Sequences of the same length keep their order. Takes
    about 24 bytes of memory for each sequence and for each row.

    Args:
        lengths: the length of each sequence: an array of integers.
        packs: what `pack_histogram` returned for the histogram of these lengths.
    """
    by_length = np.argsort(np.asarray(lengths), kind="stable")
    ends = np.cumsum(np.bincount(lengths))
    begins = np.concatenate([[0], ends])[: len(ends)]  # of each length's sequences not yet taken
    members = np.empty(len(lengths), by_length.dtype)
    widths = np.repeat([len(pack.lengths) for pack in packs], [pack.count for pack in packs])
    row_begins = np.concatenate([[0], np.cumsum(widths)])
    place = 0
    for pack_lengths, count in packs:
        stop = place + count * len(pack_lengths)
        rows = members[place:stop].reshape(count, -1)
        for column, length in enumerate(pack_lengths):
            begin = begins[length]
            rows[:, column] = by_length[begin : begin + count]
            begins[length] += count
        place = stop
    del by_length, widths
    order = array("Q", range(len(row_begins) - 1))
    shuffle(order, random.Random(seed))
    for number in order:
        yield members[row_begins[number] : row_begins[number + 1]].tolist()


def rows_a_step(batch_size: int, sequences_per_row: float, parts: int) -> int:
    """Returns the number of rows that hold about `batch_size` sequences, a multiple of `parts`."""
    return max(1, round(batch_size / sequences_per_row / parts)) * parts
