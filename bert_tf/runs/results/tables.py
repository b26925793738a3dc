"""Writes the review of an evaluation: tables that are safe to open in a spreadsheet, and a report.

Columns are separated by tabs. A text is always in double quotes, with a double quote inside written
twice, so tabs, line ends and other separators in it do not start a new cell. Numbers are unquoted.

A spreadsheet runs a text that begins with =, +, - or @ as a formula, even in quotes. Such texts get
an apostrophe in front (https://owasp.org/www-community/attacks/CSV_Injection), also if white space
comes first, or the sign is full-width. Texts that are numbers, such as the label -1, do not.
"""

import csv
import dataclasses
import io
import itertools
import json
import os
import re
import sys
import tempfile
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import UnfinishedFile, read_text, write_whole
from bert_tf.runs.results.reports import Calibration, Report, class_report, number_report

_FORMULA = re.compile(
    r"[\s\x00-\x20\x7f-\xa0\u200b-\u200f\u2060\ufeff]*[-=+@\uff0d\uff1d\uff0b\uff20]"
)
_CONTROL = re.compile(r"[\t\r\n]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_ ]+")  # a column's name that is written without quotes

# A text, a number, or None where an example lacks the column.
Cell = str | float | int | None


class KeptRows:
    """Keeps rows in a temporary file while a model is trained; `rows[i]` reads one.

    A row takes 8 bytes of memory. The file is unnamed on Linux, so it vanishes even if the program
    is killed. `columns` are the names of all columns, in the order in which they first occur.
    """

    def __init__(self, rows: Iterable[Mapping[str, Cell]], folder: str | None = None):
        columns: dict[str, None] = {}
        self._starts = array("Q")
        try:
            self._file = tempfile.TemporaryFile(dir=folder)
            for row in rows:
                self._starts.append(self._file.tell())
                self._file.write(json.dumps(row, default=lambda x: x.item()).encode() + b"\n")
                columns |= dict.fromkeys(name for name, cell in row.items() if cell is not None)
            self._file.flush()
        except OSError as error:
            raise OSError(
                "Cannot keep the texts of the examples in a temporary file in"
                f" {folder or tempfile.gettempdir()}: {error.strerror}. Make space there, or name"
                " another folder in the environment variable TMPDIR"
            ) from error
        self.columns = list(columns)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> dict[str, Any]:
        self._file.seek(self._starts[number])
        return json.loads(self._file.readline())

    def close(self) -> None:
        self._file.close()


def cell(value: Any) -> str:
    """Formats a value as it is written between two tabs."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    # An unpaired surrogate, which JSON can write, is not Unicode text.
    text = value.encode("utf-8", "replace").decode()
    is_risky = _FORMULA.match(text) or _CONTROL.match(text)
    if is_risky and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return '"{}"'.format(text.replace('"', '""'))


def write_table(path: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table with a header, atomically."""
    logging.info("Writing %s", path)
    with UnfinishedFile(path) as file:
        header = (x if _PLAIN.fullmatch(x) else cell(x) for x in columns)
        for cells in itertools.chain([header], (map(cell, row) for row in rows)):
            file.write(("\t".join(cells) + "\n").encode())
        file.finish()


def write_predictions(
    path: str,
    kept: KeptRows,
    found: Mapping[str, Sequence[Any]],
    order: Iterable[int] | None = None,
) -> None:
    """Writes a row for each example in `order`: its kept columns, then the columns `found`."""

    def rows() -> Iterable[list[Any]]:
        for i in range(len(kept)) if order is None else order:
            row = kept[i]
            yield [*(row.get(name) for name in kept.columns), *(x[i] for x in found.values())]

    write_table(path, [*kept.columns, *found], rows())


def read_table(path: str) -> dict[str, list[str]]:
    """Reads the columns of a table that `write_table` wrote; keeps the apostrophes."""
    text = read_text(path, path, "evaluate again")
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 is too small for whole documents
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise UserError(
            f"{path} must be a table as the evaluation writes it, with as many columns in each row"
            f" as in its header; it begins {quoted(text[:60])}. Evaluate again"
        )
    header, *lines = rows
    if twice := next((name for name in header if header.count(name) > 1), None):
        raise UserError(f"{path} must not have two columns {quoted(twice)}; evaluate again")
    return {name: [row[i] for row in lines] for i, name in enumerate(header)}


# The table that `tools.compare_runs` reads.
EVALUATED = "eval_predictions"


