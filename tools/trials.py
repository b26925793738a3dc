"""Runs, records and compares the trials of a hyperparameter search."""

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.engine import interrupts
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.whole_files import read_json, write_whole
from bert_tf.runs.folder import reporting

USER_ERROR_STATUS = 1  # a program's exit status for wrong flags or input
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of the program and its outcome.

    flags: the flags that this trial adds to the command, without dashes.
    status: the exit status; None before the run.
    seconds: duration of the last run.
    results: the metrics in its eval_results.txt.
    """

    flags: dict[str, str]
    status: int | None = None
    seconds: float = 0.0
    results: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the trial's folder."""
        text = "_".join(f"{name}-{value}" for name, value in self.flags.items())
        return re.sub(r"[^\w.+-]", "_", text)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON, which has no NaN and no infinity: such results are None."""
        results = {k: v if math.isfinite(v) else None for k, v in self.results.items()}
        return {**dataclasses.asdict(self), "results": results}

    def __str__(self) -> str:
        return " ".join(f"--{name}={value}" for name, value in self.flags.items())


class Search:
    """A hyperparameter search: the trials in a directory, finished ones included.

    Args:
        command: the program and its flags, as words for Python.
        output_dir: the directory of the trials.
        metric: the metric that compares trials.
        minimize: whether a smaller metric is better.
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
        # In the order in which the trials ended. So of equally good trials the first stays the
        # best, and its checkpoints are kept.
        self._trials: dict[str, Trial] = {}
        for record in sorted(_read_records(output_dir), key=lambda record: record["ended"]):
            trial = Trial(**{f.name: record[f.name] for f in dataclasses.fields(Trial)})
            if trial.status == 0 and record["command"] != self._command:
                raise UserError(
                    f"--output_dir={output_dir} has trials of another command; continue with that"
                    " command or choose another --output_dir. Words only there:"
                    f" {_words_beside(record['command'], self._command)}; only here:"
                    f" {_words_beside(self._command, record['command'])}"
                )
            self._trials[trial.name] = trial

    def run(self, points: Iterable[Mapping[str, str]]) -> None:
        """Runs a trial for each point that has no successful trial yet, and writes the tables.

        Args:
            points: for each trial its flags, without dashes, and their values.

        Raises:
            UserError: two trials would have one folder, a trial ended with the status of wrong
                flags before any trial succeeded, or its results lack the metric.
            SystemExit: a trial was interrupted; the exit status is the trial's.
            KeyboardInterrupt: the search was interrupted; the trial has been stopped.
        """
        todo = [Trial(dict(point)) for point in points]
        self._check_names(todo)
        for number, trial in enumerate(todo, 1):
            known = self._trials.get(trial.name)
            if known is None or known.status != 0:
                logging.info("Trial %d of %d: %s", number, len(todo), trial)
                known = self._run_trial(trial)
            if known.status == 0 and self._metric not in known.results:
                raise UserError(
                    f"--metric={self._metric} must be one of the metrics in eval_results.txt of"
                    f" {self.folder(known)}; it has"
                    f" {listed(known.results) or 'none; does the program need --do_eval?'}"
                )
            value = known.results.get(self._metric)
            outcome = f"status {known.status}" if value is None else f"{self._metric} = {value:.5g}"
            best = self.best()
            best_value = f"; best so far: {best.results[self._metric]:.5g}" if best else ""
            print(f"Trial {number} of {len(todo)}: {known}: {outcome}{best_value}", flush=True)
        # Even if no trial ran: --metric or --keep_checkpoints may have changed.
        self._write_tables()

    def _check_names(self, todo: Iterable[Trial]) -> None:
        """Checks that no two trials have one folder: one would count as the other's run."""
        named = dict(self._trials)
        for trial in todo:
            other = named.setdefault(trial.name, trial)
            if other.flags != trial.flags:
                raise UserError(
                    f"each trial must have a folder of its own; {other} and {trial} both have"
                    f" {self.folder(trial)}, in whose name other characters than letters, digits"
                    " and _.+- become _. Rename one of the values, or search them with different"
                    " --output_dir"
                )

    def _run_trial(self, trial: Trial) -> Trial:
        folder = self.folder(trial)
        command = [sys.executable, *self._command_of(trial)]
        begun = time.monotonic()
        status = _run(command)
        seconds = time.monotonic() - begun
        if status in (interrupts.INTERRUPTED_STATUS, interrupts.TERMINATED_STATUS):
            logging.error("The trial was interrupted; run the same command again to continue it")
            sys.exit(status)
        results = {}
        if status == 0:
            results = reporting.read_results(os.path.join(folder, "eval_results.txt"))
        else:
            logging.error("The trial failed with status %d: %s", status, shlex.join(command))
            if status == USER_ERROR_STATUS and not self._finished():
                raise UserError(
                    "a trial ended with status 1 before any trial succeeded, so its flags or its"
                    " input are wrong; its message and its command are above"
                )
        trial = dataclasses.replace(trial, status=status, seconds=seconds, results=results)
        self._trials.pop(trial.name, None)
        self._trials[trial.name] = trial
        record = {**trial.to_dict(), "command": self._command, "ended": time.time()}
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
        """Returns all trials, best first and failed ones last."""

        def key(trial: Trial) -> tuple[bool, float]:
            value = trial.results.get(self._metric, math.nan)
            bad = trial.status != 0 or math.isnan(value)
            return bad, 0.0 if bad else value if self._minimize else -value

        return sorted(self._trials.values(), key=key)

    def best(self, among: Iterable[Mapping[str, str]] | None = None) -> Trial | None:
        """Returns the best trial, or None if all failed.

        Args:
            among: the points whose trials count; None for all trials.
        """
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
        record = {"metric": self._metric, **best.to_dict()}
        record |= {
            "output_dir": self.folder(best),
            "command": shlex.join(["python", *self._command_of(best)]),
        }
        _write_json(os.path.join(self._output_dir, "best_trial.json"), record)
        if self._keep_checkpoints == "best":
            if not _checkpoints(self.folder(best)):
                logging.warning(
                    "%s has no checkpoint: it was deleted while another trial was the best. All"
                    " other checkpoints are kept. To run this trial again, delete its folder",
                    self.folder(best),
                )
                return
            for trial in self._finished():
                if trial.name != best.name:
                    _delete_checkpoints(self.folder(trial))

    def _rows(self) -> list[list[str]]:
        """Returns the rows of the table, the heading first."""
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
        """Returns the table as text in aligned columns."""
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )


