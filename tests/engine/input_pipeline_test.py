"""Order, place and checks of the input."""

import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import input_pipeline
from bert_tf.engine.distribution import InputShard
from bert_tf.files import records

SCHEMA = {"ids": records.int64_feature([3], "max_seq_length"), "w": records.float_feature([1])}
LIMITS = {"ids": (1000, "vocab_size")}


def write(path, numbers, schema=SCHEMA, ids=lambda number: [number, 0, 7]):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in numbers:
            values = {"ids": ids(number), "w": [number / 2]}
            writer.write(records.serialize(values, schema))
    return str(path)


@pytest.fixture(autouse=True)
def global_seed():
    tf.random.set_seed(3)


@pytest.fixture
def files(tmp_path):
    sizes = (170, 230, 113, 61, 29)
    starts = np.cumsum((0, *sizes))
    return [
        write(tmp_path / f"{i}.tfrecord", range(starts[i], starts[i + 1]))
        for i in range(len(sizes))
    ]


def training_input(files, batch_size=13, seed=5):
    return input_pipeline.TrainingInput(files, SCHEMA, batch_size, LIMITS, seed)


def draw(iterator, count):
    return [next(iterator)["ids"].numpy()[:, 0].tolist() for _ in range(count)]


def test_batches_have_static_shapes_and_tpu_types(files):
    batch = next(training_input(files).iterator)
    assert {name: (x.dtype, x.shape.as_list()) for name, x in batch.items()} == {
        "ids": (tf.int32, [13, 3]),
        "w": (tf.float32, [13, 1]),
    }
    np.testing.assert_array_equal(batch["w"][:, 0] * 2, batch["ids"][:, 0])


def test_the_order_follows_the_seed_and_every_record_comes_up(files):
    total = 603
    first = sum(draw(training_input(files, 1).iterator, total), [])
    again = sum(draw(training_input(files, 1).iterator, total), [])
    other = sum(draw(training_input(files, 1, seed=6).iterator, total), [])
    assert first == again != other
    # Readers of the next epoch's files begin while the last of this one's are still read.
    assert len(set(first)) > 0.7 * total
    assert first != sorted(first)
    two_epochs = sum(draw(training_input(files, 1).iterator, 4 * total), [])
    assert set(two_epochs) == set(range(total))


@pytest.mark.parametrize("steps", [1, 45, 46, 47, 130])
def test_a_restored_input_goes_on_where_it_was(files, tmp_path, steps):
    source = training_input(files)
    draw(source.iterator, steps)
    source.save(str(tmp_path / "ckpt"))
    expected = draw(source.iterator, 100)
    resumed = training_input(files, seed=99)  # the seed comes from what was saved
    assert resumed.restore(str(tmp_path / "ckpt"))
    assert draw(resumed.iterator, 100) == expected


def test_resuming_reads_nothing_before_its_place(tmp_path):
    path = write(tmp_path / "one.tfrecord", range(900))
    source = training_input([path])
    consumed = draw(source.iterator, 40)
    source.save(str(tmp_path / "ckpt"))
    expected = draw(source.iterator, 5)
    # What was drawn or waits in a buffer is wiped from the file; reading it would raise.
    record_size = os.path.getsize(path) // 900
    with open(path, "r+b") as writer:
        writer.write(b"\xff" * (record_size * len(sum(consumed, []))))
    resumed = training_input([path])
    assert resumed.restore(str(tmp_path / "ckpt"))
    assert draw(resumed.iterator, 5) == expected


def test_a_place_in_other_files_is_not_restored(files, tmp_path, caplog):
    source = training_input(files)
    source.save(str(tmp_path / "ckpt"))
    assert not training_input(files[:-1]).restore(str(tmp_path / "ckpt"))
    assert not training_input(files, batch_size=4).restore(str(tmp_path / "ckpt"))
    assert not training_input(files).restore(str(tmp_path / "nothing"))
    assert "ckpt belongs to other files" in caplog.text
    assert "ckpt belongs to other batch size" in caplog.text
    assert "nothing has no place in the input beside it" in caplog.text
    write(files[0], range(171))
    assert not training_input(files).restore(str(tmp_path / "ckpt"))


@pytest.mark.parametrize("damage", ["remove", "truncate"])
def test_a_damaged_place_is_begun_anew(files, tmp_path, caplog, damage):
    source = training_input(files)
    draw(source.iterator, 7)
    source.save(str(tmp_path / "ckpt"))
    if damage == "remove":
        os.remove(tmp_path / "ckpt.input.index")
    else:
        os.truncate(tmp_path / "ckpt.input.data-00000-of-00001", 50)
    resumed = training_input(files, seed=8)
    assert not resumed.restore(str(tmp_path / "ckpt"))
    assert "ckpt cannot be read" in caplog.text
    assert draw(resumed.iterator, 5) == draw(training_input(files, seed=8).iterator, 5)


