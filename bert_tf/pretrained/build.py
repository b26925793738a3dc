"""Builds the Keras model with a given head from the weights in a folder."""

from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.seeds import reading_weights
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.pretraining.training.electra import pretraining_model
from bert_tf.tasks.squad.joint_model import JointSquadModel, head_options
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.tagging.model import TaggingModel

INPUTS = ("input_ids", "input_mask", "segment_ids")
POSITIONS = "masked_lm_positions"
Tensors = Mapping[str, tf.Tensor]
Outputs = Callable[[Tensors], dict[str, tf.Tensor]]

# Head -> its Keras model, built from a configuration, a number of classes and a dtype.
BUILDERS = {
    "masked_lm": lambda config, num_labels, dtype: pretraining_model(
        config, electra={"electra_objective": False}, dtype=dtype
    ),
    "classification": ClassificationModel,
    "regression": ClassificationModel,
    "tagging": TaggingModel,
    "multiple_choice": lambda config, num_labels, dtype: MultipleChoiceModel(config, dtype=dtype),
    "squad": lambda config, num_labels, dtype: SquadModel(config, dtype=dtype),
    "": lambda config, num_labels, dtype: FeaturesModel(config, dtype=dtype),
}
# Weights that a checkpoint may lack if no answer depends on them, and heads that need all weights.
_OPTIONAL = ("bert/pooler/", "cls/seq_relationship/")
_WITH_POOLER = ("classification", "regression", "multiple_choice")


def build_model(
    head: str, folder: ModelFolder, dtype: keras.DTypePolicy | str | None = None
) -> keras.Model:
    """Returns the Keras model with a head, its weights read from a folder.

    Args:
        head: a name in `BUILDERS`; "" for BERT without a head.
        dtype: see `dtype_policy`.

    Raises:
        UserError: weights that answers depend on are missing or have the wrong shape.
    """
    joint = head_options(folder.shapes)
    with reading_weights(all_are_set=True):
        if head == "squad" and joint:
            model = JointSquadModel(folder.config, **joint, dtype=dtype)
        else:
            model = BUILDERS[head](folder.config, max(1, len(folder.labels)), dtype=dtype)
    optional = () if head in _WITH_POOLER else _OPTIONAL
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
    folder.forget()
    if wrong:
        raise UserError(
            f"{folder.path} must have the weights of the model that its configuration describes;"
            f" {len(wrong)} are missing or have the wrong shape: {listed(wrong[:3])}"
        )
    return model


def head_outputs(head: str, model: keras.Model) -> Outputs:
    """Returns the function that computes a head's outputs, float32 by name, from features by name.

    masked_lm: `logits` [B, P, V], at the positions `masked_lm_positions`, int32 [B, P].
    squad: `start_logits` and `end_logits` [B, S], or what `JointSquadModel` returns.
    Any other head: `logits`.
    """

    def masked_lm(features: Tensors) -> dict[str, tf.Tensor]:
        logits = model(*(features[name] for name in (*INPUTS, POSITIONS)))[0]  # [B*P, V]
        shape = tf.shape(features[POSITIONS])
        return {"logits": tf.reshape(logits, [shape[0], shape[1], logits.shape[-1]])}

    def squad(features: Tensors) -> dict[str, tf.Tensor]:
        found = model(features)
        if isinstance(found, dict):
            return found
        start_logits, end_logits = found
        return {"start_logits": start_logits, "end_logits": end_logits}

    functions: dict[str, Outputs] = {"masked_lm": masked_lm, "squad": squad}
    return functions.get(head, lambda features: {"logits": model(features)})
