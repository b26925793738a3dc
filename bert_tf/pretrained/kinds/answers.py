"""Answers to questions, trained from questions, contexts and answers in memory."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.pretrained.answers import AnswerOptions
from bert_tf.pretrained.arguments import is_list, is_missing, received
from bert_tf.pretrained.kinds.base import Kind
from bert_tf.pretrained.kinds.rows import plain, read_rows
from bert_tf.tasks.squad.examples import squad_data
from bert_tf.tasks.squad.joint_model import head_options
from bert_tf.tasks.squad.task import QuestionSet, training_set

_IN_MEMORY = "questions in memory"


class AnswersKind(Kind):
    """Finds the answer to a question in a context."""

    name = "squad"
    heads = ("squad",)
    inputs, targets = "questions", "answers"
    evaluation = "predict"  # the program scores its predictions
    predict_options = frozenset(AnswerOptions.__annotations__)

    def __init__(self) -> None:
        self._are_all_answered = True

    def decided(self) -> dict[str, Any]:
        negative = {} if self._are_all_answered else {"version_2_with_negative": True}
        return {"train_file": _IN_MEMORY, "predict_file": _IN_MEMORY, **negative}

    def of_weights(self, names: Collection[str]) -> Mapping[str, Any]:
        return head_options(names)

    def example_set(self, purpose: str, x: Any, y: Any, weights: Any = None) -> QuestionSet:
        inputs, targets = self.names(purpose)
        pairs, answers, weights = read_rows(x, y, weights, inputs, targets)
        self.no_weights(weights)
        paragraphs = []
        if purpose != "validation":  # belongs to the training before it
            self._are_all_answered = True
        for i, (pair, answer) in enumerate(zip(pairs, answers, strict=True)):
            _check_pair(pair, f"{inputs}[{i}]")
            found = _answers(answer, pair[1], f"{targets}[{i}]", purpose == "train")
            self._are_all_answered &= bool(found)
            question = {"id": str(i), "question": pair[0], "answers": found}
            question["is_impossible"] = not found
            paragraphs.append({"context": pair[1], "qas": [question]})
        content = {"data": [{"paragraphs": paragraphs}]}
        negative = not self._are_all_answered
        data = squad_data(content, inputs, purpose == "train", negative)
        if purpose == "train":
            return training_set(data)
        return QuestionSet(self.set_name(purpose), data.examples, data=data)

    def predict(self, model: Any, x: Any, options: dict[str, Any]) -> Any:
        pairs = list(x)
        for i, pair in enumerate(pairs):
            _check_pair(pair, f"{self.inputs}[{i}]")
        threshold = None if self._are_all_answered else 0.0  # what the training had
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
    """Returns the answers to a question as in SQuAD's files; [] if the context has none."""
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