def test_evaluation_goes_through_the_records_in_order_over_and_over(files):
    dataset = input_pipeline.evaluation_dataset(files[2:4], SCHEMA, 50, LIMITS, 174)
    batches = list(dataset.take(4))
    ids = np.concatenate([batch["ids"][:, 0] for batch in batches])
    np.testing.assert_array_equal(ids, [*range(400, 574), *range(400, 426)])
    weights = np.concatenate([batch["example_weight"] for batch in batches])
    np.testing.assert_array_equal(weights, [1.0] * 174 + [0.0] * 26)
    assert input_pipeline.count_records(files[2:4]) == 174


def hosts_of(count, files, seed):
    return [
        input_pipeline.TrainingInput(files, SCHEMA, 7 * count, LIMITS, seed, InputShard(i, count))
        for i in range(count)
    ]


def test_with_fewer_files_than_hosts_each_reads_its_own_records(files):
    """Which they are changes between epochs; every record still goes to one host at a time."""
    first = [sum(draw(host.iterator, 12), []) for host in hosts_of(7, files, seed=5)]
    assert len(set(sum(first, []))) > 350  # of 588; a second epoch has begun in every buffer


@pytest.mark.parametrize("count", [2, 3])
def test_hosts_read_files_of_their_own_and_each_resumes_its_place(files, tmp_path, count):
    hosts = hosts_of(count, files, seed=5)
    seen = []
    for host in hosts:
        batches = draw(host.iterator, 100)
        assert {len(batch) for batch in batches} == {7}
        seen.append(set(sum(batches, [])))
        host.save(str(tmp_path / "ckpt"))
    for i, one in enumerate(seen):
        for other in seen[:i]:
            assert not one & other
    assert set.union(*seen) == set(range(603))
    for host, resumed in zip(hosts, hosts_of(count, files, seed=6), strict=True):
        assert resumed.restore(str(tmp_path / "ckpt"))
        assert draw(resumed.iterator, 20) == draw(host.iterator, 20)


def test_a_place_belongs_to_so_many_hosts(files, tmp_path):
    training_input(files).save(str(tmp_path / "ckpt"))
    half = input_pipeline.TrainingInput(files, SCHEMA, 14, LIMITS, 5, InputShard(0, 2))
    assert not half.restore(str(tmp_path / "ckpt"))


def test_hosts_evaluate_their_part_of_every_batch(files):
    parts = [
        list(
            input_pipeline.evaluation_dataset(
                files[2:4], SCHEMA, 60, LIMITS, 174, InputShard(i, 3)
            ).take(3)
        )
        for i in range(3)
    ]
    ids = [batch["ids"][:, 0] for batches in zip(*parts, strict=True) for batch in batches]
    np.testing.assert_array_equal(np.concatenate(ids), [*range(400, 574), *range(400, 406)])
    weights = [batch["example_weight"] for batches in zip(*parts, strict=True) for batch in batches]
    np.testing.assert_array_equal(np.concatenate(weights), [1.0] * 174 + [0.0] * 6)


def draw_with_error(files, **settings):
    try:
        draw(training_input(files, **settings).iterator, 60)
    except tf.errors.OpError as error:
        return str(input_pipeline.explain(error, files))
    raise AssertionError("nothing was raised")


def test_ids_beyond_their_limit_are_named(tmp_path):
    path = write(tmp_path / "a.tfrecord", range(5, 1005))
    message = draw_with_error([path], batch_size=1000)
    assert "ids must be at least 0 and below 1000 (vocab_size)" in message
    assert "the records hold 0 to 1004 (in one of" in message and path in message


def test_negative_ids_are_named(tmp_path):
    path = write(tmp_path / "a.tfrecord", range(50), ids=lambda number: [number, -3, 1])
    message = draw_with_error([path])
    assert "at least 0" in message and "the records hold -3 to" in message


def test_damage_in_the_middle_is_located(files):
    size = os.path.getsize(files[1])
    with open(files[1], "r+b") as writer:
        writer.seek(size // 2)
        writer.write(b"\x00\xff\x00\xff" * 9)
    message = draw_with_error(files, batch_size=40)
    assert "A record file is damaged" in message and files[1] in message and "byte" in message


def test_truncation_is_located(files):
    os.truncate(files[3], os.path.getsize(files[3]) - 5)
    message = draw_with_error(files, batch_size=40)
    assert f"{files[3]} is truncated at record 60" in message


def test_a_record_of_another_length_in_the_middle(tmp_path):
    longer = {"ids": records.int64_feature([4]), "w": records.float_feature([1])}
    path = write(tmp_path / "a.tfrecord", range(90), longer, lambda number: [number, 1, 2, 3])
    message = draw_with_error([path])
    assert "must have the lengths that the flags say" in message and path in message
    assert "Key: ids" in message and "Values size: 4 but output shape: [3]" in message


def test_other_errors_pass_through():
    error = tf.errors.ResourceExhaustedError(None, None, "no memory")
    assert input_pipeline.explain(error, ["a"]) is error
