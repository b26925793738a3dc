"""`labels.txt`: the classes that a model was trained with, in the order of its logits."""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.files import checkpoints, whole_files
from bert_tf.files.checkpoint_directory import CheckpointDirectory

LABELS_FILE = "labels.txt"


def read_labels(output_dir: str, init_checkpoint: str | None) -> list[str] | None:
    """Returns the classes of the model that a run starts with; [] for regression, None if unknown.

    They are unknown if there is no checkpoint or no `labels.txt` beside it. A `labels.txt` in an
    output directory without a checkpoint does not count: a run that stopped early left it.

    Args:
        output_dir: the run's; if it has a checkpoint, the run starts with that one.
        init_checkpoint: see `checkpoints.find_prefix`. None if the run trains, which may give the
            checkpoint's head other classes.

    Raises:
        UserError: a file cannot be read, or there is no such checkpoint.
    """
    prefix = CheckpointDirectory(output_dir).latest()
    if not prefix and init_checkpoint:
        prefix = checkpoints.find_prefix(init_checkpoint)
    return labels_in(os.path.dirname(prefix)) if prefix else None


def labels_in(folder: str) -> list[str] | None:
    """Returns the classes in the `labels.txt` of a folder; None if there is no such file.

    Raises:
        UserError: the file cannot be read.
    """
    path = os.path.join(folder, LABELS_FILE)
    if not tf.io.gfile.exists(path):
        return None
    text = whole_files.read_text(
        path, path, "it must have a class on each line, as --do_train writes it"
    )
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return lines if text else []


def write_labels(folder: str, labels: Sequence[str] | None) -> None:
    """Writes `labels.txt`, one class a line; None removes a file that another model left.

    Raises:
        UserError: the file cannot be written (no permission, no directory).
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    path = os.path.join(folder, LABELS_FILE)
    if labels is None:
        if tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)
        return
    whole_files.write_whole(path, "".join(f"{label}\n" for label in labels))
