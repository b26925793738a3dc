"""Lists folders whose names may be any bytes; TensorFlow lists only names in UTF-8."""

import contextlib
import os

from bert_tf.start import lazy_tensorflow as tf


def names_in(folder: str | os.PathLike) -> list[str]:
    """Returns the names of the files and folders in a folder, in any order.

    Bytes that are not UTF-8 become surrogates; `os.fsencode` makes a path that TensorFlow takes.
    Raises TensorFlow's errors.
    """
    folder = os.fspath(folder)
    local = folder.removeprefix("file://") or "."
    if "://" not in local:
        with contextlib.suppress(OSError, ValueError):
            return os.listdir(local)
    return [name.rstrip("/") for name in tf.io.gfile.listdir(folder or ".")]
