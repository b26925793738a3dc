"""Tests of what watches over a run: the end of one that hangs, traces, kept checkpoints, caches."""

import os
import re
import sys

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.runs.flags.run_settings import RunOptions
from tests.support import forked_programs
from tests.support.pretraining_runs import (
    assert_same_variables,
    command,
    variables,
    write_config,
    write_records,
)

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


def finish(words, log, status=0, env=None):
    """Runs a program; returns what it printed."""
    open(log, "w").close()
    process = forked_programs.start(words, log, env)
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
    write_records(tmp_path / "train.tfrecord", 31, 12, 2, seed=1)
    config = write_config(tmp_path / "bert_config.json")
    line = f"""--input_file={tmp_path}/train.tfrecord --bert_config_file={config} --do_train
        --max_seq_length=12 --max_predictions_per_seq=2 --train_batch_size=4 --num_train_steps=5
        --learning_rate=1e-2 --output_dir={tmp_path}/out --skip_steps_above_norm=1e-6
        --num_cpu_devices=2 {engine}"""
    text = finish(command(*line.split()), tmp_path / "log")
    assert re.search(r"step 5: .*skipped = 1[,\n]", text)
    first, last = (variables(tmp_path / f"out/model.ckpt-{step}") for step in (0, 5))
    assert (first.pop("global_step"), last.pop("global_step")) == (0, 5)
    for name, value in first.items():
        np.testing.assert_array_equal(last[name], value, err_msg=name)


def test_a_trace_that_will_not_be_is_warned_of(tmp_path):
    write_records(tmp_path / "train.tfrecord", 31, 12, 2, seed=1)
    config = write_config(tmp_path / "bert_config.json")
    line = f"""--input_file={tmp_path}/train.tfrecord --bert_config_file={config} --do_train
        --max_seq_length=12 --max_predictions_per_seq=2 --train_batch_size=4 --num_train_steps=3
        --output_dir={tmp_path}/out --profile_steps=3:5"""
    text = finish(command(*line.split()), tmp_path / "log")
    assert "--profile_steps=3:5: there will be no trace: the steps to come are 0 to 2" in text


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["", "--tpu=pjrt --num_cpu_devices=2"])
def test_traces_kept_checkpoints_and_compiled_steps(tmp_path, engine):
    if engine:
        pytest.importorskip("jax", reason="needs JAX, an extra")
    write_records(tmp_path / "train.tfrecord", 31, 12, 2, seed=1)
    config, cache = write_config(tmp_path / "bert_config.json"), tmp_path / "cache"
    line = f"""--input_file={tmp_path}/train.tfrecord --bert_config_file={config} --do_train
        --max_seq_length=12 --max_predictions_per_seq=2 --train_batch_size=4 --num_train_steps=13
        --learning_rate=1e-2 --save_checkpoints_steps=2 --keep_checkpoint_max=2 {engine}"""
    words = command(*line.split())
    more = ["--keep_checkpoint_every_steps=4", "--profile_steps=5:9", "--hang_minutes=3"]
    more.append("--skip_steps_above_norm=1e9")
    env = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    if engine:
        more.append(f"--compilation_cache_dir={cache}")
    finish([*words, f"--output_dir={tmp_path}/plain"], tmp_path / "log")
    cached = []
    for name in ("first", "again"):
        output = tmp_path / name
        text = finish([*words, *more, f"--output_dir={output}"], tmp_path / "log", env=env)
        assert (f"Compiled steps are kept in {cache}" in text) == bool(engine)
        cached.append({path.name for path in cache.glob("*-cache")})
        names = " ".join(os.listdir(output))
        assert {*re.findall(r"ckpt-(\d+)\.index", names)} == {"4", "8", "12", "13"}
        (trace,) = output.glob("plugins/profile/*/*.xplane.pb")
        assert (b"shard_map/tensorflow/optimizer" if engine else b"MatMul") in trace.read_bytes()
        assert_same_variables(output / "model.ckpt-13", tmp_path / "plain/model.ckpt-13")
    assert cached[0] == cached[1]
    assert bool(cached[0]) == bool(engine)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"profile_steps": "100"}, "--profile_steps='100' must be FIRST:END, two numbers of steps"),
        ({"profile_steps": "7:7"}, "of which the first is smaller, such as 100:105"),
        ({"profile_steps": "9:-1"}, "--profile_steps='9:-1' must be"),
        (
            {"keep_checkpoint_every_steps": 2500},
            r"=2500 must be a multiple of --save_checkpoints_steps \(1000\): other steps",
        ),
        ({"hang_minutes": -1.0}, "--hang_minutes=-1.0 must be a finite number of at least 0"),
    ],
)
def test_settings_that_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        RunOptions(**values)
