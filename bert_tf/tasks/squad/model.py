"""Finding an answer's span in a text (SQuAD): head, model, loss, predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

from typing import Any

import keras
import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import example_weights, linear
from bert_tf.model.layers import Composite, head_initializer
from bert_tf.model.ranges import in_range, shaped
from bert_tf.model.saving import Savable, register
from bert_tf.model.shapes import get_shape_list
from bert_tf.tasks.task_model import TaskModel


@register
class SpanHead(Savable, keras.layers.Layer):
    """Start and end logits of every position (original: run_squad.create_model)."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(name="squad", dtype=dtype)
        self.config = config

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables; `input_shape` is not used."""
        self.output_weights = self.add_weight(
            shape=(2, self.config.hidden_size),
            initializer=head_initializer(self.config.glorot_heads),
            dtype="float32",
            autocast=False,
            name="output_weights",
        )
        self.output_bias = self.add_weight(
            shape=(2,), initializer="zeros", dtype="float32", autocast=False, name="output_bias"
        )

    def call(self, sequence_output: tf.Tensor) -> list[tf.Tensor]:
        """Returns start and end logits, each float32 [B, S], of float [B, S, H]."""
        logits = linear(sequence_output, self.output_weights.value, self.output_bias.value)
        return tf.unstack(logits, axis=-1)


@register
class SquadHeads(Savable, Composite):
    """The scope `cls` around `SpanHead`."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(name="cls", dtype=dtype)
        self.squad = SpanHead(config, self.dtype_policy)

    def call(self, sequence_output: tf.Tensor) -> list[tf.Tensor]:
        """Returns what `SpanHead` returns."""
        return self.squad(sequence_output)


@register
class SquadModel(TaskModel):
    """BERT with the span head; has the variables of the original's run_squad.

    Args:
        **options: see `BertModel`.
    """

    label_names = ("start_positions", "end_positions")
    task_metrics = ("start_accuracy", "end_accuracy")
    # This gradient rounds less than the gradient of `heads.cross_entropy`.
    span_losses = staticmethod(tf.nn.sparse_softmax_cross_entropy_with_logits)

    def __init__(self, config: BertConfig, **options: Any):
        super().__init__(config, **options)
        # No logit depends on the pooler, so the original's optimizer has no slots for it either.
        self.bert.pooler.trainable = False
        self.cls = SquadHeads(config, self.bert.dtype_policy)
        self.cls.build()

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        """Returns start and end logits, each float32 [B, S].

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding; None is all ones.
            segment_ids: int32 [B, S], 1 for the text, 0 for the question and padding;
                None is all zeros.
            training: whether dropout is on.
            dropout_seed: int32 [2]; None draws one.
        """
        output = self.bert(
            input_ids, input_mask, segment_ids, training=training, dropout_seed=dropout_seed
        )
        return self.cls(output.sequence_output)

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `start_positions` and `end_positions`, int32 [B]."""
        batch, seq_length = get_shape_list(features["input_ids"])
        found = {}
        for name in self.label_names:
            positions = shaped(features[name], name, [batch], "one position for each example")
            found[name] = in_range(positions, name, seq_length, "the length of the sequence")
        return found

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean cross entropy of start and end, float32 [], and their accuracies.

        All positions compete, including question and padding, as in the original's compute_loss.
        In a window without the answer, start and end are at [CLS]. An accuracy is a pair of
        float32 []: the number of correct predictions and of examples.
        """
        weights = example_weights(features)
        total = tf.zeros([], tf.float32)
        sums = {}
        for name, logits in zip(("start", "end"), outputs, strict=True):
            positions = features[f"{name}_positions"]
            losses = self.span_losses(labels=positions, logits=logits)
            loss = tf.reduce_sum(weights * losses)
            total += tf.math.divide_no_nan(loss, normalizers["examples"])
            right = tf.argmax(logits, axis=-1, output_type=tf.int32) == positions
            right = tf.reduce_sum(weights * tf.cast(right, tf.float32))
            sums[f"{name}_accuracy"] = (right, tf.reduce_sum(weights))
        return total / 2.0, sums

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns `unique_ids`, int32 [B], and `start_logits` and `end_logits`, float32 [B, S]."""
        start, end = outputs
        unique_ids = features["unique_ids"]
        return {"unique_ids": unique_ids, "start_logits": start, "end_logits": end}
