"""Tasks in files of tab-separated columns, and examples from rows of columns."""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from absl import logging

from bert_tf.datasets import tables
from bert_tf.errors import UserError, quoted
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.class_weights import parse_weight
from bert_tf.tasks.classification.examples import (
    DataProcessor,
    InputExample,
    default_label,
    parse_label,
)

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

    # The file of each set that the task has.
    files: Mapping[str, str] = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    guid_names: Mapping[str, str] = {}  # the start of the guids, where it is not the set's name
    columns: ColumnNumbers
    train_columns: ColumnNumbers | None = None  # where they differ from `columns`
    test_columns: ColumnNumbers | None = None
    # Skips rows of the training and dev files that lack a column, instead of refusing them.
    skip_short_rows: bool = False

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

        A line may have more columns than the first one, as in the original; a warning says so.

        Raises:
            UserError: the file cannot be read, or has an example in place of its header.
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
    """Returns the example of each row from `tables.examples`; their guids begin with `guid_name`.

    If a label is not valid, the error says how to correct it: `label_remedy`.
    """
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
            known_label = label  # perhaps none of them
        example = InputExample(guid, row[columns.text_a], text_b, label, known_label)
        if columns.group is not None:
            example.group = row[columns.group]
            tables.check_filled(example.group, place, "group")
        if columns.fold_group is not None:
            example.fold_group = row[columns.fold_group]
            tables.check_filled(example.fold_group, place, "group")
        if columns.weight is not None:
            remedy = "Correct or delete the line, or change --weight_column"
            example.weight = parse_weight(row[columns.weight], f"{place}: the weight", remedy)
        examples.append(example)
    return examples


def _check_header(
    row: Sequence[str], path: str, columns: ColumnNumbers, labels: Sequence[str] | None
) -> None:
    """Checks that the first row is a header, not an example: it must not hold a label or number."""
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
