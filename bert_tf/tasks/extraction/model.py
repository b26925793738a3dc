"""BERT without heads, and the outputs that extract_features.py writes.

Dimension letters and dtypes: see `bert_tf/modeling.py`, but L counts the extracted layers only.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features
from bert_tf.model.configuration import BertConfig
from bert_tf.model.inputs import export_vectors
from bert_tf.model.layers import weighted_sum
from bert_tf.model.saving import register
from bert_tf.modeling import BertOutput
from bert_tf.tasks.task_model import TaskModel


@register
class FeaturesModel(TaskModel):
    """BERT without heads, its variables named as in a checkpoint; it is never trained.

    Args:
        layers: indices of the layers in `predictions`, 0 for the first and -1 for the last.
        outputs: what `predictions` returns: "token_vectors", "mean_vector", "pooled_vector" and
            "attention_probs", one or more of them.
        **options: see `BertModel`.
    """

    def __init__(
        self,
        config: BertConfig,
        layers: Sequence[int] = (-1,),
        outputs: Sequence[str] = ("token_vectors",),
        **options: Any,
    ):
        super().__init__(config, **options)
        self.extracted_layers = tuple(layers)
        self.extracted_outputs = tuple(outputs)

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool = False,
    ) -> BertOutput:
        """Returns every output of BERT, always without dropout; `training` is ignored.

        For the other arguments see `TaskModel.call`.
        """
        return self.bert(input_ids, input_mask, segment_ids, training=False)

    def predict_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Returns `sequence_output` and `pooled_output` by name, which `predict` concatenates.

        The other outputs are not arrays with a row for each example, or take too much memory.
        """
        output = super().predict_step(data)
        names = ("sequence_output", "pooled_output")
        return {name: getattr(output, name) for name in names}

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Exports `sequence_output` and `pooled_output`; see `BertModel.export`."""
        export_vectors(self, filepath, *args, **kwargs)

    def predictions(self, outputs: BertOutput, features: Features) -> dict[str, tf.Tensor]:
        """Returns the outputs by name, float32 [B, ...]; `settings.SHAPES` has the other axes.

        The mean includes [CLS] and [SEP], but not padding.
        """
        vectors = tf.stack([outputs.all_encoder_layers[i] for i in self.extracted_layers], axis=2)
        vectors = tf.cast(vectors, tf.float32)  # [B, S, L, H]
        found = {}
        if "token_vectors" in self.extracted_outputs:
            found["token_vectors"] = vectors
        if "mean_vector" in self.extracted_outputs:
            mask = tf.cast(features["input_mask"], tf.float32)  # [B, S]
            total = weighted_sum(mask, vectors)  # [B, L, H]
            found["mean_vector"] = total / tf.reduce_sum(mask, axis=1)[:, tf.newaxis, tf.newaxis]
        if "pooled_vector" in self.extracted_outputs:
            found["pooled_vector"] = tf.cast(outputs.pooled_output, tf.float32)
        if "attention_probs" in self.extracted_outputs:
            probs = tf.stack([outputs.attention_probs[i] for i in self.extracted_layers], axis=1)
            found["attention_probs"] = tf.transpose(probs, [0, 3, 4, 1, 2])  # [B, S, S, L, N]
        return found
