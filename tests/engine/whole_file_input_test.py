"""Tests of bert_tf.engine.whole_file_input and of the lengths that its batches are cut to."""

import collections
import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine.distribution import ONE_HOST, InputShard
from bert_tf.engine.length_buckets import Buckets, example_lengths, parse_lengths
from bert_tf.engine.whole_file_input import GROUP_BATCHES, WholeFileInput
from bert_tf.errors import UserError
from bert_tf.files import records
from tests.support.refusals import refuses

S = 40
SCHEMA = {
    "input_ids": records.int64_feature([S], "max_seq_length"),
    "input_mask": records.int64_feature([S], "max_seq_length", low=0, high=1),
    "number": records.int64_feature([]),
}
BUCKETS = Buckets.of_schema((10, 20, 30, S), SCHEMA)


def length_of(number):
    return 1 + number * 7 % S


def write(path, count):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for i in range(count):
            mask = [1] * length_of(i) + [0] * (S - length_of(i))
            values = {"input_ids": mask, "input_mask": mask, "number": [i]}
            writer.write(records.serialize(values, SCHEMA))
    return [str(path)]


def read(files, batch_size, seed=5, shard=ONE_HOST, buckets=BUCKETS, group=False):
    options = {"num_batches": 30, "buckets": buckets, "group_by_length": group}
    return WholeFileInput(files, SCHEMA, batch_size, seed, shard, **options)


def draw(source, count):
    return [next(source.iterator) for _ in range(count)]


def saved(source, folder):
    """Saves the place after 11 batches; returns its prefix, and the numbers of 20 more."""
    draw(source, 11)
    source.capture()(str(folder / "place"))
    return str(folder / "place"), numbers(draw(source, 20))


def numbers(batches):
    return np.concatenate([batch["number"] for batch in batches])


@pytest.mark.parametrize("group", [False, True])
def test_every_epoch_has_every_record_once_in_an_order_of_its_own(tmp_path, group):
    files = write(tmp_path / "a", 143)
    seen = numbers(draw(read(files, 11, group=group), 39))  # three epochs, 13 batches each
    epochs = seen.reshape(3, 143)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(143))
    assert not (epochs[0] == epochs[1]).all()
    # Far from where they stood, which a buffer of 100 does not do.
    assert np.abs(np.argsort(epochs[0]) - np.arange(143)).max() > 100
    np.testing.assert_array_equal(seen, numbers(draw(read(files, 11, group=group), 39)))
    assert not (seen == numbers(draw(read(files, 11, seed=6, group=group), 39))).all()
    # What is left of an epoch joins the next.
    files = write(tmp_path / "a", 23)
    counts = collections.Counter(numbers(draw(read(files, 5, group=group), 23)).tolist())
    assert set(counts.values()) == {5}


@pytest.mark.parametrize("group", [False, True])
def test_a_batch_tells_the_length_it_needs(tmp_path, group):
    source = read(write(tmp_path / "a", 90), 2, group=group)
    for batch in draw(source, 60):
        longest = max(length_of(n) for n in batch["number"].numpy())
        assert int(batch["longest"]) == longest
        index = int(source.buckets.index(batch["longest"]))
        assert index == np.searchsorted(source.buckets.lengths, longest)
        assert batch["input_ids"].shape == [2, S]  # the loop cuts it


def test_lengths_that_no_batch_needs_are_left_out(tmp_path):
    """Of 18 examples the longest is nearly always above 30."""
    files = write(tmp_path / "a", 90)
    assert read(files, 1).buckets == BUCKETS
    assert read(files, 18).buckets.lengths == (40,)
    assert read(files, 8, group=True).buckets.lengths == (10, 20, 30, 40)


