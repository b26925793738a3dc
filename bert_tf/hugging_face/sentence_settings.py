"""How a folder of the sentence-transformers library makes the vector of a text."""

import os
from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.whole_files import read_json

# The library's names of poolings, old and new, and ours.
_POOLINGS = {"mean_tokens": "mean", "cls_token": "cls", "mean": "mean", "cls": "cls"}
_MODULES = ("Transformer", "Pooling", "Normalize")


def sentence_settings(folder: str) -> tuple[str, bool, int | None]:
    """Returns pooling, normalisation and length; those of other folders are "mean", False, None.

    Raises:
        UserError: a file is damaged, or the library makes vectors of the folder in another way.
    """
    modules = _read(os.path.join(folder, "modules.json"), list)
    kinds = [str(module.get("type") if isinstance(module, dict) else module) for module in modules]
    names = [kind.rpartition(".")[-1] for kind in kinds]
    others = [kind for kind, name in zip(kinds, names, strict=True) if name not in _MODULES]
    if others:
        raise UserError(
            f"{folder}/modules.json must have no modules but {', '.join(_MODULES)}, of which"
            f" vectors are made here; it has {listed(others)}. Delete the file to load the model"
            " without them: its vectors are then others"
        )
    length = _read(os.path.join(folder, "sentence_bert_config.json"), dict).get("max_seq_length")
    return (
        _pooling(os.path.join(folder, "1_Pooling", "config.json")),
        "Normalize" in names,
        length if type(length) is int and length > 0 else None,
    )


def _pooling(path: str) -> str:
    """Returns the pooling that a file chooses, by `pooling_mode` or keys `pooling_mode_NAME`."""
    prefix = "pooling_mode_"
    config = _read(path, dict)
    modes = {key: value for key, value in config.items() if key.startswith(prefix)}
    chosen = [key.removeprefix(prefix) for key, value in modes.items() if value]
    if "pooling_mode" in config:
        mode = config["pooling_mode"]
        chosen = [str(name) for name in (mode if isinstance(mode, list) else [mode])]
    elif not modes:
        return "mean"
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise UserError(
            f"{path} must choose one pooling, mean or cls; it chooses"
            f" {listed(chosen) or 'none'}. Delete the file to load the model with the"
            " mean: its vectors are then others"
        )
    return _POOLINGS[chosen[0]]


def _read(path: str, kind: type[list] | type[dict]) -> Any:
    """Returns the content of a JSON file, of a type; empty if there is no such file."""
    if not tf.io.gfile.exists(path):
        return kind()
    content = read_json(path, path, "correct or delete it")
    if not isinstance(content, kind):
        wanted = "a list" if kind is list else "a dictionary"
        raise UserError(
            f"{path} must hold {wanted}; received {quoted(content)}. Correct or delete it"
        )
    return content
