"""The span model: logits of each position to be an answer's first or last, and their loss."""

import keras
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import linear, model_logits
from bert_tf.modeling import BertModel, create_initializer


class SpanHead(keras.layers.Layer):
    """Start and end logits of every position (original: create_model)."""

    def __init__(self, config: BertConfig, dtype="float32"):
        super().__init__(name="squad", dtype=dtype)
        self.hidden_size = config.hidden_size

    def build(self, input_shape=None):
        self.output_weights = self.add_weight(
            shape=(2, self.hidden_size),
            initializer=create_initializer(0.02),
            autocast=False,
            name="output_weights",
        )
        self.output_bias = self.add_weight(
            shape=(2,), initializer="zeros", autocast=False, name="output_bias"
        )

    def call(self, sequence_output):
        """Returns float32 start and end logits, each [B, S], of float [B, S, H]."""
        logits = linear(sequence_output, self.output_weights.value, self.output_bias.value)
        return tf.unstack(logits, axis=-1)


class SquadHeads(keras.layers.Layer):
    """The container `cls` of the head, for its name."""

    def __init__(self, config: BertConfig, dtype="float32"):
        super().__init__(name="cls", dtype=dtype)
        self.squad = SpanHead(config, self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            self.squad.build()
            self.built = True

    def call(self, sequence_output):
        """Returns what `SpanHead` returns."""
        return self.squad(sequence_output)


class SquadModel(keras.Model):
    """BERT with the span head; its variables are those of the original's run_squad.

    Args:
        config: sizes and rates.
        **options: further arguments of `BertModel`.
    """

    def __init__(self, config: BertConfig, **options):
        super().__init__(name="")  # a name would stand before those of the variables
        self.bert = BertModel(config, **options)
        self.bert.pooler.trainable = False  # no answer depends on it; no slots, as in the original
        self.cls = SquadHeads(config, self.bert.dtype_policy)
        self.built = True

    def call(self, input_ids, input_mask, segment_ids, training=False, dropout_seed=None):
        """Returns float32 start and end logits, each [B, S].

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding.
            segment_ids: int32 [B, S], 1 for the text and 0 for the question.
            training: whether dropout is on.
            dropout_seed: int32 [2].
        """
        output = self.bert(
            input_ids, input_mask, segment_ids, training=training, dropout_seed=dropout_seed
        )
        return self.cls(output.sequence_output)


class SquadTask:
    """Finding the answer's span, for the loops of `bert_tf.runs.training`.

    Args:
        config: sizes and rates.
        **options: further arguments of `SquadModel`.
    """

    def __init__(self, config: BertConfig, **options):
        self.config = config
        self._options = options

    def build_model(self) -> SquadModel:
        """Returns a new model with initial weights."""
        return SquadModel(self.config, **self._options)

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        """Returns the number of examples that the mean loss divides by."""
        return {"examples": tf.constant(float(features["input_ids"].shape[0]))}

    def loss_and_metrics(self, model, features, normalizers, training, dropout_seed):
        """Returns the mean of the start's and the end's cross-entropy, and their accuracies.

        All positions compete, the question's and the padding too, as in the original's
        compute_loss; a window without the answer has its start and end at [CLS].
        """
        logits = model_logits(model, features, training=training, dropout_seed=dropout_seed)
        total = tf.zeros([], tf.float32)
        sums = {}
        for name, position_logits in zip(("start", "end"), logits, strict=True):
            positions = features[f"{name}_positions"]
            # Its gradient rounds less than that of `heads.cross_entropy`.
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(positions, position_logits)
            total += tf.reduce_sum(losses) / normalizers["examples"]
            right = tf.argmax(position_logits, axis=-1, output_type=tf.int32) == positions
            right = tf.reduce_sum(tf.cast(right, tf.float32))
            sums[f"{name}_accuracy"] = (right, tf.constant(float(losses.shape[0])))
        return total / 2.0, sums

    def predictions(self, model, features) -> dict[str, tf.Tensor]:
        """Returns `unique_ids`, int32 [B], and `start_logits` and `end_logits`, float32 [B, S]."""
        start_logits, end_logits = model_logits(model, features)
        return {
            "unique_ids": features["unique_ids"],
            "start_logits": start_logits,
            "end_logits": end_logits,
        }
