"""Multiple choice as a fine-tuning task (run_multiple_choice.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.engine.prediction import join
from bert_tf.files.model_notes import CHOICES
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.settings import EvaluationOptions
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.runs.results.reports import Report
from bert_tf.tasks.multiple_choice import data
from bert_tf.tasks.multiple_choice.data import QuestionEncoder
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.task import Chunks, Evaluated, ExampleSet, FineTuningTask
from bert_tf.text.base_tokenizer import Tokenizer


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
        return tables.report_of(numbers(outputs), label_ids, outputs)

    def predict(self, example_set: ExampleSet, predictions: Chunks) -> np.ndarray:
        return join(predictions, "outputs")["outputs"]


def numbers(outputs: np.ndarray) -> list[str]:
    """Returns the names of the choices, "0", "1", ..., as in SWAG's files."""
    return [str(i) for i in range(outputs.shape[1])]
