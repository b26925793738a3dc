"""SWAG's files, and the files of run_multiple_choice.py."""

import os

import numpy as np
import tensorflow as tf

from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.runs.results.tables import Cell
from bert_tf.tasks.multiple_choice import data
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask, numbers
from bert_tf.tasks.task import Evaluated, ExampleSet, TaskFiles

_FILES = {"train": "train.csv", "eval": "val.csv", "predict": "test.csv"}  # SWAG's names


class MultipleChoiceFiles(TaskFiles, MultipleChoiceTask):
    """Reads SWAG's csv files; writes predictions.tsv, and the probabilities to test_results.tsv."""

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
        tables.write_review(self.settings.output_dir, "", rows, labels, label_ids, outputs)

    def write_predictions(
        self, example_set: ExampleSet, outputs: np.ndarray, global_step: int
    ) -> None:
        reporting.write_probabilities(self.path("test_results.tsv"), outputs)
        found = tables.predicted_columns(numbers(outputs), outputs)
        tables.write_predictions(self.path("predictions.tsv"), example_set.rows, found)
