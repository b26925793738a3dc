"""Classification examples, their labels, and the base class of the processors that read them."""

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.datasets.tables import check_filled, number_in
from bert_tf.errors import UserError, listed, percent, quoted
from bert_tf.files import records
from bert_tf.files.records import LARGEST_TARGET
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.example_records import PairEncoder, Record
from bert_tf.text.base_tokenizer import Tokenizer


@dataclasses.dataclass(slots=True)
class InputExample:
    """A text, or a pair of texts, to classify.

    The label is the name of the class, or a number for regression. If a text can have several
    labels, it is a list or tuple of their names, such as ("PER", "LOC"), or () for none.
    Predictions ignore the label of a test example, but it must be valid.
    """

    guid: str  # a name that is unique in the set of examples
    text_a: str
    text_b: str | None = None
    label: str | float | Sequence[str] | None = None
    # The label of a test example, if its file has labels; tables of predictions show it.
    known_label: str | float | tuple[str, ...] | None = None
    group: str | None = None  # such as the query of a passage, if results are ranked
    weight: float | None = None  # in losses and metrics, at least 0; None for 1
    fold_group: str | None = None  # a fold has all examples of a group or none


class DataProcessor:
    """Reads the examples of a task, and knows its labels and metrics.

    Processors written for the original work unchanged: only `get_labels` and the
    `get_..._examples` of the sets in use are required. A set is "train", "dev" or "test".
    """

    labels: Sequence[str] | None = None  # in the order of the logits; None for regression
    multi_label: bool = False  # whether a text can have several labels, in a tuple, or none
    label_separator: str = TableColumns.label_separator  # between the labels in a cell of a table
    label_range: tuple[float, float] | None = None  # lowest and highest label of a regression
    metrics: tuple[str, ...] = ("accuracy",)  # names in `scores.METRICS`
    best_metric: str = "eval_accuracy"  # ranks checkpoints and runs; higher is better
    submission_file: str | None = None  # of the test predictions; None outside of GLUE
    # Tasks with the same labels whose dev and test sets, where they exist, are evaluated and
    # predicted as well. The names of their files and results end in `_KEY`.
    also: Mapping[str, "DataProcessor"] = {}
    # TensorFlow Datasets splits for each set; the first that exists is read.
    tfds_splits: Mapping[str, tuple[str, ...]] = {
        "train": ("train",),
        "dev": ("validation",),
        "test": ("test",),
    }

    @classmethod
    def create(cls, columns: TableColumns, data_dir: str, language: str) -> "DataProcessor":
        """Returns the processor of a run; for the arguments see `processors.get_processor`."""
        return cls()

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        return self.read("train", data_dir)

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return self.read("dev", data_dir)

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        return self.read("test", data_dir)

    def get_labels(self) -> list[str] | None:
        """Returns the names of the classes in the order of the logits; None for regression."""
        return None if self.labels is None else list(self.labels)

    def has(self, split: str, data_dir: str) -> bool:
        raise NotImplementedError

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        raise NotImplementedError


def parse_label(
    text: str, processor: DataProcessor, place: str, remedy: str
) -> str | float | tuple[str, ...]:
    """Parses a label; if it is not valid, the error names `place` (file and line) and `remedy`."""
    labels = processor.get_labels()
    if labels is None:
        low, high = processor.label_range or (-LARGEST_TARGET, LARGEST_TARGET)
        value = number_in(text)
        if low <= value <= high:
            return value
        has_bounds = processor.label_range or not math.isnan(value)
        wrong, valid = text, "a number" + (f" from {low:g} to {high:g}" if has_bounds else "")
    elif processor.multi_label:
        names = split_labels(text, processor.label_separator, place, remedy)
        if {*names} <= {*labels}:
            return tuple(label for label in labels if label in names)
        wrong = next(name for name in names if name not in labels)
        several = f"with --label_separator={processor.label_separator} between several"
        valid = f"one of {listed(labels)}, {several}"
    elif text in labels:
        return text
    else:
        wrong, valid = text, f"one of {listed(labels)}"
    check_filled(wrong, place)
    raise UserError(f"{place}: label {quoted(wrong)} must be {valid}; {remedy}")


def default_label(processor: DataProcessor) -> str | float | tuple[str, ...]:
    """Returns the label of test examples: the first, as in the original; () for several labels."""
    if processor.multi_label:
        return ()
    labels = processor.get_labels()
    return labels[0] if labels else (processor.label_range or (0.0, 0.0))[0]


def in_both_orders(examples: Sequence[InputExample]) -> list[InputExample]:
    """Returns the examples, followed by copies with the two texts exchanged."""
    swapped = []
    for example in examples:
        if not example.text_b:
            raise UserError(
                f"--double_unordered needs pairs of texts; example {quoted(example.guid)} has one"
                " text. Leave --double_unordered out"
            )
        texts = {"text_a": example.text_b, "text_b": example.text_a}
        swapped.append(_changed(example, guid=f"{example.guid}-swapped", **texts))
    return [*examples, *swapped]


