"""Tests of bert_tf.text.sequences."""

import itertools
import random

import pytest

from bert_tf.text import sequences
from bert_tf.text.sequences import Layout, Span, make_spans, max_context, split_pair
from tests.support.refusals import refusal

LAYOUT = Layout(2, 3)  # of BERT: three special tokens in a pair
WIDE = Layout(2, 3, separators=2, second_segment=0)  # of RoBERTa: four


def test_pack_pair():
    for ids_a, ids_b, layout, input_ids, segment_ids in (
        ([7, 8], [9], LAYOUT, [2, 7, 8, 3, 9, 3, 0], [0, 0, 0, 0, 1, 1, 0]),
        ([7], [8, 9], LAYOUT, [2, 7, 3, 8, 9, 3], [0, 0, 0, 1, 1, 1]),
        ([7, 8], [], LAYOUT, [2, 7, 8, 3, 0, 0], [0] * 6),
        ([7, 8], [9], WIDE, [2, 7, 8, 3, 3, 9, 3, 0], [0] * 8),
        ([7], [], WIDE, [2, 7, 3, 0], [0] * 4),
    ):
        packed = sequences.pack_pair(ids_a, ids_b, len(input_ids), layout)
        input_mask = [int(i != 0) for i in input_ids]
        expected = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        assert packed == expected
    assert WIDE.second_start(2) == 5
    assert [WIDE.num_special(False), WIDE.num_special(True)] == [2, 4]
    cut = sequences.truncate_and_pack([7] * 9, [8] * 9, 9, WIDE)
    assert cut["input_ids"] == [2, 7, 7, 7, 3, 3, 8, 8, 3]


def _drop_tokens(a, b, limit, rng):
    while len(a) + len(b) > limit:
        loser = a if len(a) > len(b) else b
        loser.pop(0 if rng.random() < 0.5 else -1)


def test_truncate_pair_drops_the_same_tokens_one_by_one():
    for seed in range(20):
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


def test_truncate_longer():
    for lengths, limit, kept in (
        ((3, 2), 5, (3, 2)),
        ((3, 2), 4, (2, 2)),  # the longer one
        ((2, 3), 4, (2, 2)),
        ((2, 2), 3, (2, 1)),  # the second of two equally long ones
        ((9, 1), 4, (3, 1)),
        ((7, 9), 1, (1, 0)),
        ((0, 5), 2, (0, 2)),
    ):
        assert sequences.truncate_longer(*lengths, limit) == kept


def test_unpadded_tokens():
    inv_vocab = dict(enumerate(["[PAD]", "[SEP]", "a", "[CLS]", "b"]))
    packed = sequences.pack_pair([2], [4, 0], 9, Layout(3, 1))
    found = sequences.unpadded_tokens(packed, inv_vocab)
    assert found == ["[CLS]", "a", "[SEP]", "b", "[PAD]", "[SEP]"]


def test_spans():
    assert make_spans(0, 5, 2) == []
    assert make_spans(5, 5, 2) == [Span(0, 5)]
    assert make_spans(9, 5, 2) == [Span(0, 5), Span(2, 5), Span(4, 5)]
    assert make_spans(8, 5, 3) == [Span(0, 5), Span(3, 5)]
    # A stride beyond the length skips nothing.
    assert make_spans(7, 3, 100) == [Span(0, 3), Span(3, 3), Span(6, 1)]


@pytest.mark.parametrize("tokens, length, stride", [(1, 7, 3), (23, 7, 3), (40, 11, 2), (9, 3, 8)])
def test_most_context(tokens, length, stride):
    spans = make_spans(tokens, length, stride)
    found = max_context(spans)
    for position in range(tokens):
        scores = {
            i: min(position - start, start + size - 1 - position) + 0.01 * size
            for i, (start, size) in enumerate(spans)
            if start <= position < start + size
        }
        best = max(scores, key=scores.get)  # the first of equal ones
        for i in scores:
            assert found[i][position - spans[i].start] == (i == best)


def test_windows_of_texts_and_pairs():
    for a, b, length, stride, layout, windows in (
        # What fits stays whole, up to the last token.
        ("abc", "", 5, 1, LAYOUT, [("abc", "")]),
        ("abc", "xy", 8, 1, LAYOUT, [("abc", "xy")]),
        ("", "", 4, 1, LAYOUT, [("", "")]),
        ("abcd", "", 5, 2, LAYOUT, [("abc", ""), ("cd", "")]),
        ("abcdefg", "", 6, 4, LAYOUT, [("abcd", ""), ("efg", "")]),
        # The longer text of a pair is split, the second one if both are equally long.
        ("ab", "uvwxyz", 9, 2, LAYOUT, [("ab", "uvwx"), ("ab", "wxyz")]),
        ("abcdef", "z", 8, 3, LAYOUT, [("abcd", "z"), ("def", "z")]),
        ("abc", "xyz", 8, 1, LAYOUT, [("abc", "xy"), ("abc", "yz")]),
        ("", "xyz", 5, 1, LAYOUT, [("", "xy"), ("", "yz")]),
        ("abc", "xyz", 9, 9, WIDE, [("abc", "xy"), ("abc", "z")]),
    ):
        assert split_pair(a, b, length, stride, layout, "texts[0]") == windows


def test_a_pair_whose_shorter_text_fills_the_window_is_refused():
    for lengths, length, layout, pieces in (((5, 9), 8, LAYOUT, 5), ((9, 6), 10, WIDE, 6)):
        pair = ["a" * lengths[0], "b" * lengths[1]]
        assert refusal(split_pair, *pair, length, 2, layout, "Example 'x'") == (
            "Example 'x': the shorter text of a pair is whole in every window, so it must leave"
            f" room for the longer one; it has {pieces} word pieces, and max_seq_length ({length})"
            f" has room for {pieces} beside the special tokens. Shorten the text, raise"
            f" max_seq_length to {length + 1} or more, or set long_text to cut"
        )
        assert (
            len(split_pair(*pair, length + 1, 2, layout, "Example 'x'")) == 9
        )  # of one piece each


@pytest.mark.parametrize("layout", [LAYOUT, WIDE])
def test_half_of_the_room_is_the_usual_stride(layout):
    """Of the split text: successive windows overlap, however long the other text is."""
    for lengths, max_seq_length, stride in (
        ((700, 0), 128, 63),
        ((0, 600), 512, 254),
        ((200, 700), 512, 154),
        ((90, 60), 128, 32),  # the other text takes half of the sequence
        ((700, 110), 128, 7),
        ((9, 3), 8, 1),
    ):
        texts = [list(range(length)) for length in lengths]
        windows = split_pair(*texts, max_seq_length, 0, layout, "texts[0]")
        split = 0 if lengths[0] > lengths[1] else 1
        starts = [window[split][0] for window in windows]
        assert starts[1] in (stride, max(stride - 1, 1))  # RoBERTa has a token more between texts
        if max_seq_length > 8:
            assert all(b[split][0] <= a[split][-1] for a, b in itertools.pairwise(windows))
        assert windows[-1][split][-1] == lengths[split] - 1
