"""The trials of a search for hyperparameters: they are run, recorded, compared and cleared away."""

import csv
import dataclasses
import io
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.engine import interrupts
from bert_tf.errors import UserError
from bert_tf.files.whole_files import write_whole
from bert_tf.runs import reporting

USER_ERROR_STATUS = 1  # of programs whose flags or input are wrong
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run of the program: the flags (no dashes) that are this trial's own, and how it ended.

    status: None if it has not been run.
    seconds: how long its last start took.
    results: its eval_results.txt.
    """

    flags: dict[str, str]
    status: int | None = None
    seconds: float = 0.0
    results: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its folder."""
        text = "_".join(f"{name}-{value}" for name, value in self.flags.items())
        return re.sub(r"[^\w.+-]", "_", text)

    def __str__(self) -> str:
        return " ".join(f"--{name}={value}" for name, value in self.flags.items())


class Search:
    """The trials in a directory.

    Args:
        command: the program and its flags, as given to Python.
        output_dir: where the trials are.
        metric: the result by which they are compared.
        minimize: whether less of it is better.
        keep_checkpoints: "all" or "best".

    Raises:
        UserError: the directory has trials of another command.
    """

    def __init__(
        self,
        command: Sequence[str],
        output_dir: str,
        metric: str = "eval_accuracy",
        minimize: bool = False,
        keep_checkpoints: str = "all",
    ):
        self._command = list(command)
        self._output_dir = output_dir
        self._metric = metric
        self._minimize = minimize
        self._keep_checkpoints = keep_checkpoints
        # In the order in which they have ended, so that the first of equally good ones stays the
        # best, whose checkpoints are kept.
        self._trials: dict[str, Trial] = {}
        for record in sorted(_read_records(output_dir), key=lambda record: record["ended"]):
            trial = Trial(**{f.name: record[f.name] for f in dataclasses.fields(Trial)})
            if trial.status == 0 and record["command"] != self._command:
                raise UserError(
                    f"--output_dir={output_dir} has trials of another command; go on with that one"
                    " or choose another --output_dir.\n"
                    f"There: {shlex.join(record['command'])}\nHere:  {shlex.join(self._command)}"
                )
            self._trials[trial.name] = trial

    def run(self, points: Iterable[Mapping[str, str]]) -> None:
        """Runs a trial for each point, but for those that have ended well, and keeps the tables.

        Raises:
            UserError: before any trial has ended well, one ends with the status of wrong flags;
                or the results of one lack the metric.
            SystemExit: a trial was interrupted; the status is its own.
            KeyboardInterrupt: the search was; the trial has been told and has ended.
        """
        todo = [Trial(dict(point)) for point in points]
        for number, trial in enumerate(todo, 1):
            known = self._trials.get(trial.name)
            if known is None or known.status != 0:
                logging.info("Trial %d of %d: %s", number, len(todo), trial)
                known = self._run_trial(trial)
            if known.status == 0 and self._metric not in known.results:
                raise UserError(
                    f"--metric={self._metric} must be one of the results that a trial writes to"
                    f" eval_results.txt in {self.folder(known)}; there:"
                    f" {', '.join(known.results) or 'nothing; does the program need --do_eval?'}"
                )
            value = known.results.get(self._metric)
            said = f"status {known.status}" if value is None else f"{self._metric} = {value:.5g}"
            best = self.best()
            beside = f"; the best so far: {best.results[self._metric]:.5g}" if best else ""
            print(f"Trial {number} of {len(todo)}: {known}: {said}{beside}", flush=True)
        # Also where all are known: the metric, or what is kept, may be another.
        self._write_tables()

    def _run_trial(self, trial: Trial) -> Trial:
        folder = self.folder(trial)
        command = [sys.executable, *self._command_of(trial)]
        begun = time.monotonic()
        status = _run(command)
        seconds = time.monotonic() - begun
        if status in (interrupts.INTERRUPTED_STATUS, interrupts.TERMINATED_STATUS):
            logging.error("The trial was interrupted; the same command goes on with it")
            sys.exit(status)
        results = {}
        if status == 0:
            results = reporting.read_results(os.path.join(folder, "eval_results.txt"))
        else:
            logging.error("The trial failed with status %d: %s", status, shlex.join(command))
            if status == USER_ERROR_STATUS and not self._finished():
                raise UserError(
                    "a trial ended with status 1 before any has ended well, so its flags or its"
                    f" input are wrong; see its message above.\nThe trial: {shlex.join(command)}"
                )
        trial = dataclasses.replace(trial, status=status, seconds=seconds, results=results)
        self._trials.pop(trial.name, None)
        self._trials[trial.name] = trial
        record = {**dataclasses.asdict(trial), "command": self._command, "ended": time.time()}
        tf.io.gfile.makedirs(folder)
        _write_json(os.path.join(folder, "trial.json"), record)
        self._write_tables()
        return trial

    def folder(self, trial: Trial) -> str:
        """Returns the --output_dir of a trial."""
        return os.path.join(self._output_dir, trial.name)

    def _command_of(self, trial: Trial) -> list[str]:
        own = [f"--{name}={value}" for name, value in trial.flags.items()]
        return [*self._command, *own, f"--output_dir={self.folder(trial)}"]

    def _finished(self) -> list[Trial]:
        return [trial for trial in self._trials.values() if trial.status == 0]

    def ranking(self) -> list[Trial]:
        """Returns all trials, the best first and those that failed last."""

        def key(trial: Trial) -> tuple[bool, float]:
            value = trial.results.get(self._metric, math.nan)
            bad = trial.status != 0 or math.isnan(value)
            return bad, 0.0 if bad else value if self._minimize else -value

        return sorted(self._trials.values(), key=key)

    def best(self, among: Iterable[Mapping[str, str]] | None = None) -> Trial | None:
        """Returns the best trial, of those points if they are given; None if all have failed."""
        points = None if among is None else [dict(point) for point in among]
        for trial in self.ranking():
            value = trial.results.get(self._metric, math.nan)
            if not math.isnan(value) and (points is None or trial.flags in points):
                return trial
        return None

    def _write_tables(self) -> None:
        write_whole(os.path.join(self._output_dir, "trials.csv"), self._csv())
        best = self.best()
        if best is None:
            return
        record = {"metric": self._metric, **dataclasses.asdict(best)}
        record |= {
            "output_dir": self.folder(best),
            "command": shlex.join(["python", *self._command_of(best)]),
        }
        _write_json(os.path.join(self._output_dir, "best_trial.json"), record)
        if self._keep_checkpoints == "best":
            if not _checkpoints(self.folder(best)):
                logging.warning(
                    "%s has no checkpoint: it was deleted when another trial was the best. All"
                    " that are there now are kept; to have this one run again delete its folder",
                    self.folder(best),
                )
                return
            for trial in self._finished():
                if trial.name != best.name:
                    _delete_checkpoints(self.folder(trial))

    def _rows(self) -> list[list[str]]:
        """Returns the table, its heading first."""
        trials = self.ranking()
        names = dict.fromkeys(name for trial in trials for name in trial.flags)
        metrics = {name for trial in trials for name in trial.results}
        ordered = sorted(metrics, key=lambda name: (name != self._metric, name))
        rows = [[*names, *ordered, "status", "seconds"]]
        for trial in trials:
            numbers = [trial.results.get(name) for name in ordered]
            rows.append(
                [
                    *(trial.flags.get(name, "") for name in names),
                    *("" if number is None else f"{number:.9g}" for number in numbers),
                    str(trial.status),
                    f"{trial.seconds:.0f}",
                ]
            )
        return rows

    def _csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self._rows())
        return text.getvalue()

    def table(self) -> str:
        """Returns the table in aligned columns."""
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )


