"""Refuses wrong inputs within an exported graph: shapes that differ, and numbers out of range.

Without a check the runtimes answer: they repeat a mask of size 1, count negative ids from the end
of a table, and give an unknown segment an embedding of zeros.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.pretrained.build import INPUTS, POSITIONS, Tensors

_OF_IDS = "the shape of input_ids"


def asserted(
    features: Tensors, specs: Mapping[str, tf.TensorSpec], config: BertConfig
) -> dict[str, tf.Tensor]:
    """Returns the inputs of a head; a wrong one fails with a message. For a SavedModel.

    Args:
        features: inputs by name.
        specs: from `signatures.input_specs`.
        config: the model's sizes.
    """
    # A signature does not check ranks.
    features = {name: tf.ensure_shape(x, specs[name].shape) for name, x in features.items()}
    shape, checks = tf.shape(features["input_ids"]), []
    for name in INPUTS[1:]:
        own = tf.shape(features[name])
        message = f"{name} must have {_OF_IDS}; received", own, "and", shape
        checks.append(tf.debugging.Assert(tf.reduce_all(own == shape), [*message]))
    if POSITIONS in features:
        rows = tf.shape(features[POSITIONS])[0]
        message = f"{POSITIONS} must have as many rows as input_ids; received", rows, shape[0]
        checks.append(tf.debugging.Assert(rows == shape[0], [*message]))
    for name, limit in _limits(features, config).items():
        values = features[name]
        lowest, highest = tf.reduce_min(values), tf.reduce_max(values)
        right = (tf.size(values) == 0) | ((lowest >= 0) & (highest < limit))
        message = f"{name} must be from 0 to", limit - 1, "; received", lowest, "to", highest
        checks.append(tf.debugging.Assert(right, [*message]))
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in features.items()}


def looked_up(
    features: Tensors, specs: Mapping[str, tf.TensorSpec], config: BertConfig
) -> dict[str, tf.Tensor]:
    """Returns the inputs of a head; a wrong one fails. For LiteRT, which cannot assert.

    The inputs are stacked and sliced, which fails if their shapes or ranks differ. Each number is
    looked up in a list of the numbers that are right.

    Args: see `asserted`.
    """
    found = dict(features)
    stacked = tf.stack([features[name] for name in INPUTS])
    axes = len(specs["input_ids"].shape)
    for i, name in enumerate(INPUTS):
        found[name] = tf.squeeze(tf.slice(stacked, [i] + axes * [0], [1] + axes * [-1]), 0)
    if POSITIONS in features:
        together = [found["input_ids"][:, :1], features[POSITIONS]]
        found[POSITIONS] = tf.concat(together, 1)[:, 1:]
    for name, limit in _limits(found, config).items():
        found[name] = tf.gather(tf.range(limit), found[name])
    return found


def _limits(features: Tensors, config: BertConfig) -> dict[str, int | tf.Tensor]:
    """Returns the number that each input must be below."""
    limits: dict[str, int | tf.Tensor] = {"input_ids": config.vocab_size, "input_mask": 2}
    if config.has_token_types:
        limits["segment_ids"] = config.type_vocab_size
    if POSITIONS in features:
        limits[POSITIONS] = tf.shape(features["input_ids"])[-1]
    return limits
