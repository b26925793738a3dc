"""BERT without heads, and what is taken out of it.

Dimension letters: B batch size, S sequence length, H hidden size, N attention heads, L the layers
that are asked for, in their order.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.modeling import BertModel, BertOutput


class FeaturesModel(keras.Model):
    """BERT, its variables named as in a checkpoint.

    Args:
        config: sizes and rates.
        **options: further arguments of `BertModel`.
    """

    def __init__(self, config: BertConfig, **options):
        super().__init__(name="")  # a name would stand before those of the variables
        self.bert = BertModel(config, **options)
        self.built = True

    def call(self, input_ids, input_mask, segment_ids) -> BertOutput:
        """Returns every output of BERT without dropout; all arguments are int32 [B, S]."""
        return self.bert(input_ids, input_mask, segment_ids, training=False)


class FeaturesTask:
    """The part of a `bert_tf.engine.steps.Task` that prediction needs; there is nothing to train.

    Args:
        config: sizes and rates.
        layers: the numbers of the layers asked for, 0 the first and -1 the last.
        outputs: names in `schema.OUTPUTS`.
        **options: further arguments of `FeaturesModel`.
    """

    def __init__(
        self, config: BertConfig, layers: Sequence[int], outputs: Sequence[str], **options
    ):
        self.config = config
        self.layers = tuple(layers)
        self.outputs = tuple(outputs)
        self._options = options

    def build_model(self) -> FeaturesModel:
        """Returns a new model with initial weights."""
        return FeaturesModel(self.config, **self._options)

    def predictions(self, model: FeaturesModel, features) -> dict[str, tf.Tensor]:
        """Returns the outputs by name, float32: of shapes as in `schema.SHAPES` with B before them.

        The mean is that of all tokens, [CLS] and [SEP] among them, and of no padding.
        """
        output = model(features["input_ids"], features["input_mask"], features["segment_ids"])
        vectors = tf.stack([output.all_encoder_layers[i] for i in self.layers], axis=2)
        vectors = tf.cast(vectors, tf.float32)  # [B, S, L, H]
        found = {}
        if "token_vectors" in self.outputs:
            found["token_vectors"] = vectors
        if "mean_vector" in self.outputs:
            mask = tf.cast(features["input_mask"], tf.float32)  # [B, S]
            total = tf.einsum("bs,bslh->blh", mask, vectors)
            found["mean_vector"] = total / tf.reduce_sum(mask, axis=1)[:, tf.newaxis, tf.newaxis]
        if "pooled_vector" in self.outputs:
            found["pooled_vector"] = tf.cast(output.pooled_output, tf.float32)
        if "attention_probs" in self.outputs:
            probs = tf.stack([output.attention_probs[i] for i in self.layers], axis=1)
            found["attention_probs"] = tf.transpose(probs, [0, 3, 4, 1, 2])  # [B, S, S, L, N]
        return found
