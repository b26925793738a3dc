"""Fuzzes tables: classification's .csv and .tsv files, and multiple choice's .csv files."""

import csv
import io
import random
from pathlib import Path

from bert_tf.files.model_notes import labels_in, write_labels
from bert_tf.tasks.classification.processors import get_processor
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.multiple_choice.data import read_questions
from tests.fuzz.cases import attempt, damage

_CELLS = (
    *("a", "good text", "it's, well", 'say "yes"', "two\nlines", "\n", "", " ", " a ", "é 鶴 👍"),
    *("\0", "\x85", "\u2028", "\ufeff", "=1+1", "#", "'", '"', ";", "|", "\x1c", "x" * 3000),
)
_LABELS = ["0", "1", "2", "-1", "10", "yes", "no", "1 ", "", "a\nb", "\u2028"]
_LABELS += ["x" * 3000, "³", "1" * 5000]
_SWAG = ["sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"]


def _table(random: random.Random, header: list[str], labels: list[str]) -> list[list[str]]:
    rows = [
        [random.choice(labels) if name == "label" else random.choice(_CELLS) for name in header]
        for _ in range(random.randrange(9))
    ]
    if rows and random.random() < 0.2:  # a missing or an additional cell, or an empty line
        row = random.choice(rows)
        row[:] = random.choice([row[:-1], [*row, "more"], []])
    if random.random() < 0.1:
        header[random.randrange(len(header))] = random.choice(["text", "other", ""])
    return rows


def _csv(rows: list[list[str]], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue()


def fuzz_csv_tables(random: random.Random, folder: Path) -> None:
    delimiter = random.choice([",", ",", ";", "|", " "])
    labels = random.sample(_LABELS[:6] if random.random() < 0.7 else _LABELS, 3)
    header = ["id", "text", "label"]
    rows = [header, *_table(random, header, labels)]
    data = random.choice([b"", b"\xef\xbb\xbf"]) + _csv(rows, delimiter).encode()
    damaged = random.random() < 0.2
    data = damage(random, data) if damaged else data
    (folder / "train.csv").write_bytes(data)
    columns = TableColumns(
        text_a_column="text",
        label_column="label",
        delimiter=None if delimiter == "," else delimiter,
        regression=random.random() < 0.3,
    )

    def read() -> tuple[list[str] | None, list]:
        processor = get_processor("table", str(folder), columns=columns)
        return processor.get_labels(), processor.get_train_examples(str(folder))

    message, found = attempt(read)
    if message is not None:
        return
    classes, examples = found
    if not damaged:
        wanted = [row for row in rows[1:] if row]
        assert [(e.text_a, str(e.label)) for e in examples] == [
            (row[1].replace("\r", ""), str(float(row[2])) if columns.regression else row[2])
            for row in wanted
        ]
        if not columns.regression:
            assert set(classes) == {row[2] for row in wanted}
    # What is accepted once is accepted again, from labels.txt.
    write_labels(str(folder), classes or ())
    assert labels_in(str(folder)) == (classes or [])


def fuzz_tsv_tables(random: random.Random, folder: Path) -> None:
    """The reader of GLUE's files, in which quotes are characters like any other."""
    cells = [cell for cell in _CELLS if "\n" not in cell]
    rows = [
        [random.choice(cells), random.choice(["0", "1", "1", "0", "2"][: random.choice([4, 5])])]
        for _ in range(random.randint(1, 6))
    ]
    text = "\n".join("\t".join(row) for row in [["sentence", "label"], *rows])
    data = (text + random.choice(["", "\n"])).encode()
    damaged = random.random() < 0.3
    data = damage(random, data) if damaged else data
    (folder / "train.tsv").write_bytes(data.replace(b"\n", random.choice([b"\n", b"\r\n"])))
    message, read = attempt(
        lambda: get_processor("SST-2").get_train_examples(str(folder)), naming=str(folder)
    )
    if not damaged:
        assert (message is None) == all(row[1] in "01" for row in rows), message
        assert message or [[e.text_a, e.label] for e in read] == rows


def fuzz_multiple_choice_tables(random: random.Random, folder: Path) -> None:
    header = random.sample([*_SWAG, "id"], len(_SWAG) + 1)
    rows = [header, *_table(random, header, ["0", "1", "2", "3"])]
    if random.random() < 0.1:
        random.choice(rows)[:1] = ["7"]
    data = random.choice([b"", b"\xef\xbb\xbf"]) + _csv(rows, ",").encode()
    damaged = random.random() < 0.3
    path = folder / "train.csv"
    path.write_bytes(damage(random, data) if damaged else data)
    message, read = attempt(lambda: read_questions(str(path), True), naming=str(path))
    if message is None and not damaged:
        wanted = [dict(zip(header, row, strict=True)) for row in rows[1:] if row]
        assert [[q.context, q.beginning, *q.endings, str(q.label)] for q in read] == [
            [row[name] for name in _SWAG] for row in wanted
        ]
