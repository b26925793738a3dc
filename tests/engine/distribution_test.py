"""The device flags of the real program: what they refuse, signals, two runs into one directory."""

import json
import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from bert_tf.engine import distribution
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.device_settings import DeviceSettings
from tests.support.pretraining_runs import command, run, write_config, write_records


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


@pytest.mark.parametrize(
    "more, message",
    [
        (
            ["--tpu=local", "--distribution_strategy=mirrored"],
            "is for runs without a TPU; leave out --distribution_strategy or --tpu",
        ),
        (
            ["--distribution_strategy=mirrored", "--num_cpu_devices=4"],
            "--train_batch_size (6) must be a multiple of the number of replicas (4)",
        ),
        (
            ["--tpu=grpc://10.0.0.2:8470"],
            "--tpu=grpc://10.0.0.2:8470 names a TPU node, a TPU of another machine; Google ended"
            " TPU nodes in April 2025. Run on the TPU's own machine, with --tpu=pjrt or",
        ),
    ],
)
def test_flags_that_do_not_go_together(words, tmp_path, more, message, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    log = run(*words, f"--output_dir={tmp_path}/out", *more, status=1)
    assert message in log
    assert "Traceback" not in log
    assert not os.path.exists(tmp_path / "out/model.ckpt-0.index")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"num_cpu_devices": 3},
            "--num_cpu_devices=3 needs --distribution_strategy=mirrored; it is one_device$",
        ),
        (
            {"distribution_strategy": "multi_worker_mirrored"},
            "--distribution_strategy=multi_worker_mirrored needs the environment variable"
            " TF_CONFIG, on each machine with its own index: ",
        ),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UserError, match=f"^{message}"):
        distribution.get_strategy(**arguments)


@pytest.mark.parametrize("flag", ["tpu", "tpu_name", "master"])
@pytest.mark.parametrize("tpu", ["tpu-1", "grpc://10.0.0.2:8470", "Local", "x" * 10**5])
def test_tpu_nodes_have_ended(monkeypatch, tpu, flag):
    absent = SimpleNamespace(present=0)
    names = ("distribution_strategy", "num_cpu_devices")
    fake = SimpleNamespace(FLAGS=dict.fromkeys(names, absent))
    monkeypatch.setattr(command_flags, "flags", fake)
    devices = DeviceSettings(use_tpu=flag != "tpu", **{flag: tpu})
    with pytest.raises(
        UserError, match="names a TPU node, .* ended TPU nodes in April 2025"
    ) as info:
        command_flags._tpu_strategy(devices)
    assert (
        str(info.value).startswith(f"--{flag}=")
        and tpu[:20] in str(info.value)
        and len(str(info.value)) <= 500
    )
    assert str(info.value).endswith("own machine, with --tpu=pjrt or --tpu=local")


WORKERS = {"worker": ["a:1", "b:2"]}
NO_LIST = "cluster.worker must be a list of HOST:PORT, ports from 1 to 65535; it is"
NO_INDEX = "task.index must be a whole number from 0 to 1; it is"
TF_CONFIGS = {
    "no JSON": ("{bad", "it is not JSON (Expecting property name"),
    "deep": ("[" * 10**5, "it is not JSON"),
    "list": ("[]", "cluster and task must be dictionaries; it is '[]'"),
    "nothing": ("{}", "cluster and task must be dictionaries; it is '{}'"),
    "no task": ({"cluster": WORKERS}, "cluster and task must be dictionaries"),
}
CLUSTERS = {
    "no workers": ({}, NO_LIST),
    "text": ({"worker": "a:1"}, NO_LIST),
    "empty": ({"worker": []}, NO_LIST),
    "numbers": ({"worker": [1]}, NO_LIST),
    "no port": ({"worker": ["a"]}, NO_LIST),
    "port 0": ({"worker": ["a:0"]}, NO_LIST),
    "port": ({"worker": ["a:65536"]}, f"{NO_LIST} ['a:65536']"),
    "twice": ({"chief": ["a:1"], "worker": ["b:1", "a:1"]}, "cluster lists an address twice"),
    "chiefs": ({"chief": ["a:1", "b:1"]}, "cluster.chief must be one a"),
    "server": ({**WORKERS, "ps": ["c:1"]}, "keys chief and worker; it has ['ps', 'worker']"),
}
TASKS = {
    "no type": ({"index": 0}, "task.type must be one of worker; it is"),
    "type": ({"type": "chief"}, "task.type must be one of worker; it"),
    "long": ({"type": "x" * 10**6}, "task.type must be one of wor"),
    "no index": ({"type": "worker"}, f"{NO_INDEX} None"),
    "index": ({"type": "worker", "index": 2}, f"{NO_INDEX} 2"),
}
TF_CONFIGS |= {case: ({"cluster": x, "task": {}}, rule) for case, (x, rule) in CLUSTERS.items()}
TF_CONFIGS |= {case: ({"cluster": WORKERS, "task": x}, rule) for case, (x, rule) in TASKS.items()}


@pytest.mark.parametrize("case", TF_CONFIGS)
def test_a_malformed_tf_config_is_refused(case, monkeypatch):
    content, message = TF_CONFIGS[case]
    text = content if isinstance(content, str) else json.dumps(content)
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError) as info:
        distribution.get_strategy("multi_worker_mirrored")
    assert str(info.value).startswith("The environment variable TF_CONFIG: ")
    assert message in str(info.value) and len(str(info.value)) <= 500


def test_an_unknown_strategy_is_refused():
    with pytest.raises(
        UserError, match="--distribution_strategy must be one of .*; it is 'horovod'"
    ):
        distribution.get_strategy("horovod")


def test_the_tf_config_of_each_machine_is_accepted(monkeypatch):
    monkeypatch.setattr(distribution.tf.distribute, "MultiWorkerMirroredStrategy", lambda: 1 / 0)
    cluster = {"chief": ["a:1"], **WORKERS, "worker": ["b:1", "[::1]:2"]}
    for task in ({"type": "chief", "index": 0}, {"type": "worker", "index": "1"}):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task, "x": 1}))
        with pytest.raises(ZeroDivisionError):
            distribution.get_strategy("multi_worker_mirrored")


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
    with pytest.raises(UserError) as info:
        distribution.get_tpu_strategy("local")
    assert str(info.value).startswith("--tpu=local: no TPU can be reached (")
    assert message in str(info.value) and "give --tpu=pjrt. Else" in str(info.value)
    assert len(str(info.value)) <= 500 and "\n" not in str(info.value)


def start(words, output_dir):
    """Returns the process once its loop of steps is running, and its log."""
    log = output_dir.with_suffix(".log")
    with open(log, "w") as writer:
        process = subprocess.Popen(
            command(*words, f"--output_dir={output_dir}"),
            stdout=writer,
            stderr=subprocess.STDOUT,
            # Tests that run in the background have it ignored, and what they start inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    while "step 1:" not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    return process, log


@pytest.mark.slow
def test_sigterm_ends_the_loop_after_the_step_in_hand(words, tmp_path):
    """One loop would last for hours. And meanwhile another run notices this one."""
    process, log = start(words, tmp_path / "out")
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


@pytest.mark.slow
def test_ctrl_c_has_a_different_status(words, tmp_path):
    process, log = start(words, tmp_path / "out")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert "Interrupted at step" in log.read_text()
