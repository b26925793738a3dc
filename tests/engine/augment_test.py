"""The keys by which batches are changed at random."""

import numpy as np
import pytest

from bert_tf.engine import input_pipeline
from bert_tf.engine.distribution import ONE_HOST, InputShard
from bert_tf.seeds import hash_numbers
from tests.engine.conftest import STARTS, training_input


def with_keys(features, keys):
    return {**features, "key": keys}


def keyed_input(files, batch_size=13, seed=5, shard=ONE_HOST):
    return training_input(files, batch_size, seed, shard, with_keys)


def draw_keys(iterator, count):
    """Returns pairs of a record's number and its key."""
    batches = [next(iterator) for _ in range(count)]
    return [
        pair
        for batch in batches
        for pair in zip(batch["ids"].numpy()[:, 0].tolist(), batch["key"].numpy(), strict=True)
    ]


def test_a_key_is_of_the_seed_the_epoch_and_the_record(files):
    drawn = draw_keys(keyed_input(files).iterator, 603 * 3 // 13)
    assert len({key for _, key in drawn}) == len(drawn)
    numbers = np.arange(STARTS[-1])
    file = np.searchsorted(STARTS, numbers, "right") - 1
    known = set()
    for epoch in range(6):
        keys = hash_numbers(5, epoch, file, numbers - STARTS[file]).numpy()
        known |= {*zip(numbers.tolist(), keys.tolist(), strict=True)}
    assert set(drawn) <= known
    assert [number for number, _ in drawn[:100]] != sorted(number for number, _ in drawn[:100])


@pytest.mark.parametrize(("before", "after"), [(1, 7), (2, 1), (7, 1), (8, 2)])
def test_a_restart_on_a_host_with_other_cores_changes_nothing(
    files, tmp_path, monkeypatch, before, after
):
    monkeypatch.setattr(input_pipeline, "PARSERS", 1)
    expected = draw_keys(keyed_input(files).iterator, 120)
    monkeypatch.setattr(input_pipeline, "PARSERS", before)
    source = keyed_input(files)
    assert draw_keys(source.iterator, 60) == expected[: 60 * 13]
    source.capture()(str(tmp_path / "ckpt"))
    monkeypatch.setattr(input_pipeline, "PARSERS", after)
    resumed = keyed_input(files, seed=99)
    assert resumed.restore(str(tmp_path / "ckpt"))
    assert draw_keys(resumed.iterator, 60) == expected[60 * 13 :]


@pytest.mark.parametrize("count", [2, 7])
def test_keys_do_not_depend_on_the_number_of_hosts(files, count):
    def of_hosts(count):
        hosts = [keyed_input(files, 30 * count, shard=InputShard(i, count)) for i in range(count)]
        return [set(draw_keys(host.iterator, 70 // count)) for host in hosts]

    parts = of_hosts(count)
    assert len(set.union(*parts)) == sum(map(len, parts))
    # The first epoch of every record; orders and later epochs differ.
    assert len(set.union(*parts) & of_hosts(1)[0]) > 500
