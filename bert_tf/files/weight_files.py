"""Hugging Face's weight files: which one a folder has, and how to convert other formats."""

import os

from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.paths import names_in
from bert_tf.files.whole_files import check_no_pointer
from bert_tf.start import lazy_tensorflow as tf

SAFETENSORS = "model.safetensors"
SHARDS = "model.safetensors.index.json"  # names the file of each tensor
SAVED_MODEL = "saved_model.pb"  # in a module of TF Hub, beside the folder `variables`
# File -> the argument with which transformers reads it. Version 5 only reads PyTorch's files.
_OTHERS = {
    "pytorch_model.bin": "",
    "pytorch_model.bin.index.json": "",
    "tf_model.h5": ", from_tf=True",
    "tf_model.h5.index.json": ", from_tf=True",
    "flax_model.msgpack": ", from_flax=True",
}
_CONVERT = (
    "python -c \"import transformers as t; f = '{folder}'; c = t.AutoConfig.from_pretrained(f);"
    ' getattr(t, c.architectures[0]).from_pretrained(f{option}).save_pretrained(f)"'
)
_ADAPTER = "adapter_config.json"  # of the packages peft and adapters
_MERGE = (
    "python -c \"import peft; peft.AutoPeftModel.from_pretrained('{folder}').merge_and_unload()"
    ".save_pretrained('MERGED')\""
)


def safetensors_in(folder: str) -> str | None:
    """Returns the path of a folder's safetensors file, or of the index of its shards."""
    return storage.first_file(folder, (SAFETENSORS, SHARDS))


def folder_named(path: str) -> str:
    """Returns the folder of a file with Hugging Face's weights; any other path unchanged."""
    if os.path.basename(path) in (SAFETENSORS, SHARDS):
        return os.path.dirname(path) or "."
    return path


def has_checkpoint(folder: str) -> bool:
    """Returns whether a folder has a checkpoint, a file that names one, or is a SavedModel."""
    if not tf.io.gfile.isdir(folder) or tf.io.gfile.exists(f"{folder}.index"):
        return False  # on ram:// a prefix also counts as a directory
    names = names_in(folder)
    return any(x in ("checkpoint", SAVED_MODEL) or x.endswith(".index") for x in names)


def is_hugging_face(folder: str) -> bool:
    """Returns whether programs read a folder's safetensors file; they prefer a checkpoint."""
    return safetensors_in(folder) is not None and not has_checkpoint(folder)


def check_no_other_weights(folder: str, place: str) -> None:
    """Raises UserError for weights that are not safetensors; the message says how to convert."""
    check_no_adapter(folder)
    path = storage.first_file(folder, tuple(_OTHERS))
    if path is not None:
        check_no_pointer(path, path)
        name = os.path.basename(path)
        raise UserError(
            f"{place} has its weights in {name}, but {SAFETENSORS} is needed. Make it with: "
            + _CONVERT.format(folder=folder, option=_OTHERS[name])
        )


def check_no_adapter(folder: str) -> None:
    """Raises UserError if a folder has an adapter, which changes what the weights compute."""
    path = os.path.join(folder, _ADAPTER)
    if tf.io.gfile.exists(path):
        raise UserError(
            f"{path} says that the model has an adapter (LoRA or the like), which changes what the"
            " weights compute and is not supported. Merge it into the weights with: "
            + _MERGE.format(folder=folder)
            + ", and copy the tokenizer's files to MERGED. If it is merged already, delete"
            f" {_ADAPTER}"
        )


def check_not_hugging_face(path: str, place: str) -> None:
    """Raises UserError, naming the converter, for a folder or file in Hugging Face's format."""
    folder = path
    if os.path.basename(path) in (SAFETENSORS, SHARDS, *_OTHERS) and not tf.io.gfile.isdir(path):
        folder = os.path.dirname(path)
    elif not tf.io.gfile.isdir(path):
        return
    converter = (
        f"`python -m tools.convert_checkpoint --input={folder} --output_dir=FOLDER`, and give"
        " FOLDER/bert_model.ckpt"
    )
    if safetensors_in(folder):
        raise UserError(
            f"{place} must be a checkpoint; it is a model in Hugging Face's format. Convert it with"
            f" {converter}"
        )
    try:
        check_no_other_weights(folder, place)
    except UserError as error:
        raise UserError(f"{error}. Then convert it with {converter}") from error