def _read_records(output_dir: str) -> list[dict[str, Any]]:
    """Returns what is in every trial.json."""
    records = []
    for path in tf.io.gfile.glob(os.path.join(output_dir, "*", "trial.json")):
        with tf.io.gfile.GFile(path, "r") as reader:
            records.append(json.loads(reader.read()))
    return records


def _run(command: Sequence[str]) -> int:
    """Returns the exit status of a command; Ctrl-C and SIGTERM are passed on to it and waited for.

    The command is in a session of its own: a terminal's Ctrl-C would reach it twice otherwise.
    """
    told = False
    with interrupts.hold():
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        while True:
            try:
                return process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if interrupts.held() and not told:
                    terminated = isinstance(interrupts.held(), interrupts.Terminated)
                    process.send_signal(signal.SIGTERM if terminated else signal.SIGINT)
                    told = True


def _checkpoints(folder: str) -> list[str]:
    """Returns what there is of checkpoints in a trial's folder, the best one's among it."""
    patterns = [os.path.join(folder, "model.ckpt-*"), os.path.join(folder, "checkpoint")]
    return tf.io.gfile.glob([*patterns, os.path.join(folder, "best")])


def _delete_checkpoints(folder: str) -> None:
    for path in _checkpoints(folder):
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        else:
            tf.io.gfile.remove(path)


def _write_json(path: str, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2) + "\n")
