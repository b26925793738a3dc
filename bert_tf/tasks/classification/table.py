"""Tasks that read tables: the tab-separated files of GLUE and XNLI, and a user's .csv or .tsv."""

import collections
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from absl import logging

from bert_tf.datasets import tables
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.model_notes import check_label
from bert_tf.files.storage import contents
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.class_weights import parse_weight
from bert_tf.tasks.classification.examples import (
    DataProcessor,
    InputExample,
    default_label,
    parse_label,
    split_labels,
)
from bert_tf.tasks.classification.settings import TableColumns

_LABEL_REMEDY = "correct or delete the line, or change --label_column"
_FLAGS = {
    "train": "--do_train",
    "dev": "--do_eval and --evaluate_every_steps",
    "test": "--do_predict",
}


@dataclasses.dataclass(frozen=True)
class ColumnNumbers:
    """The numbers of a file's columns, from 0; negative ones count from the end."""

    text_a: int
    text_b: int | None = None
    label: int | None = None  # without labels, examples get `default_label`
    known_label: int | None = None  # of a test file: a label that is only shown
    group: int | None = None
    fold_group: int | None = None
    weight: int | None = None  # without weights, every example counts the same
    guid: int | None = None  # without guids, examples get the number of the line, from 0
    header: bool = True  # whether the first line has the names of the columns

    @property
    def needed(self) -> int:
        """The minimum number of columns in a row."""
        others = (self.text_b, self.label, self.guid, self.group, self.fold_group, self.weight)
        last = max(self.text_a, *(number or 0 for number in others))
        # A label that is counted from the end must come after the other columns.
        return last + 1 + (self.label is not None and self.label < 0)


class TsvProcessor(DataProcessor):
    """A task whose sets are files of tab-separated columns."""

    files: Mapping[str, str] = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    guid_names: Mapping[str, str] = {}  # the start of the guids, where it is not the set's name
    columns: ColumnNumbers
    train_columns: ColumnNumbers | None = None  # where they differ from `columns`
    test_columns: ColumnNumbers | None = None
    skip_short_rows: bool = False  # in training and dev files; otherwise they are errors

    def has(self, split: str, data_dir: str) -> bool:
        return split in self.files and tf.io.gfile.exists(os.path.join(data_dir, self.files[split]))

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        if split not in self.files:
            raise UserError(
                f"This --task_name has no {split} set, only {', '.join(self.files)}; leave out"
                f" {_FLAGS[split]}"
            )
        path = os.path.join(data_dir, self.files[split])
        columns, is_test = self._columns_of(split), split == "test"
        # Predictions are numbered like the lines of the test file, so no line may be skipped.
        rows = tables.examples(
            self.numbered_rows(split, path),
            path,
            columns.needed,
            columns.header,
            refuse_empty=is_test,
            skip_short=self.skip_short_rows and not is_test,
        )
        return rows_to_examples(rows, columns, self, self.guid_names.get(split, split))

    def _columns_of(self, split: str) -> ColumnNumbers:
        return {"train": self.train_columns, "test": self.test_columns}.get(split) or self.columns

    def numbered_rows(self, split: str, path: str) -> Iterator[tuple[int, list[str]]]:
        """Yields (number of the line from 0, columns) of each line of a set except the header.

        Warns of lines with more columns than the first one, which are read as in the original.
        """
        columns = self._columns_of(split)
        rows = list(enumerate(tables.read_rows(path, columns.header)))
        first = rows[0][1]
        if columns.header:
            _check_header(first, path, columns, self.get_labels())
        long = [i + 1 for i, row in rows if len(row) > len(first) > 0]
        if long:
            logging.warning(
                "%s: lines with more columns than the first line: %d, the first is line %d. Columns"
                " are counted from the left; if a text has a tab in it, write a space instead",
                *(path, len(long), long[0]),
            )
        yield from rows[columns.header :]


