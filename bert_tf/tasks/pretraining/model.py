"""Masked LM and next sentence prediction: the model, its losses and its metrics."""

import keras
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import cross_entropy
from bert_tf.modeling import BertModel
from bert_tf.tasks.pretraining.heads import PretrainingHeads

# What the original adds to the sum of the masked-LM weights, so that a batch without any
# prediction has loss 0.
WEIGHT_EPSILON = 1e-5


class PretrainingModel(keras.Model):
    """BERT with its pre-training heads; its variables are those of a released checkpoint.

    Args:
        config: sizes and rates.
        use_one_hot_embeddings: see `BertModel`.
        recompute_activations: see `BertModel`.
        dtype: see `BertModel`.
    """

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        recompute_activations: bool = False,
        dtype: str = "float32",
    ):
        super().__init__(name="")  # a name would stand before those of the variables
        self.bert = BertModel(config, use_one_hot_embeddings, recompute_activations, dtype)
        self.cls = PretrainingHeads(config, self.bert.dtype_policy)
        self.built = True

    def call(
        self,
        input_ids,
        input_mask,
        segment_ids,
        masked_lm_positions,
        training=False,
        dropout_seed=None,
    ):
        """Returns float32 logits: masked LM, [B*P, V], and next sentence, [B, 2].

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding.
            segment_ids: int32 [B, S].
            masked_lm_positions: int32 [B, P].
            training: whether dropout is on.
            dropout_seed: int32 [2].
        """
        output = self.bert(
            input_ids, input_mask, segment_ids, training=training, dropout_seed=dropout_seed
        )
        return self.cls(
            output.sequence_output,
            output.pooled_output,
            masked_lm_positions,
            output.embedding_table,
        )


class PretrainingTask:
    """The pre-training objective for the loops of `bert_tf.runs.training`.

    Args:
        config: sizes and rates.
        **options: further arguments of `PretrainingModel`.
    """

    def __init__(self, config: BertConfig, **options):
        self.config = config
        self._options = options

    def build_model(self) -> PretrainingModel:
        """Returns a new model with initial weights."""
        return PretrainingModel(self.config, **self._options)

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        """Returns the sums of the weights of both means of a batch."""
        example_weight, masked_lm_weights = _weights(features)
        return {
            "masked_lm": tf.reduce_sum(masked_lm_weights),
            "next_sentence": tf.reduce_sum(example_weight),
        }

    def loss_and_metrics(self, model, features, normalizers, training, dropout_seed):
        """Returns the sum of both losses, and their means and accuracies as sums and weights.

        The losses are get_masked_lm_output and get_next_sentence_output of the original, the
        metrics those of its metric_fn.
        """
        masked_lm_logits, next_sentence_logits = model(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            features["masked_lm_positions"],
            training=training,
            dropout_seed=dropout_seed,
        )
        example_weight, masked_lm_weights = _weights(features)
        total = tf.zeros([], tf.float32)
        sums = {}
        for name, logits, label_ids, weights, epsilon in (
            (
                "masked_lm",
                masked_lm_logits,
                features["masked_lm_ids"],
                masked_lm_weights,
                WEIGHT_EPSILON,
            ),
            (
                "next_sentence",
                next_sentence_logits,
                features["next_sentence_labels"],
                example_weight,
                0.0,
            ),
        ):
            example_loss = cross_entropy(logits, tf.reshape(label_ids, [-1]))
            weighted_loss = tf.reduce_sum(weights * example_loss)
            # A replica may have nothing but padding at the end of an evaluation: loss 0, not 0/0.
            total += tf.math.divide_no_nan(weighted_loss, normalizers[name] + epsilon)
            predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
            right = tf.cast(predictions == tf.reshape(label_ids, [-1]), tf.float32)
            weight = tf.reduce_sum(weights)
            sums[f"{name}_loss"] = (weighted_loss, weight)
            sums[f"{name}_accuracy"] = (tf.reduce_sum(weights * right), weight)
        return total, sums

    def predictions(self, model, features) -> dict[str, tf.Tensor]:
        """Returns what the model takes each example for.

        `masked_lm_predictions`, int32 [B, P], are the likeliest ids at the masked positions, and
        `next_sentence_log_probs`, float32 [B, 2], those of "is the next" and "is a random one".
        """
        masked_lm_logits, next_sentence_logits = model(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            features["masked_lm_positions"],
        )
        ids = tf.argmax(masked_lm_logits, axis=-1, output_type=tf.int32)
        return {
            "masked_lm_predictions": tf.reshape(ids, features["masked_lm_positions"].shape),
            "next_sentence_log_probs": tf.nn.log_softmax(next_sentence_logits),
        }


def _weights(features) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the weights of the examples, [B], and of their masked positions, [B*P]."""
    weights = features["masked_lm_weights"]
    example_weight = features.get("example_weight")
    if example_weight is None:
        example_weight = tf.ones([weights.shape[0]], tf.float32)
    return example_weight, tf.reshape(weights * example_weight[:, tf.newaxis], [-1])
