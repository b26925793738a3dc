"""Tests of bert_tf.engine.evaluator, on a straight line."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import evaluator
from bert_tf.engine.distribution import InputShard
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.engine.hashed_random import hash_numbers
from bert_tf.engine.input_pipeline import count_records
from tests.engine import conftest
from tests.support.line_task import SCHEMA, LineModel, write
from tests.support.record_files import read_records


@pytest.mark.parametrize("hosts", [1, 3])
def test_evaluation_goes_through_the_records_in_order_over_and_over(files, hosts):
    """Each host gets its part of every batch, and keys are the same in every evaluation."""
    with_keys = lambda features, keys: {**features, "key": keys}  # noqa: E731
    source = EvaluationInput(60, files[2:4], conftest.SCHEMA, conftest.LIMITS, 0, with_keys)
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
    every = evaluate(EvaluationInput(16, files, SCHEMA, {}, 0))
    np.testing.assert_allclose(every["square"], error.mean(), rtol=1e-5)
    np.testing.assert_allclose(every["loss"], error.mean(), rtol=1e-5)
    some = evaluate(EvaluationInput(16, files, SCHEMA, {}, 7))  # 112 examples
    np.testing.assert_allclose(
        some["square"], np.concatenate([error, error[:25]]).mean(), rtol=1e-5
    )
