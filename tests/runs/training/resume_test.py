"""Killed at any moment and started again, a run ends with the bits of an uninterrupted one.

Of every three runs one is killed at some moment, one within a save, and one is sent SIGTERM.
"""

import glob
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from benchmarks.storage_faults import UNCOMPILED
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM_NSP
from tests.support.forked_programs import run, start
from tests.support.pretraining_runs import (
    assert_same_variables,
    command,
    write_config,
    write_records,
    write_text,
)

# 94 and 61 records a phase, so both phases go past one epoch; saves every 4 steps, loops of 7.
PHASES = "12:56:8:2,20:44:4:3"
LAST = 100


def make_words(folder, objective=MLM_NSP, **changes):
    """Returns the command line of a run without XLA and without its output directory.

    Compiling takes longer than all steps. Neither kills nor resuming know how a step is compiled.
    """
    for length, predictions, counts in ((12, 2, (31, 45, 18)), (20, 3, (40, 21))):
        for i, count in enumerate(counts):
            path = folder / f"{length}_{i}.tfrecord"
            write_records(path, count, length, predictions, seed=i, objective=objective)
    config = write_config(folder / "bert_config.json", **changes)
    flags = f"""--input_file={folder}/{{max_seq_length}}_*.tfrecord --bert_config_file={config}
        --do_train --phases={PHASES} --learning_rate=1e-2 --num_warmup_steps=9
        --save_checkpoints_steps=4 --iterations_per_loop=7"""
    python, program, *words = command(f"--objective={objective}", *flags.split())
    return [python, "-c", UNCOMPILED, Path(program).stem, *words]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return make_words(tmp_path_factory.mktemp("inputs"))


def train(words, output_dir):
    """Trains without interruption; returns the last checkpoint."""
    status, printed = run([*words, f"--output_dir={output_dir}"])
    assert status == 0, printed
    return output_dir / f"model.ckpt-{LAST}"


@pytest.fixture(scope="module")
def undisturbed(words, tmp_path_factory):
    return train(words, tmp_path_factory.mktemp("undisturbed"))


def named_step(output_dir) -> int:
    """Returns the step of the newest checkpoint that the file `checkpoint` names; -1 for none."""
    try:
        text = (output_dir / "checkpoint").read_text()
        return int(re.search(r"model\.ckpt-(\d+)", text).group(1))
    except FileNotFoundError:
        return -1


def run_and_kill(
    words, output_dir, saves: int, delay: float, within_save: bool, sent=signal.SIGKILL
) -> int | None:
    """Returns the exit status of a run that is sent a signal `delay` seconds after its n-th new
    save, or is killed before that save is complete; None if the signal has ended it."""
    process = start([*words, f"--output_dir={output_dir}"], output_dir.with_suffix(".log"))
    goal = max(named_step(output_dir), 0) + 4 * saves
    while process.exitcode is None:
        if within_save:
            # The position in the input is written first, the name in `checkpoint` last.
            begun = glob.glob(f"{output_dir}/model.ckpt-*.input.json")
            steps = [int(re.search(r"ckpt-(\d+)", path).group(1)) for path in begun]
            if max(steps, default=-1) >= goal:
                os.kill(process.pid, signal.SIGSTOP)
                if named_step(output_dir) < max(steps):
                    process.kill()
                    process.join()
                    return None
                goal = max(steps) + 4  # too late: the next one
                os.kill(process.pid, signal.SIGCONT)
        elif named_step(output_dir) >= goal:
            time.sleep(delay)
            if process.exitcode is None:
                os.kill(process.pid, sent)
            process.join()
            ends = {-signal.SIGKILL, 75} if sent == signal.SIGTERM else {-signal.SIGKILL}
            return None if process.exitcode in ends else process.exitcode
        time.sleep(0.002)
    return process.exitcode


def check_kills(words, undisturbed, output_dir, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    killed = killed_in_save = killed_in_second_phase = 0
    while killed < kills:
        within_save = killed % 3 == 1
        # Neither the length of loops must matter nor how many batches are parsed at a time.
        python, option, code, *flags = words
        parsers = (1, 7, 2)[killed % 3]
        code = f"from bert_tf.engine import input_pipeline as x; x.PARSERS = {parsers}\n{code}"
        status = run_and_kill(
            [python, option, code, *flags, f"--iterations_per_loop={rng.randint(2, 7)}"],
            output_dir,
            rng.randint(1, 2),
            rng.uniform(0, 0.1),
            within_save,
            signal.SIGTERM if killed % 3 == 2 else signal.SIGKILL,
        )
        if status is not None:  # it ended before it could be killed: start over
            assert status == 0
            shutil.rmtree(output_dir)
            continue
        killed += 1
        killed_in_save += within_save
        killed_in_second_phase += named_step(output_dir) >= 56
    assert_same_variables(train(words, output_dir), undisturbed)
    assert not [p for p in os.listdir(output_dir) if "temp" in p or "unfinished" in p]
    assert killed_in_save, "no kill fell within a save"
    assert kills < 10 or killed_in_second_phase >= 3, "too few kills in the second phase"


@pytest.mark.slow
def test_ten_kills(words, undisturbed, tmp_path):
    check_kills(words, undisturbed, tmp_path / "out", seed=2, kills=10)


@pytest.mark.slow
def test_three_kills_of_an_electra_on_two_replicas(tmp_path):
    """Masks and samples are the same again, too."""
    words = make_words(tmp_path, ELECTRA, model_type="electra", embedding_size=6)
    write_text(tmp_path)
    words += [f"--vocab_file={tmp_path}/vocab.txt", "--generator_hidden_size=0.5"]
    words += ["--distribution_strategy=mirrored", "--num_cpu_devices=2"]
    words = [word.replace(PHASES, f"12:{LAST}:8:1") for word in words]
    undisturbed = train(words, tmp_path / "undisturbed")
    check_kills(words, undisturbed, tmp_path / "out", seed=3, kills=3)
