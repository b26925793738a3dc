"""Two programs that write results into one --output_dir: the second is refused, or only looks."""

import os
from types import SimpleNamespace

import pytest
import tensorflow as tf

from bert_tf.runs.folder.heartbeat import InUseError
from bert_tf.runs.folder.run import Run
from tests.support.refusals import refusal

EVALUATE, PREDICT, TRAIN = {"do_eval": True}, {"do_predict": True}, {"do_train": True}
EACH_TIME = {"evaluate_every_steps": 3}


def run(output_dir, *flags) -> Run:
    values = {"do_train": False, "evaluate_every_steps": 0, "keep_checkpoint_max": 5}
    for each in flags:
        values |= each
    return Run(tf.distribute.get_strategy(), SimpleNamespace(output_dir=str(output_dir), **values))


@pytest.mark.parametrize(
    ("first", "second", "doing", "name"),
    [
        ([EVALUATE], [EVALUATE], "evaluating", "eval"),
        ([PREDICT], [EVALUATE, PREDICT], "predicting", "predict"),
        ([EVALUATE], [TRAIN, EACH_TIME], "evaluating", "eval"),
        ([TRAIN, PREDICT], [PREDICT], "predicting", "predict"),
    ],
)
def test_the_second_writer_of_a_result_is_refused(tmp_path, first, second, doing, name):
    with run(tmp_path, *first):
        before = sorted(os.listdir(tmp_path))
        message = refusal(run(tmp_path, *second).__enter__, kind=InUseError)
        assert f"--output_dir={tmp_path} is in use: process {os.getpid()} on " in message
        assert f" is {doing} there and renews {tmp_path}/{name}.heartbeat. Two programs" in message
        assert [n for n in before if n not in os.listdir(tmp_path)] == []
    with run(tmp_path, *second) as later:
        later.write_results({"accuracy": 0.5})
    assert (tmp_path / "eval_results.txt").read_text() == "accuracy = 0.5\n"


@pytest.mark.parametrize("second", [[PREDICT], [TRAIN], []])
def test_programs_that_write_other_results_do_not_disturb_each_other(tmp_path, second):
    with run(tmp_path, EVALUATE) as first, run(tmp_path, *second):
        first.write_results({"accuracy": 0.25})
    assert (tmp_path / "eval_results.txt").exists()


@pytest.mark.parametrize("training", [[TRAIN, EVALUATE], [TRAIN, EACH_TIME]])
def test_a_second_look_leaves_the_results_to_the_run_that_trains(tmp_path, caplog, training):
    path = tmp_path / "eval_results.txt"
    with run(tmp_path, *training) as first:
        first.write_results({"accuracy": 0.75})
        with run(tmp_path, EVALUATE) as look:
            look.write_results({"accuracy": 0.25})
            assert first.owns_results and not look.owns_results  # nor writes it tables or reports
        assert path.read_text() == "accuracy = 0.75\n"
        assert f"{path} is not written: the run that trains in --output_dir eval" in caplog.text
        first.write_results({"accuracy": 1.0})
    assert path.read_text() == "accuracy = 1.0\n"
