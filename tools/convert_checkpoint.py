r"""Converts BERT weights between Hugging Face's format and google-research/bert's.

    python -m tools.convert_checkpoint --input=FOLDER --output_dir=FOLDER
    python -m tools.convert_checkpoint --input=bert_model.ckpt --output_dir=FOLDER \
        --output_format=safetensors

--input is one of

    a folder of Hugging Face's, with model.safetensors and config.json
    a checkpoint: the prefix of its files, or its folder, such as that of --export_dir
    the --output_dir of a run: its newest checkpoint

--output_format says what is written to --output_dir:

    checkpoint    bert_model.ckpt.index and .data-..., bert_config.json, vocab.txt, labels.txt,
                  tokenizer_config.json
    safetensors   model.safetensors, config.json, vocab.txt, tokenizer_config.json

Every weight keeps its bits; only its name changes, and kernels are transposed. The bias of the
multiple-choice head exists only in Hugging Face's format. It is added to the score of every choice
and changes no probability, so a checkpoint omits it, and model.safetensors has zero.

From a checkpoint to a checkpoint, the optimizer's slots and the step are omitted, two thirds of a
fine-tuned checkpoint. Its other variables may have any names.

The configuration and the vocabulary are read from the folder of --input, or from --bert_config_file
and --vocab_file: an --output_dir has neither. So are

*   the names of the classes: labels.txt of run_classifier and run_tagging, `id2label` of
    config.json. They also distinguish a tagger from a classifier, whose variables have the same
    names: a tagger has the class O, and its other classes begin with B- or I-. A tagger with other
    tags is written as BertForSequenceClassification; correct `architectures` in its config.json.
*   the casing: `do_lower_case` in tokenizer_config.json. If it is not recorded, a cased vocabulary
    gives it.

The formats differ in two ways. `gelu` is the tanh form in google-research/bert and the exact form
in Hugging Face's models, so the outputs of a converted `gelu` model of theirs differ by about
0.001; `gelu_new` is the tanh form. And the epsilon of LayerNorm is always 1e-12 in bert_tf.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_tf.errors import UserError
from bert_tf.files import checkpoints, storage
from bert_tf.files.label_file import labels_in, write_labels
from bert_tf.files.whole_files import write_whole
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import command_flags
from bert_tf.text.casing import is_cased, read_casing, write_casing

from . import bert_weights, hugging_face_config

CHECKPOINT_NAME = "bert_model.ckpt"
SAFETENSORS_NAME = "model.safetensors"
_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": tf.bfloat16.as_numpy_dtype}
# Tensors of Hugging Face's that are not weights: constants, and copies of other weights.
_BUFFERS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")
_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def read_safetensors(folder: str) -> tuple[dict[str, np.ndarray], dict[str, Any], list[str] | None]:
    """Returns the weights under a checkpoint's names, the `bert_config.json`, and the classes.

    The weights are float32. The classes are those of `hugging_face_config.class_names`.

    Args:
        folder: holds `model.safetensors` and `config.json`.

    Raises:
        UserError: safetensors is not installed, a file is missing or damaged, or the model is not
            a BERT of the published architecture.
    """
    safetensors = _import_safetensors()
    path = os.path.join(folder, SAFETENSORS_NAME)
    config_path = os.path.join(folder, "config.json")
    config = hugging_face_config.read_config(config_path)
    bert_config = hugging_face_config.to_bert_config(config, config_path)
    try:
        tensors = dict(safetensors.deserialize(_read(path)))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}") from error
    by_name: dict[str, dict[str, Any]] = {}
    for full_name in sorted(tensors):
        name = full_name.removeprefix("bert.")
        # Names in files that are older than the format, such as bert-base-uncased's.
        name = re.sub("LayerNorm.gamma$", "LayerNorm.weight", name)
        name = re.sub("LayerNorm.beta$", "LayerNorm.bias", name)
        if name in by_name:
            raise UserError(f"{path} has {name} twice, with and without the prefix `bert.`")
        if not _BUFFERS.search(name):
            by_name[name] = tensors[full_name]
    for tied, name in _TIED.items():
        copy = by_name.pop(tied, None)
        if copy is not None and copy["data"] != by_name.get(name, copy)["data"]:
            raise UserError(
                f"{path}: {tied} must equal {name}, since google-research/bert has one variable"
                " for both; they differ"
            )
    shapes = {name: tensor["shape"] for name, tensor in by_name.items()}
    known = bert_weights.parts(
        BertConfig.from_dict(bert_config), hugging_face_config.is_multiple_choice(config)
    )
    present = bert_weights.present_parts(known, shapes, "other_name", path)

    dtypes = {tensor["dtype"] for tensor in by_name.values()}
    if not dtypes.issubset(_DTYPES):
        raise UserError(
            f"{path}: weights must be of type {', '.join(_DTYPES)}; found"
            f" {', '.join(sorted(dtypes.difference(_DTYPES)))}"
        )
    if dtypes != {"F32"}:
        logging.warning("%s holds weights of type %s: now float32", path, ", ".join(sorted(dtypes)))
    weights = {}
    for weight in (weight for part in present.values() for weight in part):
        tensor = by_name[weight.other_name]
        value = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]]).astype(np.float32)
        value = value.reshape(tensor["shape"])
        weights[weight.name] = value.T if weight.transposed else value
    if "multiple-choice head" in present:
        del weights["output_bias"]
        logging.info(
            "%s: the bias of the multiple-choice head is omitted: it is the same for all choices"
            " and changes no probability",
            path,
        )
    labels = None
    if "classifier" in present:
        labels = hugging_face_config.class_names(config, len(weights["output_bias"]), config_path)
    return weights, bert_config, labels


def read_checkpoint(path: str) -> dict[str, np.ndarray]:
    """Returns the variables of a checkpoint by name, without the optimizer's slots and the step.

    Args:
        path: see `checkpoints.find_prefix`.

    Raises:
        UserError: there is no checkpoint, or it is damaged.
    """
    reader = checkpoints.open_checkpoint(path, "input")
    names = [n for n in reader.get_variable_to_shape_map() if not checkpoints.SLOT_PATTERN.match(n)]
    try:
        return {name: reader.get_tensor(name) for name in sorted(names)}
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
        raise UserError(f"--input={path} is damaged: {error}") from error


def to_safetensors(
    variables: Mapping[str, np.ndarray],
    bert_config: Mapping[str, Any],
    path: str,
    labels: Sequence[str] | None = None,
) -> tuple[bytes, dict[str, Any]]:
    """Returns a `model.safetensors` and its `config.json`.

    Args:
        variables: the variables of a checkpoint by name, without slots.
        bert_config: its `bert_config.json`.
        path: the checkpoint, for messages.
        labels: the names of the classes; None if unknown. Those of a tagger are tags.

    Raises:
        UserError: safetensors is not installed, or the variables are not those of a BERT model with
            heads that both formats have.
    """
    safetensors = _import_safetensors()
    shapes = {name: value.shape for name, value in variables.items()}
    multiple_choice = shapes.get("output_weights", ())[:1] == (1,) and "output_bias" not in shapes
    if multiple_choice:
        variables = {**variables, "output_bias": np.zeros(1, np.float32)}
        shapes["output_bias"] = (1,)
    known = bert_weights.parts(BertConfig.from_dict(dict(bert_config)), multiple_choice)
    present = bert_weights.present_parts(known, shapes, "name", path)
    # Hugging Face's names begin with "bert." if the model has a head.
    prefix = "bert." if set(present) - {"encoder", "pooler"} else ""
    tensors = {}
    for part, weights in present.items():
        for weight in weights:
            value = variables[weight.name]
            name = (prefix if part in ("encoder", "pooler") else "") + weight.other_name
            tensors[name] = np.ascontiguousarray(value.T if weight.transposed else value)
    num_outputs = len(variables["output_bias"]) if "classifier" in present else 0
    config = hugging_face_config.to_config(bert_config, present, labels, num_outputs)
    logging.info("%s is written as %s", path, config["architectures"][0])
    return safetensors.numpy.save(tensors, metadata={"format": "pt"}), config


def convert(
    source: str,
    output_dir: str,
    output_format: str,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
) -> None:
    """Writes a model in another format.

    Args:
        source: --input.
        output_dir, output_format, bert_config_file, vocab_file: the flags of these names.

    Raises:
        UserError: a file is missing or damaged, or does not hold a BERT model.
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    if _same_folder(source, output_dir):
        raise UserError(
            f"--output_dir={output_dir} must not be the folder of --input, whose files it would"
            " replace"
        )
    if tf.io.gfile.exists(os.path.join(source, SAFETENSORS_NAME)):
        if output_format == "safetensors" or bert_config_file:
            raise UserError(
                f"--input={source} has a {SAFETENSORS_NAME}: it can be converted to"
                " --output_format=checkpoint only, and its configuration is its config.json, not"
                " --bert_config_file"
            )
        folder = source
        variables, config, labels = read_safetensors(folder)
    else:
        _check_checkpoint(source)
        folder = os.path.dirname(checkpoints.find_prefix(source, "input"))
        config_file = bert_config_file or os.path.join(folder, "bert_config.json")
        config = BertConfig.from_json_file(config_file).to_dict()
        variables = read_checkpoint(source)
        labels = labels_in(folder)

    beside = os.path.join(folder, "vocab.txt")
    if vocab_file is None and tf.io.gfile.exists(beside):
        vocab_file = beside
    vocab = _read(vocab_file) if vocab_file else None
    if vocab is None:
        logging.warning("There is no vocab.txt beside --input and no --vocab_file: none is written")

    storage.make_output_dir(output_dir)
    if output_format == "safetensors":
        tensors, config = to_safetensors(variables, config, source, labels)
        write_whole(os.path.join(output_dir, SAFETENSORS_NAME), tensors)
    else:
        checkpoints.write(os.path.join(output_dir, CHECKPOINT_NAME), variables)
        write_labels(output_dir, labels)
    config_name = "config.json" if output_format == "safetensors" else "bert_config.json"
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    write_whole(os.path.join(output_dir, config_name), text.encode())
    if vocab is not None:
        write_whole(os.path.join(output_dir, "vocab.txt"), vocab)
    write_casing(output_dir, _casing(folder, vocab_file, vocab))
    size = sum(value.size for value in variables.values())
    logging.info("%s: %d variables, %d parameters", output_dir, len(variables), size)


