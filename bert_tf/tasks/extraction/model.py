"""Feature extraction: BERT without heads, and the outputs that are extracted.

Dimension letters and dtypes: see `bert_tf/modeling.py`; here L counts the extracted layers only.
"""

from collections.abc import Sequence

import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.saving import register
from bert_tf.model.task_model import TaskModel
from bert_tf.modeling import BertModel, BertOutput


@register
class FeaturesModel(TaskModel):
    """BERT without heads, its variables named as in a checkpoint.

    Args:
        config: sizes and dropout rates.
        **options: see `BertModel`.
    """

    def __init__(self, config: BertConfig, **options):
        super().__init__(name="")  # a name would come first in the variables' paths
        self.bert = BertModel(config, **options)
        self.built = True

    def call(self, input_ids, input_mask=None, segment_ids=None) -> BertOutput:
        """Returns every output of BERT, without dropout.

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding; None is all ones.
            segment_ids: int32 [B, S], 1 for the second text; None is all zeros.
        """
        return self.bert(input_ids, input_mask, segment_ids, training=False)

    def predict_step(self, data) -> dict[str, tf.Tensor]:
        """Returns what `predict` gives: `sequence_output` and `pooled_output` by name.

        `predict` joins the rows of all batches. Other outputs have none, or would fill the memory.
        """
        output = super().predict_step(data)
        names = ("sequence_output", "pooled_output")
        return {name: getattr(output, name) for name in names}


class FeaturesTask:
    """Feature extraction, a `bert_tf.engine.steps.PredictionTask`; nothing is trained.

    Args:
        config: sizes and dropout rates.
        layers: indices of the layers to extract, 0 for the first and -1 for the last.
        outputs: names in `schema.OUTPUTS`.
        **options: see `BertModel`.
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
        """Returns the outputs by name, float32 [B, ...]; the rest is the shape in `schema.SHAPES`.

        The mean includes [CLS] and [SEP], but no padding.
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
