"""Tests of bert_tf.runs.training.phase_steps: a run whose records are wrong or gone."""

import os

import pytest
import tensorflow as tf

from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.errors import UserError
from bert_tf.files import records
from tests.support.line_task import SCHEMA, LineModel, phases, trainer, write


def test_a_record_file_that_disappears_in_a_run_is_named(files, tmp_path):
    def remove() -> bool:
        if os.path.exists(files[1]):
            os.remove(files[1])
        return True

    run = trainer(tmp_path / "out", evaluate_every_steps=3)
    with pytest.raises(OSError, match=f"^{files[1]} cannot be read: .*No such file"):
        run.train(phases(files, (30, 16)), remove)
    assert run.global_step >= 3


def test_a_record_that_is_no_example_is_named_by_training_and_evaluation(tmp_path):
    path = write(tmp_path / "a.tfrecord", 20, 1)
    found = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    with tf.io.TFRecordWriter(path) as writer:
        for record in (*found[:17], b"\xff\xff\x0f", *found):
            writer.write(record)
    evaluator = Evaluator(LineModel(), tf.distribute.get_strategy())
    for read in (
        lambda: trainer(tmp_path / "out").train(phases([path], (30, 4))),
        lambda: evaluator.evaluate(EvaluationInput(4, [path], SCHEMA, {}, 0)),
    ):
        with pytest.raises(UserError) as error:
            read()
        message = str(error.value)
        assert f"{path}, record 17 (counted from 0): it is not a tf.Example: " in message
        assert "\n" not in message


class WeightedModel(LineModel):
    """Has a loss of weight 0 in all records but those with a negative first number."""

    def loss_and_metrics(self, outputs, features, normalizers):
        loss, sums = super().loss_and_metrics(outputs, features, normalizers)
        weight = tf.reduce_sum(tf.cast(features["x"][:, 0] < 0.0, tf.float32))
        return loss, {**sums, "line_loss": (0.5 * weight, weight), "accuracy": (0.0, 0.0)}


@pytest.mark.parametrize("steps, told", [(1, 1), (2, 2), (30, 2)])
def test_a_loss_that_has_weight_0_everywhere_is_refused_at_the_first_loops(steps, told, tmp_path):
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(20):
            values = {"x": [float(number), 1.0, 2.0], "y": [1.0]}
            writer.write(records.serialize(values, SCHEMA))
    run = trainer(tmp_path / "out", build=WeightedModel)
    with pytest.raises(UserError, match=f"line_loss is 0 in all examples up to step {told}\\."):
        run.train(phases([path], (steps, 4)))
    assert run.global_step <= 3


def test_a_step_without_weight_is_allowed(tmp_path):
    """Of batches of one record, every other one has weight."""
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number in (1.0, -1.0):
            values = {"x": [number, 1.0, 2.0], "y": [1.0]}
            writer.write(records.serialize(values, SCHEMA))
    tf.random.set_seed(3)  # else the order depends on the tests before
    run = trainer(tmp_path / "out", build=WeightedModel)
    run.train(phases([path], (60, 1)))
    assert run.global_step == 60


def test_an_evaluation_without_its_file_is_named(tmp_path):
    evaluator = Evaluator(LineModel(), tf.distribute.get_strategy())
    for max_steps in (0, 2):
        with pytest.raises(OSError, match=f"^{tmp_path}/gone cannot be read: "):
            evaluator.evaluate(EvaluationInput(4, [f"{tmp_path}/gone"], SCHEMA, {}, max_steps))
