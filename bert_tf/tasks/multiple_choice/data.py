"""Multiple choice: SWAG's files, and the records of questions."""

import csv
import dataclasses
import io
import sys
from collections.abc import Iterator, Mapping

from bert_tf.datasets.tables import check_filled, place_of
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import records, whole_files
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer

NUM_CHOICES = 4  # of SWAG
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
    """Returns the questions of train.csv, val.csv or test.csv, in order.

    The file is UTF-8 with comma-separated columns. Its first line names them: sent1, sent2, ending0
    to ending3 and label; other columns are ignored.

    Args:
        labelled: whether each question must have a label; if not, labels are ignored.
    """
    file = place_of(path)
    text = whole_files.read_text(
        path, file, "--data_dir must be a folder with SWAG's train.csv, val.csv and test.csv"
    )
    if not text.strip():
        raise UserError(f"{file} is empty; it must have a line with column names, and questions")
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 is too small for whole documents
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    needed = ["sent1", "sent2", *_ENDINGS, *(["label"] if labelled else [])]
    questions = []
    try:
        names = reader.fieldnames or []
        missing = [name for name in needed if name not in names]
        if missing:
            raise UserError(
                f"{file}: the first line must name the columns {', '.join(needed)}, with commas"
                f" between them; it lacks {listed(missing)} and has {listed(names) or 'none'}."
                " --data_dir must be a folder with SWAG's csv files with four endings"
            )
        repeated = [name for name in needed if names.count(name) > 1]
        if repeated:
            raise UserError(
                f"{file}: the first line must name each column once; it names {listed(repeated)}"
                " more than once. Rename the duplicates"
            )
        for row in reader:
            place = f"{file}, line {reader.line_num}"
            if None in row or None in row.values():
                raise UserError(
                    f"{place}: the row must have {len(names)} columns, like the first line; it has"
                    " more or fewer. Put quotes around texts with commas"
                )
            label = _label(row["label"], place) if labelled else None
            endings = [row[name] for name in _ENDINGS]
            questions.append(Question(row["sent1"], row["sent2"], endings, label))
    except csv.Error as error:
        raise UserError(f"{file}, line {reader.line_num}: {error}; correct its quotes") from error
    if not questions:
        raise UserError(f"{file} has no questions; it must have one on each line after the first")
    return questions


def _label(text: str, place: str) -> int:
    check_filled(text, place)
    if text not in map(str, range(NUM_CHOICES)):
        raise UserError(
            f"{place}: the label must be the number of the correct ending, from 0 to"
            f" {NUM_CHOICES - 1}; got {quoted(text)}. Correct or delete the line"
        )
    return int(text)


class QuestionEncoder(ExampleEncoder):
    """Turns a question into one record; a question without a label gets label 0.

    Every question has `num_choices` endings. If a pair is too long, the longer text is truncated at
    its end, one token at a time. Raises UserError if `max_seq_length` is too small for a pair.
    """

    unit = "questions"

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, num_choices: int):
        least = tokenizer.layout.num_special(is_pair=True) + 2
        if max_seq_length < least:
            raise UserError(
                f"--max_seq_length must be at least {least}, for the special tokens of a pair and"
                f" one token of each text; got {max_seq_length}"
            )
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
