"""Tests of bert_tf.engine.length_buckets."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine.length_buckets import Buckets, example_lengths, parse_lengths
from bert_tf.errors import UserError
from bert_tf.files import records


@pytest.mark.parametrize(
    "text, max_seq_length, lengths",
    [
        ("auto", 128, (16, 32, 48, 64, 80, 96, 112, 128)),
        ("auto", 384, (48, 96, 144, 192, 240, 288, 336, 384)),
        ("auto", 50, (16, 32, 48, 50)),
        ("auto", 9, (9,)),
        ("none", 77, (77,)),
        ("40,20", 70, (20, 40, 70)),
        ("70", 70, (70,)),
    ],
)
def test_lengths(text, max_seq_length, lengths):
    assert parse_lengths(text, max_seq_length) == lengths


@pytest.mark.parametrize("text", ["", "12,", "0,5", "long", "-8", "8 16", "9" * 5000])
def test_other_words_are_refused(text):
    with pytest.raises(UserError, match="must be auto, none, or lengths such as 32,64,128; not"):
        parse_lengths(text, 128)


def test_a_length_beyond_the_records_is_refused():
    message = "--length_buckets='64,130': no length may be above --max_seq_length=128"
    with pytest.raises(UserError, match=message):
        parse_lengths("64,130", 128)


def test_batches_are_cut_along_the_sequence_alone():
    schema = {
        "input_ids": records.int64_feature([3, 7], "max_seq_length"),
        "other": records.int64_feature([7]),
    }
    buckets = Buckets.of_schema((4, 7), schema)
    batch = {"input_ids": tf.ones([2, 3, 7]), "other": tf.ones([2, 7]), "bucket": tf.constant(0)}
    cut = buckets.trim(batch, 0)
    assert cut["input_ids"].shape == [2, 3, 4]
    assert cut["other"].shape == [2, 7] and cut["bucket"].shape == []
    assert buckets.trim(batch, 1)["input_ids"].shape == [2, 3, 7]


def test_the_shortest_that_fits():
    buckets = Buckets((4, 6, 9), ())
    assert [int(buckets.index(tf.constant(n))) for n in (1, 4, 5, 6, 7, 9)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "longest, least, kept",
    [
        ([3, 4, 5, 5, 9], 1, (4, 6, 9)),
        ([3, 5, 5, 9, 9], 2, (6, 9)),  # the one batch of 4 goes to 6
        ([3, 5, 9], 3, (9,)),
        ([3, 3, 3, 5], 3, (4, 6)),  # the longest that is needed stays, and 9 is not needed
        ([2], 9, (4,)),
    ],
)
def test_rare_lengths_are_left_out(longest, least, kept):
    assert Buckets((4, 6, 9), ("a",)).frequent(np.array(longest), least) == Buckets(kept, ("a",))


def test_example_lengths():
    mask = tf.constant([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(example_lengths(mask), [2, 4, 0])
    choices = tf.stack([mask, mask[::-1]], axis=1)  # [3, 2, 4]
    np.testing.assert_array_equal(example_lengths(choices), [2, 4, 2])
