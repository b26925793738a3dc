"""One score for each of several sequences: the model, its loss and its predictions.

Dimension letters: B batch size, C choices, S sequence length, H hidden size.
"""

import keras
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import OutputLayer, cross_entropy, model_logits
from bert_tf.modeling import BertModel


class MultipleChoiceModel(keras.Model):
    """BERT with a vector whose product with a sequence's [CLS] output is its score (paper, 4.4).

    Args:
        config: sizes and rates.
        **options: further arguments of `BertModel`.
    """

    def __init__(self, config: BertConfig, **options):
        super().__init__(name="")  # a name would stand before those of the variables
        self.bert = BertModel(config, **options)
        # No bias: it would be the same for all choices, and the softmax takes it away.
        self.head = OutputLayer(1, config.hidden_size, use_bias=False)
        self.built = True

    def call(self, input_ids, input_mask, segment_ids, training=False, dropout_seed=None):
        """Returns float32 logits, [B, C].

        Args:
            input_ids: int32 [B, C, S].
            input_mask: int32 [B, C, S], 1 for tokens and 0 for padding.
            segment_ids: int32 [B, C, S].
            training: whether dropout is on.
            dropout_seed: int32 [2].
        """
        num_choices, seq_length = input_ids.shape[1:]
        sequences = (tf.reshape(x, [-1, seq_length]) for x in (input_ids, input_mask, segment_ids))
        pooled = self.bert(
            *sequences, training=training, dropout_seed=dropout_seed
        ).pooled_output  # [B*C, H]
        scores = self.head(pooled, training=training, dropout_seed=dropout_seed)
        return tf.reshape(scores, [-1, num_choices])


class MultipleChoiceTask:
    """Multiple choice for the loops of `bert_tf.runs.training`.

    Args:
        config: sizes and rates.
        **options: further arguments of `BertModel`.
    """

    def __init__(self, config: BertConfig, **options):
        self.config = config
        self._options = options

    def build_model(self) -> MultipleChoiceModel:
        """Returns a new model with initial weights."""
        return MultipleChoiceModel(self.config, **self._options)

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        """Returns the number of questions in a batch."""
        return {"questions": tf.constant(float(features["label_ids"].shape[0]))}

    def loss_and_metrics(self, model, features, normalizers, training, dropout_seed):
        """Returns the mean cross entropy of the right choices, and the accuracy."""
        logits = model_logits(model, features, training, dropout_seed)
        label_ids = features["label_ids"]
        loss = tf.reduce_sum(cross_entropy(logits, label_ids))
        right = tf.cast(tf.argmax(logits, axis=-1, output_type=tf.int32) == label_ids, tf.float32)
        count = tf.constant(float(right.shape[0]))
        return loss / normalizers["questions"], {"accuracy": (tf.reduce_sum(right), count)}

    def predictions(self, model, features) -> dict[str, tf.Tensor]:
        """Returns for each question what the model gives and how it compares with the label.

        `outputs`, float32 [B, C], are the probabilities of the choices; `label_ids` the record's
        own; `per_example_loss`, float32 [B].
        """
        logits = model_logits(model, features)
        return {
            "outputs": tf.nn.softmax(logits),
            "label_ids": features["label_ids"],
            "per_example_loss": cross_entropy(logits, features["label_ids"]),
        }
