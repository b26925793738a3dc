"""The inputs and outputs of an exported model, for each head, by name.

Dimension letters and dtypes: see `bert_tf/modeling.py`. In addition, C is the number of classes or
choices, and P the number of masks in a text.
"""

import keras
import tensorflow as tf

from bert_tf.export.settings import ENCODER
from bert_tf.pretrained.build import INPUTS, POSITIONS, Outputs, Tensors, head_outputs
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.pooling import text_vectors

DEFAULT_SIGNATURE = "serving_default"


def input_specs(
    head: str, batch_size: int | None = None, seq_length: int | None = None
) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a head, each int32.

    `input_ids`, `input_mask` (1 for tokens, 0 for padding) and `segment_ids` (1 for the second
    text) are [B, S], for multiple choice [B, C, S]. The masked language model also takes
    `masked_lm_positions`, [B, P]: where the masks are, from 0 for [CLS].

    `batch_size` and `seq_length` are B and S if they are fixed. With a fixed S, P is 1 and C is 4.
    """
    shape = [batch_size, seq_length]
    if head == "multiple_choice":
        shape = [batch_size, None if seq_length is None else 4, seq_length]
    specs = {name: tf.TensorSpec(shape, tf.int32, name) for name in INPUTS}
    if head == "masked_lm":
        masks = None if seq_length is None else 1
        specs[POSITIONS] = tf.TensorSpec([batch_size, masks], tf.int32, POSITIONS)
    return specs


def outputs_of(head: str, model: keras.Model, folder: ModelFolder) -> Outputs:
    """Returns the function that computes a head's outputs by name, each float32.

    encoder: `sequence_output` [B, S, H], the last layer; `vectors` [B, H], as the folder's
        `encode` pools, normalises and truncates them; `pooled_output` [B, H], if the model has a
        pooler.
    masked_lm: `logits` [B, P, V].
    classification, multiple_choice: `logits` and `probabilities` [B, C].
    regression: `values` [B].
    tagging: `logits` and `probabilities` [B, S, C].
    squad: `start_logits` and `end_logits` [B, S].

    `model` has the head, and was read from `folder`.
    """
    compute, settings = head_outputs(head, model), folder.vectors

    def encoder(features: Tensors) -> dict[str, tf.Tensor]:
        output = model(*(features[name] for name in INPUTS))
        vectors = text_vectors(output, features["input_mask"], settings.poolings)
        if settings.normalize:
            vectors /= tf.norm(vectors, axis=-1, keepdims=True)
        vectors = vectors[:, : settings.truncate_dim]
        found = {"sequence_output": output.sequence_output, "vectors": vectors}
        if "bert/pooler/dense/kernel" in folder.shapes:
            found["pooled_output"] = output.pooled_output
        return {name: tf.cast(value, tf.float32) for name, value in found.items()}

    def classes(features: Tensors) -> dict[str, tf.Tensor]:
        logits = compute(features)["logits"]
        is_multi_label = head == "classification" and folder.config.is_multi_label
        probabilities = tf.sigmoid(logits) if is_multi_label else tf.nn.softmax(logits)
        return {"logits": logits, "probabilities": probabilities}

    def regression(features: Tensors) -> dict[str, tf.Tensor]:
        return {"values": compute(features)["logits"][:, 0]}

    special = {ENCODER: encoder, "regression": regression, "masked_lm": compute, "squad": compute}
    return special.get(head, classes)
