"""Damaged checkpoints, files `checkpoint` of any content, and heartbeats of any content."""

import json
import os
import random
import time
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.files import checkpoints
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.runs.folder import heartbeat
from tests.fuzz.cases import attempt, damage

STEPS = (3, 10)
SUFFIXES = (".index", ".data-00000-of-00001")


def _values(step: int) -> dict[str, np.ndarray]:
    """Returns weights, a slot and the step, with a partly filled last block."""
    return {
        "bert/kernel": np.arange(35, dtype=np.float32).reshape(5, 7) + step,
        "bert/kernel/adam_m": np.float32([step, 0.5]),
        "global_step": np.int64(step),
    }


def _save(folder: Path, *steps: int, keep: int = 5) -> None:
    directory = CheckpointDirectory(str(folder), keep)
    for step in steps:
        directory.save({name: tf.constant(x) for name, x in _values(step).items()}, step)


def _restored(folder: Path) -> int | None:
    """Returns the step that the newest checkpoint gives, having checked every value; else None."""
    variables = {name: tf.Variable(np.zeros_like(x)) for name, x in _values(0).items()}
    prefix = CheckpointDirectory(str(folder)).restore_latest(variables)
    if prefix is None:
        return None
    step = int(prefix.rsplit("-", 1)[1])
    for name, value in _values(step).items():
        np.testing.assert_array_equal(variables[name].numpy(), value, err_msg=name)
    return step


def fuzz_checkpoint_files(random: random.Random, folder: Path) -> None:
    """A damaged newest checkpoint is read as it was, or the one before it is taken."""
    _save(folder, *STEPS)
    for _ in range(random.choice([1, 1, 2])):
        path = folder / f"model.ckpt-{STEPS[1]}{random.choice(SUFFIXES)}"
        path.write_bytes(damage(random, path.read_bytes()))
    assert _restored(folder) in STEPS


def fuzz_mixed_files(random: random.Random, folder: Path) -> None:
    """Files of two steps never pass for a checkpoint."""
    _save(folder, *STEPS)
    old, new = (folder / f"model.ckpt-{step}" for step in STEPS)
    for suffix in random.choice([SUFFIXES[:1], SUFFIXES[1:], SUFFIXES]):
        os.replace(f"{old}{suffix}", f"{new}{suffix}")
    step = {"global_step": tf.Variable(0, dtype=tf.int64)}
    message, _ = attempt(lambda: checkpoints.restore(step, str(new)), naming="model.ckpt-10")
    assert message


def fuzz_state_file(random: random.Random, folder: Path) -> None:
    """Whatever the file `checkpoint` holds, a whole checkpoint is found and no other file goes."""
    _save(folder, *STEPS)
    state = folder / "checkpoint"
    others = ["train.tf_record", "model.ckpt-7-notes", "model.ckpt.index.old", "vocab.txt"]
    for name in others:
        (folder / name).write_text("mine")
    names = ["*", "model.ckpt-*", "..", "", "/etc/hosts", "train", "\\377", "v" * 300]
    names += ["model.ckpt-3", "model.ckpt-7", "model.ckpt-10", "../x/model.ckpt-3"]
    names += [f"model.ckpt-{10**20 - 1}"]
    if random.random() < 0.3:
        state.write_bytes(damage(random, state.read_bytes()))
    else:
        chosen = random.choices(names, k=random.randint(1, 4))
        lines = [f'model_checkpoint_path: "{chosen[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in chosen]
        state.write_text("\n".join(lines))
    assert _restored(folder) in STEPS
    _save(folder, 11, keep=random.randint(0, 2))
    assert _restored(folder) == 11
    assert all((folder / name).read_text() == "mine" for name in others)


def fuzz_heartbeat(random: random.Random, folder: Path) -> None:
    """Whatever was left in the file, the directory is taken over after a while."""
    path = folder / "run.heartbeat"
    owner = {"id": "x", "host": "tpu-7", "pid": 11, "pid_space": "tpu-7", "beats": 1}
    text = json.dumps(owner).encode()
    odd = [None, -1, 0, 2**31, 10**400, "7", [], {}, 1.5, True, "x" * 10_000]
    match random.choice(["damage", "odd", "bytes", "deep"]):
        case "damage":
            text = damage(random, text)
        case "odd":
            text = json.dumps({**owner, random.choice([*owner]): random.choice(odd)}).encode()
        case "bytes":
            text = random.randbytes(random.randrange(200))
        case _:
            text = b"[" * 50_000
    path.write_bytes(text)
    began = time.monotonic()
    times = {"BEAT_SECONDS": 0.04, "EXPIRES_SECONDS": 0.02, "SETTLE_SECONDS": 0.01}
    with mock.patch.multiple(heartbeat, **times), heartbeat.Heartbeat(str(folder)) as ours:
        ours.check()
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert time.monotonic() - began < 5 and not path.exists()