def test_like_lengths_come_together(tmp_path):
    batch_size, count = 4, 4 * GROUP_BATCHES * 3 + 3
    files = write(tmp_path / "a", count)
    batches = draw(read(files, batch_size, group=True), 2 * count // batch_size)
    spread = [np.ptp([length_of(n) for n in batch["number"].numpy()]) for batch in batches]
    # Also in the second epoch, which begins in the middle of a batch.
    assert np.mean(spread) < 2 and np.mean(np.array(spread) > 10) < 0.03
    longest = [max(length_of(n) for n in batch["number"].numpy()) for batch in batches[:50]]
    assert (np.diff(longest) > 0).any() and (np.diff(longest) < 0).any()  # in no order


@pytest.mark.parametrize("group", [False, True])
def test_hosts_share_a_batch_and_agree_on_its_length(tmp_path, group):
    files = write(tmp_path / "a", 50)
    whole = draw(read(files, 6, group=group), 12)
    parts = [draw(read(files, 6, shard=InputShard(i, 2), group=group), 12) for i in range(2)]
    for batch, first, second in zip(whole, *parts, strict=True):
        assert first["longest"] == second["longest"] == batch["longest"]
        np.testing.assert_array_equal(
            np.concatenate([first["number"], second["number"]]), batch["number"]
        )


@pytest.mark.parametrize("group", [False, True])
def test_a_saved_place_goes_on(tmp_path, group):
    files = write(tmp_path / "a", 31)
    place, expected = saved(read(files, 4, group=group), tmp_path)
    # The place is two numbers, not the records.
    assert os.path.getsize(f"{place}.input.data-00000-of-00001") < 20_000
    resumed = read(files, 4, seed=99, group=group)
    assert resumed.restore(place)
    np.testing.assert_array_equal(numbers(draw(resumed, 20)), expected)


@pytest.mark.parametrize("names", ["xy", "yx"])
def test_a_place_does_not_depend_on_the_names_of_files(tmp_path, names):
    files = [*write(tmp_path / "a", 31), *write(tmp_path / "b", 17)]
    place, expected = saved(read(files, 4), tmp_path)
    for path, name in zip(files, names, strict=True):
        os.rename(path, tmp_path / name)
    resumed = read([str(tmp_path / "x"), str(tmp_path / "y")], 4, seed=99)
    assert resumed.restore(place)
    np.testing.assert_array_equal(numbers(draw(resumed, 20)), expected)


def test_a_place_does_not_depend_on_the_buckets_it_was_saved_with(tmp_path):
    """The batches that were drawn ahead are in it, and no token of theirs is to be cut off."""
    files = write(tmp_path / "a", 90)
    source = read(files, 2, buckets=Buckets.of_schema((15, S), SCHEMA))
    place, expected = saved(source, tmp_path)
    resumed = read(files, 2)
    assert resumed.restore(place) and resumed.buckets == BUCKETS
    batches = draw(resumed, 20)
    np.testing.assert_array_equal(numbers(batches), expected)
    for batch in batches:
        cut = BUCKETS.trim(batch, int(BUCKETS.index(batch["longest"])))
        np.testing.assert_array_equal(
            tf.reduce_sum(cut["input_mask"], axis=1), tf.reduce_sum(batch["input_mask"], axis=1)
        )


def test_wrong_records_are_named(tmp_path):
    (path,) = files = write(tmp_path / "a", 30)
    os.truncate(path, os.path.getsize(path) - 3)
    refuses(f"{path} is truncated at record 29", read, files, 4)
    os.remove(path)
    refuses(f"{path} cannot be read: ", read, files, 4, kind=OSError)
    with tf.io.TFRecordWriter(path) as writer:
        for mask in ([1] * S, [1, 7] * (S // 2)):
            values = {"input_ids": [1] * S, "input_mask": mask, "number": [0]}
            writer.write(records.serialize(values, SCHEMA))
    with pytest.raises(UserError) as error:
        read(files, 1)
    problem = "input_mask must be from 0 to 1; received 7"
    assert str(error.value).endswith(f"{path}, record 1 (counted from 0): {problem}")


def test_lengths():
    for text, max_seq_length, lengths in (
        ("auto", 128, (16, 32, 48, 64, 80, 96, 112, 128)),
        ("auto", 384, (48, 96, 144, 192, 240, 288, 336, 384)),
        ("auto", 50, (16, 32, 48, 50)),
        ("auto", 9, (9,)),
        ("none", 77, (77,)),
        ("40,20", 70, (20, 40, 70)),
        ("70", 70, (70,)),
    ):
        assert parse_lengths(text, max_seq_length) == lengths


def test_other_words_and_a_length_beyond_the_records_are_refused():
    for text in ("", "12,", "0,5", "long", "-8", "8 16", "9" * 5000):
        refuses("must be auto, none, or lengths such as 32,64,128; not", parse_lengths, text, 128)
    message = "--length_buckets='64,130': no length may be above --max_seq_length=128"
    refuses(message, parse_lengths, "64,130", 128)


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


def test_example_lengths_and_the_shortest_that_fits():
    mask = tf.constant([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(example_lengths(mask), [2, 4, 0])
    choices = tf.stack([mask, mask[::-1]], axis=1)  # [3, 2, 4]
    np.testing.assert_array_equal(example_lengths(choices), [2, 4, 2])
    buckets = Buckets((4, 6, 9), ())
    assert [int(buckets.index(tf.constant(n))) for n in (1, 4, 5, 6, 7, 9)] == [0, 0, 1, 1, 2, 2]
