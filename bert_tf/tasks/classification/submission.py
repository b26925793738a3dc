"""Writes test predictions as files for submission to https://gluebenchmark.com."""

import os

import numpy as np

from bert_tf.files.whole_files import write_whole
from bert_tf.tasks.classification.examples import DataProcessor


def write_submission(output_dir: str, processor: DataProcessor, outputs: np.ndarray) -> str | None:
    """Writes the submission file of a task; returns its path, or None if the task has none.

    Each line has the index of an example, from 0, and its predicted class or number. The indices
    are GLUE's own if the whole test set was predicted in order.

    Args:
        outputs: float `[examples, classes]`; the highest is the prediction. For regression float
            `[examples]`, which are clipped to the task's range.
    """
    if processor.submission_file is None:
        return None
    path = os.path.join(output_dir, processor.submission_file)
    lines = [f"{i}\t{text}\n" for i, text in enumerate(predicted(processor, outputs))]
    write_whole(path, "".join(["index\tprediction\n", *lines]))
    return path


def predicted(processor: DataProcessor, outputs: np.ndarray) -> list[str]:
    """Returns the prediction for each example as text: the name of a class, or a number."""
    labels = processor.get_labels()
    if labels is not None:
        return [labels[i] for i in np.argmax(outputs, axis=-1)]
    if processor.label_range:
        outputs = np.clip(outputs, *processor.label_range)
    return [f"{value:.3f}" for value in outputs]
