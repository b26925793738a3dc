"""A task of one's own: files of comma- or tab-separated columns, told by the columns' names."""

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
    Columns,
    DataProcessor,
    InputExample,
    contents,
    read_rows,
    read_text,
    rows_to_examples,
    shown,
)
from bert_tf.tasks.classification.settings import TableColumns

_ENDINGS = {".tsv": "\t", ".csv": ","}


class TableProcessor(DataProcessor):
    """The task of a table: `train`, `dev` and `test` in the data folder, each .tsv or .csv."""

    def __init__(self, columns: TableColumns, data_dir: str):
        """Takes what is known of the files; the training file is read here if it has the classes.

        Raises:
            UserError: the classes are to be collected, and the training file does not tell them.
        """
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

    def has(self, which: str, data_dir: str) -> bool:
        return self._find(which, data_dir) is not None

    def read(self, which: str, data_dir: str) -> list[InputExample]:
        path = self._path(which, data_dir)
        rows = self._rows(path)
        columns = self._columns(rows, path, needs_label=which != "test")
        is_test = which == "test"
        rows = rows[columns.header :]
        return rows_to_examples(rows, path, columns, self, which, refuse_empty_rows=is_test)

    def _collect_labels(self, data_dir: str) -> list[str]:
        if not self.has("train", data_dir):
            raise UserError(
                "The classes must be known: --data_dir must hold train.tsv or train.csv, or"
                " --labels must name them in the order in which the model has learned them;"
                f" {contents(data_dir)}"
            )
        path = self._path("train", data_dir)
        rows = self._rows(path)
        columns = self._columns(rows, path, needs_label=True)
        labels = [
            row[columns.label] for _, row in rows[columns.header :] if len(row) > columns.label
        ]
        found = collections.Counter(labels)
        alone = [label for label, count in found.items() if count == 1]
        if not columns.header and len(found) > 2 and alone == labels[:1]:
            raise UserError(
                f"{path}, line 1: of all labels {labels[0]!r} alone is there but once, so the line"
                " looks like a header; leave --has_header=false out, or name the classes by"
                " --labels"
            )
        if len(found) < 2:
            raise UserError(
                f"{path}: --label_column={self.table.label_column} must hold at least two classes; "
                f"it holds {shown(found) or 'none'}. --labels tells them where the file does not"
            )
        classes = sort_labels(found)
        logging.info("Classes: %s", ", ".join(f"{name} ({found[name]})" for name in classes))
        return classes

    def _find(self, which: str, data_dir: str) -> str | None:
        paths = [os.path.join(data_dir, which + ending) for ending in _ENDINGS]
        return next((path for path in paths if tf.io.gfile.exists(path)), None)

    def _path(self, which: str, data_dir: str) -> str:
        path = self._find(which, data_dir)
        if path is None:
            raise UserError(
                f"--data_dir must hold {which}.tsv or {which}.csv; {contents(data_dir)}"
            )
        return path

    def _rows(self, path: str) -> list[tuple[int, list[str]]]:
        """Returns (number of its first line counted from 0, columns) of each row.

        An empty row has no columns; there is none before the first with some.
        """
        delimiter = self.table.delimiter or _ENDINGS[os.path.splitext(path)[1]]
        if delimiter == "\t":
            return _from_the_first(enumerate(read_rows(path)))
        csv.field_size_limit(sys.maxsize)  # whole documents may be longer than its usual 131,072
        reader = csv.reader(io.StringIO(read_text(path)), delimiter=delimiter, strict=True)
        rows = []
        first_line = 0
        try:
            for row in reader:
                rows.append((first_line, row))
                first_line = reader.line_num
        except csv.Error as error:
            raise UserError(
                f"{path}, line {first_line + 1}: {error}; a quote inside a quoted column is written"
                " twice, and a quoted column must end"
            ) from error
        rows = _from_the_first(rows)
        for i, row in rows:
            if self.table.has_header and len(row) > len(rows[0][1]):
                raise UserError(
                    f"{path}, line {i + 1}: there are {len(row)} columns, and the header names"
                    f" {len(rows[0][1])}; put quotes around a text with {delimiter!r} in it"
                )
        return rows

    def _columns(
        self, rows: Sequence[tuple[int, list[str]]], path: str, needs_label: bool
    ) -> Columns:
        names = rows[0][1] if self.table.has_header else range(len(rows[0][1]))
        names = [str(name).strip() for name in names]
        numbers = {}
        for field in ("text_a", "text_b", "label"):
            name = getattr(self.table, f"{field}_column")
            if field == "label" and not needs_label:
                continue  # a test file may have it or not: nothing reads it
            if name is None and field == "text_b":
                continue
            if name is None:
                raise UserError(
                    f"--task_name=table needs --{field}_column; {path} has {shown(names)}"
                )
            if name not in names:
                what = "columns named" if self.table.has_header else "no header, but columns"
                raise UserError(
                    f"--{field}_column={name}: {path} has no such column; it has {what} "
                    f"{shown(names)}. --has_header says whether line 1 names the columns"
                )
            numbers[field] = names.index(name)
        return Columns(**numbers, header=self.table.has_header)


def _from_the_first(rows: Iterable[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Returns the rows without empty ones at the beginning."""
    return list(itertools.dropwhile(lambda numbered: not numbered[1], rows))


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Returns the labels sorted: as numbers if all are whole numbers, else as text."""
    labels = list(labels)
    whole = all(label.removeprefix("-").isdecimal() for label in labels)
    return sorted(labels, key=int if whole else None)
