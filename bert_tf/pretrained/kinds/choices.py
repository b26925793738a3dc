"""Multiple choice, trained from texts and their choices in memory."""

import os
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.pretrained.arguments import is_list, received
from bert_tf.pretrained.kinds.base import Kind
from bert_tf.pretrained.kinds.rows import check_there, read_rows
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.tasks.multiple_choice.schema import NUM_CHOICES
from bert_tf.tasks.multiple_choice.swag import Question
from bert_tf.tasks.task import ExampleSet


class ChoicesKind(Kind):
    """Chooses one of four texts that continue, or answer, a text."""

    name = "multiple_choice"
    heads = ("multiple_choice",)
    inputs, targets = "questions", "labels"

    def decided(self) -> dict[str, Any]:
        return {"data_dir": ""}

    def example_set(self, purpose: str, x: Any, y: Any, weights: Any = None) -> ExampleSet:
        inputs, targets = self.names(purpose)
        rows, labels, weights = read_rows(x, y, weights, inputs, targets, purpose != "predict")
        self.no_weights(weights)
        questions = []
        for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
            is_row = isinstance(row, tuple | list) and len(row) in (2, 3)
            text, *beginning, choices = row if is_row else ("", ())
            texts = [text, *beginning, *(choices if is_list(choices) else ())]
            is_right = len(texts) == 1 + len(beginning) + NUM_CHOICES
            if not is_right or not all(isinstance(x, str) for x in texts):
                raise UserError(
                    f"{inputs}[{i}] must be (text, [{NUM_CHOICES} choices]), or (text, beginning of"
                    f" the choices, [{NUM_CHOICES} choices]); {received(row)}"
                )
            if purpose != "predict":
                check_there(label, f"{targets}[{i}]")
                if label not in range(NUM_CHOICES):
                    raise UserError(
                        f"{targets}[{i}] must be the number of the right choice, from 0 to"
                        f" {NUM_CHOICES - 1}; {received(label)}"
                    )
                label = int(label)
            questions.append(Question(text, "".join(beginning), [*choices], label))
        return ExampleSet(self.set_name(purpose), questions)

    def read_predictions(self, settings: FineTuningSettings) -> Any:
        return np.loadtxt(os.path.join(settings.output_dir, "test_results.tsv"), ndmin=2)
