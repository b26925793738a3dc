"""Order, place and checks of the input; a place is one in the content, whatever the names."""

import json
import os
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import input_pipeline
from bert_tf.engine.distribution import InputShard
from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from tests.engine.conftest import SCHEMA, training_input, write
from tests.support.refusals import refusal, refuses

READS = (
    training_input,
    input_pipeline.count_records,
    lambda files: next(input_pipeline.record_chunks(files, SCHEMA, 4)),
)


@pytest.fixture(autouse=True)
def global_seed():
    tf.random.set_seed(3)


def draw(iterator, count):
    return [next(iterator)["ids"].numpy()[:, 0].tolist() for _ in range(count)]


def save_place(source, tmp_path, steps=0):
    """Draws batches and saves the place after them; returns its prefix."""
    draw(source.iterator, steps)
    source.capture()(str(tmp_path / "ckpt"))
    return str(tmp_path / "ckpt")


def test_batches_have_static_shapes_and_tpu_types(files):
    batch = next(training_input(files).iterator)
    assert {name: (x.dtype, x.shape.as_list()) for name, x in batch.items()} == {
        "ids": (tf.int32, [13, 3]),
        "w": (tf.float32, [13, 1]),
    }
    np.testing.assert_array_equal(batch["w"][:, 0] * 2, batch["ids"][:, 0])


def test_the_order_follows_the_seed_and_every_record_comes_up(files):
    def order(count, seed=5):
        return sum(draw(training_input(files, 1, seed).iterator, count), [])

    total = 603
    first = order(total)
    assert first == order(total) != order(total, seed=6)
    # Readers of the next epoch's files begin while the last of this one's are still read.
    assert len(set(first)) > 0.7 * total
    assert first != sorted(first)
    assert set(order(4 * total)) == set(range(total))


@pytest.mark.parametrize("steps", [1, 45, 46, 47, 130])
def test_a_restored_input_goes_on_where_it_was(files, tmp_path, steps):
    source = training_input(files)
    prefix = save_place(source, tmp_path, steps)
    expected = draw(source.iterator, 100)
    resumed = training_input(files, seed=99)  # the seed comes from what was saved
    assert resumed.restore(prefix)
    assert draw(resumed.iterator, 100) == expected


def test_resuming_reads_nothing_before_its_place(tmp_path):
    path = write(tmp_path / "one.tfrecord", range(900))
    source = training_input([path])
    consumed = sum(draw(source.iterator, 40), [])
    prefix = save_place(source, tmp_path)
    expected = draw(source.iterator, 5)
    # What was drawn or waits in a buffer is wiped from the file; reading it would raise.
    with open(path, "r+b") as writer:
        writer.write(b"\xff" * (os.path.getsize(path) // 900 * len(consumed)))
    change_place(prefix, digests=None, checksum=None)  # as earlier versions saved it
    resumed = training_input([path])
    assert resumed.restore(prefix)
    assert draw(resumed.iterator, 5) == expected


def change_place(prefix, **changes):
    """Changes values of a saved position; None removes them."""
    path = f"{prefix}.input.json"
    with open(path) as reader:
        saved = {**json.load(reader), **changes}
    with open(path, "w") as writer:
        json.dump({key: x for key, x in saved.items() if x is not None}, writer)


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("batch_size", [1, 13])
def test_a_place_in_files_of_other_content_is_not_restored(tmp_path, caplog, digests, batch_size):
    """The same records in another order: ids below 128 take a byte less, so others begin there."""
    path = write(tmp_path / "a", range(900))
    prefix = save_place(training_input([path], batch_size), tmp_path, 11)
    size = os.path.getsize(path)
    write(path, reversed(range(900)))
    assert os.path.getsize(path) == size
    if not digests:
        change_place(prefix, digests=None, checksum=None)
    resumed = training_input([path], batch_size, seed=8)
    assert not resumed.restore(prefix)
    assert "ckpt belongs to files with different content" in caplog.text
    assert draw(resumed.iterator, 5) == draw(training_input([path], batch_size, 8).iterator, 5)


def test_a_place_in_a_file_that_is_damaged_is_restored_and_the_step_says_so(tmp_path):
    ids = lambda number: [number % 1000, 0, 7]  # noqa: E731
    path = write(tmp_path / "a", range(9000), ids=ids)
    prefix = save_place(training_input([path]), tmp_path, 100)
    with open(path, "r+b") as writer:
        writer.seek(os.path.getsize(path) // 2)
        writer.write(b"\xff" * 9)
    resumed = training_input([path])
    assert resumed.restore(prefix)
    with pytest.raises(tf.errors.DataLossError) as error:
        draw(resumed.iterator, 900)
    assert f"{path} is corrupt at record" in str(resumed.explain(error.value))


ODD_VALUES = [{"seed": -3}, {"batch_size": None}, {"files": 3}, {"files": [[]]}, {"checksum": 4}]


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"seed": NaN}', *ODD_VALUES], ids=str)
def test_a_place_of_other_content_starts_over(tmp_path, caplog, content):
    files = [write(tmp_path / "a", range(40))]
    prefix = save_place(training_input(files), tmp_path)
    if isinstance(content, dict):
        change_place(prefix, **content)
    else:
        (tmp_path / "ckpt.input.json").write_text(content)
    assert not training_input(files).restore(prefix)
    assert f"The position in the input saved with {prefix} " in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        lambda features: {**features, "ids": features["ids"][:, :2]},
        lambda features: {**features, "mask": features["w"]},
        lambda features: {"ids": features["ids"]},
    ],
    ids=["another shape", "one more", "one less"],
)
def test_a_place_with_batches_of_other_features_is_not_restored(files, tmp_path, caplog, change):
    """It holds batches that were drawn ahead: of another objective, or with other masks."""
    source = training_input(files, augment=lambda features, keys: features)
    draw(source.iterator, 7)
    time.sleep(0.5)  # a busy machine may have drawn none ahead yet
    prefix = save_place(source, tmp_path)
    resumed = training_input(files, seed=8, augment=lambda features, keys: change(features))
    assert not resumed.restore(prefix)
    assert "ckpt belongs to batches with different features" in caplog.text
    assert len(next(resumed.iterator)["ids"]) == 13
    if len(resumed.iterator.element_spec) != 2:
        change_place(prefix, features=None, checksum=None)  # as earlier versions saved it
        assert not resumed.restore(prefix)
        assert "ckpt cannot be read: Expected " in caplog.text
        assert len(next(resumed.iterator)["ids"]) == 13


