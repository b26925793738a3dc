"""Reads x and y of `fit`, `evaluate` and `predict` for multiple choice."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.errors import UserError
from bert_tf.tasks.arguments import is_list, received
from bert_tf.tasks.multiple_choice.data import Question
from bert_tf.tasks.rows import Rows, check_there, decimals, read_rows


class MultipleChoiceRows(Rows):
    """Rows of x: (text, choices), or (text, the beginning of all choices, choices)."""

    task = "multiple_choice"
    head = "multiple_choice"
    inputs, targets = "questions", "labels"

    def examples(self, purpose: str, x: Any, y: Any, weights: Any = None) -> list[Question]:
        inputs, targets = self.names(purpose)
        rows, labels, weights = read_rows(x, y, weights, inputs, targets, purpose != "predict")
        self.no_weights(weights)
        questions: list[Question] = []
        for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
            is_row = isinstance(row, tuple | list) and len(row) in (2, 3)
            text, *beginning, choices = row if is_row else ("", ())
            choices = [*choices] if is_list(choices) else []
            texts = [text, *beginning, *choices]
            if len(choices) < 2 or not all(isinstance(x, str) for x in texts):
                raise UserError(
                    f"{inputs}[{i}] must be (text, [two choices or more]), or (text, beginning of"
                    f" the choices, [two choices or more]); {received(row)}"
                )
            if questions and len(choices) != len(questions[0].endings):
                raise UserError(
                    f"{inputs} must all have the same number of choices; {inputs}[0] has"
                    f" {len(questions[0].endings)}, and {inputs}[{i}] has {len(choices)}"
                )
            if purpose != "predict":
                check_there(label, f"{targets}[{i}]")
                if label not in range(len(choices)):
                    raise UserError(
                        f"{targets}[{i}] must be the number of the right choice, from 0 to"
                        f" {len(choices) - 1}; {received(label)}"
                    )
                label = int(label)
            questions.append(Question(text, "".join(beginning), choices, label))
        return questions

    def answers(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        return decimals(outputs)