def scaled(examples: Sequence[InputExample], scale: float) -> list[InputExample]:
    """Divides a regression's labels by `scale`; leaves other labels for the encoder to report."""
    if scale == 1.0:
        return list(examples)

    def divided(example: InputExample) -> InputExample:
        found = {}
        for name in ("label", "known_label"):
            with contextlib.suppress(AttributeError, TypeError, ValueError):
                found[name] = float(getattr(example, name)) / scale
        return _changed(example, **found)

    return [divided(example) for example in examples]


def _changed(example: InputExample, **changes: Any) -> InputExample:
    found = copy.copy(example)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def split_labels(cell: str, separator: str, place: str, remedy: str) -> list[str]:
    """Splits a cell into labels, stripped of white space; an empty cell has none."""
    names = [name.strip() for name in cell.split(separator)] if cell.strip() else []
    remedy = remedy[:1].upper() + remedy[1:]
    if "" in names:
        raise UserError(
            f"{place}: {quoted(cell)} has an empty label; --label_separator={separator} must stand"
            f" between two labels, and a cell without labels must be empty. {remedy}"
        )
    if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise UserError(f"{place}: {quoted(cell)} has the label {quoted(twice)} twice. {remedy}")
    return names


def as_labels(label: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the labels of an example: one name, several, or none."""
    if label is None:
        return ()
    return (label,) if isinstance(label, str) else tuple(label)


def classification_schema(
    max_seq_length: int, regression: bool, weighted: bool = False, num_labels: int | None = None
) -> records.Schema:
    """Returns the schema of classification records.

    `label_ids` is the index of a class, int64, or a float32 value for regression. If a text can
    have several labels, unlike in the original, `label_ids` is an int64 vector [num_labels], 1 for
    each label that the text has. `is_real_example` is 1, or 0 for padding at the end of files that
    the original wrote for TPUs. `weighted` records also have `example_weight`, float32. Otherwise,
    names and types are as in the original's `file_based_convert_examples_to_features`.
    """
    label_ids = records.int64_feature([], low=0)
    if regression:
        label_ids = records.target_feature()
    elif num_labels is not None:
        label_ids = records.int64_feature([num_labels], low=0, high=1)
    weights = {"example_weight": records.float_feature([], low=0.0)} if weighted else {}
    return {
        **records.model_inputs([max_seq_length]),
        "label_ids": label_ids,
        "is_real_example": records.int64_feature([], low=0, high=1),
        **weights,
    }


class ClassificationEncoder(PairEncoder):
    """Turns an example into one record, or into one for each window of a long text.

    Without a `stride`, records and log lines match the original's
    `file_based_convert_examples_to_features`, and long texts are truncated at their ends. With a
    stride (see `split_pair`), records have the weight 1 / windows, so that examples count the same.
    `weighted` records also have the weights of their examples. `label_list` has the classes in the
    order of the logits; None for regression. `num_windows`: number of records of each example.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_seq_length: int,
        label_list: Sequence[str] | None,
        stride: int | None = None,
        weighted: bool = False,
        multi_label: bool = False,
    ):
        tokenizer.layout.check_length(max_seq_length, 1)
        schema = classification_schema(
            max_seq_length,
            label_list is None,
            weighted or stride is not None,
            num_labels=len(label_list) if label_list and multi_label else None,
        )
        super().__init__(tokenizer, max_seq_length, schema)
        self._label_ids = label_list and {name: i for i, name in enumerate(label_list)}
        self._multi_label = multi_label
        self.stride = stride
        self.weighted = weighted
        self.num_windows: list[int] = []
        self._num_pieces = self._num_lost = 0

    def texts(self, example: InputExample) -> list[str]:
        return [example.text_a, *([] if example.text_b is None else [example.text_b])]

    def records(self, example: InputExample, ids: list[list[int]]) -> list[Record]:
        inputs = self.inputs(ids, f"Example {quoted(example.guid)}")
        labels = {"label_ids": self._label_values(example), "is_real_example": [1]}
        weight = example.weight if self.weighted else 1.0
        if self.stride is not None:
            self.num_windows.append(len(inputs))
        else:
            self._num_pieces += sum(map(len, ids))
            self._num_lost += max(self.length_needed(ids) - self.max_seq_length, 0)
        if self.weighted or self.stride is not None:
            labels["example_weight"] = [weight / len(inputs)]
        return [{**values, **labels} for values in inputs]

    def about_cut(self, longest: int) -> str:
        share = percent(self._num_lost, self._num_pieces)
        lost = f"{share} of all word pieces are lost; --long_text=mean reads all of them"
        return f"{super().about_cut(longest)}. {lost}"

    def _label_values(self, example: InputExample) -> list[int] | list[float]:
        if self._label_ids is None:
            return [float(example.label)]
        if not self._multi_label:
            return [self._label_ids[example.label]]
        ids = {self._label_ids[label] for label in as_labels(example.label)}
        return [int(i in ids) for i in range(len(self._label_ids))]

    def describe(self, example: InputExample, record: Mapping[str, list]) -> Iterator[str]:
        yield f"guid: {example.guid}"
        yield from super().describe(example, record)
        for name in ("input_ids", "input_mask", "segment_ids"):
            yield f"{name}: {' '.join(map(str, record[name]))}"
        if self._multi_label:
            yield f"labels: {listed(as_labels(example.label)) or 'none'} ({record['label_ids']})"
        else:
            yield f"label: {example.label} (id = {record['label_ids'][0]})"
