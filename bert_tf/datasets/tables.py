"""Reads tables of examples: .tsv and .csv files whose columns are chosen by name.

In a user's table all rows must have the same number of columns (`read_table`). In GLUE's files they
may differ: the original takes the columns that it needs from each row (`read_rows`, `examples`).
"""

import csv
import io
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import whole_files
from bert_tf.files.paths import names_in
from bert_tf.files.storage import contents, ending_of, only_file
from bert_tf.files.whole_files import drop_carriage_returns
from bert_tf.start import lazy_tensorflow as tf

_DELIMITERS = {".tsv": "\t", ".csv": ","}
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_NO_DELIMITERS = '"\r\n'  # these mean something else in a table

# (number of the row's first line, from 0; its columns); an empty row has the columns [].
NumberedRow = tuple[int, list[str]]


def find_table(name: str, data_dir: str) -> str | None:
    """Returns the path of NAME.tsv or NAME.csv in a folder, if any; UserError if both exist."""
    remedy = "Delete, rename or move the one in --data_dir that you do not want"
    names = sorted(names_in(data_dir)) if tf.io.gfile.isdir(data_dir) else []
    found = [x for x in names if os.path.splitext(x)[0] == name and ending_of(x) in _DELIMITERS]
    return only_file(data_dir, found, remedy)


def table_path(name: str, data_dir: str) -> str:
    """Returns the path of NAME.tsv or NAME.csv in a folder; UserError unless there is one."""
    if path := find_table(name, data_dir):
        return path
    names = names_in(data_dir) if tf.io.gfile.isdir(data_dir) else []
    has_sheets = any(ending_of(x) in _SPREADSHEETS for x in names)
    remedy = '. Save a spreadsheet as "CSV UTF-8"' if has_sheets else ""
    raise UserError(f"--data_dir must hold {name}.tsv or {name}.csv; {contents(data_dir)}{remedy}")


def place_of(path: str, row: int | None = None) -> str:
    """Names a file in --data_dir, or its row `row` (from 0), for messages."""
    return f"--data_dir: {path}" + ("" if row is None else f", line {row + 1}")


def check_filled(cell: str, place: str, what: str = "label") -> None:
    """Raises UserError if a cell is empty; `place` is its line, `what` its column."""
    if not cell.strip():
        raise UserError(f"{place}: the line has no {what}; fill it in, or delete the line")


def number_in(cell: str) -> float:
    """Parses the number in a cell; NaN if it is not a number.

    "1_000" and the digits of other scripts, which Python parses, are not numbers here.
    """
    text = cell.strip()  # white space of any kind, as in Python
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def check_delimiter(delimiter: str | None) -> None:
    """Raises UserError unless --delimiter is one character, or None (the file's ending decides)."""
    if delimiter is not None and (len(delimiter) != 1 or delimiter in _NO_DELIMITERS):
        raise UserError(
            "--delimiter must be one character, neither a quote nor the end of a line; got"
            f" {quoted(delimiter)}"
        )


def read_table(
    path: str, delimiter: str | None, has_header: bool, advice: str = " Or change --delimiter"
) -> list[NumberedRow]:
    """Returns the rows of a .tsv or .csv file, header included, without empty rows at the start.

    `delimiter` is None for a tab in .tsv, a comma in .csv. Between tabs quotes are ordinary
    characters. `advice` ends the message about a row with too many or too few columns.
    """
    delimiter = delimiter or _DELIMITERS[ending_of(path)]
    is_csv = delimiter != "\t"
    if is_csv:
        rows = _parse_csv(read_text(path, has_header), path, delimiter)
    else:
        rows = list(enumerate(read_rows(path, has_header)))
    rows = list(itertools.dropwhile(lambda numbered: not numbered[1], rows))
    for i, row in rows:
        count, expected = len(row), len(rows[0][1])
        if count not in (0, expected):
            first = "the header names" if has_header else f"line {rows[0][0] + 1} has"
            remedy = f"Put quotes around a text with {quoted(delimiter)} in it"
            if not is_csv:
                remedy = "Quotes do not protect tabs and line ends here; save the table as .csv"
            raise UserError(
                f"{place_of(path, i)}: the line has {count} columns, but {first} {expected}."
                f" {remedy}.{advice}"
            )
    lines = [i + 1 for i, row in rows if any(len(x) > 1 and x[0] == x[-1] == '"' for x in row)]
    if lines and not is_csv:
        logging.warning(
            "%s: lines with a column in quotes: %d; the first is line %d. Between tabs quotes are"
            " ordinary characters and become part of the text. If they only enclose it, save the"
            " table without them, or as .csv",
            *(path, len(lines), lines[0]),
        )
    return rows


