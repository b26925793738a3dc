"""Multiple choice as a task of fine-tuning (run_multiple_choice.py)."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.files.model_input import CHOICES
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import review, tables
from bert_tf.runs.results.kept_rows import Cell
from bert_tf.tasks.multiple_choice import swag
from bert_tf.tasks.multiple_choice.data import QuestionEncoder
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.task import ExampleSet, FineTuningTask, PredictionColumns, check_differ
from bert_tf.text.tokenizers import Tokenizer

_FILES = {"train": "train.csv", "eval": "val.csv", "predict": "test.csv"}  # SWAG's names


class MultipleChoiceTask(FineTuningTask):
    """Chooses the correct one of several endings.

    Predictions go to test_results.tsv (the probabilities of the choices of each question) and,
    beside the texts, to predictions.tsv.
    """

    best_metric = "eval_accuracy"

    def read(self, purpose: str) -> list[swag.Question]:
        path = os.path.join(self.settings.data_dir, _FILES[purpose])
        return swag.read_questions(path, labelled=purpose != "predict")

    def dev_set(self) -> str | None:
        path = os.path.join(self.settings.data_dir, _FILES["eval"])
        return path if tf.io.gfile.exists(path) else None

    def key(self, example: swag.Question) -> tuple[int | None, str]:
        return example.label, "\n".join([example.context, example.beginning, *example.endings])

    def prepare(self, sets: Mapping[str, Sequence[ExampleSet]], labels: None) -> None:
        check_differ(x.label for training in sets.get("train", ()) for x in training.examples)

    def reads(self, examples: Sequence[Any]) -> str:
        return CHOICES

    def row(self, example: swag.Question, purpose: str, number: int) -> dict[str, Cell]:
        endings = {f"ending{i}": text for i, text in enumerate(example.endings)}
        texts = {"context": example.context, "beginning": example.beginning, **endings}
        label = None if example.label is None else str(example.label)
        return {"id": f"{purpose}-{number}", **texts, "label": label}

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: None
    ) -> QuestionEncoder:
        return QuestionEncoder(tokenizer, self.settings.max_seq_length)

    def build(self, config: BertConfig, labels: None, **options) -> MultipleChoiceModel:
        return MultipleChoiceModel(config, **options)

    def evaluate(self, example_set: ExampleSet, predictions: PredictionColumns) -> dict[str, float]:
        columns = predictions.join("outputs", "label_ids", "per_example_loss")
        example_set.answers = columns
        correct = np.argmax(columns["outputs"], axis=1) == columns["label_ids"]
        return {
            "eval_accuracy": float(np.mean(correct)),
            **reporting.mean_losses(columns["per_example_loss"], self.settings.eval_batch_size),
        }

    def write_review(self, example_set: ExampleSet) -> None:
        label_ids, outputs = (example_set.answers[name] for name in ("label_ids", "outputs"))
        labels = _numbers(outputs)
        rows = example_set.rows
        review.write_review(self.settings.output_dir, "", rows, labels, label_ids, outputs)

    def write_predictions(self, example_set: ExampleSet, predictions: PredictionColumns) -> None:
        outputs = predictions.join("outputs")["outputs"]
        reporting.write_probabilities(self.path("test_results.tsv"), outputs)
        found = review.predicted_columns(_numbers(outputs), outputs)
        tables.write_predictions(self.path("predictions.tsv"), example_set.rows, found)


def _numbers(outputs: np.ndarray) -> list[str]:
    """Returns the names of the choices, from 0, as in the files."""
    return [str(i) for i in range(outputs.shape[1])]
