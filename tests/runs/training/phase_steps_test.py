"""A step's speed, against sums by hand, and what watches over steps: hangs, traces, caches."""

import os
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import distribution
from bert_tf.engine.distribution import InputShard
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.run_settings import RunOptions
from bert_tf.runs.training import phase_steps
from bert_tf.runs.training.phase_steps import PhaseSteps
from bert_tf.runs.training.plan import Phase, Work
from bert_tf.tasks.matrix_products import training_flops
from bert_tf.tasks.pretraining.training.settings import RecordBatches
from tests.support import forked_programs
from tests.support.arrays import assert_same_arrays
from tests.support.pretraining_runs import (
    assert_same_variables,
    command,
    variables,
    write_config,
    write_records,
)
from tests.support.refusals import refuses


def strategy(kind="cpu", replicas=1, hosts=1):
    """A stand-in for a strategy of PJRT."""
    devices = np.array([SimpleNamespace(device_kind=kind)] * replicas)
    return SimpleNamespace(
        mesh=SimpleNamespace(devices=devices),
        num_replicas_in_sync=replicas,
        input_shard=InputShard(0, hosts, replicas=replicas),
    )


def figures(phase, num_steps, seconds, lengths=None, of=None, gather=None, waits=0.0):
    loop = SimpleNamespace(
        lengths=None if lengths is None else np.float32(lengths), input_seconds=waits
    )
    run = SimpleNamespace(strategy=of or strategy(), gather=gather)
    return PhaseSteps(phase, loop, None, run, None)._speed(num_steps, seconds)


def test_peaks():
    for kind, replicas, peak in (
        ("TPU v6 lite", 64, 64 * 918e12),
        ("TPU v3", 8, 4 * 123e12),  # two devices a chip
        ("TPU v4", 4, 4 * 275e12),
        ("cpu", 8, None),
    ):
        assert distribution.peak_flops(strategy(kind, replicas)) == peak
        assert distribution.peak_flops(tf.distribute.get_strategy()) is None


def test_pretraining_by_hand():
    """BERT-Base, 256 sequences of length 128 a step, 10 steps in 0.4 s, on a v6e-8."""
    batches = RecordBatches(128, 900, 256, 20)
    layer = 4 * 128 * 768 * 768 + 2 * 128 * 768 * 3072 + 2 * 12 * 128 * 128 * 64
    heads = 20 * 768 * (768 + 30522) + 768 * (768 + 2)
    flops = 256 * 3 * 2 * (12 * layer + heads)
    assert training_flops(BertConfig(30522), batches) == flops
    phase = Phase(900, 256, None, work=Work(256, 128, lambda length: flops))
    assert figures(phase, 10, 0.4, of=strategy("TPU v6 lite", 8)) == pytest.approx(
        {
            "examples_per_second": 6400.0,
            "seconds_per_step": 0.04,
            "tokens_per_second": 819_200.0,
            "mfu": flops / 0.04 / (8 * 918e12),
        },
        rel=1e-12,
    )
    assert "mfu" not in figures(phase, 10, 0.4)
    packed = Phase(900, 256, None, 2.5, work=phase.work)
    assert figures(packed, 10, 0.4)["examples_per_second"] == 16_000.0
    assert figures(packed, 10, 0.4)["tokens_per_second"] == 819_200.0


def test_batches_that_were_cut_count_by_their_lengths(monkeypatch):
    monkeypatch.setattr(phase_steps, "peak_flops", lambda strategy: 1e6)
    phase = Phase(9, 6, None, work=Work(12, 40, lambda length: 1000 * length + length**2))
    found = figures(phase, 4, 2.0, lengths=[10, 30, 10, 40])
    assert found["tokens_per_second"] == 12 * 90 / 2.0
    assert found["mfu"] == pytest.approx((90_000 + 100 + 900 + 100 + 1600) / 2.0 / 1e6)
    unknown = Phase(9, 6, None, work=Work(12, 40))
    assert figures(unknown, 4, 2.0).keys() == {
        *("examples_per_second", "seconds_per_step", "tokens_per_second")
    }
    assert "tokens_per_second" not in figures(Phase(9, 6, None), 4, 2.0)


def test_the_median_and_the_slowest_host():
    asked = []

    def gather(own):
        asked.append(own)
        return [own, 0.5, 0.75, 0.125] if len(asked) == 1 else [own, 0.0625, 0.0, 0.25]

    of = strategy(replicas=8, hosts=4)
    assert distribution.several_processes(of)
    found = figures(Phase(9, 8, None), 4, 1.0, of=of, gather=gather, waits=0.5)
    assert asked == [0.25, 0.125]
    assert {name: x for name, x in found.items() if name.startswith("hosts/")} == {
        "hosts/seconds_per_step_median": 0.375,
        "hosts/seconds_per_step_slowest": 0.75,
        "hosts/seconds_per_step_slowest_process": 2,
        "hosts/input_seconds_per_step_median": 0.09375,
        "hosts/input_seconds_per_step_slowest": 0.25,
        "hosts/input_seconds_per_step_slowest_process": 3,
    }


