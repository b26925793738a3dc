"""Tests of bert_tf.runs.training.phase_steps: a run whose records are wrong or gone."""

import os

import pytest
import tensorflow as tf

from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.errors import UserError
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


def test_an_evaluation_without_its_file_is_named(tmp_path):
    evaluator = Evaluator(LineModel(), tf.distribute.get_strategy())
    for max_steps in (0, 2):
        with pytest.raises(OSError, match=f"^{tmp_path}/gone cannot be read: "):
            evaluator.evaluate(EvaluationInput(4, [f"{tmp_path}/gone"], SCHEMA, {}, max_steps))
