"""Writes tables of predictions that are safe to open in a spreadsheet.

Columns are separated by tabs. A text is always in double quotes, with a double quote inside written
twice, so tabs, line ends and other separators in it do not start a new cell. Numbers are bare.

A spreadsheet runs a text that begins with =, +, - or @ as a formula, even in quotes. Such texts get
an apostrophe in front (https://owasp.org/www-community/attacks/CSV_Injection), also after spaces,
tabs and line ends, and in full-width letters. A text that is a number, such as the label -1, stays.
"""

import csv
import io
import itertools
import json
import re
import sys
import tempfile
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import UnfinishedFile, read_text

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
                self._file.write(json.dumps(row, default=_number).encode() + b"\n")
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


def _number(value: Any) -> Any:
    return value.item()


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
    """Reads the columns of a table that `write_table` wrote; apostrophes stay."""
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
