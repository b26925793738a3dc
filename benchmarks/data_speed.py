"""How fast the input pipeline and create_pretraining_data.py are on so many cores.

Each runs in its own process, which may use only these cores. benchmarks/pretraining.py prints the
results.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.model.configuration import BertConfig
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.schema import UNMASKED, pretraining_schema

if TYPE_CHECKING:
    from bert_tf.tasks.pretraining.training.settings import RecordBatches

MASKING = PIECES, WHOLE_WORDS = ("pieces", "whole_words")
# Runs a program from a small process, and prints its peak memory: Linux counts the memory of the
# process that starts a program as the program's.
_PEAK = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
print("", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr, sep="\\n")
sys.exit(abs(status))
"""
_TOKENS_PER_WORD = 2  # in unmasked records, so that there are many whole words to mask


def synthetic_batch(config: BertConfig, phase: RecordBatches) -> dict[str, tf.Tensor]:
    """Returns a pre-training batch of random ids without padding, by feature name."""
    rng = np.random.RandomState(0)
    batch_size, length = phase.batch_size, phase.max_seq_length
    predictions = phase.max_predictions_per_seq

    def ids(high, *shape):
        return tf.constant(rng.randint(0, high, shape), tf.int32)

    return {
        "input_ids": ids(config.vocab_size, batch_size, length),
        "input_mask": tf.ones([batch_size, length], tf.int32),
        "segment_ids": ids(config.type_vocab_size, batch_size, length),
        "masked_lm_positions": ids(length, batch_size, predictions),
        "masked_lm_ids": ids(config.vocab_size, batch_size, predictions),
        "masked_lm_weights": tf.ones([batch_size, predictions]),
        "next_sentence_labels": ids(2, batch_size, 1),
    }


def run_program(arguments: list[str], cores: int = 1) -> tuple[float, float, str]:
    """Runs Python with these arguments on so many cores at most.

    Returns seconds, peak memory (MiB) and output.
    """
    command = [sys.executable, *arguments]
    small = [sys.executable, "-S", "-c", _PEAK]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    used = sorted(os.sched_getaffinity(0))[:cores]
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        options = {"env": environment, "stdout": output, "stderr": subprocess.STDOUT}
        options["preexec_fn"] = lambda: os.sched_setaffinity(0, used)
        status = subprocess.run([*small, *command], **options).returncode
        seconds = time.monotonic() - began
        output.seek(0)
        text, peak = output.read().decode().rstrip().rsplit("\n", 1)
    if status:
        kind = UserError if status == 1 else RuntimeError
        raise kind(f"{' '.join(command)} failed:\n{text}")
    return seconds, int(peak) / 1024, text


