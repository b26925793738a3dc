"""Users' own tasks in tables: .csv or .tsv files whose columns are chosen by name."""

import collections
from collections.abc import Iterable, Sequence

from absl import logging

from bert_tf.datasets.tables import (
    NumberedRow,
    check_filled,
    column_names,
    column_numbers,
    examples,
    find_table,
    no_examples,
    place_of,
    read_table,
    table_path,
)
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.label_file import check_label
from bert_tf.files.storage import contents
from bert_tf.tasks.classification import several_labels
from bert_tf.tasks.classification.examples import DataProcessor, InputExample
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.classification.tsv import ColumnNumbers, rows_to_examples

_LABEL_REMEDY = "correct or delete the line, or change --label_column"


class TableProcessor(DataProcessor):
    """The task of a table: `train`, `dev` and `test` in the data folder, each .tsv or .csv.

    Without `columns.labels` the classes are collected from the training file, which must exist.
    """

    def __init__(self, columns: TableColumns, data_dir: str):
        self.table = columns
        self.labels = columns.label_columns or columns.labels
        self.multi_label, self.label_separator = columns.multi_label, columns.label_separator
        if columns.regression:
            self.metrics = ("pearson", "spearman")
            self.best_metric = "eval_pearson_and_spearman"
        elif self.labels is None:
            self.labels = self._collect_labels(data_dir)
        if columns.group_column:
            self.best_metric = "eval_ndcg@10"  # see `ranking`
        if columns.regression:
            return
        if columns.group_column:
            self._check_classes()
        if self.multi_label:
            self.metrics, self.best_metric = several_labels.METRICS, several_labels.BEST_METRIC
        elif len(self.labels) == 2:
            self.metrics = ("accuracy", "f1", "matthews_correlation")

    @classmethod
    def create(cls, columns: TableColumns, data_dir: str, language: str) -> "TableProcessor":
        return cls(columns, data_dir)

    def has(self, split: str, data_dir: str) -> bool:
        return find_table(split, data_dir) is not None

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        path = table_path(split, data_dir)
        rows = self._rows(path)
        is_test = split == "test"
        is_joined = bool(self.table.label_columns)
        if is_joined:
            try:
                rows = several_labels.join_columns(rows, path, self.labels, self.label_separator)
            except UserError as error:
                if not is_test:
                    raise
                is_joined = False
                logging.info("The labels of %s are not read: %s", path, error)
        columns = self._column_numbers(rows, path, split, is_joined)
        flags = ["--label_column", "--regression" if self.table.regression else "--labels"]
        flags += [] if self.table.has_header else ["--has_header"]
        remedy = f"correct or delete the line, or change {' or '.join(flags)}"
        found = examples(
            rows[columns.header :], path, columns.needed, columns.header, refuse_empty=is_test
        )
        return rows_to_examples(found, columns, self, split, remedy)

    def _collect_labels(self, data_dir: str) -> list[str]:
        """Returns the classes of the training file, sorted."""
        if not self.has("train", data_dir) and any(self.has(x, data_dir) for x in ("dev", "test")):
            raise UserError(
                "The classes must be known: --data_dir must hold train.tsv or train.csv, or"
                " --labels must list them in the order that the model was trained with;"
                f" {contents(data_dir)}"
            )
        path = table_path("train", data_dir)
        rows = self._rows(path)
        columns = self._column_numbers(rows, path, "train")
        filled = [(i, row) for i, row in rows[columns.header :] if row]
        if not filled:
            raise no_examples(path, columns.header)
        counts: collections.Counter[str] = collections.Counter()
        for i, row in filled:
            for label in self._labels_of(row[columns.label], place_of(path, i)):
                if label not in counts:
                    check_label(label, place_of(path, i), _LABEL_REMEDY)
                counts[label] += 1
        once = [label for label, count in counts.items() if count == 1]
        if not columns.header and len(counts) > 2 and once == list(counts)[:1]:
            raise UserError(
                f"{place_of(path, 0)}: the label {quoted(once[0])} is the only one that occurs just"
                " once, so the line looks like a header; leave out --has_header=false, or list the"
                " classes with --labels"
            )
        if len(counts) < 2:
            raise UserError(
                f"{place_of(path)}: --label_column={self.table.label_column} must hold at least two"
                f" classes; it holds {listed(counts) or 'none'}. Choose another column, or list the"
                " classes with --labels"
            )
        classes = sort_labels(counts)
        logging.info("Classes: %s", listed(f"{name} ({counts[name]})" for name in classes))
        return classes

    def _check_classes(self) -> None:
        """Raises UserError unless the classes say which examples of a group are relevant."""
        if len(self.labels) != 2:
            raise UserError(
                "--group_column needs two classes, of which the second means relevant, or"
                " --regression with grades of relevance; the classes are"
                f" {listed(self.labels)}"
            )

    def _labels_of(self, cell: str, place: str) -> list[str]:
        """Returns the labels in a cell of the training file."""
        if self.multi_label:
            return several_labels.split_labels(cell, self.label_separator, place, _LABEL_REMEDY)
        check_filled(cell, place)
        return [cell]

    def _rows(self, path: str) -> list[NumberedRow]:
        """Returns the rows of a file from the first one that is not empty."""
        return read_table(path, self.table.delimiter, self.table.has_header)

    def _column_numbers(
        self, rows: Sequence[NumberedRow], path: str, split: str, is_joined: bool = False
    ) -> ColumnNumbers:
        """Returns the numbers of the columns that the flags name.

        With `is_joined` the last one has the labels, see `several_labels.join_columns`.
        """
        table = self.table
        columns = {"text_a_column": table.text_a_column}
        if table.text_b_column is not None:
            columns["text_b_column"] = table.text_b_column
        if split != "test":  # a test file may lack the labels: they are not read
            if not table.label_columns:
                columns["label_column"] = table.label_column
            if table.group_column is not None:
                columns["group_column"] = table.group_column
        if split == "train" and table.fold_group_column is not None:
            columns["fold_group_column"] = table.fold_group_column
        if self._has_weights(rows, path, split):
            columns["weight_column"] = table.weight_column
        numbers = column_numbers(rows, path, table.has_header, columns, "--task_name=table")
        fields = {name.removesuffix("_column"): number for name, number in numbers.items()}
        if is_joined:
            fields["label"] = len(rows[0][1]) - 1
        names = column_names(rows, table.has_header)
        if split == "test" and names.count(table.label_column) == 1:
            fields["known_label"] = names.index(table.label_column)
        return ColumnNumbers(**fields, header=table.has_header)

    def _has_weights(self, rows: Sequence[NumberedRow], path: str, split: str) -> bool:
        """Returns whether the weights of a file are read: a dev file may lack them."""
        name = self.table.weight_column
        if name is None or split == "test":
            return False
        if split == "train" or name in column_names(rows, self.table.has_header):
            return True
        logging.info("%s has no column %s: all its examples count the same", path, quoted(name))
        return False


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Returns the labels sorted: by value if all are whole numbers, else as text.

    A label of 100 characters or more counts as text: Python converts at most 4300 digits.
    """
    labels = list(labels)
    whole = all(label.removeprefix("-").isdecimal() and len(label) < 100 for label in labels)
    return sorted(labels, key=int if whole else None)
