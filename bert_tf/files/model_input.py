"""`model_input.json`: what a model was fine-tuned on, which its weights do not tell."""

import dataclasses
import json
import os

from bert_tf.errors import UserError, quoted
from bert_tf.files import whole_files
from bert_tf.start import lazy_tensorflow as tf

MODEL_INPUT_FILE = "model_input.json"
TEXTS, PAIRS, CHOICES = KINDS = ("texts", "pairs", "choices")
_LONG_TEXT = ("mean", "max")


@dataclasses.dataclass(frozen=True)
class ModelInput:
    """What a model was fine-tuned on; a field is None if unknown.

    reads: "texts", "pairs" of texts, or a text with "choices"; None also for texts and pairs.
    max_seq_length: length of the sequences in word pieces, [CLS] and [SEP] included.
    long_text: "mean" or "max" if long texts were split into windows; None if they were cut.
    window_stride: word pieces between the starts of windows; None for half of the room.
    """

    reads: str | None = None
    max_seq_length: int | None = None
    long_text: str | None = None
    window_stride: int | None = None


def read_model_input(folder: str) -> ModelInput:
    """Returns the content of a folder's `model_input.json`; without one, nothing is known.

    Raises:
        UserError: the file cannot be read, or has something else in it.
    """
    path = os.path.join(folder, MODEL_INPUT_FILE)
    if not tf.io.gfile.exists(path):
        return ModelInput()
    rule = "correct it, or delete it: then nothing is known of the model's training"
    found = whole_files.read_json(path, path, rule)
    names = [field.name for field in dataclasses.fields(ModelInput)]
    if not isinstance(found, dict) or not found.keys() <= {*names}:
        raise UserError(
            f"{path} must have no keys but {', '.join(names)}; it has {quoted(found)}; {rule}"
        )
    for name, choices in (("reads", KINDS), ("long_text", _LONG_TEXT)):
        if found.get(name) is not None and found[name] not in choices:
            raise UserError(f"{path}: {name} must be one of {', '.join(choices)}; {rule}")
    for name in ("max_seq_length", "window_stride"):
        number = found.get(name)
        if number is not None and (type(number) is not int or number < 1):
            raise UserError(
                f"{path}: {name} must be a positive number; it is {quoted(number)}; {rule}"
            )
    return ModelInput(**found)


def write_model_input(folder: str, model_input: ModelInput) -> None:
    """Writes `model_input.json`; if nothing is known, removes an earlier model's."""
    path = os.path.join(folder, MODEL_INPUT_FILE)
    if model_input != ModelInput():
        values = dataclasses.asdict(model_input)
        for name in ("long_text", "window_stride"):
            if values[name] is None:
                del values[name]
        content = json.dumps(values, indent=2) + "\n"
        whole_files.write_whole(path, content)
    elif tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)