def test_a_place_in_other_files_is_not_restored(files, tmp_path, caplog):
    prefix = save_place(training_input(files), tmp_path)
    assert not training_input(files[:-1]).restore(prefix)
    assert not training_input(files, batch_size=4).restore(prefix)
    assert not training_input(files, shard=InputShard(0, 2)).restore(prefix)
    assert not training_input(files).restore(str(tmp_path / "nothing"))
    assert "ckpt differs in files" in caplog.text
    assert "ckpt differs in batch size" in caplog.text
    assert "nothing has no position in the input beside it" in caplog.text
    write(files[0], range(171))
    assert not training_input(files).restore(prefix)


@pytest.mark.parametrize("before, now", [(1, 2), (8, 4), (4, 4), (None, 2)])
def test_a_place_of_another_number_of_replicas_is_told(before, now, files, tmp_path, caplog):
    """Each batch is the same, and divided anew."""
    prefix = save_place(training_input(files, shard=InputShard(replicas=before or 1)), tmp_path)
    if before is None:
        change_place(prefix, replicas=None, checksum=None)  # as an earlier version saved it
    assert training_input(files, shard=InputShard(replicas=now)).restore(prefix)
    told = f"ckpt was saved by a run on {before} replicas; this run divides its batches among {now}"
    assert (told in caplog.text) == (before not in (None, now))


def hosts_of(count, files, seed):
    return [training_input(files, 7 * count, seed, InputShard(i, count)) for i in range(count)]


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
        host.capture()(str(tmp_path / "ckpt"))
    for i, one in enumerate(seen):
        for other in seen[:i]:
            assert not one & other
    assert set.union(*seen) == set(range(603))
    for host, resumed in zip(hosts, hosts_of(count, files, seed=6), strict=True):
        assert resumed.restore(str(tmp_path / "ckpt"))
        assert draw(resumed.iterator, 20) == draw(host.iterator, 20)


def draw_with_error(files, schema=SCHEMA, batch_size=13):
    source = input_pipeline.TrainingInput(files, schema, batch_size, 5)
    try:
        draw(source.iterator, 60)
    except record_checks.read_errors() as error:
        problem = source.explain(error)
        assert isinstance(problem, UserError), problem
        return str(problem)
    raise AssertionError("nothing was raised")


def example(**values):
    kinds = {"ids": records.int64_feature, "w": records.float_feature}
    return records.serialize(values, {name: kinds[name]([len(x)]) for name, x in values.items()})


