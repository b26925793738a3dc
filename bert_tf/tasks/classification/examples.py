"""What a classification task is: its examples and where they are, its labels, how it is scored."""

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import whole_files


@dataclasses.dataclass(slots=True)
class InputExample:
    """One text or pair of texts to classify.

    Attributes:
        guid: a name that no other example of the set has.
        text_a: the text, or the first of the two.
        text_b: the second text, None if there is but one.
        label: the class by name, a number for regression; in a test set whatever is valid, since
            nothing reads it.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | float | None = None


class DataProcessor:
    """A task: reads its examples and says how they are labelled and scored.

    Attributes:
        labels: the classes in the order of the logits; None for regression.
        label_range: for regression the least and the greatest label; None is without bounds.
        metrics: what evaluation reports beside the loss, names of `scores.METRICS`.
        best_metric: the line of eval_results.txt by which runs are compared; more is better.
        submission_file: what GLUE calls the file of test predictions; None if it has no such task.
            A class is written there by its name in `labels`.
        also: tasks with the same labels whose dev and test sets are evaluated and predicted as
            well, where their files are there; the names of their results end in `_KEY`.
        tfds_splits: where TensorFlow Datasets has each set: the first of these that exists.
    """

    labels: Sequence[str] | None = None
    label_range: tuple[float, float] | None = None
    metrics: tuple[str, ...] = ("accuracy",)
    best_metric: str = "eval_accuracy"
    submission_file: str | None = None
    also: Mapping[str, "DataProcessor"] = {}
    tfds_splits: Mapping[str, tuple[str, ...]] = {
        "train": ("train",),
        "dev": ("validation",),
        "test": ("test",),
    }

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to train on."""
        return self.read("train", data_dir)

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to evaluate on."""
        return self.read("dev", data_dir)

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to predict."""
        return self.read("test", data_dir)

    def get_labels(self) -> list[str] | None:
        """Returns the classes in the order of the logits, None for regression."""
        return None if self.labels is None else list(self.labels)

    def has(self, which: str, data_dir: str) -> bool:
        """Returns whether the set `which` ("train", "dev" or "test") is there to be read."""
        raise NotImplementedError

    def read(self, which: str, data_dir: str) -> list[InputExample]:
        """Returns the examples of the set `which`.

        Raises:
            UserError: the set is missing or not as it should be: says where and what to change.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where the rows of a file have what; columns count from 0, or from the end if negative.

    Attributes:
        text_a, text_b: the texts; `text_b` None for single texts.
        label: None where the file has no labels; examples then get a stand-in.
        guid: what tells examples apart; None takes the number of the line, counted from 0.
        header: whether the first line names the columns.
    """

    text_a: int
    text_b: int | None = None
    label: int | None = None
    guid: int | None = None
    header: bool = True


class TsvProcessor(DataProcessor):
    """A task whose sets are files of tab-separated columns.

    Attributes:
        files: the name in the data folder of each set that there is.
        guid_names: what guids begin with, where it is not the name of the set.
        columns: of the training and dev files.
        test_columns: of the test file.
        skip_short_rows: whether rows of the training and dev files without all columns are left out
            instead of refused.
    """

    files: Mapping[str, str] = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    guid_names: Mapping[str, str] = {}
    columns: Columns
    test_columns: Columns
    skip_short_rows: bool = False

    def has(self, which: str, data_dir: str) -> bool:
        return which in self.files and tf.io.gfile.exists(os.path.join(data_dir, self.files[which]))

    def read(self, which: str, data_dir: str) -> list[InputExample]:
        if which not in self.files:
            raise UserError(f"this task has no {which} set, only {', '.join(self.files)}")
        path = os.path.join(data_dir, self.files[which])
        columns = self.test_columns if which == "test" else self.columns
        rows = self.numbered_rows(path, columns)
        guid_name = self.guid_names.get(which, which)
        # Predictions are numbered as the test file is: nothing may be left out.
        is_test = which == "test"
        skip_short_rows = self.skip_short_rows and not is_test
        return rows_to_examples(rows, path, columns, self, guid_name, skip_short_rows, is_test)

    def numbered_rows(self, path: str, columns: Columns) -> Iterator[tuple[int, list[str]]]:
        """Yields (number of the line counted from 0, columns) of each line but a header.

        Raises:
            UserError: the file cannot be read, or an example is where its header should be.
        """
        rows = enumerate(read_rows(path))
        if columns.header:
            _check_header(next(rows)[1], path, columns, self.get_labels())
        yield from rows


def read_text(path: str) -> str:
    """Returns the text of a UTF-8 file without its byte-order mark and its carriage returns.

    Raises:
        UserError: the file is missing, empty or not UTF-8.
    """
    rule = "--data_dir must name the folder that holds the task's files"
    if not tf.io.gfile.exists(path):
        raise UserError(f"{path} does not exist: {contents(os.path.dirname(path))}. {rule}")
    # As the original's reader does: GFile.readline drops every carriage return.
    text = whole_files.read_text(path, path, rule).replace("\r", "")
    if not text.strip():
        raise UserError(f"{path} is empty; it must hold the text of its examples")
    return text


