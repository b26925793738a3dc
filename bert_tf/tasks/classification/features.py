"""Converts examples to records: [CLS] text_a [SEP] text_b [SEP], and the label."""

from collections.abc import Iterator, Mapping, Sequence

from bert_tf.errors import UserError, listed, quoted
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.schema import classification_schema
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer


class ClassificationEncoder(ExampleEncoder):
    """Turns an example into one record.

    Records and log lines match the original's `file_based_convert_examples_to_features`.
    Texts that are too long are truncated at their ends. `label_list` has the classes in the order
    of the logits; None for regression. Raises UserError if `max_seq_length` has no room for a pair.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, label_list: Sequence[str] | None):
        least = tokenizer.layout.num_special(is_pair=True) + 1
        if max_seq_length < least:
            raise UserError(
                f"--max_seq_length must be at least {least}, for the special tokens of a pair and"
                f" one token of the text; got {max_seq_length}"
            )
        schema = classification_schema(max_seq_length, regression=label_list is None)
        super().__init__(tokenizer, max_seq_length, schema)
        self._label_ids = label_list and {name: i for i, name in enumerate(label_list)}

    def texts(self, example: InputExample) -> list[str]:
        return [example.text_a, example.text_b or ""]

    def length_needed(self, ids: list[list[int]]) -> int:
        return sequences.packed_length(*ids, self.tokenizer.layout)

    def records(self, example: InputExample, ids: list[list[int]]) -> list[Record]:
        # A second text without tokens is left out, as in the original.
        values = sequences.truncate_and_pack(*ids, self.max_seq_length, self.tokenizer.layout)
        return [{**values, "label_ids": [self._label(example)], "is_real_example": [1]}]

    def _label(self, example: InputExample) -> int | float:
        if self._label_ids is None:
            return float(example.label)
        if example.label not in self._label_ids:
            raise UserError(
                f"Example {quoted(example.guid)}: label {quoted(example.label)} must be one of"
                f" {listed(self._label_ids)}; change the label, or what get_labels of the task's"
                " processor returns"
            )
        return self._label_ids[example.label]

    def describe(self, example: InputExample, record: Mapping[str, list]) -> Iterator[str]:
        yield f"guid: {example.guid}"
        yield from super().describe(example, record)
        for name in ("input_ids", "input_mask", "segment_ids"):
            yield f"{name}: {' '.join(map(str, record[name]))}"
        yield f"label: {example.label} (id = {record['label_ids'][0]})"
