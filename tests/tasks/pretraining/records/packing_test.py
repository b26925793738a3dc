"""Tests of packing by lengths: no record, no TensorFlow."""

import json
import math
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

from bert_tf.tasks.pretraining.records.packing import (
    Pack,
    forecast,
    pack_histogram,
    rows_a_step,
    rows_of,
)
from tests.support.golden import needs_golden


def histogram(lengths, row_length):
    return np.bincount(lengths, minlength=row_length + 1)


def packed(lengths, row_length, places):
    return pack_histogram(histogram(lengths, row_length), places)


def like_wikipedia(row_length=512, number=1_000_000):
    """Returns counts of lengths as documents have them: a quarter full, many short ones."""
    short = np.random.RandomState(3).lognormal(math.log(150), 0.75, number * 3 // 4).astype(int)
    counts = histogram(np.clip(short, 5, row_length), row_length)
    counts[row_length] += number // 4
    return counts


def test_a_sequence_goes_into_the_row_with_the_fewest_tokens():
    # 7 opens a row, and so does 6, where 3 goes, although it fills up the row with 7. 2 goes to 7.
    assert sorted(packed([7, 6, 3, 2], 10, 4)) == [Pack((6, 3), 1), Pack((7, 2), 1)]
    # With the places used up, the next row is taken.
    assert sorted(packed([7, 4, 1, 1, 1, 1], 10, 3)) == [Pack((4, 1, 1), 1), Pack((7, 1, 1), 1)]
    # Where no row has room, a new one takes as many of this length as fit.
    assert sorted(packed([4] * 7, 13, 9)) == [Pack((4,), 1), Pack((4, 4, 4), 2)]
    assert sorted(packed([4] * 7, 13, 2)) == [Pack((4,), 1), Pack((4, 4), 3)]


@pytest.mark.parametrize("seed", range(40))
def test_each_sequence_is_in_one_row_that_it_fits_in(seed):
    rng = random.Random(seed)
    row_length, places = rng.randint(1, 31), rng.randint(2, 7)
    lengths = [rng.randint(1, row_length) for _ in range(rng.randint(1, 300))]
    packs = packed(lengths, row_length, places)
    rows = list(rows_of(lengths, packs, seed))
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    for row in rows:
        in_row = [lengths[number] for number in row]
        assert len(row) <= places and sum(in_row) <= row_length
        assert in_row == sorted(in_row, reverse=True)
    found = forecast(histogram(lengths, row_length), packs)
    assert found.rows == len(rows) == sum(pack.count for pack in packs)
    assert found.sequences == len(lengths)
    assert found.fill == pytest.approx(sum(lengths) / len(lengths) / row_length)
    assert found.packed_fill == pytest.approx(sum(lengths) / len(rows) / row_length)


def test_what_packing_brings():
    counts = like_wikipedia()
    began = time.monotonic()
    factors = []
    for places in (2, 3, 6, 12, 512):
        packs = pack_histogram(counts, places)
        found = forecast(counts, packs)
        factors.append(found.factor)
    assert time.monotonic() - began < 2.0
    assert factors == sorted(factors)
    assert found.packed_fill > 0.995 and max(len(pack.lengths) for pack in packs) > 12
    assert str(found).endswith(f": {found.factor:.4f} sequences a row")


def test_long_documents_do_not_pay():
    counts = [0] * 20 + [3] + [0] * 99 + [0, 9, 88]
    assert len(counts) == 123
    found = forecast(counts, pack_histogram(counts, 6))
    assert found.rows == 98 and str(found).endswith(
        "1.0204 sequences a row. Packing is not worthwhile below 1.1 sequences a row: train on the"
        " unpacked records"
    )


@needs_golden
def test_wikipedia():
    data = Path(os.environ["BERT_TF_GOLDEN"]).parent / "data" / "wikipedia_lengths_512.json"
    counts = [0, *json.loads(data.read_text())["counts_of_length_1_to_512"]]
    began = time.monotonic()
    found = forecast(counts, pack_histogram(counts, 12))
    assert time.monotonic() - began < 2.0
    assert found.fill == pytest.approx(0.4997, abs=5e-5)
    assert found.packed_fill >= 0.995 and found.factor >= 1.99


def test_rows_of_a_step():
    assert rows_a_step(32, 2.0, 1) == 16
    assert rows_a_step(32, 1.99, 6) == 18
    assert rows_a_step(32, 3.6, 8) == 8
    assert rows_a_step(3, 9.5, 4) == 4