def rows_to_examples(
    rows: Iterable[tuple[int, str, Sequence[str]]],
    columns: ColumnNumbers,
    processor: DataProcessor,
    guid_name: str,
    label_remedy: str = "correct or delete the line",
) -> list[InputExample]:
    """Turns rows from `tables.examples` into examples, whose guids begin with `guid_name`."""
    label = default_label(processor)
    known = columns.known_label if columns.label is None else columns.label
    examples = []
    for i, place, row in rows:
        if columns.label is not None:
            where = place if i else f"{place} (an example, since this file has no header)"
            label = parse_label(row[columns.label], processor, where, label_remedy)
        guid = f"{guid_name}-{i if columns.guid is None else row[columns.guid]}"
        text_b = None if columns.text_b is None else row[columns.text_b]
        known_label = None if known is None else row[known] or None
        if columns.label is not None and processor.multi_label:
            known_label = label  # perhaps (), no labels
        example = InputExample(guid, row[columns.text_a], text_b, label, known_label)
        for name in ("group", "fold_group"):
            if (number := getattr(columns, name)) is not None:
                setattr(example, name, row[number])
                tables.check_filled(row[number], place, "group")
        if columns.weight is not None:
            remedy = "Correct or delete the line, or change --weight_column"
            example.weight = parse_weight(row[columns.weight], f"{place}: the weight", remedy)
        examples.append(example)
    return examples


def _check_header(
    row: Sequence[str], path: str, columns: ColumnNumbers, labels: Sequence[str] | None
) -> None:
    column = 0 if columns.label is None else columns.label
    cell = row[column] if -len(row) <= column < len(row) else ""
    if columns.label is not None and labels is not None:
        is_example = cell in labels
    else:
        is_example = re.fullmatch(r"\d+(\.\d*)?", cell) is not None
    if is_example:
        raise UserError(
            f"{tables.place_of(path, 0)}: the line must be a header with the names of the columns,"
            f" but it looks like an example ({quoted(cell)} in column {column % len(row)}, counted"
            " from 0); insert the header before it"
        )


