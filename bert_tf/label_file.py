"""The classes that a model in an output directory was trained with, in the order of the logits."""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf import checkpoints, whole_files

LABELS_FILE = "labels.txt"


def read_labels(output_dir: str) -> list[str] | None:
    """Returns the classes of the model in `output_dir`; there are none of regression.

    None if no model is there: a run that ended before it had one may have left the file.

    Raises:
        ValueError: the file cannot be read.
    """
    path = os.path.join(output_dir, LABELS_FILE)
    trained = checkpoints.CheckpointDirectory(output_dir).latest()
    if not trained or not tf.io.gfile.exists(path):
        return None
    text = whole_files.read_text(path, path, "--do_train has written it with a class on each line")
    return text.split("\n")[:-1]


def write_labels(output_dir: str, labels: Sequence[str]) -> None:
    """Writes the classes for `read_labels`, one a line.

    Raises:
        OSError: the file cannot be written.
    """
    path = os.path.join(output_dir, LABELS_FILE)
    whole_files.write_whole(path, "".join(f"{label}\n" for label in labels))
