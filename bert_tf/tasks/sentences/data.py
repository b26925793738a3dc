"""Reads single texts, pairs and triplets from tables, and turns them into records."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bert_tf.datasets import tables
from bert_tf.errors import UserError, quoted
from bert_tf.files.records import LARGEST_TARGET
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.tasks.sentences.schema import IN_BATCH_NEGATIVES, sentences_schema
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class Sentences:
    """One text, a pair, or three texts of which the third means something else."""

    texts: tuple[str, ...]
    score: float = 0.0  # how similar a pair is in meaning; 0 if unknown


def read_sentences(
    path: str,
    columns: Mapping[str, str | None],
    has_header: bool,
    delimiter: str | None,
    needed_by: str,
    score_scale: float | None = None,
    refuse_empty: bool = False,
    unread_scores: str | None = None,
    loss: str = IN_BATCH_NEGATIVES,
) -> list[Sentences]:
    """Reads the sentences of a table's rows.

    `columns` are names of columns by their flags (`text_a_column`, `text_b_column`,
    `negative_column`, `label_column`). Scores are between -score_scale and score_scale; None for no
    bounds. An empty row before an example is skipped, or an error if `refuse_empty`.
    `unread_scores` is a column with scores that `loss` does not read; see `check_unread_scores`.
    """
    rows = tables.read_table(path, delimiter, has_header)
    are_unread = unread_scores in tables.column_names(rows, has_header)
    if are_unread:
        columns = {**columns, "label_column": unread_scores}
    numbers = tables.column_numbers(rows, path, has_header, columns, needed_by)
    label = numbers.pop("label_column", None)
    needed = 1 + max(label or 0, *numbers.values())
    found = []
    for _, place, row in tables.examples(
        rows[has_header:], path, needed, has_header, refuse_empty=refuse_empty
    ):
        score = 0.0 if label is None else _score(row[label], score_scale, place)
        texts = tuple(row[number] for number in numbers.values())
        if "negative_column" in numbers:
            _check_triplet(texts, numbers, place)
        found.append(Sentences(texts, score))
    if are_unread:
        check_unread_scores(
            loss,
            [x.score for x in found],
            "Choose the pairs with --min_positive_score, or take the column out of the file",
        )
    return found


def check_unread_scores(loss: str, scores: Sequence[float], remedy: str) -> None:
    """Raises UserError if a loss that reads no scores would train dissimilar pairs as similar."""
    least, greatest = min(scores), max(scores)
    if least < greatest or greatest <= 0.0:
        raise UserError(
            f"--loss={loss} reads no scores and trains every pair as two texts that"
            f" mean the same, also those with the score {least:g}; the highest is {greatest:g}."
            f" {remedy}"
        )


def _check_triplet(texts: tuple[str, ...], flags: Iterable[str], place: str) -> None:
    for text, flag in zip(texts, flags, strict=True):
        if not text.strip():
            raise UserError(
                f"{place}: the column of --{flag} must have a text; it is empty. A triplet needs"
                " all three texts: fill it in or delete the line"
            )
    if texts[2] in texts[:2]:
        raise UserError(
            f"{place}: the text of --negative_column must differ from the other two; it is"
            f" {quoted(texts[2])}. Correct or delete the line"
        )


def _score(text: str, score_scale: float | None, place: str) -> float:
    greatest = score_scale or LARGEST_TARGET
    value = tables.number_in(text)
    if abs(value) <= greatest:
        return value
    tables.check_filled(text, place)
    rule, remedy = "a number", "--label_column"
    if score_scale or not math.isnan(value):
        rule += f" from {-greatest:g} to {greatest:g}"
    if score_scale:
        rule += " (--score_scale)"
        remedy += " or --score_scale"
    raise UserError(
        f"{place}: score {quoted(text)} must be {rule}; correct or delete the line, or change"
        f" {remedy}"
    )


class SentenceEncoder(ExampleEncoder):
    """Makes one record of 1 to 3 texts, each a sequence [CLS] text [SEP], truncated at its end."""

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, num_texts: int):
        super().__init__(tokenizer, max_seq_length, sentences_schema(max_seq_length, num_texts))
        self.num_texts = num_texts

    def texts(self, example: Sentences) -> list[str]:
        return list(example.texts)

    def length_needed(self, ids: list[list[int]]) -> int:
        return max(sequences.packed_length(text, None, self.tokenizer.layout) for text in ids)

    def records(self, example: Sentences, ids: list[list[int]]) -> list[Record]:
        packed = [
            sequences.truncate_and_pack(text, None, self.max_seq_length, self.tokenizer.layout)
            for text in ids
        ]
        return [{**sequences.stack(packed), "label_ids": [example.score]}]

    def describe(self, example: Sentences, record: Mapping[str, list]) -> Iterator[str]:
        yield from super().describe(example, record)
        yield f"score: {example.score}"