@dataclasses.dataclass(frozen=True)
class Decision:
    """How a text gets several labels: all with a probability of at least `threshold`.

    In a table, `separator` joins them in one cell.
    """

    threshold: float
    separator: str

    def labels(self, names: Sequence[str], probabilities: np.ndarray) -> list[tuple[str, ...]]:
        """Returns each text's predicted labels; `probabilities` are float `[texts, labels]`."""
        found = probabilities >= self.threshold
        return [tuple(names[i] for i in np.flatnonzero(row)) for row in found]


def predicted_columns(
    labels: Sequence[str] | None, outputs: np.ndarray, decision: Decision | None = None
) -> dict[str, list[Any]]:
    """Returns the columns of predictions for a table.

    Args:
        labels: names of the classes; None for a regression.
        outputs: probabilities, float `[examples, classes]`, or numbers, float `[examples]`.
        decision: for examples with several labels; each label's probability then has a column.
    """
    if labels is None:
        return {"prediction": list(outputs)}
    if decision is not None:
        found = [decision.separator.join(names) for names in decision.labels(labels, outputs)]
        columns = {f"probability {name}": list(outputs[:, i]) for i, name in enumerate(labels)}
        return {"prediction": found, **columns}
    best = np.argmax(outputs, axis=1)
    return {
        "prediction": [labels[i] for i in best],
        "probability": list(outputs[np.arange(len(best)), best]),
    }


def report_of(
    labels: Sequence[str] | None,
    label_ids: np.ndarray,
    outputs: np.ndarray,
    decision: Decision | None = None,
    calibration: Calibration | None = None,
) -> Report:
    """Returns the report of an evaluation of classes or numbers; see `write_review`."""
    if labels is None:
        report = number_report(label_ids, outputs)
    else:
        threshold = decision.threshold if decision else 0.5
        report = class_report(labels, label_ids, outputs, threshold)
    if calibration is None:
        return report
    return report.with_values(
        temperature=calibration.temperature, calibration_error_before=calibration.before
    )


def write_review(
    output_dir: str,
    suffix: str,
    rows: KeptRows,
    labels: Sequence[str] | None,
    label_ids: np.ndarray,
    outputs: np.ndarray,
    decision: Decision | None = None,
    calibration: Calibration | None = None,
) -> None:
    """Writes the review of an evaluation of classes or numbers; see `predicted_columns`.

    `eval_predictions.tsv` has all examples; `errors.tsv` the wrong ones, the most certain first, or
    for a regression the largest differences; `eval_report.txt` and `.json` the report.

    The files' names end in `suffix`. `label_ids` are the correct classes, int `[examples]`, or
    numbers, float `[examples]`. With a `decision` they are 1 for each label that an example has,
    `[examples, labels]`, and errors are sorted by the worst label. `calibration` is given if the
    temperature was fitted on these examples.
    """
    found = predicted_columns(labels, outputs, decision)
    if labels is None:
        differences = outputs - label_ids
        found["difference"] = list(differences)
        wrong, certainty = differences != 0, np.abs(differences)
    elif decision is not None:
        wrong_labels = (outputs >= decision.threshold) != label_ids
        wrong = wrong_labels.any(axis=1)
        certainty = np.max(np.abs(outputs - label_ids) * wrong_labels, axis=1)
    else:
        wrong, certainty = np.argmax(outputs, axis=1) != label_ids, outputs.max(axis=1)
    order = surest_first(wrong, certainty)
    for name, numbers in ((EVALUATED, None), ("errors", order)):
        path = os.path.join(output_dir, f"{name}{suffix}.tsv")
        write_predictions(path, rows, found, numbers)
    report = report_of(labels, label_ids, outputs, decision, calibration)
    write_report(output_dir, suffix, report)


def write_report(output_dir: str, suffix: str, report: Report, name: str = "eval_report") -> None:
    path = os.path.join(output_dir, f"{name}{suffix}")
    logging.info("Writing %s.txt", path)
    write_whole(f"{path}.txt", str(report))
    write_whole(f"{path}.json", json.dumps(report.values, indent=2, ensure_ascii=False) + "\n")


def surest_first(wrong: np.ndarray, certainty: np.ndarray) -> np.ndarray:
    """Returns the numbers of the examples in `wrong`, bool `[examples]`, the most certain first."""
    numbers = np.flatnonzero(wrong)
    return numbers[np.argsort(-certainty[numbers], kind="stable")]