def _same_folder(source: str, output_dir: str) -> bool:
    folder = checkpoints.folder_of(source)
    return os.path.realpath(folder or ".") == os.path.realpath(output_dir)


def _check_checkpoint(source: str) -> None:
    """Checks that --input, if it is a directory, has a checkpoint."""
    if checkpoints.folder_of(source) == source:
        names = sorted(tf.io.gfile.listdir(source))
        if not any(name == "checkpoint" or name.endswith(".index") for name in names):
            raise UserError(
                f"--input={source} must have {SAFETENSORS_NAME} and config.json, or a checkpoint,"
                f" PREFIX.index and PREFIX.data-00000-of-...; it has {names}"
            )


def _casing(folder: str, vocab_file: str | None, vocab: bytes | None) -> bool | None:
    """Returns the model's `do_lower_case`; None if it is unknown.

    Args:
        folder: of --input.
        vocab_file: path of the vocabulary, if there is one.
        vocab: its content.
    """
    casing = read_casing(folder)
    if casing is None and vocab_file:
        casing = read_casing(os.path.dirname(vocab_file))
    if casing is None and vocab and is_cased(vocab.decode("utf-8", "replace").split("\n")):
        logging.info("%s is a cased vocabulary: do_lower_case is recorded as false", vocab_file)
        casing = False
    return casing