IDS = "ids must be from 0 to 999 (vocab_size is 1000); received"
WRONG_RECORDS = {
    "high id": ({"ids": [1, 1000, 3]}, f"{IDS} 1000"),
    "negative id": ({"ids": [1, -3, 1]}, f"{IDS} -3"),
    "negative weight": ({"w": [-1.0]}, "w must be from 0.0 to 1.0; received -1.0"),
    "high weight": ({"w": [1e30]}, "w must be from 0.0 to 1.0; received 1e+30"),
    "no number": ({"w": [np.nan]}, "w must be from 0.0 to 1.0; received nan"),
    "length": ({"ids": [1, 2, 3, 4]}, "length of ids is 4 in the file, 3 by"),
    "no ids": (example(w=[0.0]), "feature ids is missing (the file has w)"),
    "no example": (b"\xff\xff\x0f", "it is not a tf.Example: "),
    "no example, with a NUL": (b"\x00\xba\xfa", "it is not a tf.Example: "),
}


@pytest.mark.parametrize("case", WRONG_RECORDS)
def test_a_wrong_record_is_named_in_one_line(tmp_path, case):
    wrong, problem = WRONG_RECORDS[case]
    good = {"ids": [1, 2, 3], "w": [1.0]}
    if isinstance(wrong, dict):
        wrong = example(**good | wrong)
    schema = {**SCHEMA, "w": records.float_feature([1], low=0.0, high=1.0)}
    path = write(tmp_path / "good", [0, 1, 2])
    with tf.io.TFRecordWriter(str(tmp_path / "bad")) as writer:
        for content in (example(**good), example(**good), wrong, example(**good)):
            writer.write(content)
    message = draw_with_error([path, str(tmp_path / "bad")], schema, batch_size=2)
    assert message.startswith(
        f"The input is wrong: {tmp_path}/bad, record 2 (counted from 0): {problem}"
    )
    assert "\n" not in message and len(message) < 500


@pytest.mark.parametrize("value", [2**31, 2**32 + 5, -(2**31) - 1, 2**63 - 1])
def test_ids_that_int32_cannot_hold_do_not_wrap(tmp_path, value):
    schema = {"ids": records.int64_feature([3]), "w": records.float_feature([1])}
    ids = lambda number: [number, 0, value if number == 33 else 7]  # noqa: E731
    path = write(tmp_path / "a.tfrecord", range(50), schema, ids)
    assert refusal(list, input_pipeline.record_chunks([path], schema, 20)) == (
        f"The input is wrong: {path}, record 33 (counted from 0): ids must be from -2147483648 to"
        f" 2147483647; received {value}"
    )


@pytest.mark.parametrize("cut", [5, 36])
def test_truncation_is_located_before_anything_is_drawn(files, cut):
    os.truncate(files[3], os.path.getsize(files[3]) - cut)
    message = f"{files[3]} is truncated at record 60"
    for read in READS:
        refuses(message, read, files)


def test_a_file_that_disappears_is_a_failure_of_storage(files):
    source = training_input(files)
    os.remove(files[2])
    with pytest.raises(tf.errors.NotFoundError) as error:
        draw(source.iterator, 60)
    problem = source.explain(error.value)
    assert isinstance(problem, OSError) and not isinstance(problem, UserError)
    assert str(problem).startswith(f"{files[2]} cannot be read: ") and "\n" not in str(problem)
    for read in (*READS, lambda files: record_checks.check_files(files, SCHEMA, "input_file")):
        refuses(f"{files[2]} cannot be read: ", read, files, kind=OSError)


def test_what_was_wrong_only_while_it_was_read_may_be_tried_again(files):
    error = tf.errors.DataLossError(None, None, "corrupted record at 5")
    problem = record_checks.explain(error, files, SCHEMA)
    assert isinstance(problem, OSError)
    assert "record at 5), but all 5 record files were sound when read again: " in str(problem)
    error = tf.errors.ResourceExhaustedError(None, None, "no memory")
    assert record_checks.explain(error, ["/a"], SCHEMA) is error


def test_records_are_counted_or_estimated_from_a_few(tmp_path, monkeypatch):
    files = [write(tmp_path / f"{i}.tfrecord", range(20 + i)) for i in range(25)]
    ends = record_checks.check_ends(files)
    total = sum(20 + i for i in range(25))
    monkeypatch.setattr(input_pipeline, "_SAMPLED_FILES", 25)
    assert input_pipeline.estimate_records(files, ends) == (total, True)
    assert input_pipeline.estimate_records(files[:1], ends[:1]) == (20, True)
    monkeypatch.setattr(input_pipeline, "_SAMPLED_RECORDS", 7)
    assert input_pipeline.estimate_records(files, ends) == (total, True)
    monkeypatch.setattr(input_pipeline, "_COUNTED_BYTES", 1000)
    for sampled_files, sampled_records in ((25, 7), (4, 1000), (1, 3)):
        monkeypatch.setattr(input_pipeline, "_SAMPLED_FILES", sampled_files)
        monkeypatch.setattr(input_pipeline, "_SAMPLED_RECORDS", sampled_records)
        count, exact = input_pipeline.estimate_records(files, ends)
        assert not exact and count == pytest.approx(total, rel=0.01)


