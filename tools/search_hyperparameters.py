r"""Chooses hyperparameters: runs a program once for each point of a grid and names the best run.

    python -m tools.search_hyperparameters --output_dir=output/mrpc_search --num_restarts=5 \
        -- run_classifier.py --task_name=MRPC --do_train --do_eval --data_dir=... --vocab_file=... \
        --bert_config_file=... --init_checkpoint=...

What follows `--` is the program with all its flags but --output_dir. The grid is the paper's (A.3)
unless --vary says otherwise; for GLUE the paper (4.1) has --vary=train_batch_size=32
--vary=learning_rate=5e-5,4e-5,3e-5,2e-5 --vary=num_train_epochs=3, and random restarts for
BERT-Large. In --output_dir there are then

    TRIAL/            the run of each trial, named after its values; trial.json says how it ended
    trials.csv        all trials, the best first
    best_trial.json   the best one: its flags, results, output_dir and command

The same command started again goes on where it was stopped: what has ended well is not repeated,
and a trial that was begun goes on from its checkpoint. A trial that failed is tried once more then.
"""

import itertools
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.runs import command_flags
from bert_tf.runs.heartbeat import Heartbeat
from tools.trials import Search, Trial

PAPER_GRID = (
    "train_batch_size=16,32",
    "learning_rate=5e-5,3e-5,2e-5",
    "num_train_epochs=2,3,4",
)


def parse_grid(vary: Sequence[str]) -> list[dict[str, str]]:
    """Returns the points of a grid, the values of the last flag changing fastest.

    Args:
        vary: for each flag `NAME=VALUE,VALUE,...`.

    Raises:
        UserError: an entry is of another form, or a flag is there twice or is one that the search
            itself sets.
    """
    axes: dict[str, list[str]] = {}
    for entry in vary:
        name, _, values = entry.partition("=")
        axis = list(dict.fromkeys(values.split(",")))
        if not re.fullmatch(r"\w+", name) or not all(axis):
            raise UserError(
                f"--vary={entry!r}: must be the name of a flag and its values, such as"
                f" {PAPER_GRID[1]}"
            )
        if name in axes or name in ("output_dir", "random_seed"):
            reason = "is given twice" if name in axes else "is set by the search itself"
            raise UserError(f"--vary={entry!r}: {name} {reason}")
        axes[name] = axis
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def check_command(command: Sequence[str]) -> None:
    """Raises ValueError if what follows `--` is no program with flags, or sets --output_dir."""
    example = "-- run_classifier.py --task_name=MRPC --do_train --do_eval ..."
    if not command:
        raise UserError(f"the program to run and its flags must follow after --: {example}")
    if command[0] != "-m" and not os.path.isfile(command[0]):
        raise UserError(
            f"after -- a Python program must come first, and {command[0]!r} is no file: {example}"
        )
    wrong = [word for word in command if re.match(r"--?output_dir(=|$)", word)]
    if wrong:
        raise UserError(f"{wrong[0]} must not follow after --: each trial has its own")


def search(
    command: Sequence[str],
    output_dir: str,
    vary: Sequence[str] = PAPER_GRID,
    num_restarts: int = 0,
    restart: str = "best",
    **options: Any,
) -> Trial:
    """Returns the best trial, having run all; see the flags of the same names.

    Args:
        **options: further arguments of `Search`.

    Raises:
        UserError: flags are wrong, or every trial has failed.
        OSError: the directory cannot be written to.
    """
    check_command(command)
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
            raise UserError("every trial has failed; see the messages above")
        print(f"The best: {best}\nIts output: {trials.folder(best)}")
    return best


def _define_flags() -> None:
    flags.DEFINE_string("output_dir", None, "Where trials and tables are written.", required=True)
    flags.DEFINE_multi_string(
        "vary",
        list(PAPER_GRID),
        "A flag of the program and its values, NAME=VALUE,VALUE,...; once for each flag to vary.",
    )
    flags.DEFINE_integer(
        "num_restarts", 0, "Further runs that differ in --random_seed only.", lower_bound=0
    )
    flags.DEFINE_enum(
        "restart", "best", ["best", "each"], "Which points of the grid have --num_restarts."
    )
    flags.DEFINE_string(
        "metric", "eval_accuracy", "The line of eval_results.txt by which trials are compared."
    )
    flags.DEFINE_bool("minimize", False, "Whether less of --metric is better.")
    flags.DEFINE_enum(
        "keep_checkpoints",
        "all",
        ["all", "best"],
        "best: as soon as a trial is not the best one (any more), its checkpoints are deleted.",
    )


def main(command: Sequence[str]) -> None:
    """Reads the flags and searches."""
    names = ("output_dir", "vary", "num_restarts", "restart")
    options = ("metric", "minimize", "keep_checkpoints")
    search(command, **{name: flags.FLAGS[name].value for name in (*names, *options)})


if __name__ == "__main__":
    _define_flags()
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    command_of_trials = sys.argv[end + 1 :]
    del sys.argv[end:]
    command_flags.run_program(lambda: main(command_of_trials))
