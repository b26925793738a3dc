"""Tests of bert_tf.engine.evaluator, on a straight line."""

import numpy as np
import tensorflow as tf

from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from tests.support.line_task import SCHEMA, LineModel, write


def test_evaluation_covers_every_example_once_or_just_so_many_batches(tmp_path):
    files = [write(tmp_path / f"{i}.tfrecord", 40 + 7 * i, i) for i in range(2)]
    model = LineModel()
    evaluator = Evaluator(model, tf.distribute.get_strategy())
    kernel, bias = model.line.kernel.numpy(), model.line.bias.numpy()
    x, y = [], []
    for record in tf.data.TFRecordDataset(files):
        example = tf.train.Example.FromString(record.numpy()).features.feature
        x.append(example["x"].float_list.value)
        y.append(example["y"].float_list.value)
    error = (np.array(x) @ kernel + bias - np.array(y))[:, 0] ** 2
    assert len(error) == 87
    every = evaluator.evaluate(EvaluationInput(16, files, SCHEMA, {}, 0))
    np.testing.assert_allclose(every["square"], error.mean(), rtol=1e-5)
    np.testing.assert_allclose(every["loss"], error.mean(), rtol=1e-5)
    some = evaluator.evaluate(EvaluationInput(16, files, SCHEMA, {}, 7))  # 112 examples
    np.testing.assert_allclose(
        some["square"], np.concatenate([error, error[:25]]).mean(), rtol=1e-5
    )
