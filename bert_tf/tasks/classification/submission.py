"""Predictions of a test set in the files that https://gluebenchmark.com takes."""

import os

import numpy as np

from bert_tf.files.whole_files import write_whole
from bert_tf.tasks.classification.examples import DataProcessor


def write_submission(output_dir: str, processor: DataProcessor, outputs: np.ndarray) -> str | None:
    """Returns the path of the task's submission file, which was written; None if it has none.

    One line an example, its number from 0 and its class or number. These are GLUE's own numbers of
    the examples as long as the whole test set is predicted, in its order.

    Args:
        output_dir: where it goes.
        processor: the task.
        outputs: float `[examples, classes]`, of which the greatest is predicted; for regression
            float `[examples]`, which are held within the task's range.

    Raises:
        OSError: the file cannot be written.
    """
    if processor.submission_file is None:
        return None
    path = os.path.join(output_dir, processor.submission_file)
    lines = [f"{i}\t{what}\n" for i, what in enumerate(predicted(processor, outputs))]
    write_whole(path, "".join(["index\tprediction\n", *lines]))
    return path


def predicted(processor: DataProcessor, outputs: np.ndarray) -> list[str]:
    """Returns what is predicted of each example, a class by name or a number, as text.

    Args:
        processor: the task.
        outputs: as for `write_submission`.
    """
    labels = processor.get_labels()
    if labels is not None:
        return [labels[i] for i in np.argmax(outputs, axis=-1)]
    if processor.label_range:
        outputs = np.clip(outputs, *processor.label_range)
    return [f"{value:.3f}" for value in outputs]
