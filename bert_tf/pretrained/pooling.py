"""Pooling: makes the vector of a text from BERT's outputs for its tokens.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

import tensorflow as tf

from bert_tf.modeling import BertOutput

POOLINGS = ("mean", "cls", "pooled")


def text_vectors(output: BertOutput, input_mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """Returns a vector of each text, float32 [B, H].

    Args:
        output: BERT's outputs.
        input_mask: int32 [B, S], 1 for tokens and 0 for padding.
        pooling: "mean" of the last layer over all tokens, [CLS] and [SEP] included; "cls", the
            last layer at [CLS]; "pooled", the pooler's output.
    """
    if pooling == "pooled":
        return output.pooled_output
    if pooling == "cls":
        return output.sequence_output[:, 0]
    mask = tf.cast(input_mask, tf.float32)  # [B, S]
    total = tf.einsum("bs,bsh->bh", mask, output.sequence_output)
    return total / tf.reduce_sum(mask, axis=1, keepdims=True)
