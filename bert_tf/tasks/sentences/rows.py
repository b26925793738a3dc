"""Reads texts, pairs and triplets in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from bert_tf.errors import UserError, listed
from bert_tf.tasks.arguments import received
from bert_tf.tasks.rows import Rows, decimals, number, read_rows
from bert_tf.tasks.sentences.data import Sentences, check_unread_scores
from bert_tf.tasks.sentences.schema import COSINE, IN_BATCH_NEGATIVES, TEACHER, TRIPLET
from bert_tf.tasks.sentences.settings import SentenceOptions

# Number of texts in a row -> what the rows are called, and the losses that learn from them.
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
        "min_positive_score": "fit learns from all pairs; choose them before",
        "retrieval_dir": "save the model, and give its folder to run_sentence_similarity",
    }

    def __init__(self) -> None:
        self._have_scores = True
        self._num_texts = 2  # in a row of the training
        self._scores: list[float] = []  # the scores of the training
        self._farthest = (0.0, "")  # the score farthest from 0, and its place

    def examples(self, purpose: str, x: Any, y: Any, weights: Any = None) -> list[Sentences]:
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
        if purpose != "validation":  # a part of the training before it
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
                remedy = "Choose the pairs before, and leave scores out"
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
