"""Pre-trains and evaluates a tiny BERT on the text in flags/quickstart, in a few minutes on a CPU.

    python -m tools.quickstart --output_dir=output/quickstart

It runs the same programs that pre-train a full model and prints each command before running it, so
that every one of them can be copied, changed and run by hand. What it writes:

    vocab.txt                 the word pieces of the training text
    train_N.tfrecord          training examples of at most N word pieces
    heldout_N.tfrecord        the same from text that is not trained on
    model.ckpt-STEP.*         the checkpoints; eval_results.txt: the evaluation

Run again, it makes the same records, finds the last checkpoint and only evaluates.
"""

import os
import shlex
import subprocess
import sys
import time

from absl import flags

from bert_tf.errors import UserError
from bert_tf.runs import command_flags

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "output/quickstart", "Folder that receives everything the quickstart writes."
)

_RECIPE = "flags/quickstart"
# Word pieces at most; flags/quickstart/bert_config.json has a row for each.
_VOCAB_SIZE = 1000
# Sequence length -> masked positions, as in the phases of flags/quickstart/pretraining.flags:
# 0.15 of the length, rounded, as in the original's README.
_MAX_PREDICTIONS = {32: 5, 64: 10}
# Text file -> how often each document is cut and masked anew.
_DUPE_FACTORS = {"train": ("corpus.txt", 20), "heldout": ("heldout.txt", 5)}


def quickstart_commands(output_dir: str) -> list[list[str]]:
    """Returns the command lines to run in order, each a list of words, "python" the first."""
    vocab_file = os.path.join(output_dir, "vocab.txt")
    commands = [
        [
            "python",
            "-m",
            f"{__package__}.build_vocabulary",
            f"--input_file={_RECIPE}/corpus.txt",
            f"--output_file={vocab_file}",
            f"--vocab_size={_VOCAB_SIZE}",
        ]
    ]
    for part, (text, dupe_factor) in _DUPE_FACTORS.items():
        for max_seq_length, max_predictions_per_seq in _MAX_PREDICTIONS.items():
            commands.append(
                [
                    *_program("create_pretraining_data"),
                    f"--input_file={_RECIPE}/{text}",
                    f"--output_file={output_dir}/{part}_{max_seq_length}.tfrecord",
                    f"--vocab_file={vocab_file}",
                    f"--max_seq_length={max_seq_length}",
                    f"--max_predictions_per_seq={max_predictions_per_seq}",
                    f"--dupe_factor={dupe_factor}",
                ]
            )
    commands.append(
        [
            *_program("run_pretraining"),
            f"--flagfile={_RECIPE}/pretraining.flags",
            f"--input_file={output_dir}/train_{{max_seq_length}}.tfrecord",
            f"--eval_input_file={output_dir}/heldout_{{max_seq_length}}.tfrecord",
            f"--output_dir={output_dir}",
        ]
    )
    return commands


def _program(name: str) -> list[str]:
    """Returns the words that run a program: its file in a checkout, else its installed module."""
    file = f"{name}.py"
    return ["python", file] if os.path.exists(file) else ["python", "-m", name]


def run(command: list[str]) -> None:
    """Prints a command, then runs it with this Python.

    Raises:
        SystemExit: the command failed; the message names it and its exit status.
    """
    print(f"\n$ {shlex.join(command)}", flush=True)
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    status = subprocess.run([sys.executable, *command[1:]], env=environment).returncode
    if status:
        raise SystemExit(f"The last command ended with status {status}; its error is above.")


def main() -> None:
    """Runs every command of the quickstart."""
    if not os.path.isdir(_RECIPE):
        raise UserError(
            f"the quickstart reads {_RECIPE}, which {os.getcwd()} does not have: run it in a"
            " checkout, or copy the recipes with python -m bert_tf.tools.copy_flags"
        )
    output_dir = _OUTPUT_DIR.value
    start = time.monotonic()
    os.makedirs(output_dir, exist_ok=True)
    for command in quickstart_commands(output_dir):
        run(command)
    seconds = time.monotonic() - start
    results = os.path.join(output_dir, "eval_results.txt")
    print(f"\n{results}, after {seconds:.0f} seconds in all:")
    with open(results, encoding="utf-8") as file:
        print(file.read())
    print(
        "Next:\n"
        f"  tensorboard --logdir={shlex.quote(output_dir)}    the loss and the learning rate\n"
        f"  {_RECIPE}/pretraining.flags    change the phases, then run the last command again\n"
        "  docs/quickstart.md    what these figures mean, and a task for this model\n"
        "  docs/own-data.md    the same with your own text"
    )


if __name__ == "__main__":
    command_flags.run_program(main)
