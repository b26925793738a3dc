"""Reads single texts, pairs and triplets from tables, and turns them into records."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from bert_tf.datasets import tables
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import records
from bert_tf.tasks.arguments import received
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.tasks.rows import Rows, decimals, number, read_rows
from bert_tf.tasks.sentences.settings import (
    COSINE,
    IN_BATCH_NEGATIVES,
    TEACHER,
    TRIPLET,
    SentenceOptions,
)
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Sentences:
    """One text, a pair, or a triplet, whose third text means something else."""

    texts: tuple[str, ...]
    score: float = 0.0  # how similar a pair is in meaning; 0 if unknown


def read_sentences(
    path: str,
    columns: Mapping[str, str | None],
    has_header: bool,
    delimiter: str | None,
    score_scale: float | None = None,
    refuse_empty: bool = False,
    unread_scores: str | None = None,
    loss: str = IN_BATCH_NEGATIVES,
) -> list[Sentences]:
    """Reads the sentences of a table's rows.

    `columns` maps flags (`text_a_column` and so on) to names of columns. Scores are from
    -score_scale to score_scale; None for no bounds. An empty row before an example is skipped,
    or an error if `refuse_empty`. `unread_scores` is a column with scores that `loss` does not
    read; see `check_unread_scores`.
    """
    rows = tables.read_table(path, delimiter, has_header)
    are_unread = unread_scores in tables.column_names(rows, has_header)
    if are_unread:
        columns = {**columns, "label_column": unread_scores}
    numbers = tables.column_numbers(rows, path, has_header, columns)
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
            f" mean the same, even those with score {least:g} (the highest is {greatest:g})."
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
    greatest = score_scale or records.LARGEST_TARGET
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


def sentences_schema(max_seq_length: int, num_texts: int = 2) -> records.Schema:
    """Returns the schema of records of 1 to 3 texts, each a separate sequence of segment 0.

    `label_ids` is the score of the pair, float32; 0 if unknown.
    """
    return {
        **records.model_inputs([num_texts, max_seq_length]),
        "label_ids": records.target_feature(),
    }


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


# Number of texts in a row -> the name of such rows, and the losses that learn from them.
_LOSSES = {
    1: ("single texts", (TEACHER,)),
    2: ("pairs", (COSINE, IN_BATCH_NEGATIVES, TEACHER)),
    3: ("triplets, (a, b, negative)", (TRIPLET, IN_BATCH_NEGATIVES)),
}


class SentenceRows(Rows):
    """Rows for sentence vectors, whose cosine tells how similar two texts are."""

    task = "sentences"
    head = ""
    inputs, targets = "pairs", "scores"
    left_out = {
        "min_positive_score": "fit learns from all pairs; filter them first",
        "retrieval_dir": "save the model, and give its folder to run_sentence_similarity",
    }

    def __init__(self) -> None:
        self._have_scores = True
        self._num_texts = 2  # in a training row
        self._scores: list[float] = []  # the training scores
        self._farthest = (0.0, "")  # the score farthest from 0, and its place

    def examples(self, purpose: str, x: Any, y: Any = None, weights: Any = None) -> list[Sentences]:
        inputs, targets = self.names(purpose)
        needs_scores = purpose in ("eval", "validation")
        rows, scores, weights = read_rows(x, y, weights, inputs, targets, needs_scores)
        self.no_weights(weights)
        examples = []
        numbers = (1, 2, 3) if purpose == "train" else (2,)
        texts = [(row,) if isinstance(row, str) else row for row in rows]
        for i, (row, score) in enumerate(zip(texts, scores, strict=True)):
            is_row = isinstance(row, tuple | list) and len(row) in numbers
            if not is_row or not all(isinstance(text, str) for text in row):
                raise UserError(
                    f"{inputs}[{i}] must be a pair of texts, (a, b), or in training also (a, b,"
                    f" negative), or one text for loss='teacher'; {received(rows[i])}"
                )
            if len(row) != len(texts[0]):
                raise UserError(
                    f"{inputs} must be all pairs, all triplets or all single texts;"
                    f" {inputs}[{i}] differs"
                )
            if len(row) == 3 and not (all(map(str.strip, row)) and row[2] not in row[:2]):
                raise UserError(
                    f"{inputs}[{i}] must have three texts, the third different from the other two;"
                    f" {received(row)}"
                )
            is_without = y is None and scores[0] is None
            value = 0.0 if is_without else number(score, f"{targets}[{i}]")
            examples.append(Sentences(tuple(row), value))
        if purpose == "train":
            self._have_scores, self._farthest = scores[0] is not None, (0.0, "")
            self._scores = [x.score for x in examples]
        for i, example in enumerate(examples):
            if abs(example.score) > abs(self._farthest[0]):
                self._farthest = (example.score, f"{targets}[{i}]")
        if purpose != "validation":  # validation must not change it
            self._num_texts = len(texts[0])
        return examples

    def check(self, options: SentenceOptions) -> None:
        if not options.do_train:
            return
        rows, losses = _LOSSES[self._num_texts]
        if options.loss not in losses:
            raise UserError(
                f"loss must be one of {listed(losses)} for {rows}; received {options.loss!r}"
            )
        if options.loss != COSINE:
            if self._have_scores and options.loss != TEACHER:
                remedy = "Filter the pairs first, and leave scores out"
                check_unread_scores(options.loss, self._scores, remedy)
            elif self._have_scores:
                logging.warning("loss='%s' reads no scores: they change nothing", options.loss)
            return
        scale, (score, place) = options.score_scale, self._farthest
        if abs(score) > scale:
            raise UserError(
                f"{place} must be from {-scale:g} to {scale:g} (score_scale); received {score:g}."
                " Give score_scale=..., the score of two texts with the same meaning"
            )
        if not self._have_scores:
            raise UserError(
                "fit needs the scores of the pairs for loss='cosine'. For pairs that mean the same,"
                " give loss='in_batch_negatives'"
            )

    def answers(self, outputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        return decimals(outputs["outputs"])
