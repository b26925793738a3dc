"""Reads how the sentence-transformers library makes the vector of a text with a model."""

import os
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.json_keys import JsonKeys
from bert_tf.files.whole_files import read_json

# sentence-transformers' names of poolings, old and new -> ours.
_POOLINGS = {"mean_tokens": "mean", "cls_token": "cls", "mean": "mean", "cls": "cls"}
_POOLING_FLAGS = ("cls_token", "lasttoken", "max_tokens", "mean_sqrt_len_tokens", "mean_tokens")
_MODULES = ("Transformer", "Pooling", "Normalize")

_MODULE_KEYS = JsonKeys(used={"type"}, harmless={"idx", "name"})
_LENGTH_KEYS = JsonKeys(used={"max_seq_length"})
_POOLING_KEYS = JsonKeys(
    used={"pooling_mode", *(f"pooling_mode_{name}" for name in _POOLING_FLAGS)},
    harmless={"word_embedding_dimension", "embedding_dimension"},
)


class VectorSettings(NamedTuple):
    """How the vector of a text is made; the defaults apply if the folder does not say.

    pooling: "mean" or "cls".
    normalize: whether the vector is divided by its length.
    max_seq_length: longest input in word pieces; None if the folder does not limit it.
    """

    pooling: str = "mean"
    normalize: bool = False
    max_seq_length: int | None = None


def read_vector_settings(folder: str) -> VectorSettings:
    """Returns the settings in a folder; the defaults if sentence-transformers did not write it.

    Raises:
        UserError: a file is damaged, or asks for a kind of vector that is not supported.
    """
    path = os.path.join(folder, "modules.json")
    modules = _read(path, list, _MODULE_KEYS)
    kinds = [str(module.get("type") if isinstance(module, dict) else module) for module in modules]
    names = [kind.rpartition(".")[-1] for kind in kinds]
    others = [kind for kind, name in zip(kinds, names, strict=True) if name not in _MODULES]
    if others:
        raise UserError(
            f"{path} lists {listed(others)}; only {', '.join(_MODULES)} are supported. To load the"
            " model without the others, delete the file. Its vectors will then differ from"
            " sentence-transformers'"
        )
    settings = _read(os.path.join(folder, "sentence_bert_config.json"), dict, _LENGTH_KEYS)
    length = settings.get("max_seq_length")
    return VectorSettings(
        _pooling(os.path.join(folder, "1_Pooling", "config.json")),
        "Normalize" in names,
        length if type(length) is int and length > 0 else None,
    )


def _pooling(path: str) -> str:
    """Returns the pooling that a file chooses, by `pooling_mode` or keys `pooling_mode_NAME`."""
    prefix = "pooling_mode_"
    config = _read(path, dict, _POOLING_KEYS)
    modes = {key: value for key, value in config.items() if key.startswith(prefix)}
    chosen = [key.removeprefix(prefix) for key, value in modes.items() if value]
    if "pooling_mode" in config:
        mode = config["pooling_mode"]
        chosen = [str(name) for name in (mode if isinstance(mode, list) else [mode])]
    elif not modes:
        return "mean"
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise UserError(
            f"{path} must choose one pooling, mean or cls; it chooses {listed(chosen) or 'none'}."
            " To load the model with mean pooling, delete the file. Its vectors will then differ"
            " from sentence-transformers'"
        )
    return _POOLINGS[chosen[0]]


def _read(path: str, kind: type[list] | type[dict], keys: JsonKeys) -> Any:
    """Returns the list or dictionary in a JSON file, checked; empty if there is no such file.

    `keys` are the keys of the dictionary, or of each dictionary in the list.
    """
    if not tf.io.gfile.exists(path):
        return kind()
    content = read_json(path, path, "correct or delete it")
    if not isinstance(content, kind):
        wanted = "a list" if kind is list else "a dictionary"
        raise UserError(
            f"{path} must hold {wanted}; received {quoted(content)}. Correct or delete it"
        )
    for entry in content if kind is list else [content]:
        if isinstance(entry, dict):
            keys.check(entry, path)
    return content
