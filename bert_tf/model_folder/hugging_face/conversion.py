"""Reads and makes `model.safetensors` and `config.json`; weights have this library's names."""

import functools
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from absl import logging

from bert_tf.errors import UserError, listed, needs_package, quoted
from bert_tf.files import storage
from bert_tf.files.weight_files import SAFETENSORS, SHARDS, check_no_adapter, safetensors_in
from bert_tf.files.whole_files import check_no_pointer, read_bytes, read_json
from bert_tf.files.whole_folders import Unreplaced
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import ElectraConfig, RobertaConfig
from bert_tf.model_folder.hugging_face import config as hugging_face_config
from bert_tf.model_folder.hugging_face import distilbert, electra, roberta
from bert_tf.model_folder.hugging_face.bert import Weight, present_parts
from bert_tf.start import lazy_tensorflow as tf

_WRONG_HEADER = (AttributeError, LookupError, TypeError, ValueError)
_SIZE, _MOST = 8, 100_000_000  # bytes: the field with the header's size; the longest header
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# Hugging Face's tensors that are not weights but constants.
_BUFFERS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")


class ConvertedModel:
    """A model in Hugging Face's format, with this library's names.

    The weights are read on first use; the constructor only reads `config.json` and the headers of
    the safetensors files. `labels` are from `class_names`, and `task` is from `task_of`; for the
    rest see `checkpoints.WeightReader`.
    """

    def __init__(self, folder: str):
        check_no_adapter(folder)
        self.prefix = path = safetensors_in(folder) or os.path.join(folder, SAFETENSORS)
        config_path = os.path.join(folder, "config.json")
        self._files = Unreplaced(folder, ("config.json", os.path.basename(path)), folder)
        _import_safetensors()
        content = hugging_face_config.read_config(config_path)
        self.config = config = hugging_face_config.to_bert_config(content, config_path)
        self._module = module = hugging_face_config.module_of(config)
        tensors = _canonical_names(_read_files(path, _read_header), module.PREFIX, path)
        for copy in module.TIED:
            tensors.pop(copy, None)
        self.task = hugging_face_config.task_of(content)
        if isinstance(config, RobertaConfig):
            self.task = roberta.drop_unused_pooler(tensors, self.task, path)
        theirs = {name: tensor["shape"] for name, tensor in tensors.items()}
        parts = _present_parts(config, self.task, theirs, "other_name", path)
        self._weights = [*itertools.chain.from_iterable(parts.values())]
        shapes = {x.name: theirs[x.other_name][:: -1 if x.transposed else 1] for x in self._weights}
        if module is distilbert:
            shapes |= {name: [*x.shape] for name, x in distilbert.token_types(config).items()}
        if "multiple-choice head" in parts:
            del shapes["output_bias"]
            logging.info(
                "%s: the bias of the multiple-choice head is omitted: it is the same for all"
                " choices, so probabilities do not depend on it",
                path,
            )
        self.labels = None
        if "classifier" in parts:
            (count,) = shapes["output_bias"]
            self.labels = hugging_face_config.class_names(content, count, config_path)
            if self.task != "ForTokenClassification":
                config.problem_type = hugging_face_config.problem_type(content, count, config_path)
                if config.is_multi_label:
                    config.threshold = hugging_face_config.threshold(content, config_path)
        if "masked-LM head" in parts and content.get("tie_word_embeddings") not in (True, None):
            raise UserError(
                f"{config_path}: tie_word_embeddings must be true in a model with a masked-LM head,"
                f" not {quoted(content['tie_word_embeddings'])}: google-research/bert has one"
                " variable for both embeddings. Choose a different model"
            )
        is_tagger = hugging_face_config.is_tagger(shapes, self.labels)
        if self.task == "ForTokenClassification" and not is_tagger:
            shapes = self._without_pooler(shapes)
        self.shapes = shapes

    def _without_pooler(self, shapes: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Drops the pooler, for a tagger whose classes are not IOB tags: say, parts of speech."""
        if self._module is electra:
            raise UserError(
                f"{self.prefix} cannot be converted: it tags words with classes that are not IOB or"
                f" BIOES tags, {listed(self.labels or ['unnamed ones'])}, so its"
                " checkpoint would look like a text classifier's"
            )
        logging.info(
            "%s: the pooler is omitted: this tagger's outputs do not depend on it", self.prefix
        )
        return {k: v for k, v in shapes.items() if not k.startswith("bert/pooler/")}

    @functools.cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """Name in a checkpoint -> float32 value."""
        path = self.prefix
        with self._files:  # files may have been replaced since an earlier read
            tensors = _canonical_names(_read_files(path, _deserialize), self._module.PREFIX, path)
        for name, original in self._module.TIED.items():
            copy = tensors.get(name)
            if copy and copy["data"] != tensors.get(original, copy)["data"]:
                raise UserError(
                    f"{path}: {name} must equal {original}, since google-research/bert has one"
                    " variable for both; they differ"
                )
        dtypes = {tensors[x.other_name]["dtype"] for x in self._weights}
        if others := dtypes.difference(_DTYPES):
            raise UserError(
                f"{path}: weights must be of type {', '.join(_DTYPES)}; found"
                f" {listed(sorted(others))}. Convert them to F32, or choose a different model"
            )
        if dtypes != {"F32"}:
            types = ", ".join(sorted(dtypes))
            logging.warning("%s: weights converted from %s to float32", path, types)
        weights = {x.name: _in_float32(tensors[x.other_name], x, path) for x in self._weights}
        if self._module is distilbert:
            weights |= distilbert.token_types(self.config)
        return {name: weights[name] for name in self.shapes}

    @property
    def dtypes(self) -> dict[str, "tf.DType"]:
        return dict.fromkeys(self.shapes, tf.float32)

    def read(self, name: str) -> np.ndarray:
        return self.weights[name]

    def read_weights(self) -> dict[str, np.ndarray]:
        return self.weights

    def forget(self) -> None:
        """Frees the weights; the next use reads them again."""
        self.__dict__.pop("weights", None)


def _read_files(
    path: str, read: Callable[[str], dict[str, dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Returns the results of `read` for a file, or for all shards of an index together."""
    folder, name = os.path.split(path)
    if name != SHARDS:
        return read(path)
    index = read_json(path, path, "it must name the file of each weight")
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not all(
        isinstance(file, str) and storage.is_path(file) and file == os.path.basename(file)
        for file in files.values()
    ):
        raise UserError(
            f"{path} must have a weight_map with the name of each weight's file in this folder;"
            f" received {quoted(files)}"
        )
    tensors = {}
    for file in sorted(set(files.values())):
        found = read(os.path.join(folder, file))
        if wrong := {key for key, value in files.items() if value == file} ^ found.keys():
            raise UserError(
                f"{os.path.join(folder, file)} must have the weights that {SHARDS} names; they"
                f" differ in {quoted(min(wrong))}. Download both files again"
            )
        tensors |= found
    return tensors


def _read_header(path: str) -> dict[str, dict[str, Any]]:
    safetensors = _import_safetensors()
    check_no_pointer(path, path)
    try:
        if "://" not in path:
            with safetensors.safe_open(path, "np") as file:
                names = file.keys()
                return {name: {"shape": file.get_slice(name).get_shape()} for name in names}
        size = int.from_bytes(read_bytes(path, path, size=_SIZE), "little")
        header = json.loads(read_bytes(path, path, size=_SIZE + min(size, _MOST))[_SIZE:])
        header.pop("__metadata__", None)
        return {name: {"shape": x["shape"]} for name, x in header.items()}
    except (safetensors.SafetensorError, *_WRONG_HEADER) as error:
        raise _damaged(path, error) from error


def _deserialize(path: str) -> dict[str, dict[str, Any]]:
    safetensors = _import_safetensors()
    try:
        return dict(safetensors.deserialize(read_bytes(path, path)))
    except safetensors.SafetensorError as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> UserError:
    return UserError(f"{path} is damaged or not a safetensors file: {quoted(str(error))}")


def _canonical_names(
    tensors: Mapping[str, dict[str, Any]], prefix: str, path: str
) -> dict[str, dict[str, Any]]:
    """Returns the weights by their current names without the prefix, sorted by the old names."""
    by_name: dict[str, dict[str, Any]] = {}
    for full_name in sorted(tensors):
        name = full_name.removeprefix(prefix)
        # Names in files from before the current format, such as bert-base-uncased's.
        name = re.sub("LayerNorm.gamma$", "LayerNorm.weight", name)
        name = re.sub("LayerNorm.beta$", "LayerNorm.bias", name)
        if name in by_name:
            raise UserError(
                f"{path} must have each weight once; it has {quoted(name)} both with and without"
                f" the prefix `{prefix}`"
            )
        if not _BUFFERS.search(name):
            by_name[name] = tensors[full_name]
    return by_name


def _in_float32(tensor: Mapping[str, Any], weight: Weight, path: str) -> np.ndarray:
    import ml_dtypes  # comes with TensorFlow

    name = _DTYPES[tensor["dtype"]]
    value = np.frombuffer(tensor["data"], getattr(ml_dtypes, name, name))
    value = value.astype(np.float32, copy=False)
    if not np.isfinite(value).all():
        raise UserError(
            f"{path} is damaged: every weight must be a finite number, but"
            f" {np.sum(~np.isfinite(value))} of {value.size} in {weight.name} are not"
        )
    value = value.reshape(tensor["shape"])
    return value.T if weight.transposed else value


def to_safetensors(
    variables: Mapping[str, np.ndarray],
    bert_config: BertConfig,
    path: str,
    labels: Sequence[str] | None = None,
    as_distilbert: bool = False,
    as_generator: bool = False,
) -> tuple[bytes, dict[str, Any]]:
    """Returns a `model.safetensors` and its `config.json`, from variables without slots.

    `labels` are None if unknown, [] for a regression. `as_distilbert` writes a BERT model as a
    DistilBERT, `as_generator` the generator of an ELECTRA instead of the discriminator.
    """
    safetensors = _import_safetensors()
    if isinstance(bert_config, ElectraConfig):
        variables, bert_config = electra.one_model(variables, bert_config, as_generator, path)
    elif as_generator:
        raise UserError(
            f"--output_format=electra_generator needs an ELECTRA; {path} is of kind"
            f" {bert_config.NAME}"
        )
    if any(name.startswith("task_specific/") for name in variables):
        raise UserError(
            f"{path} cannot be converted: it has ELECTRA's heads for questions, and Hugging Face's"
            " format only has BERT's. Fine-tune without --joint_prediction and"
            " --answerable_classifier"
        )
    task = hugging_face_config.task_to_write({k: v.shape for k, v in variables.items()}, labels)
    if as_distilbert:
        bert_config = distilbert.config_of_bert(bert_config, task, path)
    module = hugging_face_config.module_of(bert_config)
    if module is distilbert:
        variables, task = distilbert.without_places(variables, task, path)
    if task == "ForMultipleChoice":
        variables = {**variables, "output_bias": np.zeros(1, np.float32)}
    shapes = {name: value.shape for name, value in variables.items()}
    present = _present_parts(bert_config, task, shapes, "name", path)
    # Hugging Face's names of encoder and pooler begin with the prefix if the model has a head.
    prefix = module.PREFIX if set(present) - {"encoder", "pooler"} else ""
    tensors = {}
    for part, weights in present.items():
        for weight in weights:
            value = variables[weight.name]
            name = (prefix if part in ("encoder", "pooler") else "") + weight.other_name
            tensors[name] = np.ascontiguousarray(value.T if weight.transposed else value)
    num_outputs = len(variables["output_bias"]) if "classifier" in present else 0
    config = hugging_face_config.to_config(bert_config, task, labels, num_outputs)
    size = sum(tensor.size for tensor in tensors.values())
    logging.info(
        "%s is written as %s: %d tensors, %d parameters",
        *(path, config["architectures"][0], len(tensors), size),
    )
    return safetensors.numpy.save(tensors, metadata={"format": "pt"}), config


def _present_parts(
    config: BertConfig, task: str, shapes: Mapping[str, Sequence[int]], key: str, path: str
) -> dict[str, Sequence[Weight]]:
    module = hugging_face_config.module_of(config)
    if module is electra:
        electra.check_task(task, path)
    present = present_parts(module.parts(config, task), shapes, key, path)
    if module is electra and "masked-LM head" in present:
        electra.check_activation(config, path)
    return present


def _import_safetensors() -> ModuleType:
    with needs_package(SAFETENSORS, "safetensors", "convert"):
        import safetensors
        import safetensors.numpy
    return safetensors
