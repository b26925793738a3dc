"""Tests of bert_tf/tasks/pretraining/records/spill_file.py."""

import random

import pytest

from bert_tf.tasks.pretraining.records import spill_file
from bert_tf.tasks.pretraining.records.spill_file import SpillFile


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11])
def test_records_are_read_in_the_order_of_a_shuffled_list(count, monkeypatch, tmp_path):
    """With some records at once, as many as fit or a few more or fewer."""
    monkeypatch.setattr(spill_file, "_RECORDS_AT_ONCE", 4)
    expected = [bytes([i]) * (i * 37 % 50) for i in range(count)]
    with SpillFile(None, str(tmp_path / "out")) as spill:
        for i, record in enumerate(expected):
            spill.add(record, i)
        assert list(spill.in_order()) == expected
        spill.shuffle(random.Random(1))
        order = list(range(count))
        random.Random(1).shuffle(order)
        assert list(spill.in_order()) == [expected[i] for i in order]
        assert spill.num_tokens().tolist() == order
    assert list(tmp_path.iterdir()) == []
