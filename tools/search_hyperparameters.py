r"""Searches hyperparameters: runs a program once per point of a grid and reports the best run.

    python -m tools.search_hyperparameters --output_dir=output/mrpc_search --num_restarts=5 \
        -- run_classifier.py --task_name=MRPC --do_train --do_eval --data_dir=... --vocab_file=... \
        --bert_config_file=... --init_checkpoint=...

After `--` come the program, as a file or a command, and all its flags except --output_dir. The
default grid is the paper's (A.3). For GLUE the paper (4.1) uses --vary=train_batch_size=32
--vary=learning_rate=5e-5,4e-5,3e-5,2e-5 --vary=num_train_epochs=3, with random restarts for
BERT-Large. The search writes to --output_dir:

    TRIAL/            the run of each trial, named after its values; trial.json has its outcome
    trials.csv        all trials, best first
    best_trial.json   the best trial: its flags, results, output_dir and command

Run the same command again to continue an interrupted search: it skips finished trials, resumes an
interrupted trial from its checkpoint, and runs failed trials once more.
"""

import itertools
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from bert_tf.errors import UserError, quoted
from bert_tf.files import storage
from bert_tf.runs.flags import command_flags
from bert_tf.runs.folder.heartbeat import Heartbeat

from .trials import Search, Trial

PAPER_GRID = (
    "train_batch_size=16,32",
    "learning_rate=5e-5,3e-5,2e-5",
    "num_train_epochs=2,3,4",
)


def parse_grid(vary: Sequence[str]) -> list[dict[str, str]]:
    """Returns the points of a grid, the last flag varying fastest.

    Args:
        vary: for each flag `NAME=VALUE,VALUE,...`.

    Raises:
        UserError: an entry is malformed, repeats a flag, or has a flag that the search sets.
    """
    axes: dict[str, list[str]] = {}
    for entry in vary:
        name, _, values = entry.partition("=")
        axis = list(dict.fromkeys(values.split(",")))
        if not re.fullmatch(r"\w+", name) or not all(axis):
            raise UserError(
                f"--vary must be a flag's name and its values, such as {PAPER_GRID[1]}; received"
                f" {quoted(entry)}"
            )
        if name in axes or name in ("output_dir", "random_seed"):
            reason = "appears twice" if name in axes else "is set by the search itself"
            raise UserError(f"--vary={quoted(entry)}: {name} {reason}; remove it")
        axes[name] = axis
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def find_program(command: Sequence[str]) -> list[str]:
    """Returns the words after `--` with the program as a file, if it is a command on PATH.

    Raises:
        UserError: the words do not begin with a program, or they set --output_dir.
    """
    example = "-- run_classifier.py --task_name=MRPC --do_train --do_eval ..."
    if not command:
        raise UserError(f"the program to run and its flags must follow after --: {example}")
    program, *words = command
    if program != "-m" and not os.path.isfile(program):
        # Installed, the programs are Python scripts on PATH.
        found = shutil.which(program)
        if found is None:
            raise UserError(
                "after -- a Python program must come first, a file or a command on PATH; received"
                f" {quoted(program)}. For example: {example}"
            )
        program = found
    wrong = [word for word in words if re.match(r"--?output_dir(=|$)", word)]
    if wrong:
        raise UserError(f"remove {wrong[0]} after --: each trial has an --output_dir of its own")
    return [program, *words]


def search(
    command: Sequence[str],
    output_dir: str,
    vary: Sequence[str] = PAPER_GRID,
    num_restarts: int = 0,
    restart: str = "best",
    **options: Any,
) -> Trial:
    """Runs all trials and returns the best one.

    Args:
        command: the program and its flags, as after `--`.
        output_dir: the flag of the same name, as are `vary`, `num_restarts` and `restart`.
        **options: further arguments of `Search`.

    Raises:
        UserError: the flags are wrong, or every trial failed.
        OSError: the directory is not writable.
    """
    command = find_program(command)
    points: list[dict[str, str]] = parse_grid(vary)
    seeds = [{"random_seed": str(seed)} for seed in range(1, num_restarts + 1)]
    storage.make_output_dir(output_dir)
    with Heartbeat(output_dir):
        trials = Search(command, output_dir, **options)
        if restart == "each":
            points = [{**point, **seed} for point in points for seed in ({}, *seeds)]
        trials.run(points)
        best = trials.best(points)
        if best and restart == "best":
            trials.run([{**best.flags, **seed} for seed in seeds])
        print(trials.table())
        best = trials.best()
        if best is None:
            raise UserError("every trial failed; their messages are above")
        print(f"Best trial: {best}\nIts output: {trials.folder(best)}")
    return best


def _define_flags() -> None:
    flags.DEFINE_string("output_dir", None, "Folder for the trials and tables.", required=True)
    flags.DEFINE_multi_string(
        "vary",
        list(PAPER_GRID),
        "A flag of the program and its values, NAME=VALUE,VALUE,...; repeat it for each flag to"
        " vary.",
    )
    flags.DEFINE_integer(
        "num_restarts", 0, "Additional runs that differ only in --random_seed.", lower_bound=0
    )
    flags.DEFINE_enum(
        "restart",
        "best",
        ["best", "each"],
        "Which points get the --num_restarts: the best point of the grid, or each point.",
    )
    flags.DEFINE_string(
        "metric", "eval_accuracy", "The metric in eval_results.txt that compares trials."
    )
    flags.DEFINE_bool("minimize", False, "Whether a smaller --metric is better.")
    flags.DEFINE_enum(
        "keep_checkpoints",
        "all",
        ["all", "best"],
        "Checkpoints to keep: those of all trials, or of the best trial so far. `best` deletes the"
        " others during the search.",
    )


def main(command: Sequence[str]) -> None:
    """Reads the flags and runs the search on `command`, the words after `--`."""
    names = ("output_dir", "vary", "num_restarts", "restart")
    options = ("metric", "minimize", "keep_checkpoints")
    search(command, **{name: flags.FLAGS[name].value for name in (*names, *options)})


if __name__ == "__main__":
    _define_flags()
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    command_of_trials = sys.argv[end + 1 :]
    del sys.argv[end:]
    command_flags.run_program(lambda: main(command_of_trials))
