"""Two machines under MultiWorkerMirroredStrategy, here two processes on the loopback interface."""

import json
import os
import re
import socket
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import distribution, prediction
from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder import goodput, reporting
from bert_tf.runs.folder.run import Run
from tests.engine import replicas_test
from tests.runs.training.resume_test import named_step
from tests.support import forked_programs
from tests.support.pretraining_runs import (
    assert_same_variables,
    command,
    run,
    variables,
    write_config,
    write_records,
)
from tests.support.refusals import refuses
from tests.support.small_classification import flags, write_reviews
from tests.support.trainers import make_trainer


def start_both(words, logs):
    """Returns two processes of the same command, with the environment of two workers."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in (one, two)]
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        open(f"{logs}{index}", "w").close()
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        processes.append(forked_programs.start(words, f"{logs}{index}", environment))
    return processes


def wait_for_checkpoint(output_dir, step, processes):
    while not os.path.exists(f"{output_dir}/model.ckpt-{step}.index"):
        assert all(process.exitcode is None for process in processes)
        time.sleep(0.02)


def wait_for_both(processes, logs, status=0):
    for process in processes:
        process.join(400)
    for index, process in enumerate(processes):
        with open(f"{logs}{index}") as log:
            assert process.exitcode == status, log.read()[-6000:]


def run_both(words, logs):
    wait_for_both(start_both(words, logs), logs)


def make_words(tmp_path, *more):
    """Writes the input of a run; returns its command without --output_dir."""
    for i, count in enumerate((31, 45, 18)):
        write_records(tmp_path / f"{i}.tfrecord", count, 12, 2, seed=i)
    config = write_config(tmp_path / "bert_config.json")
    line = f"""--input_file={tmp_path}/*.tfrecord --bert_config_file={config} --do_train
        --max_seq_length=12 --max_predictions_per_seq=2 --train_batch_size=4 --num_warmup_steps=9
        --learning_rate=1e-2 --iterations_per_loop=50 --keep_checkpoint_max=0"""
    return command(*line.split(), *more)


def check_worker(folder):
    """What each of the two processes does."""
    strategy = distribution.get_strategy("multi_worker_mirrored")
    shard = distribution.input_shard(strategy)
    assert strategy.num_replicas_in_sync == shard.count == 2
    assert distribution.is_chief(strategy) == (shard.index == 0)
    # Each machine's number, not their mean, which the middle one of three would take for its own.
    assert distribution.make_barrier(strategy)(10.0 * (shard.index + 1)) == [10.0, 20.0]
    for counts in ((40, 53, 32), (61,)):  # files for each, and one file of which each takes half
        own = f"{folder}/{shard.index}_{len(counts)}"
        os.mkdir(own)
        files = replicas_test.make_files(own, counts)
        for gradient_reduction in distribution.GRADIENT_REDUCTIONS[: len(counts)]:
            build = replicas_test.quiet_model
            replicas_test.check_training(strategy, build, files, gradient_reduction, 1)
    replicas_test.check_evaluation(strategy, files)
    with pytest.raises(UserError, match="Evaluation and prediction run on one machine"):
        prediction.check_prediction(strategy, 24, "predict_batch_size")
    # Files of the same names that differ, and a folder that is not shared.
    settings = TrainingSettings(output_dir=f"{folder}/own_{shard.index}", do_train=True)
    run = Run(strategy, settings)
    run.check_same("records (--input_file)", "ab", np.arange(5.0))
    rule = r"^All processes of a run must have the same weights \(--init_checkpoint\), but"
    with pytest.raises(UserError, match=f"{rule} process 1 and process 0 do not"):
        run.check_same("weights (--init_checkpoint)", np.arange(5.0), np.array([2.0, shard.index]))
    with pytest.raises(UserError, match="reach: process 1 does not see run.heartbeat, which"), run:
        pass
    # A checkpoint that one has and the other does not.
    output_dir = f"{folder}/of_{shard.index}"
    storage.make_output_dir(output_dir)
    if shard.index == 0:
        alone = make_trainer(build, tf.distribute.get_strategy(), own, None)
        values = {name: value.numpy() for name, value in alone.values().items()}
        values["global_step"] = np.int64(7)
        CheckpointDirectory(output_dir).save(values, 7)
    message = f"^--output_dir={output_dir} must be one directory that all machines of the run reach"
    refuses(message, make_trainer, build, strategy, output_dir, None)


@pytest.mark.slow
def test_two_workers_against_numpy_and_one_device(tmp_path):
    code = f"from {__name__} import check_worker; check_worker({str(tmp_path)!r})"
    run_both([sys.executable, "-c", code], f"{tmp_path}/log")


@pytest.mark.slow
def test_the_restart_of_both(tmp_path):
    """SIGTERM to one makes both save and end; then each is killed once. Nothing is lost."""
    flags = ("--num_train_steps=800", "--save_checkpoints_steps=100")
    words = make_words(tmp_path, *flags, "--distribution_strategy=multi_worker_mirrored")
    logs = f"{tmp_path}/log"
    undisturbed = f"{tmp_path}/undisturbed"
    run_both([*words, f"--output_dir={undisturbed}"], logs)

    output_dir = tmp_path / "out"
    words += [f"--output_dir={output_dir}"]

    # With loops of one step most moments are between two of them, where both must agree, too.
    processes = start_both([*words, "--iterations_per_loop=1"], logs)
    wait_for_checkpoint(output_dir, 100, processes)
    processes[1].terminate()
    wait_for_both(processes, logs, status=75)
    assert 100 < named_step(output_dir) < 800

    for step, killed in ((300, 1), (500, 0)):
        processes = start_both(words, logs)
        wait_for_checkpoint(output_dir, step, processes)
        processes[killed].kill()
        # The other process notices and ends, so that both can be started again.
        processes[1 - killed].join(300)
        assert processes[1 - killed].exitcode not in (None, 0, 2)
    run_both(words, logs)
    assert_same_variables(output_dir / "model.ckpt-800", f"{undisturbed}/model.ckpt-800")
    with open(f"{logs}0") as log:
        told = re.findall("hosts/input_seconds_per_step_slowest_process = ([01]),", log.read())
    points = [json.loads(line) for line in (output_dir / "metrics.jsonl").read_text().splitlines()]
    steps = [point["step"] for point in points]
    assert told and steps == sorted({*steps}) and steps[-1] == 800
    assert points[-1]["hosts/seconds_per_step_slowest"] > 0
    assert goodput.read(str(output_dir), 1).starts == 4


@pytest.mark.slow
def test_fine_tuning_equals_that_on_two_devices_of_one_machine(tmp_path):
    """Two runs at once write the records, draw their parts of each batch, and resume."""
    reviews = write_reviews(tmp_path)
    several, one = tmp_path / "several", tmp_path / "one"
    logs = f"{tmp_path}/log"
    more = ["--do_train", "--length_buckets=16,28,40", "--save_checkpoints_steps=10"]
    words = command(*flags(reviews, several, *more), program="run_classifier.py")
    words += ["--distribution_strategy=multi_worker_mirrored"]

    run_both(words, logs)
    (several / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-20"\n')
    for path in several.glob("*33*"):
        path.unlink()  # as if both had been killed after step 20
    run_both(words, logs)
    with open(f"{logs}1") as log:
        told = log.read()
    assert f"Resumed from {several}/model.ckpt-20" in told
    assert "Each of 2 replicas clips the gradient of its own 4 examples, and the sum" in told

    more += ["--distribution_strategy=mirrored", "--num_cpu_devices=2"]
    run(*flags(reviews, one, *more), program="run_classifier.py")
    expected = variables(one / "model.ckpt-33")
    found = variables(several / "model.ckpt-33")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if "key/bias" not in name:  # its gradient is 0 but for rounding
            atol = 1e-4 * np.abs(value).max()
            np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)
    # What both have left is evaluated by one.
    run(*flags(reviews, several, "--do_eval"), program="run_classifier.py")
    assert reporting.read_results(f"{several}/eval_results.txt")["global_step"] == 33