def measure_input_pipeline(
    config: BertConfig, phase: RecordBatches, masking: str | None = None, cores: int = 1
) -> None:
    """Prints the examples per second of the input pipeline, in wall-clock and processor time.

    `masking`, one of `MASKING`, says what to mask while reading. If None, the records are masked.
    """
    from bert_tf.tasks.pretraining.training.settings import RecordBatches

    length, predictions = phase.max_seq_length, phase.max_predictions_per_seq
    schema = pretraining_schema(length, None if masking else predictions)
    with tempfile.TemporaryDirectory() as directory:
        paths = [os.path.join(directory, f"{i}.tfrecord") for i in range(8)]
        examples = synthetic_batch(config, RecordBatches(length, 1, 4000, predictions))
        words = [0, *(1 + i // _TOKENS_PER_WORD for i in range(length - 2)), 0]
        examples[UNMASKED] = tf.constant([words] * 4000)
        columns = [examples[name].numpy() for name in schema]
        with records.write_files(paths, "output_file") as write:
            for row in zip(*columns, strict=True):
                write(records.serialize(dict(zip(schema, row, strict=True)), schema))
        arguments = (paths, length, predictions, phase.batch_size, config.vocab_size, masking)
        call = f"from benchmarks import data_speed; data_speed.time_input_pipeline{arguments}"
        _, memory, text = run_program(["-c", call], cores)
    print("\n".join(re.findall("^examples/s.*", text, re.MULTILINE)))
    print(f"peak memory: {memory:.0f} MiB")


def time_input_pipeline(
    files: list[str],
    length: int,
    predictions: int,
    batch_size: int,
    vocab_size: int,
    masking: str | None,
) -> None:
    """Prints how fast this process reads batches from `files` on the cores that it may use."""
    from bert_tf.engine import input_pipeline
    from bert_tf.tasks.pretraining.training.dynamic_masking import DynamicMasking

    schema = pretraining_schema(length, None if masking else predictions)
    # Training checks all features of ids. The cost does not depend on the limit.
    names = [name for name, feature in schema.items() if feature.dtype is np.int64]
    schema = records.limited(schema, dict.fromkeys(names, (vocab_size, "vocab_size")))
    augment = None
    if masking:
        augment = DynamicMasking(4, vocab_size, predictions, 0.15, masking == WHOLE_WORDS)
    options = {"seed": 1, "augment": augment}
    iterator = input_pipeline.TrainingInput(files, schema, batch_size, **options).iterator

    @tf.function
    def draw(num_batches):
        for _ in tf.range(num_batches):
            next(iterator)

    num_batches = tf.constant(10_000 // batch_size + 1)
    by_clock, by_processor = [], []
    for _ in range(10):
        clock, processor = time.perf_counter(), time.process_time()
        draw(num_batches)
        examples = int(num_batches) * batch_size
        by_clock.append(examples / (time.perf_counter() - clock))
        by_processor.append(examples / (time.process_time() - processor))
    # The first round traced the function. On one core of an idle machine both figures agree.
    print(f"examples/s by the clock: median {np.median(by_clock[1:]):.0f}")
    print(f"examples/s of processor time: median {np.median(by_processor[1:]):.0f}")


def measure_create_pretraining_data(
    input_file: str,
    vocab_file: str | None,
    max_seq_length: int,
    max_predictions_per_seq: int,
    dupe_factor: int,
) -> None:
    """Prints instances per second without start-up, and peak memory, for two dupe factors.

    The first factor is 1. Without a vocabulary, one is learned from the text.
    """
    with tempfile.TemporaryDirectory() as directory:
        if vocab_file is None:
            vocab_file = os.path.join(directory, "vocab.txt")
            command = ["-m", "tools.build_vocabulary", "--vocab_size=4000"]
            run_program([*command, f"--input_file={input_file}", f"--output_file={vocab_file}"])
        common = ["-m", "create_pretraining_data", f"--vocab_file={vocab_file}"]
        common += [f"--output_file={os.path.join(directory, 'records')}"]
        common += [f"--max_seq_length={max_seq_length}"]
        common += [f"--max_predictions_per_seq={max_predictions_per_seq}"]
        short_text = os.path.join(directory, "short.txt")
        with open(short_text, "w") as writer:
            writer.write("One sentence.\n\nAnother one.\n")
        # The best of three, because the first run also reads TensorFlow from disk.
        runs = [run_program([*common, f"--input_file={short_text}"]) for _ in range(3)]
        start_up, base = min(run[:2] for run in runs)
        print(f"start-up: {start_up:.2f} s, {base:.0f} MiB")
        for factor in (1, dupe_factor):
            more = [f"--input_file={input_file}", f"--dupe_factor={factor}"]
            seconds, memory, text = run_program([*common, *more])
            instances = int(re.search(r"Wrote (\d+) total instances", text).group(1))
            took = seconds - start_up
            # Start-up time varies by tenths of a second, so a second or less is noise.
            speed = f"{instances / took:.0f} instances/s" if took > 1.0 else "too short to time"
            print(
                f"dupe_factor {factor}: {instances} instances, {took:.2f} s beyond start-up,"
                f" {speed}, peak {memory:.0f} MiB"
            )
