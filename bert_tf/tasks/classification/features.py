"""Converts examples to records: [CLS] text_a [SEP] text_b [SEP], and the label."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError, listed, percent, quoted
from bert_tf.files import records
from bert_tf.tasks.classification.examples import InputExample, as_labels
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.text import sequences
from bert_tf.text.sequences import split_pair
from bert_tf.text.tokenizers import Tokenizer


def classification_schema(
    max_seq_length: int, regression: bool, weighted: bool = False, num_labels: int | None = None
) -> records.Schema:
    """Returns the schema of classification records.

    `label_ids` is the index of a class, int64, or a float32 value for regression. If a text can
    have several of `num_labels` labels, unlike in the original, it is an int64 vector of that
    length, 1 for each label that the text has. `is_real_example` is 1, or 0 for padding at the end
    of files that the original wrote for TPUs. `weighted` records also have `example_weight`,
    float32. Names and types: the original's `file_based_convert_examples_to_features`.
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


class ClassificationEncoder(ExampleEncoder):
    """Turns an example into one record, or into one for each window of a long text.

    Without a `stride`, records and log lines match the original's
    `file_based_convert_examples_to_features`, and long texts are truncated at their ends. With
    one, see `split_pair`, records have the weight 1 / windows, so that every example counts once.
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
        self._stride = stride
        self.weighted = weighted
        self.num_windows: list[int] = []
        self._num_pieces = self._num_lost = 0

    def texts(self, example: InputExample) -> list[str]:
        return [example.text_a, *([] if example.text_b is None else [example.text_b])]

    def length_needed(self, ids: list[list[int]]) -> int:
        if self._stride is not None:
            return 0  # nothing is left out
        return sequences.packed_length(*sequences.as_pair(ids), self.tokenizer.layout)

    def records(self, example: InputExample, ids: list[list[int]]) -> list[Record]:
        length, layout, pair = self.max_seq_length, self.tokenizer.layout, sequences.as_pair(ids)
        labels = {"label_ids": self._label_values(example), "is_real_example": [1]}
        weight = example.weight if self.weighted else 1.0
        if self._stride is None:
            if self.weighted:
                labels["example_weight"] = [weight]
            self._num_pieces += sum(map(len, ids))
            self._num_lost += max(sequences.packed_length(*pair, layout) - length, 0)
            return [{**sequences.truncate_and_pack(*pair, length, layout), **labels}]
        windows = split_pair(*pair, length, self._stride, layout, f"Example {quoted(example.guid)}")
        self.num_windows.append(len(windows))
        labels["example_weight"] = [weight / len(windows)]
        return [{**sequences.pack_pair(*window, length, layout), **labels} for window in windows]

    def about_cut(self, longest: int) -> str:
        share = percent(self._num_lost, self._num_pieces)
        lost = f"{share} of all word pieces are lost; --long_text=mean reads all of them"
        return f"{super().about_cut(longest)}. {lost}"

    def _label_values(self, example: InputExample) -> list[int] | list[float]:
        if self._label_ids is None:
            return [float(example.label)]
        if not self._multi_label:
            return [self._label_id(example.label, example)]
        ids = {self._label_id(label, example) for label in as_labels(example.label)}
        return [int(i in ids) for i in range(len(self._label_ids))]

    def _label_id(self, label: Any, example: InputExample) -> int:
        if label not in self._label_ids:
            raise UserError(
                f"Example {quoted(example.guid)}: label {quoted(label)} must be one of"
                f" {listed(self._label_ids)}; change the label, or what get_labels of the task's"
                " processor returns"
            )
        return self._label_ids[label]

    def describe(self, example: InputExample, record: Mapping[str, list]) -> Iterator[str]:
        yield f"guid: {example.guid}"
        yield from super().describe(example, record)
        for name in ("input_ids", "input_mask", "segment_ids"):
            yield f"{name}: {' '.join(map(str, record[name]))}"
        if self._multi_label:
            yield f"labels: {listed(as_labels(example.label)) or 'none'} ({record['label_ids']})"
        else:
            yield f"label: {example.label} (id = {record['label_ids'][0]})"
