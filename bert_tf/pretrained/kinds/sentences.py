"""Sentence vectors, trained from pairs of texts in memory."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError, listed
from bert_tf.pretrained.arguments import received
from bert_tf.pretrained.kinds.base import Kind
from bert_tf.pretrained.kinds.classification import number
from bert_tf.pretrained.kinds.rows import read_rows
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.tasks.sentences.data import Sentences
from bert_tf.tasks.sentences.schema import COSINE, IN_BATCH_NEGATIVES, LOSSES, TEACHER, TRIPLET
from bert_tf.tasks.task import ExampleSet

# Number of texts in a row -> what the rows are called, and the losses that learn from them.
_LOSSES = {
    1: ("single texts", (TEACHER,)),
    2: ("pairs", (COSINE, IN_BATCH_NEGATIVES, TEACHER)),
    3: ("triplets, (a, b, negative)", (TRIPLET, IN_BATCH_NEGATIVES)),
}


class SentencesKind(Kind):
    """Makes vectors whose cosine tells how similar two texts are."""

    name = "sentences"
    heads = ()
    inputs, targets = "pairs", "scores"

    def __init__(self) -> None:
        self._have_scores = True
        self._num_texts = 2  # of a row in training
        self._farthest = (0.0, "")  # the score farthest from 0, and its place

    def decided(self) -> dict[str, Any]:
        columns = {"text_a_column": "a", "label_column": "score"}
        columns |= {"text_b_column": "b"} if self._num_texts > 1 else {}
        columns |= {"negative_column": "negative"} if self._num_texts > 2 else {}
        return {"data_dir": "", **columns}

    def example_set(self, purpose: str, x: Any, y: Any, weights: Any = None) -> ExampleSet:
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
        for i, example in enumerate(examples):
            if abs(example.score) > abs(self._farthest[0]):
                self._farthest = (example.score, f"{targets}[{i}]")
        if purpose != "validation":  # belongs to the training before it
            self._num_texts = len(texts[0])
        return ExampleSet(self.set_name(purpose), examples)

    def check_options(self, options: Mapping[str, Any]) -> None:
        for name, remedy in (
            ("min_positive_score", "fit learns from all pairs; choose them before"),
            ("retrieval_dir", "save the model, and give its folder to run_sentence_similarity"),
        ):
            if options.get(name) is not None:
                raise UserError(f"{name} must be left out: {remedy}")
        loss = options.get("loss", COSINE)
        rows, losses = _LOSSES[self._num_texts]
        if options["do_train"] and loss not in losses and loss in {*LOSSES, TEACHER}:
            raise UserError(f"loss must be one of {listed(losses)} for {rows}; received {loss!r}")

    def check(self, settings: FineTuningSettings) -> None:
        if not settings.do_train or settings.loss != "cosine":
            return
        scale, (score, place) = settings.score_scale, self._farthest
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

    def read_predictions(self, settings: FineTuningSettings) -> Any:
        return np.loadtxt(os.path.join(settings.output_dir, "test_results.tsv"), ndmin=1)