def read_rows(path: str) -> Iterator[list[str]]:
    """Yields the columns of each line of a tab-separated file; an empty line has none.

    Quotes are characters like any other (the original's csv.reader with quotechar=None).

    Raises:
        UserError: see `read_text`.
    """
    for line in read_text(path).removesuffix("\n").split("\n"):
        yield line.split("\t") if line else []


def rows_to_examples(
    rows: Iterable[tuple[int, Sequence[str]]],
    path: str,
    columns: Columns,
    processor: DataProcessor,
    guid_name: str,
    skip_short_rows: bool = False,
    refuse_empty_rows: bool = False,
) -> list[InputExample]:
    """Returns the example of each row, but for empty ones.

    Args:
        rows: (number of the line counted from 0, columns) of each row, without a header.
        path: the file they are from, for messages.
        columns: which column is what.
        processor: whose labels they must have.
        guid_name: what guids begin with.
        skip_short_rows: leaves rows out that lack a column, with a warning, instead of raising.
        refuse_empty_rows: raises if an empty row is before an example.

    Raises:
        UserError: a row is empty, lacks a column or has no valid label, or there is no example.
    """
    last = max(columns.text_a, columns.text_b or 0, columns.label or 0, columns.guid or 0)
    # A label counted from the end must not be one of the columns before it.
    needed = last + 1 + (columns.label is not None and columns.label < 0)
    labels = processor.get_labels()
    stand_in = stand_in_label(processor)
    examples = []
    short = []
    empty = None
    for i, row in rows:
        if not row:
            empty = i
            continue
        if refuse_empty_rows and empty is not None:
            raise UserError(
                f"{path}, line {empty + 1}: the line is empty, and examples follow, whose "
                "predictions are numbered by their lines; delete it, or put its example there"
            )
        if len(row) < needed:
            if not skip_short_rows:
                raise UserError(
                    f"{path}, line {i + 1}: a column is missing: there are {len(row)}, and at "
                    f"least {needed} are due. The line begins {chr(9).join(row)[:60]!r}; mend or "
                    "delete it"
                )
            short.append(i + 1)
            continue
        label = stand_in
        if columns.label is not None:
            place = f"{path}, line {i + 1}"
            label = parse_label(row[columns.label], labels, processor.label_range, place)
        examples.append(
            InputExample(
                guid=f"{guid_name}-{i if columns.guid is None else row[columns.guid]}",
                text_a=row[columns.text_a],
                text_b=None if columns.text_b is None else row[columns.text_b],
                label=label,
            )
        )
    if short:
        logging.warning(
            "%s: lines left out because they have fewer than %d columns: %d, the first is line %d",
            *(path, needed, len(short), short[0]),
        )
    if not examples:
        raise UserError(f"{path} holds no example; it must hold one a line, after a header if any")
    return examples


def parse_label(
    text: str, labels: Sequence[str] | None, bounds: tuple[float, float] | None, place: str
) -> str | float:
    """Returns the label that `text` stands for.

    Args:
        text: the label as the file has it.
        labels: the classes it may be; None for a number.
        bounds: the least and the greatest number, if there are any.
        place: file and line, for messages.

    Raises:
        UserError: `text` is no valid label.
    """
    if labels is not None:
        if text in labels:
            return text
        valid = f"one of {shown(labels)}"
    else:
        low, high = bounds or (-math.inf, math.inf)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and low <= value <= high:
            return value
        valid = f"a number from {low:g} to {high:g}" if bounds else "a number"
    hint = "correct or delete the line"
    if place.endswith(", line 1"):
        hint += ", which must not be there if it is a header: this file has none"
    raise UserError(f"{place}: label {text!r} must be {valid}; {hint}")


def stand_in_label(processor: DataProcessor) -> str | float:
    """Returns the label of examples without one: the first, as in the original."""
    labels = processor.get_labels()
    return labels[0] if labels else (processor.label_range or (0.0, 0.0))[0]


def shown(values: Iterable[str]) -> str:
    """Returns at most ten of the values in one line, for messages."""
    values = [repr(value) for value in values]
    return ", ".join(values[:10]) + (", ..." if len(values) > 10 else "")


def contents(folder: str) -> str:
    """Returns what a folder holds, for messages."""
    if not tf.io.gfile.isdir(folder):
        return f"there is no folder {folder}"
    return f"{folder} holds {shown(sorted(tf.io.gfile.listdir(folder))) or 'nothing'}"


def _check_header(
    row: Sequence[str], path: str, columns: Columns, labels: Sequence[str] | None
) -> None:
    """Raises if the first row is an example: with a label, or, without labels, with an index."""
    column = 0 if columns.label is None else columns.label
    cell = row[column] if -len(row) <= column < len(row) else ""
    if columns.label is not None and labels is not None:
        is_example = cell in labels
    else:
        is_example = re.fullmatch(r"\d+(\.\d*)?", cell) is not None
    if is_example:
        raise UserError(
            f"{path}, line 1: the line must be a header, which is passed over, but it looks like "
            f"an example ({cell!r} in column {column % len(row)}, counted from 0); put a line with "
            "the columns' names before it"
        )
