r"""Searches hyperparameters: runs a program once per point of a grid and reports the best run.

    python -m tools.search_hyperparameters --output_dir=output/mrpc_search --num_restarts=5 \
        -- run_classifier.py --task_name=MRPC --do_train --do_eval --data_dir=... --vocab_file=... \
        --bert_config_file=... --init_checkpoint=...

After `--` come the program, as a file or a command, and all its flags except --output_dir. The
default grid is the paper's (A.3). For GLUE the paper (4.1) uses --vary=train_batch_size=32
--vary=learning_rate=5e-5,4e-5,3e-5,2e-5 --vary=num_train_epochs=3, with random restarts for
BERT-Large. The search writes to --output_dir:

    TRIAL/            each trial's run, in a folder named after its values, with a trial.json
    trials.csv        all trials, best first
    best_trial.json   the best trial: its flags, results, output_dir and command

Run the same command again to continue an interrupted search: it skips finished trials, resumes an
interrupted trial from its checkpoint, and runs failed trials once more.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.search_hyperparameters")

import csv
import dataclasses
import io
import itertools
import math
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags, logging

from bert_tf.engine import interrupts
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import storage
from bert_tf.files.paths import names_in
from bert_tf.files.whole_files import read_json, write_json, write_whole
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.setting_fields import Group, Settings
from bert_tf.runs.folder import reporting
from bert_tf.runs.folder.heartbeat import Heartbeat
from bert_tf.start import lazy_tensorflow as tf

from . import child

USER_ERROR_STATUS = 1  # a program's exit status for wrong flags or input

PAPER_GRID = ("train_batch_size=16,32", "learning_rate=5e-5,3e-5,2e-5", "num_train_epochs=2,3,4")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(Settings):
    """The flags of this tool, except for --vary."""

    output_dir: str = Group.OUTPUT.setting(help="Folder for the trials and tables.")
    num_restarts: int = Group.TRAINING.setting(
        0, help="More runs that differ only in --random_seed.", at_least=0
    )
    restart: str = Group.TRAINING.setting(
        "best",
        help="Which points --num_restarts repeats: the best point of the grid, or each point.",
        choices=("best", "each"),
        needs="num_restarts",
    )
    metric: str = Group.EVALUATION.setting(
        "eval_accuracy", help="Metric of eval_results.txt to compare."
    )
    minimize: bool = Group.EVALUATION.setting(False, help="Whether a smaller --metric is better.")
    keep_checkpoints: str = Group.OUTPUT.setting(
        "all",
        help="Which trials keep their checkpoints: all, or the best one so far. `best` deletes the"
        " other checkpoints during the search.",
        choices=("all", "best"),
    )


def parse_grid(vary: Sequence[str]) -> list[dict[str, str]]:
    """Returns the points of a grid from --vary; the last flag varies fastest."""
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
    """Returns the words after `--`, with a command on PATH replaced by its file."""
    example = "-- run_classifier.py --task_name=MRPC --do_train --do_eval ..."
    if not command:
        raise UserError(f"the program to run and its flags must follow after --: {example}")
    program, *others = command
    # Installed, the programs are Python scripts on PATH.
    found = program if program == "-m" or os.path.isfile(program) else shutil.which(program)
    if found is None:
        raise UserError(
            "after -- a Python program must come first, a file or a command on PATH; received"
            f" {quoted(program)}. For example: {example}"
        )
    wrong = [word for word in others if re.match(r"--?output_dir(=|$)", word)]
    if wrong:
        raise UserError(f"remove {wrong[0]} after --: each trial has its own --output_dir")
    return [found, *others]


@dataclasses.dataclass(frozen=True)
class Trial:
    """A finished run of the program, from `trial.json` in its folder."""

    flags: dict[str, str]  # added to the command by the trial, without dashes
    status: int
    seconds: float  # duration of the last run
    results: dict[str, float]  # from eval_results.txt; NaN and infinity are null in JSON
    command: list[str]  # the program and its other flags
    ended: float  # seconds since 1970

    def to_dict(self) -> dict[str, Any]:
        results = {name: x if math.isfinite(x) else None for name, x in self.results.items()}
        return {**dataclasses.asdict(self), "results": results}


def read_trials(output_dir: str) -> dict[str, Trial]:
    """Returns the trials of a search by their folders, in the order in which they ended."""
    trials = {}
    for name in names_in(output_dir):
        path = os.path.join(output_dir, name, "trial.json")
        if tf.io.gfile.exists(path):
            rule = "delete the folder to run the trial again"
            record = read_json(path, path, rule)
            try:
                results = {x: math.nan if y is None else y for x, y in record["results"].items()}
                trials[os.path.dirname(path)] = Trial(**{**record, "results": results})
            except (AttributeError, KeyError, TypeError) as error:
                raise UserError(f"{path} is damaged ({error}); {rule}") from error
    return dict(sorted(trials.items(), key=lambda item: item[1].ended))


class Search:
    """The trials in the folder of a search; Python runs `command`, the program and its flags."""

    def __init__(self, settings: SearchSettings, command: Sequence[str]):
        self._settings, self._command = settings, [*command]
        # Among equally good trials the first stays the best and keeps its checkpoints.
        self._trials = read_trials(settings.output_dir)
        for trial in self._trials.values():
            if trial.status == 0 and trial.command != self._command:
                there = listed(word for word in trial.command if word not in command)
                here = listed(word for word in command if word not in trial.command)
                raise UserError(
                    f"--output_dir={settings.output_dir} has trials of a different command;"
                    " continue with that command or choose a different --output_dir. Only its"
                    f" trials have the words {there or 'none'}; only this command {here or 'none'}"
                )

    def folder(self, point: Mapping[str, str]) -> str:
        return os.path.join(self._settings.output_dir, folder_name(point))

    def run(self, points: Sequence[dict[str, str]]) -> None:
        """Runs a trial for each point without a successful trial yet, and writes the tables.

        If a trial was interrupted, the search ends with the trial's status (SystemExit).
        """
        known = {folder: trial.flags for folder, trial in self._trials.items()}
        for point in points:
            folder = self.folder(point)
            if (other := known.setdefault(folder, point)) != point:
                raise UserError(
                    f"{_line(other)} and {_line(point)} would write to the same folder, {folder}."
                    " Rename a value"
                )
        metric = self._settings.metric
        for number, point in enumerate(points, 1):
            place, folder = f"Trial {number} of {len(points)}", self.folder(point)
            trial = self._trials.get(folder)
            if trial is None or trial.status != 0:
                logging.info("%s: %s", place, _line(point))
                trial = self._run_trial(point)
                self.write_tables()
            outcome = f"status {trial.status}"
            if metric in trial.results:
                outcome = f"{metric} = {trial.results[metric]:.5g}"
            elif trial.status == 0:
                raise UserError(
                    f"--metric={metric} must be one of the metrics in eval_results.txt of {folder};"
                    f" it has {listed(trial.results) or 'none; does the program need --do_eval?'}"
                )
            if best := self.best():
                outcome += f"; best so far: {best.results[metric]:.5g}"
            print(f"{place}: {_line(point)}: {outcome}", flush=True)

    def _run_trial(self, point: dict[str, str]) -> Trial:
        folder = self.folder(point)
        command = [sys.executable, *self._command, *_words(point), f"--output_dir={folder}"]
        began = time.monotonic()
        with child(command) as process:
            status = process.wait()
        seconds = time.monotonic() - began
        if status in interrupts.STATUSES:
            logging.error("The trial was interrupted; run the same command again to continue it")
            sys.exit(status)
        if status:
            logging.error("The trial failed with status %d: %s", status, shlex.join(command))
        if status == USER_ERROR_STATUS and all(x.status for x in self._trials.values()):
            raise UserError(
                "a trial ended with status 1 before any trial succeeded, so its flags or its"
                " input are wrong; its message and its command are above"
            )
        path = os.path.join(folder, "eval_results.txt")
        results = {} if status else reporting.read_results(path)
        trial = Trial(point, status, seconds, results, self._command, time.time())
        self._trials.pop(folder, None)  # moves a trial whose last run failed to the end
        self._trials[folder] = trial
        tf.io.gfile.makedirs(folder)
        write_json(os.path.join(folder, "trial.json"), trial.to_dict())
        return trial

    def _badness(self, trial: Trial) -> tuple[bool, float]:
        """Returns whether a trial failed or lacks the metric, and a number: lower is better."""
        value = trial.results.get(self._settings.metric, math.nan)
        failed = trial.status != 0 or not math.isfinite(value)
        return failed, 0.0 if failed else value if self._settings.minimize else -value

    def best(self, among: Sequence[Mapping[str, str]] | None = None) -> Trial | None:
        """Returns the best trial of these points, or of all; None if all failed."""
        trials = [x for x in self._trials.values() if among is None or x.flags in among]
        best = min(trials, key=self._badness, default=None)
        return None if best is None or self._badness(best)[0] else best

    def table(self) -> list[list[str]]:
        """Returns the rows of the table of all trials, best first and failed trials last."""
        trials = sorted(self._trials.values(), key=self._badness)
        names = [*dict.fromkeys(name for trial in trials for name in trial.flags)]
        metrics = {name for trial in trials for name in trial.results}
        metrics = sorted(metrics, key=lambda name: (name != self._settings.metric, name))
        rows = [[*names, *metrics, "status", "seconds"]]
        for trial in trials:
            cells = [trial.flags.get(name, "") for name in names]
            cells += [f"{trial.results[x]:.9g}" if x in trial.results else "" for x in metrics]
            rows.append([*cells, str(trial.status), f"{trial.seconds:.0f}"])
        return rows

    def write_tables(self) -> None:
        """Writes trials.csv and best_trial.json; deletes checkpoints if the settings say so."""
        output_dir, text = self._settings.output_dir, io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.table())
        write_whole(os.path.join(output_dir, "trials.csv"), text.getvalue())
        if (best := self.best()) is None:
            return
        folder = self.folder(best.flags)
        command = ["python", *self._command, *_words(best.flags), f"--output_dir={folder}"]
        record = {"metric": self._settings.metric, **best.to_dict(), "output_dir": folder}
        record["command"] = shlex.join(command)
        del record["ended"]
        write_json(os.path.join(output_dir, "best_trial.json"), record)
        if self._settings.keep_checkpoints == "best":
            self._keep_checkpoints_of(folder)

    def _keep_checkpoints_of(self, folder: str) -> None:
        if not _checkpoints(folder):
            logging.warning(
                "%s has no checkpoint: it was deleted while another trial was the best. All other"
                " checkpoints are kept. To run this trial again, delete its folder",
                folder,
            )
            return
        for other, trial in self._trials.items():
            for path in _checkpoints(other) if trial.status == 0 and other != folder else ():
                isdir = tf.io.gfile.isdir(path)
                (tf.io.gfile.rmtree if isdir else tf.io.gfile.remove)(path)


def folder_name(point: Mapping[str, str]) -> str:
    return re.sub(r"[^\w.+-]", "_", "_".join(f"{k}-{v}" for k, v in point.items()))


def _words(point: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in point.items()]


def _line(point: Mapping[str, str]) -> str:
    return " ".join(_words(point))


def _checkpoints(folder: str) -> list[str]:
    """Returns a trial's checkpoint files and its folder of the best checkpoint."""
    kept = ("checkpoint", "best")
    names = [x for x in names_in(folder) if x.startswith("model.ckpt-") or x in kept]
    return [os.path.join(folder, name) for name in names]


