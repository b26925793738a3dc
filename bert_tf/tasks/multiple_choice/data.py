"""Multiple choice: SWAG's files, and the records of questions."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.datasets import tables
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import records
from bert_tf.tasks.arguments import is_list, received
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.tasks.rows import Rows, check_there, decimals, read_rows
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer

NUM_CHOICES = 4  # in SWAG
_ENDINGS = [f"ending{i}" for i in range(NUM_CHOICES)]


def multiple_choice_schema(max_seq_length: int, num_choices: int) -> records.Schema:
    """Returns the schema of multiple choice records; `label_ids`: the index of the right choice."""
    return {
        **records.model_inputs([num_choices, max_seq_length]),
        "label_ids": records.int64_feature([], low=0, high=num_choices - 1),
    }


@dataclasses.dataclass(frozen=True)
class Question:
    """A question: which of the endings continues `beginning` after `context`?"""

    context: str  # a sentence, `sent1` of the file
    beginning: str  # the first words of the next sentence, `sent2`
    endings: list[str]
    label: int | None  # the number of the correct ending, from 0; None in a test file


def read_questions(path: str, labelled: bool) -> list[Question]:
    """Reads a csv file with columns sent1, sent2, ending0 to ending3 and, if `labelled`, label."""
    place = tables.place_of(path)
    rows = tables.read_table(path, ",", has_header=True, advice="")
    names = rows[0][1]
    needed = ["sent1", "sent2", *_ENDINGS, *(["label"] if labelled else [])]
    if missing := [name for name in needed if name not in names]:
        raise UserError(
            f"{place}: the first line must name the columns {', '.join(needed)}, with commas"
            f" between them; it lacks {listed(missing)} and has {listed(names)}."
            " --data_dir must be a folder with SWAG's csv files with four endings"
        )
    if repeated := [name for name in needed if names.count(name) > 1]:
        raise UserError(
            f"{place}: the first line must name each column once; it names {listed(repeated)}"
            " more than once. Rename the duplicates"
        )
    questions = []
    for _, line, row in tables.examples(rows[1:], path, len(names), has_header=True):
        context, beginning, *endings = (row[names.index(name)] for name in needed)
        label = _label(endings.pop(), line) if labelled else None
        questions.append(Question(context, beginning, endings, label))
    return questions


def _label(text: str, place: str) -> int:
    tables.check_filled(text, place)
    if text not in map(str, range(NUM_CHOICES)):
        raise UserError(
            f"{place}: the label must be the number of the correct ending, from 0 to"
            f" {NUM_CHOICES - 1}; got {quoted(text)}. Correct or delete the line"
        )
    return int(text)


class QuestionEncoder(ExampleEncoder):
    """Turns a question with `num_choices` endings into one record; an unknown label becomes 0.

    If a pair is too long, the longer text is truncated at its end, one token at a time.
    """

    unit = "questions"

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, num_choices: int):
        tokenizer.layout.check_length(max_seq_length, 2)
        schema = multiple_choice_schema(max_seq_length, num_choices)
        super().__init__(tokenizer, max_seq_length, schema)

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


class MultipleChoiceRows(Rows):
    """Rows of x: (text, choices), or (text, the common beginning of the choices, choices)."""

    task = "multiple_choice"
    head = "multiple_choice"
    inputs, targets = "questions", "labels"

    def examples(self, purpose: str, x: Any, y: Any = None, weights: Any = None) -> list[Question]:
        inputs, targets = self.names(purpose)
        rows, labels, weights = read_rows(x, y, weights, inputs, targets, purpose != "predict")
        self.no_weights(weights)
        questions: list[Question] = []
        for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
            is_row = isinstance(row, tuple | list) and len(row) in (2, 3)
            text, *beginning, choices = row if is_row else ("", ())
            choices = [*choices] if is_list(choices) else []
            texts = [text, *beginning, *choices]
            if len(choices) < 2 or not all(isinstance(x, str) for x in texts):
                raise UserError(
                    f"{inputs}[{i}] must be (text, [two choices or more]), or (text, beginning of"
                    f" the choices, [two choices or more]); {received(row)}"
                )
            if questions and len(choices) != len(questions[0].endings):
                raise UserError(
                    f"{inputs} must all have the same number of choices; {inputs}[0] has"
                    f" {len(questions[0].endings)}, and {inputs}[{i}] has {len(choices)}"
                )
            if purpose != "predict":
                check_there(label, f"{targets}[{i}]")
                if label not in range(len(choices)):
                    raise UserError(
                        f"{targets}[{i}] must be the number of the right choice, from 0 to"
                        f" {len(choices) - 1}; {received(label)}"
                    )
                label = int(label)
            questions.append(Question(text, "".join(beginning), choices, label))
        return questions

    def answers(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        return decimals(outputs)
