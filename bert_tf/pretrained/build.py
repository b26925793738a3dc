"""Builds the Keras model with a head from the weights in a folder."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.bounds import inputs_were_checked
from bert_tf.errors import UserError, listed
from bert_tf.model.configuration import BertConfig
from bert_tf.model.layers import ROUNDED, only_answering
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.forward import Compute
from bert_tf.pretrained.pooling import text_vectors
from bert_tf.seeds import reading_weights
from bert_tf.tasks.arguments import received
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.pretraining.training.electra import pretraining_model
from bert_tf.tasks.registry import HEADS, TASKS
from bert_tf.tasks.squad.model import JointSquadModel, head_options

INPUTS = ("input_ids", "input_mask", "segment_ids")
POSITIONS = "masked_lm_positions"
Tensors = Mapping[str, tf.Tensor]
Outputs = Callable[[Tensors], dict[str, tf.Tensor]]

# Weights that a checkpoint may lack if no output depends on them.
_OPTIONAL = ("bert/pooler/", "cls/seq_relationship/")


def new_model(head: str, config: BertConfig, num_labels: int, dtype: Any = None) -> keras.Model:
    """Returns a Keras model with a head of `registry.HEADS`; without a head if `head` is ""."""
    if head == "masked_lm":
        return pretraining_model(config, electra={"electra_objective": False}, dtype=dtype)
    task = next((task for task in TASKS.values() if head in task.heads), None)
    if task is None:
        return FeaturesModel(config, dtype=dtype)
    return task.make_model(head, config, num_labels, dtype)


def build_model(
    head: str, folder: ModelFolder, dtype: keras.DTypePolicy | str | None = None
) -> keras.Model:
    """Returns a Keras model with a head and the weights of a folder."""
    joint = head_options(folder.shapes)
    with reading_weights(all_are_set=True):
        if head == "squad" and joint:
            model = JointSquadModel(folder.config, **joint, dtype=dtype)
        else:
            model = new_model(head, folder.config, max(1, len(folder.labels)), dtype)
    row = HEADS.get(head)
    optional = () if row and row.needs_pooler else _OPTIONAL
    wrong = []
    for variable in model.variables:
        shape = folder.shapes.get(variable.path)
        if shape is None and variable.path.startswith(optional):
            variable.assign(np.zeros(variable.shape))
            continue
        if shape is None or list(shape) != list(variable.shape):
            found = "missing" if shape is None else f"{list(shape)}"
            wrong.append(f"{variable.path}: {found}, not {list(variable.shape)}")
            continue
        variable.assign(folder.read(variable.path))
        if row and variable.path in row.biases and not variable.numpy().any():
            logging.warning(
                "%s: the bias of the head for %s is zero, so the head was never trained, and its"
                " answers are meaningless. Fine-tune the model first",
                *(folder.path, row.shown),
            )
    folder.forget()
    if wrong:
        raise UserError(
            f"{folder.path} must have the weights of the model that its configuration describes;"
            f" {len(wrong)} are missing or have the wrong shape: {listed(wrong[:3])}"
        )
    return model


def initialize(
    folder: ModelFolder, read: Callable[[str], np.ndarray], variables: Mapping[str, tf.Variable]
) -> None:
    """Sets variables to a folder's weights; a head's variables only if the folder has a head."""
    missing = []
    for name, variable in variables.items():
        of_bert = name.startswith(f"{folder.config.scope}/")
        if name in folder.shapes and (of_bert or folder.heads):
            variable.assign(read(name))
        elif of_bert:
            missing.append(name)
    if missing:
        logging.warning(
            "Not in %s, so left at their initial values: %s", folder.path, listed(missing)
        )


def head_outputs(head: str, model: keras.Model) -> Outputs:
    """Returns a function from features by name to a head's outputs by name, float32.

    masked_lm: `logits` [B, P, V], at the positions `masked_lm_positions`, int32 [B, P].
    squad: `start_logits` and `end_logits` [B, S], or the outputs of `JointSquadModel`.
    Any other head: `logits`.
    """

    def outputs(features: Tensors) -> dict[str, tf.Tensor]:
        if head == "masked_lm":
            logits = model(*(features[name] for name in (*INPUTS, POSITIONS)))[0]  # [B*P, V]
            shape = tf.shape(features[POSITIONS])
            return {"logits": tf.reshape(logits, [shape[0], shape[1], logits.shape[-1]])}
        found = model(features)
        if head == "squad" and not isinstance(found, dict):
            return dict(zip(("start_logits", "end_logits"), found, strict=True))
        return found if head == "squad" else {"logits": found}

    return outputs


def traced(outputs: Outputs, names: Sequence[str]) -> Compute:
    """Traces a function of tensors once; returns a function of arrays, name -> int32 [B, S]."""
    spec = {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}
    # TensorFlow counts traces by a function's source lines, over all models, and warns if there are
    # many. It counts each partial separately.
    own = functools.partial(only_answering()(inputs_were_checked()(outputs)))
    function = tf.function(own, input_signature=[spec], autograph=False)

    def compute(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = function({name: tf.constant(array) for name, array in arrays.items()})
        return {name: value.numpy() for name, value in found.items()}

    return compute


class KerasRuntime:
    """Computes batches with a folder's Keras models; `main` has the folder's first head."""

    def __init__(self, folder: ModelFolder, dtype: keras.DTypePolicy | str | None):
        self.model = functools.cache(lambda head: build_model(head, folder, dtype))
        self.main = self.model(next((x for x in folder.heads if x != "next_sentence"), ""))

    def head(self, name: str) -> Compute:
        names = (*INPUTS, POSITIONS) if name == "masked_lm" else INPUTS
        return traced(head_outputs(name, self.model(name)), names)

    def vectors(self, poolings: Sequence[str], num_skipped: int) -> Compute:
        def outputs(features: Tensors) -> dict[str, tf.Tensor]:
            output = self.main.bert(*(features[name] for name in INPUTS))
            mask = features["input_mask"]
            return {"vector": text_vectors(output, mask, poolings, num_skipped)}

        return traced(outputs, INPUTS)

    def attention(self) -> Compute:
        def outputs(features: Tensors) -> dict[str, tf.Tensor]:
            output = self.main.bert(*(features[name] for name in INPUTS))
            probabilities = tf.stack(output.attention_probs, axis=1)
            return {"probabilities": tf.cast(probabilities, tf.float32)}

        return traced(outputs, INPUTS)


_CPU_INFO = Path("/proc/cpuinfo")
_DTYPES = ("float32", "bfloat16", "mixed_bfloat16", "auto")


def answering_dtype(dtype: str | None) -> keras.DTypePolicy | str | None:
    """Returns the dtype policy for `load`'s argument `dtype`, and warns if it is slow here."""
    if dtype not in (None, *_DTYPES):
        raise UserError(
            f"dtype must be one of {', '.join(_DTYPES)}, or None, for Keras's global policy:"
            f" float32 if it was not set; {received(dtype)}"
        )
    if dtype == "auto":
        return ROUNDED if multiplies_bfloat16() else "float32"
    if dtype in ("bfloat16", "mixed_bfloat16") and not multiplies_bfloat16():
        _warn()
    return ROUNDED if dtype == "bfloat16" else dtype


@functools.cache
def _warn() -> None:
    # Measured on an Intel Xeon (Sapphire Rapids) without AMX; see docs/devices.md.
    logging.warning(
        'dtype="bfloat16" is slow on this processor, which lacks fast bfloat16: on a similar'
        ' processor float32 was 1.9 times as fast. load(..., dtype="auto") chooses float32 here'
    )


def multiplies_bfloat16() -> bool:
    """Returns whether the device multiplies bfloat16 faster than float32."""
    # Faster on GPUs from compute capability 8.0, on processors with `amx_bf16`, and on AMD's with
    # `avx512_bf16`. Intel's `avx512_bf16` without AMX is slower than float32.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = map(tf.config.experimental.get_device_details, gpus)
        return all(x.get("compute_capability", (0, 0)) >= (8, 0) for x in details)
    try:
        lines = _CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return False
    flags = {word for line in lines if line.startswith("flags") for word in line.split()}
    is_amd = any(line.startswith("vendor_id") and "AuthenticAMD" in line for line in lines)
    return "amx_bf16" in flags or (is_amd and "avx512_bf16" in flags)
