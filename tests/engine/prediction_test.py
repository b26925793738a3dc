"""Tests of bert_tf.engine.prediction and evaluator."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import evaluator
from bert_tf.engine.distribution import InputShard
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.engine.input_pipeline import count_records
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.prediction import Predictor, join
from bert_tf.seeds import hash_numbers
from tests.engine import conftest
from tests.support.line_task import SCHEMA, LineModel, write
from tests.support.record_files import read_records

S = 24
BUCKETS = Buckets((6, 12, 18, S), ("input_ids", "input_mask"))


class Echo:
    """Says how long its batch was and what ids it saw."""

    traces = 0

    def __call__(self, features):
        Echo.traces += 1
        return features["input_ids"] * features["input_mask"]

    def predictions(self, outputs, features):
        ids = outputs
        return {
            "sum": tf.reduce_sum(ids, axis=-1),
            "padded_to": tf.fill([ids.shape[0]], ids.shape[-1]),
            "ids": ids,
            "number": features["number"],
        }


def make_windows(counts, seed=0):
    rng = np.random.default_rng(seed)
    first = 0
    for count in counts:
        lengths = rng.integers(1, S + 1, (count, 1))
        yield {
            "input_ids": rng.integers(1, 99, (count, S), dtype=np.int32),
            "input_mask": (np.arange(S) < lengths).astype(np.int32),
            "number": np.arange(first, first + count, dtype=np.int32),
        }
        first += count


@pytest.fixture
def predictor():
    Echo.traces = 0
    return Predictor(Echo(), tf.distribute.get_strategy())


def rows(windows):
    """Returns the predictions of each example, a dictionary each."""
    return [
        {name: column[i] for name, column in columns.items()}
        for columns in windows
        for i in range(len(columns["number"]))
    ]


@pytest.mark.parametrize("counts", [(40, 40, 13), (3,), (64,)])
def test_results_are_in_order_whatever_the_buckets(predictor, counts):
    plain = rows(predictor.predict(make_windows(counts), 4))
    assert {int(row["padded_to"]) for row in plain} == {S}
    bucketed = rows(predictor.predict(make_windows(counts), 4, BUCKETS))
    assert len(plain) == len(bucketed) == sum(counts)
    for i, (a, b) in enumerate(zip(plain, bucketed, strict=True)):
        assert a["number"] == b["number"] == i
        assert a["sum"] == b["sum"]
        length = b["padded_to"]
        assert b["ids"].shape == (length,)
        np.testing.assert_array_equal(a["ids"][:length], b["ids"])
        assert not a["ids"][length:].any()


def test_short_examples_are_padded_less(predictor):
    (columns,) = predictor.predict(make_windows((200,)), 4, BUCKETS)
    windows = next(make_windows((200,)))
    needed = windows["input_mask"].sum(axis=1)
    padded = columns["padded_to"]
    assert [len(ids) for ids in columns["ids"]] == padded.tolist()
    assert set(padded) == {6, 12, 18, 24}
    assert (padded >= needed).all() and padded.sum() < 1.2 * needed.sum() + 200


def test_a_second_call_traces_nothing(predictor):
    first = list(predictor.predict(make_windows((60, 30)), 4, BUCKETS))
    traces = Echo.traces
    second = list(predictor.predict(make_windows((60, 30)), 4, BUCKETS))
    assert Echo.traces == traces and len(first) == len(second)
    assert list(predictor.predict([], 4, BUCKETS)) == []
    assert list(predictor.predict(make_windows((0,)), 4, BUCKETS)) == []  # nor in an empty one


def test_a_length_that_few_need_is_not_compiled(predictor):
    """Of 12 examples in batches of 4 no length has four batches; of 16 short ones one has."""
    (few,) = make_windows((12,))
    few["input_mask"][:, :7] = 1
    (columns,) = predictor.predict([few], 4, BUCKETS)
    assert set(columns["padded_to"]) == {S}
    short = {"input_mask": np.tile(np.arange(S) < 5, (16, 1)).astype(np.int32)}
    short |= {"input_ids": np.ones((16, S), np.int32), "number": np.arange(16, dtype=np.int32)}
    joined = {name: np.concatenate([few[name], short[name]]) for name in few}
    (columns,) = predictor.predict([joined], 4, BUCKETS)
    padded = columns["padded_to"]
    assert set(padded[:12]) == {S} and set(padded[12:]) == {6}


def test_columns_of_one_shape_are_joined(predictor):
    columns = join(predictor.predict(make_windows((7, 5)), 4))
    np.testing.assert_array_equal(columns["number"], np.arange(12))
    assert columns["ids"].shape == (12, S)
    assert join([]) == {}
    with pytest.raises(ValueError, match="^the length of ids differs between batches"):
        join(predictor.predict(make_windows((200,)), 4, BUCKETS))


@pytest.mark.parametrize("hosts", [1, 3])
def test_evaluation_goes_through_the_records_in_order_over_and_over(files, hosts):
    """Each host gets its part of every batch, and keys are the same in every evaluation."""
    with_keys = lambda features, keys: {**features, "key": keys}  # noqa: E731
    source = EvaluationInput(60, files[2:4], conftest.SCHEMA, 0, with_keys)
    shards = [InputShard(i, hosts) for i in range(hosts)]
    parts = [evaluator.evaluation_dataset(source, 174, shard).take(4) for shard in shards]
    batches = [batch for of_hosts in zip(*parts, strict=True) for batch in of_hosts]
    found = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    np.testing.assert_array_equal(found["ids"][:, 0], [*range(400, 574), *range(400, 466)])
    np.testing.assert_array_equal(found["example_weight"], [1.0] * 174 + [0.0] * 66)
    np.testing.assert_array_equal(found["key"], hash_numbers(np.arange(240)))
    assert count_records(files[2:4]) == 174


def test_evaluation_covers_every_example_once_or_just_so_many_batches(tmp_path):
    files = [write(tmp_path / f"{i}.tfrecord", 40 + 7 * i, i) for i in range(2)]
    model = LineModel()
    evaluate = Evaluator(model, tf.distribute.get_strategy()).evaluate
    kernel, bias = model.line.kernel.numpy(), model.line.bias.numpy()
    examples = [example for path in files for example in read_records(path)]
    x, y = ([example[name] for example in examples] for name in "xy")
    error = (np.array(x) @ kernel + bias - np.array(y))[:, 0] ** 2
    assert len(error) == 87
    every = evaluate(EvaluationInput(16, files, SCHEMA, 0))
    np.testing.assert_allclose(every["square"], error.mean(), rtol=1e-5)
    np.testing.assert_allclose(every["loss"], error.mean(), rtol=1e-5)
    some = evaluate(EvaluationInput(16, files, SCHEMA, 7))  # 112 examples
    np.testing.assert_allclose(
        some["square"], np.concatenate([error, error[:25]]).mean(), rtol=1e-5
    )
