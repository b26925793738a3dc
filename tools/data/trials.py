"""Trials of a hyperparameter search: their records, and the table of all trials."""

import csv
import dataclasses
import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError, quoted
from bert_tf.files.checkpoint_names import names_in
from bert_tf.files.whole_files import read_json, write_whole
from bert_tf.start import lazy_tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Trial:
    """A finished run of the program, as `trial.json` in its folder describes it.

    flags: the flags that this trial added to the command, without dashes.
    seconds: duration of the last run.
    results: the metrics in its eval_results.txt.
    command: the program and its other flags.
    ended: seconds since 1970.
    """

    flags: dict[str, str]
    status: int
    seconds: float
    results: dict[str, float]
    command: list[str]
    ended: float

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON, which has no NaN and no infinity: such results are None."""
        results = {k: v if math.isfinite(v) else None for k, v in self.results.items()}
        return {**dataclasses.asdict(self), "results": results}


def words(flags: Mapping[str, str]) -> list[str]:
    """Returns flags as arguments of a command, `--name=value`."""
    return [f"--{name}={value}" for name, value in flags.items()]


def folder_name(flags: Mapping[str, str]) -> str:
    """Returns the name of the trial's folder."""
    return re.sub(r"[^\w.+-]", "_", "_".join(f"{k}-{v}" for k, v in flags.items()))


def write_json(path: str, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2) + "\n")


def read_trials(output_dir: str) -> list[Trial]:
    """Returns the trials in the folder of a search, in the order in which they ended."""
    paths = [os.path.join(output_dir, name, "trial.json") for name in names_in(output_dir)]
    paths = [path for path in paths if tf.io.gfile.exists(path)]
    return sorted(map(_read_trial, paths), key=lambda trial: trial.ended)


def _read_trial(path: str) -> Trial:
    rule = "delete the folder to run the trial again"
    record = read_json(path, path, rule)
    try:
        trial = Trial(**{field.name: record[field.name] for field in dataclasses.fields(Trial)})
        texts = [*trial.flags.values(), *trial.command]
        numbers = [trial.seconds, trial.ended, *filter(None, trial.results.values())]
        if not (
            isinstance(trial.flags, dict)
            and isinstance(trial.command, list)
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(number, int | float) for number in (trial.status, *numbers))
        ):
            raise TypeError
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} must be as a search wrote it; it contains {quoted(record)}; {rule}"
        ) from error
    trial.results.update({name: math.nan for name, x in trial.results.items() if x is None})
    name = folder_name(trial.flags)
    # The search finds the checkpoints that it deletes by this name.
    if os.path.basename(os.path.dirname(path)) != name:
        raise UserError(
            f"{path} describes the trial {quoted(name)}, so its folder must have that name; rename"
            " the folder, or delete it to run the trial again"
        )
    return trial


def as_csv(trials: Sequence[Trial], metric: str) -> str:
    """Returns the table of trials: flags, results with `metric` first, status and seconds."""
    flags = dict.fromkeys(name for trial in trials for name in trial.flags)
    metrics = {name for trial in trials for name in trial.results}
    metrics = sorted(metrics, key=lambda name: (name != metric, name))
    text = io.StringIO()
    table = csv.DictWriter(text, [*flags, *metrics, "status", "seconds"], lineterminator="\n")
    table.writeheader()
    for trial in trials:
        results = {name: f"{value:.9g}" for name, value in trial.results.items()}
        ends = {"status": trial.status, "seconds": f"{trial.seconds:.0f}"}
        table.writerow({**trial.flags, **results, **ends})
    return text.getvalue()


def aligned(table: str) -> str:
    """Returns a CSV table as text in aligned columns."""
    rows = list(csv.reader(io.StringIO(table)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
