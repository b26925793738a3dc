"""TensorFlow, imported when one of its names is first used.

For modules that programs import before they read their command line, or that often do not need
TensorFlow:

    from bert_tf.start import lazy_tensorflow as tf
"""

from typing import Any

from bert_tf.start import local_files, quiet_start


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # Python's import system asks for them
        raise AttributeError(name)
    if name in ("io", "errors") and local_files.is_used.get():
        return getattr(local_files, name)
    return getattr(quiet_start.import_tensorflow(), name)
