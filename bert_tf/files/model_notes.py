"""Reads and writes two files beside a model's weights: what the model was trained for.

`labels.txt` lists the classes, in the order of the logits; `model_input.json` describes the input.
"""

import dataclasses
import os
import re
import unicodedata
from collections.abc import Sequence

from bert_tf.errors import UserError, first_of, quoted
from bert_tf.files import whole_files
from bert_tf.files.storage import is_unicode
from bert_tf.start import lazy_tensorflow as tf

LABELS_FILE = "labels.txt"


def check_label(label: str, place: str, remedy: str = "rename it") -> None:
    """Raises UserError if the name of a class does not fit on a line of `labels.txt`.

    Such a name is empty, has a line break, begins or ends with white space, or is not Unicode.
    Control characters, except tabs, are also refused.
    """
    is_line = label.splitlines() == [label] and label == label.strip().removeprefix("\ufeff")
    if not is_line or not is_unicode(label):
        raise UserError(
            f"{place}: the class {quoted(label)} must be text on one line, not empty and without"
            f" white space at its ends, so that {LABELS_FILE} can hold it; {remedy}"
        )
    # A terminal would obey control characters, and names of classes reach logs and results.
    if any(unicodedata.category(char) == "Cc" for char in label.replace("\t", "")):
        raise UserError(
            f"{place}: the class {quoted(label)} must not have control characters; {remedy}"
        )


def is_tag(label: str, letters: str = "BI") -> bool:
    """Returns whether a class is `O`, or one of these letters (default: IOB's), `-` and a type."""
    return re.fullmatch(f"O|[{letters}]-.+", label) is not None


def labels_in(folder: str) -> list[str] | None:
    """Reads the classes in a folder's `labels.txt`; None if there is no such file."""
    path = os.path.join(folder, LABELS_FILE)
    if not tf.io.gfile.exists(path):
        return None
    rule = "it must have a class on each line, as --do_train writes it"
    text = whole_files.read_text(path, path, rule)
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    numbers: dict[str, int] = {}
    for number, label in enumerate(lines, 1):
        place = f"{path}, line {number}"
        check_label(label, place, "correct the line")
        if label in numbers:
            raise UserError(
                f"{place}: the class {quoted(label)} is also on line {numbers[label]}; correct one"
                " of the lines"
            )
        numbers[label] = number
    return lines


def write_labels(folder: str, labels: Sequence[str] | None) -> None:
    """Writes `labels.txt`, one class a line; None removes an earlier model's file."""
    path = os.path.join(folder, LABELS_FILE)
    if labels is None:
        if tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)
        return
    for label in labels:
        check_label(label, path)
    whole_files.write_whole(path, "".join(f"{label}\n" for label in labels))


MODEL_INPUT_FILE = "model_input.json"
TEXTS, PAIRS, CHOICES = "texts", "pairs", "choices"
_CHOICES_OF = {"reads": (TEXTS, PAIRS, CHOICES), "long_text": ("mean", "max")}


@dataclasses.dataclass(frozen=True)
class ModelInput:
    """What a model was fine-tuned on; a field is None if unknown.

    reads: "texts", "pairs" of texts, or a text with "choices"; None also for a mix.
    max_seq_length: length of the sequences in word pieces, [CLS] and [SEP] included.
    long_text: "mean" or "max" if long texts were split into windows; None if they were cut.
    window_stride: word pieces between the starts of windows; None for half of a window's room.
    """

    reads: str | None = None
    max_seq_length: int | None = None
    long_text: str | None = None
    window_stride: int | None = None


def read_model_input(folder: str) -> ModelInput:
    """Reads a folder's `model_input.json`; without the file, nothing is known."""
    path = os.path.join(folder, MODEL_INPUT_FILE)
    found = whole_files.read_checked(path)
    rule = "correct it, or delete it; the model is then used without these notes"
    names = [field.name for field in dataclasses.fields(ModelInput)]
    if not found.keys() <= {*names}:
        raise UserError(
            f"{path} may only have the keys {', '.join(names)}; it has {first_of([*found])}; {rule}"
        )
    for name, value in found.items():
        choices = _CHOICES_OF.get(name)
        fits = value in choices if choices else type(value) is int and value > 0
        if not fits and value is not None:
            what = f"one of {', '.join(choices)}" if choices else "a whole number above 0"
            raise UserError(f"{path}: {name} must be {what}; it is {quoted(value)}; {rule}")
    return ModelInput(**found)


def write_model_input(folder: str, model_input: ModelInput) -> None:
    """Writes `model_input.json`; if nothing is known, removes an earlier model's."""
    path = os.path.join(folder, MODEL_INPUT_FILE)
    if model_input != ModelInput():
        values = dataclasses.asdict(model_input)
        for name in ("long_text", "window_stride"):
            if values[name] is None:
                del values[name]
        whole_files.write_json(path, values)
    elif tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)