def _read_records(output_dir: str) -> list[dict[str, Any]]:
    """Returns the contents of every trial.json, checked, with NaN for results that are null.

    Raises:
        UserError: a file cannot be read, is damaged, or lies in the folder of another trial.
    """
    return list(map(_read_record, tf.io.gfile.glob(os.path.join(output_dir, "*", "trial.json"))))


def _read_record(path: str) -> dict[str, Any]:
    rule = "delete the folder to run the trial again"
    record = read_json(path, path, rule)
    if not isinstance(record, dict) or not record.keys() >= _RECORD.keys():
        raise UserError(
            f"{path} must be an object with {', '.join(_RECORD)}; received {quoted(record)}; {rule}"
        )
    for key, (kind, fits) in _RECORD.items():
        if not fits(record[key]):
            raise UserError(f"{path}: `{key}` must be {kind}; it is {quoted(record[key])}; {rule}")
    results = record["results"].items()
    record["results"] = {name: math.nan if value is None else value for name, value in results}
    name = Trial(record["flags"]).name
    # Checkpoints are deleted by this name.
    if os.path.basename(os.path.dirname(path)) != name:
        raise UserError(
            f"{path} is of the trial {quoted(name)}, so it must be in a folder of that name; rename"
            " the folder, or delete it to run the trial again"
        )
    return record


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


# The keys of trial.json: what each must be, and whether a value is that.
_RECORD: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "flags": ("an object of texts", lambda v: isinstance(v, dict) and _are_texts(v.values())),
    "status": ("a whole number", lambda v: isinstance(v, int)),
    "seconds": ("a number", _is_number),
    "results": (
        "an object of numbers",
        lambda v: isinstance(v, dict) and all(x is None or _is_number(x) for x in v.values()),
    ),
    "command": ("a list of texts", lambda v: isinstance(v, list) and _are_texts(v)),
    "ended": ("a number", _is_number),
}


def _words_beside(words: Sequence[str], others: Sequence[str]) -> str:
    """Returns those of the words that are not among the others, for messages."""
    return listed(word for word in words if word not in others) or "none, but in another order"


def _run(command: Sequence[str]) -> int:
    """Runs a command and returns its exit status; passes Ctrl-C and SIGTERM on to it and waits.

    The command has a session of its own. Otherwise a terminal's Ctrl-C would reach it twice.
    """
    passed_on = False
    with interrupts.hold():
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        while True:
            try:
                return process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if interrupts.held() and not passed_on:
                    terminated = isinstance(interrupts.held(), interrupts.Terminated)
                    process.send_signal(signal.SIGTERM if terminated else signal.SIGINT)
                    passed_on = True


def _checkpoints(folder: str) -> list[str]:
    """Returns the checkpoint files in a trial's folder, with the folder of the best checkpoint."""
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