def column_names(rows: Sequence[NumberedRow], has_header: bool) -> list[str]:
    """Returns the names of the columns of a file's rows; numbers from 0 without a header."""
    names = rows[0][1] if has_header else range(len(rows[0][1]))
    return [str(name).strip() for name in names]


def column_numbers(
    rows: Sequence[NumberedRow], path: str, has_header: bool, columns: Mapping[str, str | None]
) -> dict[str, int]:
    """Returns flag -> number of the column that it names, from 0.

    `columns` maps a flag (no dashes) to the name of a column, or a number if the file has no
    header.
    """
    names = column_names(rows, has_header)
    for flag, name in columns.items():
        if name not in names:
            what = "columns named" if has_header else "no header, but columns"
            wrong = f"--{flag} must be given: {path}"
            if name is not None:
                wrong = (
                    f"--{flag}={name}: {path} has no such column (--has_header says whether line 1"
                    " names the columns, --delimiter what separates them); it"
                )
            raise UserError(f"{wrong} has {what} {listed(names)}: name one of these")
        if names.count(name) > 1:
            raise UserError(
                f"{place_of(path)} must have one column named {quoted(name)}; it has"
                f" {names.count(name)}. Rename the others in line {rows[0][0] + 1}"
            )
    return {flag: names.index(name) for flag, name in columns.items()}


def read_text(path: str, header: bool = False) -> str:
    """Reads UTF-8, drops a byte-order mark and carriage returns; UserError if the file is empty."""
    place, rule = place_of(path), "--data_dir must be the folder with the task's files"
    # The original's reader (GFile.readline) also drops every carriage return.
    text = drop_carriage_returns(whole_files.read_text(path, place, rule), place)
    if not text.strip():
        rule = "a header line, then its examples" if header else "the text of its examples"
        raise UserError(f"{place} is empty; it must hold {rule}")
    return text


def read_rows(path: str, header: bool = False) -> Iterator[list[str]]:
    """Splits each line at its tabs; quotes are ordinary characters, as in the original."""
    for line in read_text(path, header).removesuffix("\n").split("\n"):
        yield line.split("\t") if line else []


def examples(
    rows: Iterable[NumberedRow],
    path: str,
    needed: int,
    has_header: bool,
    *,
    refuse_empty: bool = False,
    skip_short: bool = False,
) -> Iterator[tuple[int, str, Sequence[str]]]:
    """Yields (row number, place for messages, columns) for each example of `path`.

    Args:
        rows: the rows of the file without the header. Empty rows are skipped.
        needed: the smallest number of columns that a row may have.
        refuse_empty: whether to raise at an empty row that is followed by an example.
        skip_short: whether to skip rows with too few columns, with a warning, instead of raising.
    """
    count = 0
    empty = None
    short = []
    for i, row in rows:
        if not row:
            empty = i
            continue
        if refuse_empty and empty is not None:
            raise UserError(
                f"{place_of(path, empty)}: the line is empty, but examples follow, and predictions"
                " are numbered by line; delete the line or fill in its example"
            )
        place = place_of(path, i)
        if len(row) >= needed:
            yield i, place, row
            count += 1
        elif skip_short:
            short.append(i + 1)
        else:
            raise UserError(
                f"{place}: the line must have at least {needed} columns; it has {len(row)}. It"
                f" begins {quoted(chr(9).join(row)[:60])}; correct or delete it"
            )
    if short:
        logging.warning(
            "%s: skipped lines with fewer than %d columns: %d; the first is line %d",
            *(path, needed, len(short), short[0]),
        )
    if not count:
        raise no_examples(path, has_header)


def no_examples(path: str, header: bool) -> UserError:
    after = " after the header" if header else ""
    return UserError(f"{place_of(path)} has no examples; it must have one on each line{after}")


def _parse_csv(text: str, path: str, delimiter: str) -> list[NumberedRow]:
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 is too small for whole documents
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    rows = []
    first_line = 0
    try:
        for row in reader:
            rows.append((first_line, row))
            first_line = reader.line_num
    except csv.Error as error:
        raise UserError(
            f"{place_of(path, first_line)}: {error}; write a quote inside a quoted column twice,"
            " and close every quote"
        ) from error
    return rows
