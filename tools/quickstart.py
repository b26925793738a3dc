"""Pre-trains and evaluates a tiny BERT on the text in flags/quickstart, in a few minutes on a CPU.

    python -m tools.quickstart --output_dir=output/quickstart

It runs the same programs as for a full-size model. It prints a line for each stage, then the
results, and writes to --output_dir:

    vocab.txt                 the vocabulary of the training text
    train_N.tfrecord          training records of length N
    heldout_N.tfrecord        records of length N from text that the model does not train on
    model.ckpt-STEP.*         the checkpoints
    eval_results.txt          the results of the evaluation
    quickstart.log            each command, to run by hand or with changes, and what it logged

A second run makes the same records, finds the last checkpoint, finishes training and evaluates.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.quickstart")

import collections
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from absl import flags

from bert_tf.engine import interrupts
from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.runs.flags import command_flags

from . import child

_RECIPE = "flags/quickstart"
# The maximum: flags/quickstart/bert_config.json has as many embeddings.
_VOCAB_SIZE = 1000
# Sequence length -> masked positions, as in the phases of flags/quickstart/pretraining.flags:
# 0.15 of the length, rounded, as in the original's README.
_MAX_PREDICTIONS = {32: 5, 64: 10}
# Records -> text, and how often each document is cut and masked again.
_TEXTS = {"train": ("corpus.txt", 20), "heldout": ("heldout.txt", 5)}
_LOG = "quickstart.log"
_TAIL_LINES = 20  # of the log, shown if a stage fails
_PROGRESS = re.compile(r"\((\d+% done[^)]*)\)")  # in a line of a training program


class Stage(NamedTuple):
    """A stage of the quickstart: its title, and its command, which begins with "python"."""

    title: str
    command: list[str]


def make_stages(output_dir: str) -> list[Stage]:
    """Returns the stages in order; raises UserError if the text is missing."""
    if not os.path.isdir(_RECIPE):
        raise UserError(
            f"{_RECIPE} has the text, but does not exist in {os.getcwd()}: run it in a"
            " checkout, or copy the recipes with python -m bert_tf.tools.copy_flags"
        )
    vocab_file = os.path.join(output_dir, "vocab.txt")
    command = ["python", "-m", f"{__package__}.build_vocabulary"]
    command += [f"--input_file={_RECIPE}/corpus.txt", f"--output_file={vocab_file}"]
    command += [f"--vocab_size={_VOCAB_SIZE}"]
    stages = [Stage(f"Learning a vocabulary of {_VOCAB_SIZE:,} tokens", command)]
    for part, (text, dupe_factor) in _TEXTS.items():
        for length, predictions in _MAX_PREDICTIONS.items():
            output_file = f"{output_dir}/{part}_{length}.tfrecord"
            command = program("create_pretraining_data")
            command += [f"--input_file={_RECIPE}/{text}", f"--output_file={output_file}"]
            command += [f"--vocab_file={vocab_file}", f"--max_seq_length={length}"]
            command += [f"--max_predictions_per_seq={predictions}", f"--dupe_factor={dupe_factor}"]
            stages.append(Stage(f"Making records: {os.path.basename(output_file)}", command))
    command = [*program("run_pretraining"), f"--flagfile={_RECIPE}/pretraining.flags"]
    command += [f"--input_file={output_dir}/train_{{max_seq_length}}.tfrecord"]
    command += [f"--eval_input_file={output_dir}/heldout_{{max_seq_length}}.tfrecord"]
    command += [f"--output_dir={output_dir}"]
    stages.append(Stage("Training and evaluating, one to three minutes", command))
    return stages


def program(name: str) -> list[str]:
    """Returns the command of a program, by its file in a checkout, else by its module."""
    file = f"{name}.py"
    return ["python", file] if os.path.exists(file) else ["python", "-m", name]


def run_stages(stages: Sequence[Stage], log: TextIO) -> None:
    """Runs the stages with this Python and prints a line for each; `log` gets commands and output.

    On a terminal the line also shows the progress of training. Ctrl-C and SIGTERM are passed on to
    the command, which saves its work before it ends.
    """
    for number, (title, command) in enumerate(stages, 1):
        line = f"{number} of {len(stages)}: {title} ..."
        print(line, end="", flush=True)
        print(f"\n$ {shlex.join(command)}", file=log, flush=True)
        began = time.monotonic()
        end: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        python = [sys.executable, *command[1:]]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with child(python, **streams, encoding="utf-8", errors="replace") as process:
            for text in process.stdout:
                log.write(text)
                log.flush()
                end.append(text)
                if (progress := _PROGRESS.search(text)) and sys.stdout.isatty():
                    print(f"\r{line} {progress[1]:40}", end="", flush=True)
        if process.returncode in interrupts.STATUSES:
            print(" stopped. The same command continues from here.", flush=True)
            sys.exit(process.returncode)
        if process.returncode:
            print(f" failed with status {process.returncode}. The end of {log.name}:", flush=True)
            sys.stderr.writelines(end)
            sys.exit(process.returncode if process.returncode > 0 else 1)
        seconds = f"{time.monotonic() - began:.0f} s"
        print(f"\r{line} {seconds:40}" if sys.stdout.isatty() else f" {seconds}", flush=True)


def main() -> None:
    output_dir = flags.FLAGS.output_dir
    stages = make_stages(output_dir)
    storage.make_output_dir(output_dir)
    with open(os.path.join(output_dir, _LOG), "w", encoding="utf-8") as log:
        print(f"The commands and what they print: {log.name}")
        run_stages(stages, log)
    results = os.path.join(output_dir, "eval_results.txt")
    print(f"\n{results}:")
    with open(results, encoding="utf-8") as file:
        print(file.read())
    next_steps = {
        "docs/quickstart.md": "what these figures mean, and a task for the new model",
        "docs/own-data.md": "the same with your own text",
        f"tensorboard --logdir={shlex.quote(output_dir)}": "curves of the training",
    }
    width = max(map(len, next_steps))
    print("Next:")
    for step, meaning in next_steps.items():
        print(f"  {step:{width}}  {meaning}")


if __name__ == "__main__":
    flags.DEFINE_string(
        "output_dir", "output/quickstart", "Folder for everything that the quickstart writes."
    )
    command_flags.run_program(main)
