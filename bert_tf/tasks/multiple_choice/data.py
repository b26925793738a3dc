"""Converts questions to records: for each choice [CLS] context [SEP] beginning ending [SEP]."""

from collections.abc import Iterator, Mapping

from bert_tf.errors import UserError
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.tasks.multiple_choice.schema import multiple_choice_schema
from bert_tf.tasks.multiple_choice.swag import Question
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer


class QuestionEncoder(ExampleEncoder):
    """Turns a question into one record; a question without a label gets label 0.

    If a pair is too long, the longer text is truncated at its end, one token at a time. Raises
    UserError if `max_seq_length` is too small for a pair.
    """

    unit = "questions"

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        least = tokenizer.layout.num_special(is_pair=True) + 2
        if max_seq_length < least:
            raise UserError(
                f"--max_seq_length must be at least {least}, for the special tokens of a pair and"
                f" one token of each text; got {max_seq_length}"
            )
        super().__init__(tokenizer, max_seq_length, multiple_choice_schema(max_seq_length))

    def texts(self, example: Question) -> list[str]:
        return [example.context, *(f"{example.beginning} {x}" for x in example.endings)]

    def length_needed(self, ids: list[list[int]]) -> int:
        context, *choices = ids
        layout = self.tokenizer.layout
        return max(sequences.packed_length(context, choice, layout) for choice in choices)

    def records(self, example: Question, ids: list[list[int]]) -> list[Record]:
        context, *choices = ids
        packed = [
            sequences.truncate_and_pack(context, choice, self.max_seq_length, self.tokenizer.layout)
            for choice in choices
        ]
        return [{**sequences.stack(packed), "label_ids": [example.label or 0]}]

    def describe(self, example: Question, record: Mapping[str, list]) -> Iterator[str]:
        yield from super().describe(example, record)
        yield f"label: {record['label_ids'][0]}"
