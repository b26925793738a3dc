"""Reads SWAG's files: a sentence, the beginning of the next one, and four possible endings."""

import csv
import dataclasses
import io
import sys

from bert_tf.datasets.tables import check_filled, place_of
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import whole_files
from bert_tf.tasks.multiple_choice.schema import NUM_CHOICES

_ENDINGS = [f"ending{i}" for i in range(NUM_CHOICES)]


@dataclasses.dataclass(frozen=True)
class Question:
    """A question: which of NUM_CHOICES endings continues `beginning` after `context`?"""

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

    Raises:
        UserError: the file cannot be read, has no questions, or lacks a column; or a row has too
            many or too few columns or an invalid label.
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
    """Returns the label that a file has as `text`; `place` is file and line, for messages."""
    check_filled(text, place)
    if text not in map(str, range(NUM_CHOICES)):
        raise UserError(
            f"{place}: the label must be the number of the correct ending, from 0 to"
            f" {NUM_CHOICES - 1}; got {quoted(text)}. Correct or delete the line"
        )
    return int(text)