def test_the_files_that_a_checkpoint_was_trained_on(files, tmp_path):
    prefix = save_place(training_input(files), tmp_path)
    ends = record_checks.check_ends(files)
    assert input_pipeline.trained_on(prefix) == {end[:2] for end in ends}
    assert input_pipeline.trained_on(str(tmp_path / "ckp")) == set()


def test_files_that_change_while_they_are_read_are_told_once(files, tmp_path, caplog):
    caplog.set_level("WARNING", "absl")
    source = training_input(files)
    save_place(source, tmp_path, 1)
    assert not caplog.text
    os.utime(files[2], (1, 1))  # as many bytes, at another time
    os.remove(files[3])  # the next read tells
    save_place(source, tmp_path)
    assert f"{files[2]} changed during the run, which now learns from old" in caplog.text
    caplog.clear()
    os.utime(files[2], (2, 2))  # told already
    os.truncate(files[0], os.path.getsize(files[0]) - 1)
    write(files[4], range(7))
    save_place(source, tmp_path)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{files[0]}, ... changed during")


@pytest.mark.parametrize("watched, told", [(2, [[0], [], [4], []]), (3, [[0], [4], [], []])])
def test_each_save_looks_at_the_next_files(watched, told, files, tmp_path, caplog, monkeypatch):
    """In a bucket each file is a request, for which several processes wait."""
    monkeypatch.setattr(input_pipeline, "_WATCHED_FILES", watched)
    caplog.set_level("WARNING", "absl")
    source = training_input(files)
    os.utime(files[0], (1, 1))
    os.utime(files[4], (1, 1))
    for numbers in told:
        caplog.clear()
        save_place(source, tmp_path)
        warned = [record.getMessage().split(" changed during")[0] for record in caplog.records]
        assert warned == [files[number] for number in numbers]


@pytest.mark.parametrize("content", ["{", "[]", '{"files": 3}', '{"files": [["a", 1]]}'])
def test_a_damaged_note_of_files_is_told(content, tmp_path, caplog):
    (tmp_path / "ckpt.input.json").write_text(content)
    assert input_pipeline.trained_on(str(tmp_path / "ckpt")) == set()
    assert "ckpt.input.json is damaged; what the model was trained on is not known" in caplog.text


def moved(files, folder, names):
    """Moves files to a folder, under these names; returns their paths sorted, as a glob does."""
    folder.mkdir()
    for path, name in zip(files, names, strict=True):
        os.rename(path, folder / name)
    return sorted(str(folder / name) for name in names)


@pytest.mark.parametrize(
    "names",
    [["0", "1", "2", "3", "4"], ["e", "a", "d", "b", "c"], ["0 ä", "1,", "2*", "3[0]", "4\n"]],
    ids=str,
)
@pytest.mark.parametrize("augment", [None, lambda features, key: features | {"key": key}])
def test_a_place_is_one_in_the_content_whatever_the_files_are_called(
    files, tmp_path, names, augment
):
    """Twice moved, and saved again in between: as drawn by the run that stayed."""
    source = training_input(files, 67, augment=augment)
    prefix = save_place(source, tmp_path, 4)
    expected = [next(source.iterator) for _ in range(30)]  # over three epochs
    found = []
    for i in range(2):
        files = moved(files, tmp_path / f"moved{i}", names)
        resumed = training_input(files, 67, seed=9, augment=augment)
        assert resumed.restore(prefix)
        found += [next(resumed.iterator) for _ in range(15)]
        prefix = save_place(resumed, tmp_path)
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])


def test_other_content_under_the_moved_names_starts_over_with_the_names_that_are_there(
    files, tmp_path, caplog
):
    prefix = save_place(training_input(files), tmp_path, 20)
    files = moved(files, tmp_path / "moved", "43210")
    expected = draw(training_input(files, seed=8).iterator, 20)
    os.remove(tmp_path / "ckpt.input.index")
    resumed = training_input(files, seed=8)
    assert not resumed.restore(prefix) and "ckpt cannot be read" in caplog.text
    assert draw(resumed.iterator, 20) == expected
    write(files[2], range(10, 123))  # as many records, but shorter ones
    assert not training_input(files).restore(prefix)
    assert "ckpt differs in files" in caplog.text