class TableProcessor(DataProcessor):
    """The task `table`: reads `train`, `dev` and `test` in the data folder, each .tsv or .csv.

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
            self.best_metric = "eval_ndcg@10"  # see `scores.evaluate_groups`
        if columns.regression:
            return
        if columns.group_column:
            self._check_classes()
        if self.multi_label:
            self.metrics = ("micro_f1", "macro_f1", "average_precision", "accuracy")
            self.best_metric = "eval_micro_f1"
        elif len(self.labels) == 2:
            self.metrics = ("accuracy", "f1", "matthews_correlation")

    @classmethod
    def create(cls, columns: TableColumns, data_dir: str, language: str) -> "TableProcessor":
        return cls(columns, data_dir)

    def has(self, split: str, data_dir: str) -> bool:
        return tables.find_table(split, data_dir) is not None

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        path = tables.table_path(split, data_dir)
        rows = self._rows(path)
        is_test = split == "test"
        is_joined = bool(self.table.label_columns)
        if is_joined:
            try:
                rows = join_columns(rows, path, self.labels, self.label_separator)
            except UserError as error:
                if not is_test:
                    raise
                is_joined = False
                logging.info("The labels of %s are not read: %s", path, error)
        columns = self._column_numbers(rows, path, split, is_joined)
        flags = ["--label_column", "--regression" if self.table.regression else "--labels"]
        flags += [] if self.table.has_header else ["--has_header"]
        remedy = f"correct or delete the line, or change {' or '.join(flags)}"
        found = tables.examples(
            rows[columns.header :], path, columns.needed, columns.header, refuse_empty=is_test
        )
        return rows_to_examples(found, columns, self, split, remedy)

    def _collect_labels(self, data_dir: str) -> list[str]:
        if not self.has("train", data_dir) and any(self.has(x, data_dir) for x in ("dev", "test")):
            raise UserError(
                "The classes must be known: --data_dir must hold train.tsv or train.csv, or"
                " --labels must list them in the order that the model was trained with;"
                f" {contents(data_dir)}"
            )
        path = tables.table_path("train", data_dir)
        rows = self._rows(path)
        columns = self._column_numbers(rows, path, "train")
        filled = [(i, row) for i, row in rows[columns.header :] if row]
        if not filled:
            raise tables.no_examples(path, columns.header)
        counts: collections.Counter[str] = collections.Counter()
        for i, row in filled:
            for label in self._labels_of(row[columns.label], tables.place_of(path, i)):
                if label not in counts:
                    check_label(label, tables.place_of(path, i), _LABEL_REMEDY)
                counts[label] += 1
        once = [label for label, count in counts.items() if count == 1]
        if not columns.header and len(counts) > 2 and once == list(counts)[:1]:
            raise UserError(
                f"{tables.place_of(path, 0)}: the label {quoted(once[0])} is the only one that"
                " occurs just once, so the line looks like a header; leave out --has_header=false,"
                " or list the classes with --labels"
            )
        if len(counts) < 2:
            raise UserError(
                f"{tables.place_of(path)}: --label_column={self.table.label_column} must hold at"
                f" least two classes; it holds {listed(counts) or 'none'}. Choose another column,"
                " or list the classes with --labels"
            )
        classes = sort_labels(counts)
        logging.info("Classes: %s", listed(f"{name} ({counts[name]})" for name in classes))
        return classes

    def _check_classes(self) -> None:
        if len(self.labels) != 2:
            raise UserError(
                "--group_column needs two classes, the second for relevant texts, or"
                " --regression with grades of relevance; the classes are"
                f" {listed(self.labels)}"
            )

    def _labels_of(self, cell: str, place: str) -> list[str]:
        if self.multi_label:
            return split_labels(cell, self.label_separator, place, _LABEL_REMEDY)
        tables.check_filled(cell, place)
        return [cell]

    def _rows(self, path: str) -> list[tables.NumberedRow]:
        return tables.read_table(path, self.table.delimiter, self.table.has_header)

    def _column_numbers(
        self, rows: Sequence[tables.NumberedRow], path: str, split: str, is_joined: bool = False
    ) -> ColumnNumbers:
        """Finds the columns that the flags name; with `is_joined` the last one has the labels."""
        table = self.table
        columns = {"text_a_column": table.text_a_column}
        if table.text_b_column is not None:
            columns["text_b_column"] = table.text_b_column
        if split != "test":  # a test file may lack labels and groups
            if not table.label_columns:
                columns["label_column"] = table.label_column
            if table.group_column is not None:
                columns["group_column"] = table.group_column
        if split == "train" and table.fold_group_column is not None:
            columns["fold_group_column"] = table.fold_group_column
        if self._has_weights(rows, path, split):
            columns["weight_column"] = table.weight_column
        numbers = tables.column_numbers(rows, path, table.has_header, columns)
        fields = {name.removesuffix("_column"): number for name, number in numbers.items()}
        if is_joined:
            fields["label"] = len(rows[0][1]) - 1
        names = tables.column_names(rows, table.has_header)
        if split == "test" and names.count(table.label_column) == 1:
            fields["known_label"] = names.index(table.label_column)
        return ColumnNumbers(**fields, header=table.has_header)

    def _has_weights(self, rows: Sequence[tables.NumberedRow], path: str, split: str) -> bool:
        name = self.table.weight_column
        if name is None or split == "test":
            return False
        if split == "train" or name in tables.column_names(rows, self.table.has_header):
            return True
        logging.info("%s has no column %s: all its examples count the same", path, quoted(name))
        return False


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Sorts labels: by value if all are whole numbers of under 100 digits, otherwise as text."""
    labels = list(labels)
    # Python's int() refuses more than 4300 digits.
    whole = all(label.removeprefix("-").isdecimal() and len(label) < 100 for label in labels)
    return sorted(labels, key=int if whole else None)


def join_columns(
    rows: Sequence[tables.NumberedRow], path: str, labels: Sequence[str], separator: str
) -> list[tables.NumberedRow]:
    """Appends a column with all labels of a row, from columns of 1 or 0 for each label."""
    numbers = {
        label: tables.column_numbers(rows, path, True, {"label_columns": label}) for label in labels
    }
    joined = [(rows[0][0], [*rows[0][1], ""])]
    for i, row in rows[1:]:
        found = []
        for label, number in numbers.items() if row else ():
            cell = row[number["label_columns"]].strip()
            if cell not in ("0", "1"):
                raise UserError(
                    f"{tables.place_of(path, i)}: the column {quoted(label)} of --label_columns"
                    f" must have 1 for a text with that label, else 0; it has {quoted(cell)}."
                    " Correct or delete the line"
                )
            found += [label] if cell == "1" else []
        joined.append((i, [*row, separator.join(found)] if row else row))
    return joined
