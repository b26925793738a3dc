"""The features of a tagging record, and the layers that the feature-based tagger reads."""

from collections.abc import Callable
from typing import Any, NamedTuple

from bert_tf.files import records
from bert_tf.start import lazy_tensorflow as tf


def tagging_schema(max_seq_length: int, weighted: bool = False) -> records.Schema:
    """Returns the schema of tagging records.

    Args:
        max_seq_length: length of every feature: `input_ids`, `input_mask` (1 = token, 0 = padding),
            `segment_ids` (all 0), `label_ids` (indices in the list of labels) and `label_mask` (1 =
            first piece of a word to tag; 0 = any other piece, a word of the context, [CLS], [SEP]
            or padding).
        weighted: whether records also have `label_weights`, float32, the weight of each label in
            the loss; it counts where `label_mask` is 1.
    """
    inputs = records.model_inputs([max_seq_length])
    weights = records.float_feature([max_seq_length], "max_seq_length", low=0.0)
    return {
        **inputs,
        "label_ids": inputs["input_ids"],
        "label_mask": inputs["input_mask"],
        **({"label_weights": weights} if weighted else {}),
    }


class Features(NamedTuple):
    """How the features of a token are computed from BERT's layers."""

    of: Callable[[Any], Any]  # a `BertOutput` -> float [B, S, F]
    layers: int = 1  # minimum number of encoder layers
    width: int = 1  # F / H


# The rows of the paper's table 7. The paper calls the sums weighted but does not give the weights;
# this implementation uses 1 for all.
FEATURE_LAYERS = {
    "embeddings": Features(lambda bert: bert.embedding_output),
    "last": Features(lambda bert: bert.all_encoder_layers[-1]),
    "second_to_last": Features(lambda bert: bert.all_encoder_layers[-2], layers=2),
    "sum_last_four": Features(lambda bert: tf.add_n(bert.all_encoder_layers[-4:]), layers=4),
    "concat_last_four": Features(
        lambda bert: tf.concat(bert.all_encoder_layers[-4:], axis=-1), layers=4, width=4
    ),
    "sum_all": Features(lambda bert: tf.add_n(bert.all_encoder_layers)),
}
