"""The device flags of the real program: what they refuse, signals, two runs into one directory."""

import json
import os
import re
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from bert_tf.engine import distribution
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import DeviceSettings
from tests.support.pretraining_runs import command, run, write_config, write_records
from tests.support.refusals import refusal, refuses


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Flags of a training run that would take hours."""
    folder = tmp_path_factory.mktemp("inputs")
    return [
        f"--input_file={write_records(folder / 'a.tfrecord', 40, 12, 2, seed=1)}",
        f"--bert_config_file={write_config(folder / 'bert_config.json')}",
        "--do_train",
        "--max_seq_length=12",
        "--max_predictions_per_seq=2",
        "--train_batch_size=6",
        "--num_train_steps=100000000",
        "--iterations_per_loop=100000000",
        "--save_checkpoints_steps=100000000",
    ]


def test_flags_that_do_not_go_together(words, tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for more, message in (
        ("--tpu=local", "is for runs without a TPU; leave out --distribution_strategy or --tpu"),
        (
            "--num_cpu_devices=4",
            "--train_batch_size (6) must be a multiple of the number of replicas (4)",
        ),
    ):
        flags = (f"--output_dir={tmp_path}/out", "--distribution_strategy=mirrored", more)
        log = run(*words, *flags, status=1)
        assert message in log and "Traceback" not in log
        assert not os.path.exists(tmp_path / "out/model.ckpt-0.index")


def test_arguments_that_do_not_go_together(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    message = "^--num_cpu_devices=3 needs --distribution_strategy=mirrored; it is one_device$"
    refuses(message, distribution.get_strategy, num_cpu_devices=3)
    message = (
        "^--distribution_strategy=multi_worker_mirrored needs the environment variable TF_CONFIG,"
        " on each machine with its own index, like"
    )
    refuses(message, distribution.get_strategy, "multi_worker_mirrored")


@pytest.mark.parametrize("flag", ["tpu", "tpu_name", "master"])
@pytest.mark.parametrize("tpu", ["tpu-1", "grpc://10.0.0.2:8470", "Local", "x" * 10**5])
def test_tpu_nodes_have_ended(monkeypatch, tpu, flag):
    absent = SimpleNamespace(present=0)
    names = ("distribution_strategy", "num_cpu_devices")
    fake = SimpleNamespace(FLAGS=dict.fromkeys(names, absent))
    monkeypatch.setattr(command_flags, "flags", fake)
    told = refusal(
        command_flags._tpu_strategy, DeviceSettings(use_tpu=flag != "tpu", **{flag: tpu})
    )
    assert re.search("names a TPU node, .* ended TPU nodes in April 2025", told)
    assert told.startswith(f"--{flag}=") and tpu[:20] in told and len(told) <= 500
    assert told.endswith("own machine, with --tpu=pjrt or --tpu=local")


WORKERS = {"worker": ["a:1", "b:2"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "TF_CONFIG lists no machine"),
        ('{"cluster": {}, "task": {"type": "worker", "index": 0}}', "TF_CONFIG lists no machine"),
        ("{bad", "Expecting property name"),
        (json.dumps({"cluster": WORKERS}), "you must also specify `task_type`"),
        (json.dumps({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}), "exceeds the"),
    ],
)
def test_a_malformed_tf_config_is_refused(content, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", content)
    told = refusal(distribution.get_strategy, "multi_worker_mirrored")
    assert "=multi_worker_mirrored needs the environment variable TF_CONFIG" in told
    assert message in told and len(told) <= 500


@pytest.mark.parametrize(
    "error, message",
    [
        (ValueError("x\n" * 10**6), "(x x x"),
        (TimeoutError("timed out"), "(timed out). On a TPU machine `local` needs Tens"),
    ],
)
def test_a_tpu_that_is_not_found_is_told_with_the_cause(error, message, monkeypatch):
    def fail(**unused):
        raise error

    monkeypatch.setattr(distribution.tf.distribute.cluster_resolver, "TPUClusterResolver", fail)
    told = refusal(distribution.get_tpu_strategy, "local")
    assert told.startswith("--tpu=local: no TPU can be reached (")
    assert message in told and "give --tpu=pjrt. Else" in told
    assert len(told) <= 500 and "\n" not in told


@pytest.mark.slow
def test_sigterm_ends_the_loop_after_the_step_in_hand(words, tmp_path):
    """One loop would last for hours. And meanwhile another run notices this one."""
    log = tmp_path / "log"
    with open(log, "w") as writer:
        streams = {"stdout": writer, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command(*words, f"--output_dir={tmp_path}/out"), **streams)
    while "step 1:" not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    other = run(*words, f"--output_dir={tmp_path}/out", status=1)
    message = f"--output_dir={tmp_path}/out is in use: process {process.pid} on "
    assert message in other
    assert json.loads((tmp_path / "out/run.heartbeat").read_text())["pid"] == process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 75
    assert "Interrupted at step" in log.read_text()
    state = (tmp_path / "out/checkpoint").read_text()
    step = int(state.split('"')[1].removeprefix("model.ckpt-"))
    assert step > 1
    assert not (tmp_path / "out/run.heartbeat").exists()

    log = run(*words, f"--output_dir={tmp_path}/out", f"--num_train_steps={step + 3}")
    assert f"model.ckpt-{step}" in log and f"Saved step {step + 3}" in log
    assert "starts over" not in log