def search(
    settings: SearchSettings, command: Sequence[str], vary: Sequence[str] = PAPER_GRID
) -> Trial:
    points = parse_grid(vary)
    seeds = [{"random_seed": str(seed)} for seed in range(1, settings.num_restarts + 1)]
    storage.make_output_dir(settings.output_dir)
    with Heartbeat(settings.output_dir):
        trials = Search(settings, command)
        if settings.restart == "each":
            points = [{**point, **seed} for point in points for seed in ({}, *seeds)]
        trials.run(points)
        best = trials.best(points)
        if best and settings.restart == "best":
            trials.run([{**best.flags, **seed} for seed in seeds])
        trials.write_tables()  # even if no trial ran: --metric may have changed
        rows = trials.table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(map(str.ljust, row, widths)).rstrip())
        if (best := trials.best()) is None:
            raise UserError("every trial failed; their messages are above")
        print(f"Best trial: {_line(best.flags)}")
        print(f"Its output: {trials.folder(best.flags)}")
    return best


def main(command: Sequence[str]) -> None:
    settings = command_flags.settings_from_flags(SearchSettings)
    search(settings, find_program(command), flags.FLAGS.vary)


if __name__ == "__main__":
    command_flags.define_flags(SearchSettings)
    flags.DEFINE_multi_string(
        "vary",
        PAPER_GRID,
        "A flag of the program and its values, NAME=VALUE,VALUE,...; repeat it for each flag to"
        " vary.",
    )
    command_flags.run_program(main, takes_words=True)
