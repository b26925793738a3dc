"""SWAG's files: a sentence, the beginning of the next, and four ways it may end."""

import csv
import dataclasses
import io

from bert_tf.errors import UserError
from bert_tf.files import whole_files
from bert_tf.tasks.multiple_choice.schema import NUM_CHOICES

_ENDINGS = [f"ending{i}" for i in range(NUM_CHOICES)]


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked: which of the endings goes on with `beginning` after `context`.

    context: a whole sentence, `sent1` of the file.
    beginning: the first words of the next one, `sent2`.
    endings: NUM_CHOICES texts.
    label: the number of the right one, from 0; None in a test file.
    """

    context: str
    beginning: str
    endings: list[str]
    label: int | None


def read_questions(path: str, labelled: bool) -> list[Question]:
    """Returns the questions of train.csv, val.csv or test.csv in their order.

    Args:
        path: a UTF-8 file of columns with commas between them, whose first line names the columns:
            sent1, sent2, ending0 to ending3 and label; others are not read.
        labelled: whether there must be a label. Else it is not looked at.

    Raises:
        UserError: the file cannot be read, is empty, lacks a column, or a row has other columns
            or an unknown label.
    """
    text = whole_files.read_text(
        path, path, "--data_dir must name a folder with SWAG's train.csv, val.csv and test.csv"
    )
    if not text.strip():
        raise UserError(f"{path} is empty; it must hold a line of column names and questions")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    needed = ["sent1", "sent2", *_ENDINGS, *(["label"] if labelled else [])]
    questions = []
    try:
        names = reader.fieldnames or []
        missing = [name for name in needed if name not in names]
        if missing:
            raise UserError(
                f"{path}: the first line must name the columns {', '.join(needed)}; it lacks"
                f" {', '.join(missing)} and has {', '.join(names) or 'none'}. Take SWAG's csv files"
                " with four endings"
            )
        for row in reader:
            if None in row or None in row.values():
                raise UserError(
                    f"{path}, line {reader.line_num}: each row must have {len(names)} columns;"
                    " this one has more or fewer. Put quotes around texts with commas"
                )
            questions.append(_question(row, labelled, f"{path}, line {reader.line_num}"))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}; mend its quotes") from error
    if not questions:
        raise UserError(f"{path} holds no question below its first line; --data_dir needs some")
    return questions


def _question(row: dict[str, str], labelled: bool, place: str) -> Question:
    label = None
    if labelled:
        if row["label"] not in map(str, range(NUM_CHOICES)):
            raise UserError(
                f"{place}: the label is the number of the right ending, from 0 to"
                f" {NUM_CHOICES - 1}; got {row['label']!r}"
            )
        label = int(row["label"])
    return Question(row["sent1"], row["sent2"], [row[name] for name in _ENDINGS], label)
