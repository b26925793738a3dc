"""Own tasks in tables: .csv or .tsv files whose columns are chosen by name."""

import collections
import csv
import io
import itertools
import os
import sys
from collections.abc import Iterable, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.tasks.classification.examples import (
    DataProcessor,
    InputExample,
    contents,
    shown,
)
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.classification.tsv import (
    ColumnNumbers,
    read_rows,
    read_text,
    rows_to_examples,
)

_DELIMITERS = {".tsv": "\t", ".csv": ","}

# (number of its first line from 0, columns); an empty row has no columns.
NumberedRow = tuple[int, list[str]]


class TableProcessor(DataProcessor):
    """The task of a table: `train`, `dev` and `test` in the data folder, each .tsv or .csv.

    Args:
        columns: the columns, and the form of the files.
        data_dir: the folder. Without `columns.labels` the training file is read, to collect the
            classes.

    Raises:
        UserError: the classes cannot be collected.
    """

    def __init__(self, columns: TableColumns, data_dir: str):
        self.table = columns
        self.labels = columns.labels
        if columns.regression:
            self.metrics = ("pearson", "spearman")
            self.best_metric = "eval_pearson_and_spearman"
            return
        if columns.labels is None:
            self.labels = self._collect_labels(data_dir)
        if len(self.labels) == 2:
            self.metrics = ("accuracy", "f1", "matthews_correlation")

    def has(self, split: str, data_dir: str) -> bool:
        return self._find(split, data_dir) is not None

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        path = self._path(split, data_dir)
        rows = self._rows(path)
        is_test = split == "test"
        columns = self._column_numbers(rows, path, needs_label=not is_test)
        flags = ["--label_column", "--regression" if self.table.regression else "--labels"]
        flags += [] if self.table.has_header else ["--has_header"]
        return rows_to_examples(
            rows[columns.header :],
            path,
            columns,
            self,
            split,
            refuse_empty_rows=is_test,
            label_remedy=f"correct or delete the line, or change {' or '.join(flags)}",
        )

    def _collect_labels(self, data_dir: str) -> list[str]:
        """Returns the classes of the training file, sorted."""
        if not self.has("train", data_dir):
            raise UserError(
                "The classes must be known: --data_dir must hold train.tsv or train.csv, or"
                " --labels must list them in the order in which the model was trained with them;"
                f" {contents(data_dir)}"
            )
        path = self._path("train", data_dir)
        rows = self._rows(path)
        columns = self._column_numbers(rows, path, needs_label=True)
        labels = [
            row[columns.label] for _, row in rows[columns.header :] if len(row) > columns.label
        ]
        counts = collections.Counter(labels)
        once = [label for label, count in counts.items() if count == 1]
        if not columns.header and len(counts) > 2 and once == labels[:1]:
            raise UserError(
                f"{path}, line 1: the label {labels[0]!r} occurs in no other line, unlike all other"
                " labels, so the line looks like a header; leave out --has_header=false, or list"
                " the classes with --labels"
            )
        if len(counts) < 2:
            raise UserError(
                f"{path}: --label_column={self.table.label_column} must hold at least two classes;"
                f" it holds {shown(counts) or 'none'}. Choose another column, or list the classes"
                " with --labels"
            )
        classes = sort_labels(counts)
        logging.info("Classes: %s", ", ".join(f"{name} ({counts[name]})" for name in classes))
        return classes

    def _find(self, split: str, data_dir: str) -> str | None:
        """Returns the path of a set's file; None if there is none."""
        paths = [os.path.join(data_dir, split + ending) for ending in _DELIMITERS]
        return next((path for path in paths if tf.io.gfile.exists(path)), None)

    def _path(self, split: str, data_dir: str) -> str:
        path = self._find(split, data_dir)
        if path is None:
            raise UserError(
                f"--data_dir must hold {split}.tsv or {split}.csv; {contents(data_dir)}"
            )
        return path

    def _rows(self, path: str) -> list[NumberedRow]:
        """Returns the rows of a file from the first one that is not empty."""
        delimiter = self.table.delimiter or _DELIMITERS[os.path.splitext(path)[1]]
        if delimiter == "\t":
            return _without_leading_empty(enumerate(read_rows(path)))
        rows = _without_leading_empty(_read_csv(path, delimiter))
        for i, row in rows:
            if self.table.has_header and len(row) > len(rows[0][1]):
                raise UserError(
                    f"{path}, line {i + 1}: the line has {len(row)} columns, but the header"
                    f" names {len(rows[0][1])}; put quotes around a text with {delimiter!r} in it,"
                    " or change --delimiter"
                )
        return rows

    def _column_numbers(
        self, rows: Sequence[NumberedRow], path: str, needs_label: bool
    ) -> ColumnNumbers:
        """Returns the numbers of the columns that the flags name."""
        names = rows[0][1] if self.table.has_header else range(len(rows[0][1]))
        names = [str(name).strip() for name in names]
        numbers = {}
        for field in ("text_a", "text_b", "label"):
            name = getattr(self.table, f"{field}_column")
            if field == "label" and not needs_label:
                continue  # a test file may lack the labels: they are not read
            if name is None and field == "text_b":
                continue
            if name is None:
                raise UserError(
                    f"--task_name=table needs --{field}_column; the columns of {path} are"
                    f" {shown(names)}"
                )
            if name not in names:
                what = "columns named" if self.table.has_header else "no header, but columns"
                raise UserError(
                    f"--{field}_column={name}: {path} has no such column; it has {what}"
                    f" {shown(names)}. --has_header says whether line 1 names the columns,"
                    " --delimiter what separates them"
                )
            numbers[field] = names.index(name)
        return ColumnNumbers(**numbers, header=self.table.has_header)


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Returns the labels sorted: by value if all are whole numbers, else as text."""
    labels = list(labels)
    whole = all(label.removeprefix("-").isdecimal() for label in labels)
    return sorted(labels, key=int if whole else None)


def _read_csv(path: str, delimiter: str) -> list[NumberedRow]:
    """Returns the rows of a file whose columns may be quoted."""
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 is too small for whole documents
    reader = csv.reader(io.StringIO(read_text(path)), delimiter=delimiter, strict=True)
    rows = []
    first_line = 0
    try:
        for row in reader:
            rows.append((first_line, row))
            first_line = reader.line_num
    except csv.Error as error:
        raise UserError(
            f"{path}, line {first_line + 1}: {error}; write a quote inside a quoted column twice,"
            " and close every quote"
        ) from error
    return rows


def _without_leading_empty(rows: Iterable[NumberedRow]) -> list[NumberedRow]:
    """Returns the rows from the first one that is not empty."""
    return list(itertools.dropwhile(lambda numbered: not numbered[1], rows))
