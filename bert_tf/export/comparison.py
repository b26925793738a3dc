"""Measures a model on a table of texts and labels, before and after its export."""

from collections.abc import Mapping

import numpy as np
from absl import logging

from bert_tf.engine.measures import pearson, spearman
from bert_tf.errors import UserError
from bert_tf.export.settings import ENCODER, ExportSettings
from bert_tf.pretrained.exported import ExportedModel
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.model import Pretrained
from bert_tf.tasks.classification.examples import InputExample, as_labels
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.classification.table import TableProcessor


def read_examples(settings: ExportSettings, head: str, folder: ModelFolder) -> list[InputExample]:
    """Reads the examples of --data_dir; raises UserError if the head has no such labels."""
    columns = TableColumns(
        text_a_column=settings.text_a_column,
        text_b_column=settings.text_b_column,
        label_column=settings.label_column,
        labels=folder.labels if head == "classification" else None,
        regression=head != "classification",
        multi_label=head == "classification" and folder.config.is_multi_label,
    )
    if head not in ("classification", "regression", ENCODER):
        raise UserError(
            f"--data_dir is for classes, numbers and sentence vectors, not for --head={head}:"
            " compare the answers of both folders yourself, with bert_tf.load"
        )
    if head == ENCODER and not settings.text_b_column:
        raise UserError(
            "--data_dir needs --text_b_column for sentence vectors: their cosine is compared with"
            " the label"
        )
    return TableProcessor(columns, settings.data_dir).read("dev", settings.data_dir)


def log_measures(
    examples: list[InputExample], head: str, before: Pretrained, after: ExportedModel
) -> None:
    was, now = (_measures(examples, head, model) for model in (before, after))
    for name, value in was.items():
        logging.info(
            "%s of %d examples: %.4f before the export, %.4f after it",
            *(name, len(examples), value, now[name]),
        )


def _measures(
    examples: list[InputExample], head: str, model: Pretrained | ExportedModel
) -> Mapping[str, float]:
    first, second = [x.text_a for x in examples], [x.text_b for x in examples]
    labels = [x.label for x in examples]
    texts = first if second[0] is None else [*zip(first, second, strict=True)]
    if head == "classification":
        found = model.classify(texts)
        right = [as_labels(y) == x.labels for x, y in zip(found, labels, strict=True)]
        return {"Accuracy": sum(right) / len(right)}
    numbers = model.similarity(first, second) if head == ENCODER else model.classify(texts)
    pair = np.array(labels), np.array(numbers)
    return {"Pearson correlation": pearson(*pair), "Spearman correlation": spearman(*pair)}