CODE = """
import time
from bert_tf.runs.training.phase_steps import watched

def wait(heard, count, times):
    for _ in range(times):
        time.sleep(0.4)
        heard(count)

told = []
with watched(told.append, 0.02, 3) as heard:
    wait(heard, 2, 6)
wait(heard, 0, 6)  # as while a checkpoint is saved
assert told == [2] * 6 + [0] * 6
with watched(told.append, 0, 3) as heard:
    wait(heard, 0, 6)
print("no step yet", flush=True)
with watched(told.append, 0.02, 3) as heard:
    wait(heard, 0, 60)
"""


def training(folder, *more):
    """Writes records and a configuration; returns the command of a run with more flags."""
    write_records(folder / "train.tfrecord", 31, 12, 2, seed=1)
    config = write_config(folder / "bert_config.json")
    line = f"""--input_file={folder}/train.tfrecord --bert_config_file={config} --do_train
        --max_seq_length=12 --max_predictions_per_seq=2 --train_batch_size=4 --learning_rate=1e-2"""
    return command(*line.split(), *more)


def finish(words, log, status=0):
    """Runs a program; returns what it printed."""
    open(log, "w").close()
    process = forked_programs.start(words, log)
    process.join(120)
    with open(log) as file:
        text = file.read()
    assert process.exitcode == status, text[-5000:]
    return text


@pytest.mark.parametrize("start", ["", "import io, sys; sys.stderr = io.StringIO()"])
def test_a_program_whose_steps_hang_ends(tmp_path, start):
    text = finish([sys.executable, "-c", start + CODE], tmp_path / "log", status=75)
    before, after = text.split("Process 3 made no step for 0.02 minutes (--hang_minutes) and ends")
    assert "no step yet" in before
    assert re.search(r'File "<string>", line \d+ in wait\n', after)


@pytest.mark.parametrize("engine", ["--distribution_strategy=mirrored", "--tpu=pjrt"])
def test_every_step_is_skipped_above_a_norm_that_all_exceed(tmp_path, engine):
    if "pjrt" in engine:
        pytest.importorskip("jax", reason="needs JAX, an extra")
    flags = ("--num_train_steps=5", "--skip_steps_above_norm=1e-6", "--num_cpu_devices=2", engine)
    text = finish(training(tmp_path, *flags, f"--output_dir={tmp_path}/out"), tmp_path / "log")
    assert re.search(r"step 5: .*skipped = 1[,\n]", text)
    first, last = (variables(tmp_path / f"out/model.ckpt-{step}") for step in (0, 5))
    assert (first.pop("global_step"), last.pop("global_step")) == (0, 5)
    assert_same_arrays(last, first)


def test_a_trace_that_will_not_be_is_warned_of(tmp_path):
    flags = ("--num_train_steps=3", "--profile_steps=3:5", f"--output_dir={tmp_path}/out")
    text = finish(training(tmp_path, *flags), tmp_path / "log")
    why = "because the remaining steps are 0 to 2"
    assert f"--profile_steps=3:5: no trace will be written, {why}" in text


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["", "--tpu=pjrt --num_cpu_devices=2"])
def test_traces_kept_checkpoints_and_compiled_steps(tmp_path, engine):
    if engine:
        pytest.importorskip("jax", reason="needs JAX, an extra")
    flags = ("--num_train_steps=13", "--save_checkpoints_steps=2", "--keep_checkpoint_max=2")
    words, cache = training(tmp_path, *flags, *engine.split()), tmp_path / "cache"
    more = ["--keep_checkpoint_every_steps=4", "--profile_steps=5:9", "--hang_minutes=3"]
    more.append("--skip_steps_above_norm=1e9")
    if engine:
        more.append(f"--compilation_cache_dir={cache}")
    finish([*words, f"--output_dir={tmp_path}/plain"], tmp_path / "log")
    cached = []
    for name in ("first", "again"):
        output = tmp_path / name
        text = finish([*words, *more, f"--output_dir={output}"], tmp_path / "log")
        assert (f"Compiled steps are kept in {cache}" in text) == bool(engine)
        cached.append({path.name for path in cache.glob("*-cache")})
        names = " ".join(os.listdir(output))
        assert {*re.findall(r"ckpt-(\d+)\.index", names)} == {"4", "8", "12", "13"}
        (trace,) = output.glob("plugins/profile/*/*.xplane.pb")
        assert (b"shard_map/tensorflow/optimizer" if engine else b"MatMul") in trace.read_bytes()
        assert_same_variables(output / "model.ckpt-13", tmp_path / "plain/model.ckpt-13")
    assert cached[0] == cached[1]
    assert bool(cached[0]) == bool(engine)


def test_settings_that_are_refused():
    for values, message in (
        ({"profile_steps": "100"}, "--profile_steps='100' must be FIRST:END, the number of a step"),
        ({"profile_steps": "7:7"}, "the number of a step and a larger one, such as 100:105"),
        ({"profile_steps": "9:-1"}, "--profile_steps='9:-1' must be"),
        (
            {"keep_checkpoint_every_steps": 2500},
            r"=2500 must be a multiple of --save_checkpoints_steps \(1000\): other steps",
        ),
        ({"hang_minutes": -1.0}, "--hang_minutes=-1.0 must be a finite number of at least 0"),
    ):
        refuses(message, RunOptions, **values)
