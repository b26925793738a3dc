"""Helpers for tests of programs: records, a tiny configuration, running the programs."""

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bert_tf.files import checkpoints, records
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.schema import MLM_NSP, pretraining_schema
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings, ScheduleSettings
from tests.support import forked_programs

T = TypeVar("T", bound=PretrainingSettings)
ROOT = str(Path(__file__).resolve().parents[2])
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(32))]
VOCAB_SIZE = len(WORDS)
CONFIG = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


def write_config(path, **changes) -> str:
    """Writes the tiny configuration to a file; returns its path."""
    path.write_text(json.dumps({**CONFIG, **changes}))
    return str(path)


def write_records(
    path, count, length, predictions, seed, vocab_size=VOCAB_SIZE, objective=MLM_NSP
) -> str:
    """Writes random pre-training records to a file; returns its path."""
    rng = np.random.RandomState(seed)
    schema = pretraining_schema(length, predictions, objective)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(count):
            tokens = rng.randint(length // 2, length + 1)
            masked = rng.randint(1, predictions + 1)
            padding, unused = [0] * (length - tokens), [0] * (predictions - masked)
            ids = rng.randint(0, vocab_size, tokens)
            positions = sorted(rng.choice(tokens, masked, replace=False))
            values = {
                "input_ids": [*ids, *padding],
                "input_mask": [1] * tokens + padding,
                "segment_ids": [0] * 4 + [1] * (tokens - 4) + padding,
                "masked_lm_positions": [*positions, *unused],
                "masked_lm_ids": [*rng.randint(0, vocab_size, masked), *unused],
                "masked_lm_weights": [1.0] * masked + unused,
                "next_sentence_labels": [rng.randint(0, 2)],
            }
            values = {name: values[name] for name in schema}
            writer.write(records.serialize(values, schema))
    return str(path)


def write_text(folder) -> dict[str, str]:
    """Writes documents of one to six sentences, and a vocabulary; returns the settings for them."""
    rng = random.Random(4)
    words = WORDS[5:]
    documents = [
        [" ".join(rng.choices(words, k=rng.randint(2, 9))) for _ in range(rng.randint(1, 6))]
        for _ in range(40)
    ]
    (folder / "text.txt").write_text("\n\n".join(map("\n".join, documents)))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return {"input_file": f"{folder}/text.txt", "vocab_file": f"{folder}/vocab.txt"}


def make_records(folder, max_seq_length: int, max_predictions_per_seq: int, **kinds: dict) -> None:
    """Writes NAME.tfrecord of the text of `write_text` for each NAME of `kinds`, with its options.

    There are no manifests, as beside the original's records.
    """
    from bert_tf.tasks.pretraining.records.data import create_pretraining_data
    from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings

    sizes = {"max_seq_length": max_seq_length, "max_predictions_per_seq": max_predictions_per_seq}
    sizes |= {"dupe_factor": 1, **write_text(folder)}
    for name, options in kinds.items():
        path = f"{folder}/{name}.tfrecord"
        create_pretraining_data(PretrainingDataSettings(output_file=path, **sizes, **options))
        os.remove(f"{path}.json")


def settings_of_flags(kind: type[T], **flags: Any) -> T:
    """Returns the settings that the program makes of these flags, with the phases of training."""
    names = {field.name for field in dataclasses.fields(ScheduleSettings)} & flags.keys()
    schedule = ScheduleSettings(**{name: flags.pop(name) for name in names})
    phases, evaluation_batches = schedule.make_phases(names)
    return kind(phases=phases, evaluation_batches=evaluation_batches, **flags)


def command(*flags: str, program: str = "run_pretraining.py") -> list[str]:
    """Returns the command line of a program, or of a module such as `tools.export`."""
    if not program.endswith(".py"):
        return [sys.executable, "-m", program, *flags]
    return [sys.executable, os.path.join(ROOT, program), *flags]


def run(*flags: str, program: str = "run_pretraining.py", status: int = 0, **options: Any) -> str:
    """Runs a program or module and checks its exit status; returns its output, stdout and stderr.

    A program with `options` of subprocess.run, such as `env`, imports TensorFlow itself.
    """
    words = command(*flags, program=program)
    if options:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(words, **streams, text=True, **options)
        found, output = done.returncode, done.stdout
    else:
        found, output = forked_programs.run(words)
    assert found == status, output
    return output


def run_forked(code: str, *arguments: object) -> str:
    """Runs Python code, which may import the tests, in a fork that has imported TensorFlow.

    Returns what it prints, stdout and stderr. TensorFlow has not looked for devices there yet.
    """
    words = [sys.executable, "-c", code, *map(str, arguments)]
    status, output = forked_programs.run(words)
    assert status == 0, output
    return output


def run_code(code: str, *arguments: object, timeout: float | None = None) -> str:
    """Runs Python code, which may import the tests, in its own process; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def variables(path) -> dict[str, np.ndarray]:
    """Returns the values in a checkpoint, or in the newest of a directory, by name."""
    reader = checkpoints.CheckpointReader(str(path))
    return {name: reader.read(name) for name in reader.shapes}


def assert_same_variables(path, other) -> None:
    """Asserts that two checkpoints, or the newest of two directories, are equal to the bit."""
    found, expected = variables(path), variables(other)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
