"""Reads questions, contexts and answers in memory."""

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np

from bert_tf.errors import UserError
from bert_tf.tasks.arguments import is_list, is_missing, plain, received, whole
from bert_tf.tasks.rows import Rows, read_rows
from bert_tf.tasks.squad.examples import SquadData, squad_data


class AnswerOptions(TypedDict, total=False):
    """Keyword arguments of `Pretrained.answer`, which describes them."""

    null_score_diff_threshold: float | None
    max_seq_length: int
    doc_stride: int
    max_answer_length: int
    method: str


class SquadRows(Rows):
    """Rows of (question, context) and answers."""

    task = "squad"
    head = "squad"
    inputs, targets = "questions", "answers"
    predict_options = frozenset(AnswerOptions.__annotations__)

    def __init__(self) -> None:
        self.are_all_answered = True

    def examples(self, purpose: str, x: Any, y: Any, weights: Any = None) -> SquadData:
        inputs, targets = self.names(purpose)
        pairs, answers, weights = read_rows(x, y, weights, inputs, targets)
        self.no_weights(weights)
        questions = []
        if purpose != "validation":  # a part of the training before it
            self.are_all_answered = True
        for i, (pair, answer) in enumerate(zip(pairs, answers, strict=True)):
            _check_pair(pair, f"{inputs}[{i}]")
            found = _answers(answer, pair[1], f"{targets}[{i}]", purpose == "train")
            self.are_all_answered &= bool(found)
            question = {"id": str(i), "question": pair[0], "answers": found}
            question["is_impossible"] = not found
            questions.append((f"{inputs}[{i}]", pair[1], question))
        negative = not self.are_all_answered
        return squad_data(questions, inputs, purpose == "train", negative, show_ids=False)

    def predict(self, model: Any, x: Any, options: dict[str, Any]) -> Any:
        pairs = whole(x, self.inputs)
        for i, pair in enumerate(pairs):
            _check_pair(pair, f"{self.inputs}[{i}]")
        threshold = None if self.are_all_answered else 0.0  # as in training
        options = {"null_score_diff_threshold": threshold, **options}
        found = model.answer([pair[0] for pair in pairs], [pair[1] for pair in pairs], **options)
        return np.array([answer.text for answer in found], object)


def _check_pair(pair: Any, place: str) -> None:
    if not isinstance(pair, tuple | list) or [*map(type, pair)] != [str, str]:
        raise UserError(
            f"{place} must be a pair of texts, (question, context); {received(pair)}."
            " Of two columns: list(zip(table['question'], table['context']))"
        )


def _answers(value: Any, context: str, place: str, is_training: bool) -> list[dict[str, Any]]:
    """Converts the answers to a question to the form of SQuAD's files; [] for no answer."""
    value = plain(value)
    if isinstance(value, Mapping):  # as in the datasets of Hugging Face
        texts, starts = (value.get(key, ()) for key in ("text", "answer_start"))
        if not is_list(texts) or not is_list(starts) or len(texts) != len(starts):
            raise UserError(
                f"{place} must have as many answer_start as text, in lists; {received(value)}"
            )
    elif is_missing(value) or isinstance(value, str) and not value:
        return []
    elif isinstance(value, str):
        texts, starts = [value], [context.find(value)]
        if is_training and context.count(value) != 1:
            raise UserError(
                f"{place} must be (text, start), the start in characters from 0, as the text occurs"
                f" {context.count(value)} times in its context; {received(value)}"
            )
    elif isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str):
        if not value[0]:
            return []
        texts, starts = [value[0]], [value[1]]
    else:
        raise UserError(
            f"{place} must be (text, start), a text that occurs once, or None for no answer;"
            f" {received(value)}"
        )
    return [
        {"text": plain(text), "answer_start": plain(start)}
        for text, start in zip(texts, starts, strict=True)
    ]