def _import_safetensors() -> ModuleType:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise UserError(
            f"{SAFETENSORS_NAME} needs safetensors; run `pip install safetensors` or install the"
            f" extra `convert` ({error})"
        ) from error
    return safetensors


def _read(path: str) -> bytes:
    try:
        with tf.io.gfile.GFile(path, "rb") as reader:
            return reader.read()
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from error


def _define_flags() -> None:
    flags.DEFINE_string(
        "input",
        None,
        "A folder with model.safetensors; a checkpoint, its folder or an --export_dir; or the"
        " --output_dir of a run.",
        required=True,
    )
    flags.DEFINE_string("output_dir", None, "Folder to write to.", required=True)
    flags.DEFINE_enum("output_format", "checkpoint", ["checkpoint", "safetensors"], "Format.")
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "Configuration of a checkpoint; by default bert_config.json in its folder.",
    )
    flags.DEFINE_string(
        "vocab_file", None, "Vocabulary; by default vocab.txt in the folder of --input."
    )


def main() -> None:
    """Reads the flags and converts."""
    settings = flags.FLAGS
    for name in ("input", "output_dir"):
        storage.check_file_system(settings[name].value, name)
    convert(
        settings.input,
        settings.output_dir,
        settings.output_format,
        settings.bert_config_file,
        settings.vocab_file,
    )


if __name__ == "__main__":
    _define_flags()
    command_flags.run_program(main)
