"""The classes that a model in an output directory was trained with, in the order of the logits."""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.files import checkpoints, whole_files

LABELS_FILE = "labels.txt"


def read_labels(output_dir: str, init_checkpoint: str | None) -> list[str] | None:
    """Returns the classes of the model that a run begins with; there are none of regression.

    None if they are not known: neither directory has a trained model with such a file. A run that
    ended before it had a model may have left the file alone.

    Args:
        output_dir: of the run; what is there comes first.
        init_checkpoint: see `checkpoints.find_prefix`. None where training follows, which may give
            the checkpoint's head other classes.

    Raises:
        UserError: a file cannot be read, or there is no such checkpoint.
    """
    prefix = checkpoints.CheckpointDirectory(output_dir).latest()
    if not prefix and init_checkpoint:
        prefix = checkpoints.find_prefix(init_checkpoint)
    return labels_in(os.path.dirname(prefix)) if prefix else None


def labels_in(folder: str) -> list[str] | None:
    """Returns the classes that the file in a folder names; None if there is no file.

    Raises:
        UserError: the file cannot be read.
    """
    path = os.path.join(folder, LABELS_FILE)
    if not tf.io.gfile.exists(path):
        return None
    text = whole_files.read_text(path, path, "--do_train has written it with a class on each line")
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return lines if text else []


def write_labels(folder: str, labels: Sequence[str] | None) -> None:
    """Writes the classes for `read_labels`, one a line; None removes those of another model.

    Raises:
        OSError: the file cannot be written.
    """
    path = os.path.join(folder, LABELS_FILE)
    if labels is None:
        if tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)
        return
    whole_files.write_whole(path, "".join(f"{label}\n" for label in labels))
