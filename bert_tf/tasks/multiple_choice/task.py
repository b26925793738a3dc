"""Multiple choice as a fine-tuning task (run_multiple_choice.py)."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.engine.prediction import join
from bert_tf.files.model_notes import CHOICES
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.settings import EvaluationOptions
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import review, tables
from bert_tf.runs.results.reports import Report
from bert_tf.runs.results.tables import Cell
from bert_tf.tasks.multiple_choice import data
from bert_tf.tasks.multiple_choice.data import QuestionEncoder
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.task import Chunks, Evaluated, ExampleSet, FineTuningTask, TaskFiles
from bert_tf.text.tokenizers import Tokenizer


class MultipleChoiceTask(FineTuningTask):
    options = EvaluationOptions
    best_metric = "eval_accuracy"

    def key(self, example: data.Question) -> tuple[int | None, str]:
        return example.label, "\n".join([example.context, example.beginning, *example.endings])

    def prepare(self, sets: Mapping[str, Sequence[ExampleSet]], labels: None) -> None:
        self.check_differ(x.label for training in sets.get("train", ()) for x in training.examples)

    def reads(self, examples: Sequence[Any]) -> str:
        return CHOICES

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: None
    ) -> QuestionEncoder:
        num_choices = len(example_set.examples[0].endings)
        return QuestionEncoder(tokenizer, self.settings.max_seq_length, num_choices)

    def build(self, config: BertConfig, labels: None, **options) -> MultipleChoiceModel:
        return MultipleChoiceModel(config, **options)

    def evaluate(self, example_set: ExampleSet, predictions: Chunks) -> Evaluated:
        columns = join(predictions, "outputs", "label_ids", "per_example_loss")
        correct = np.argmax(columns["outputs"], axis=1) == columns["label_ids"]
        losses = reporting.mean_losses(columns["per_example_loss"], self.settings.eval_batch_size)
        return Evaluated({"eval_accuracy": float(np.mean(correct)), **losses}, columns)

    def report(self, example_set: ExampleSet, evaluated: Evaluated) -> Report:
        label_ids, outputs = (evaluated.found[name] for name in ("label_ids", "outputs"))
        return review.report_of(numbers(outputs), label_ids, outputs)

    def predict(self, example_set: ExampleSet, predictions: Chunks) -> np.ndarray:
        return join(predictions, "outputs")["outputs"]


def numbers(outputs: np.ndarray) -> list[str]:
    """Returns the names of the choices, "0", "1", ..., as in SWAG's files."""
    return [str(i) for i in range(outputs.shape[1])]


_FILES = {"train": "train.csv", "eval": "val.csv", "predict": "test.csv"}  # SWAG's names


class MultipleChoiceFiles(TaskFiles, MultipleChoiceTask):
    """Reads SWAG's csv files; writes predictions.tsv, and its probabilities to test_results.tsv."""

    def read(self, purpose: str) -> list[data.Question]:
        path = os.path.join(self.settings.data_dir, _FILES[purpose])
        return data.read_questions(path, labelled=purpose != "predict")

    def dev_set(self) -> str | None:
        path = os.path.join(self.settings.data_dir, _FILES["eval"])
        return path if tf.io.gfile.exists(path) else None

    def row(self, example: data.Question, purpose: str, number: int) -> dict[str, Cell]:
        endings = {f"ending{i}": text for i, text in enumerate(example.endings)}
        texts = {"context": example.context, "beginning": example.beginning, **endings}
        label = None if example.label is None else str(example.label)
        return {"id": f"{purpose}-{number}", **texts, "label": label}

    def write_review(self, example_set: ExampleSet, evaluated: Evaluated) -> None:
        label_ids, outputs = (evaluated.found[name] for name in ("label_ids", "outputs"))
        labels = numbers(outputs)
        rows = example_set.rows
        review.write_review(self.settings.output_dir, "", rows, labels, label_ids, outputs)

    def write_predictions(
        self, example_set: ExampleSet, outputs: np.ndarray, global_step: int
    ) -> None:
        reporting.write_probabilities(self.path("test_results.tsv"), outputs)
        found = review.predicted_columns(numbers(outputs), outputs)
        tables.write_predictions(self.path("predictions.tsv"), example_set.rows, found)
