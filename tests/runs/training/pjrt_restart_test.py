"""Two hosts under PJRT, here two processes on the loopback interface: stopped, killed, resumed."""

import json
import os
import re
import signal
import socket
import time

import pytest

from bert_tf.runs.folder import goodput
from tests.runs.training.multi_worker_test import make_words, wait_for_both, wait_for_checkpoint
from tests.runs.training.resume_test import named_step
from tests.support import forked_programs
from tests.support.pretraining_runs import assert_same_variables

FLAGS = ("--num_train_steps=240", "--save_checkpoints_steps=60")
FLAGS += ("--tpu=pjrt", "--num_cpu_devices=1")
pytest.importorskip("jax", reason="needs JAX, an extra")


def start_both(words, logs):
    """Returns the two processes of a run, one device each."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"--coordinator=127.0.0.1:{server.getsockname()[1]}"
    processes = []
    for index in range(2):
        open(f"{logs}{index}", "w").close()
        own = [address, "--num_processes=2", f"--process_index={index}"]
        processes.append(forked_programs.start([*words, *own], f"{logs}{index}"))
    return processes


def figures_in(log):
    """Returns the figures of each step in a log, as text by name."""
    with open(log) as file:
        lines = re.findall(r"\bstep (\d+): (.*?)(?: \(\d+% done, .*)?$", file.read(), re.M)
    return {int(step): dict(x.split(" = ") for x in text.split(", ")) for step, text in lines}


def check_metrics(output_dir, told):
    """`metrics.jsonl` has each step once, with the figures that were told; sums by hand agree."""
    points = [json.loads(line) for line in (output_dir / "metrics.jsonl").read_text().splitlines()]
    steps = [point["step"] for point in points]
    assert steps == sorted({*steps, *told}) and steps[-1] == 240
    for point in points:
        found = {name: f"{x:.5g}" for name, x in point.items() if "goodput" not in name}
        assert found == {"step": f"{point['step']:.5g}", **told.get(point["step"], {})}
    timed = [point for point in points if "seconds_per_step" in point]
    assert len(timed) >= 18
    for point in timed:
        assert point["examples_per_second"] * point["seconds_per_step"] == pytest.approx(4)
        assert point["tokens_per_second"] * point["seconds_per_step"] == pytest.approx(4 * 12)
        for name in ("hosts/seconds_per_step", "hosts/input_seconds_per_step"):
            assert 0 <= point[f"{name}_median"] <= point[f"{name}_slowest"]
            assert point[f"{name}_slowest_process"] in (0, 1)
    assert "mfu" not in timed[-1]  # a CPU has no published peak


def check_account(output_dir, process):
    """A process's account adds up to the wall time, over three starts."""
    record = goodput.read(str(output_dir), process)
    assert record.starts == 3 and record.saves[-1][0] == 240
    wall = record.until - record.first_start
    assert sum(record.seconds.values()) == pytest.approx(wall, rel=0.01)
    assert all(record.seconds[part] > 0 for part in ("start_up", "compiling", "steps"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_that_is_taken(tmp_path, host):
    words = [*make_words(tmp_path, *FLAGS), f"--output_dir={tmp_path}/out"]
    words += ["--num_processes=2", "--process_index=0"]
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        words.append(f"--coordinator={host}:{port}")
        status, printed = forked_programs.run(words)
    assert status == 1
    assert f"--coordinator={host}:{port}: process 0 cannot open port {port} (" in printed
    assert "(Address already in use" in printed and "Traceback" not in printed


@pytest.mark.slow
def test_the_restart_of_both(tmp_path):
    """SIGTERM to one makes both save and end; then one is killed. Nothing is lost.

    With updates left out, a trace, checkpoints that are kept for good, and steps compiled once.
    """
    words, logs = make_words(tmp_path, *FLAGS), f"{tmp_path}/log"
    words += ["--keep_checkpoint_max=2", "--keep_checkpoint_every_steps=120"]
    words += ["--skip_steps_above_norm=3.2", "--profile_steps=223:225"]
    words += [f"--compilation_cache_dir={tmp_path}/compiled"]
    undisturbed = f"{tmp_path}/undisturbed"
    wait_for_both(start_both([*words, f"--output_dir={undisturbed}"], logs), logs)

    output_dir = tmp_path / "out"
    words += [f"--output_dir={output_dir}"]

    processes = start_both(words, logs)
    wait_for_checkpoint(output_dir, 60, processes)
    processes[1].terminate()
    wait_for_both(processes, logs, status=75)
    stopped_at = named_step(output_dir)
    assert 60 < stopped_at < 240
    told = figures_in(f"{logs}0")

    processes = start_both(words, logs)
    wait_for_checkpoint(output_dir, 180, processes)
    processes[1].kill()
    began = time.monotonic()
    processes[0].join(60)
    assert processes[0].exitcode == 74
    assert time.monotonic() - began < 30  # JAX itself would wait 100 s, and abort
    with open(f"{logs}0") as log:
        assert "Another process of this run has ended or cannot be reached. Start" in log.read()
    told |= figures_in(f"{logs}0")
    resumed_at = named_step(output_dir)

    wait_for_both(start_both(words, logs), logs)
    told |= figures_in(f"{logs}0")
    check_metrics(output_dir, told)
    for process in range(2):
        check_account(output_dir, process)
    starts = re.findall("^# From step ([0-9]+):$", (output_dir / "flags.txt").read_text(), re.M)
    assert starts == ["0", str(stopped_at), str(resumed_at)]  # each with a port of its own
    assert "\n--train_batch_size=4\n" in (output_dir / "flags.txt").read_text()
    assert_same_variables(output_dir / "model.ckpt-240", f"{undisturbed}/model.ckpt-240")
    assert {float(figures["skipped"]) > 0 for figures in told.values()} == {False, True}
    kept = {path.stem for path in output_dir.glob("*.index")}
    assert "model.ckpt-120" in kept and "model.ckpt-60" not in kept
    assert [*output_dir.glob("plugins/profile/*/*.xplane.pb")]
    assert [*(tmp_path / "compiled").iterdir()]


@pytest.mark.slow
def test_a_process_that_stops_ends_the_other_within_the_time_that_is_set(tmp_path):
    words, logs = make_words(tmp_path, *FLAGS), f"{tmp_path}/log"
    words += [f"--output_dir={tmp_path}/out", "--hang_minutes=0.1", "--num_train_steps=100000"]
    processes = start_both(words, logs)
    try:
        wait_for_checkpoint(tmp_path / "out", 60, processes)
        os.kill(processes[1].pid, signal.SIGSTOP)
        processes[0].join(30)
        assert processes[0].exitcode == 75
    finally:
        for process in processes:
            process.kill()
    with open(f"{logs}0") as log:
        assert "Process 0 made no step for 0.1 minutes (--hang_minutes) and ends" in log.read()
