"""Batches that are computed at the same time: their results, and an error in one of them."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.pretrained.build import traced
from bert_tf.pretrained.forward import BATCH_SIZE, Forward, batches_of


def rows_of(lengths):
    return [{"input_ids": [number + 1] * length} for number, length in enumerate(lengths)]


def test_results_keep_the_order_of_the_rows():
    lengths = np.random.default_rng(1).integers(1, 90, 10 * BATCH_SIZE + 7)
    outputs = lambda x: {"sum": tf.reduce_sum(x["input_ids"], axis=1)}  # noqa: E731
    sums = Forward(traced(outputs, ["input_ids"]))
    found = [row["sum"] for row in sums(rows_of(lengths))]
    np.testing.assert_array_equal(found, lengths * np.arange(1, len(lengths) + 1))


@pytest.mark.parametrize("size", [1, 5, np.int64(7), None])
def test_batches_have_the_size_that_is_asked_for(size):
    seen = []

    def compute(arrays):
        seen.append(len(arrays["input_ids"]))
        return {"sum": arrays["input_ids"].sum(axis=1)}

    sums = Forward(compute)
    with batches_of(size):
        found = [row["sum"] for row in sums(rows_of([2] * 11))]
    assert found == [2 * i for i in range(1, 12)]
    assert max(seen) == min(size or 11, 11) and sum(seen) == 11


@pytest.mark.parametrize("size", [0, -3, 2.0, "8", True, 10**400])
def test_sizes_of_batches_that_cannot_be(size):
    with pytest.raises(UserError, match="batch_size must be"), batches_of(size):
        pass


def test_after_an_error_no_other_batch_begins():
    begun = []

    def outputs(features):
        begun.append(features["input_ids"].shape)
        time.sleep(0.01)  # on a busy machine, too, the error is seen before the last batch
        raise ValueError("out of memory")

    failing = Forward(outputs)
    with pytest.raises(ValueError, match="out of memory"):
        failing(rows_of([3] * 100 * BATCH_SIZE))
    assert len(begun) < 50


def test_many_models_in_one_process_cause_no_warning(caplog):
    """Each is traced once. TensorFlow warns of five traces in fifteen calls of one function."""
    for scale in range(7):
        forward = Forward(
            traced(lambda x, scale=scale: {"y": x["input_ids"] * scale}, ["input_ids"])
        )
        assert forward([{"input_ids": [1, 2]}])[0]["y"].tolist() == [scale, 2 * scale]
    assert "retracing" not in caplog.text


@pytest.mark.parametrize(
    ("count", "is_main", "direct"), [(1, True, True), (BATCH_SIZE, True, True), (1, False, False)]
)
def test_a_single_batch_of_the_main_thread_is_computed_in_it(count, is_main, direct):
    """Other threads come and go, and TensorFlow keeps memory for each that called it."""
    idents = []

    def outputs(features):
        idents.append(threading.get_ident())
        return {"sum": tf.reduce_sum(features["input_ids"], axis=1)}

    forward = Forward(outputs)

    def call():
        idents.append(threading.get_ident())
        assert [float(row["sum"]) for row in forward(rows_of([3] * count))] == [
            3.0 * (i + 1) for i in range(count)
        ]

    if is_main:
        call()
    else:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    caller, computing = idents
    assert (caller == computing) is direct
