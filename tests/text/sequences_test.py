"""Tests of bert_tf.text.sequences."""

import random

import pytest

from bert_tf.text import sequences


@pytest.mark.parametrize(
    ("ids_a", "ids_b", "input_ids", "input_mask", "segment_ids"),
    [
        ([7, 8], [9], [2, 7, 8, 3, 9, 3, 0], [1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 0]),
        ([7], [8, 9], [2, 7, 3, 8, 9, 3], [1] * 6, [0, 0, 0, 1, 1, 1]),
        ([7, 8], [], [2, 7, 8, 3, 0, 0], [1, 1, 1, 1, 0, 0], [0] * 6),
    ],
    ids=["a pair", "no padding", "one text"],
)
def test_pack_pair(ids_a, ids_b, input_ids, input_mask, segment_ids):
    packed = sequences.pack_pair(ids_a, ids_b, len(input_ids), sequences.Layout(2, 3))
    expected = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
    assert packed == expected


def _drop_tokens(a, b, limit, rng):
    while len(a) + len(b) > limit:
        loser = a if len(a) > len(b) else b
        loser.pop(0 if rng.random() < 0.5 else -1)


@pytest.mark.parametrize("seed", range(20))
def test_truncate_pair_drops_the_same_tokens_one_by_one(seed):
    choose = random.Random(seed)
    a = list(range(choose.randint(1, 90)))
    b = list(range(1000, 1000 + choose.randint(1, 90)))
    limit = choose.randint(2, 120)
    rng, same_rng = random.Random(seed), random.Random(seed)
    start_a, end_a, start_b, end_b = sequences.truncate_pair(len(a), len(b), limit, rng)
    kept_a, kept_b = a[start_a:end_a], b[start_b:end_b]
    _drop_tokens(a, b, limit, same_rng)
    assert (kept_a, kept_b) == (a, b)
    assert rng.getstate() == same_rng.getstate()
    # A pair that fits takes no random number.
    assert sequences.truncate_pair(4, 5, 9, rng) == (0, 4, 0, 5)
    assert rng.getstate() == same_rng.getstate()


@pytest.mark.parametrize(
    "lengths, limit, kept",
    [
        ((3, 2), 5, (3, 2)),
        ((3, 2), 4, (2, 2)),  # the longer one
        ((2, 3), 4, (2, 2)),
        ((2, 2), 3, (2, 1)),  # the second of two equally long ones
        ((9, 1), 4, (3, 1)),
        ((7, 9), 1, (1, 0)),
        ((0, 5), 2, (0, 2)),
    ],
)
def test_truncate_longer(lengths, limit, kept):
    assert sequences.truncate_longer(*lengths, limit) == kept


def test_a_layout_with_two_separators():
    layout = sequences.Layout(2, 3, separators=2, second_segment=0)
    assert sequences.pack_pair([7, 8], [9], 8, layout) == {
        "input_ids": [2, 7, 8, 3, 3, 9, 3, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 1, 0],
        "segment_ids": [0] * 8,
    }
    assert sequences.pack_pair([7], [], 4, layout)["input_ids"] == [2, 7, 3, 0]
    assert layout.second_start(2) == 5
    assert [layout.num_special(False), layout.num_special(True)] == [2, 4]
    cut = sequences.truncate_and_pack([7] * 9, [8] * 9, 9, layout)
    assert cut["input_ids"] == [2, 7, 7, 7, 3, 3, 8, 8, 3]


def test_unpadded_tokens():
    inv_vocab = dict(enumerate(["[PAD]", "[SEP]", "a", "[CLS]", "b"]))
    packed = sequences.pack_pair([2], [4, 0], 9, sequences.Layout(3, 1))
    found = sequences.unpadded_tokens(packed, inv_vocab)
    assert found == ["[CLS]", "a", "[SEP]", "b", "[PAD]", "[SEP]"]
