"""A class, or a number, for a text or a pair of texts: the model, its loss, its predictions."""

import keras
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import OutputLayer, cross_entropy, model_logits
from bert_tf.modeling import BertModel


class ClassificationModel(keras.Model):
    """BERT with a linear layer on its pooled output (original: create_model of run_classifier).

    Args:
        config: sizes and rates.
        num_labels: how many classes; 1 for regression.
        **options: further arguments of `BertModel`.
    """

    def __init__(self, config: BertConfig, num_labels: int, **options):
        super().__init__(name="")  # a name would stand before those of the variables
        self.bert = BertModel(config, **options)
        self.head = OutputLayer(num_labels, config.hidden_size)
        self.built = True

    def call(self, input_ids, input_mask, segment_ids, training=False, dropout_seed=None):
        """Returns float32 logits, [B, num_labels].

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding.
            segment_ids: int32 [B, S].
            training: whether dropout is on.
            dropout_seed: int32 [2].
        """
        pooled_output = self.bert(
            input_ids, input_mask, segment_ids, training=training, dropout_seed=dropout_seed
        ).pooled_output
        return self.head(pooled_output, training=training, dropout_seed=dropout_seed)


class ClassificationTask:
    """Classification, or regression, for the loops of `bert_tf.runs.training`.

    Args:
        config: sizes and rates.
        num_labels: how many classes; None for regression.
        **options: further arguments of `BertModel`.
    """

    def __init__(self, config: BertConfig, num_labels: int | None, **options):
        self.config = config
        self.num_labels = num_labels
        self._options = options

    def build_model(self) -> ClassificationModel:
        """Returns a new model with initial weights."""
        return ClassificationModel(self.config, self.num_labels or 1, **self._options)

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        """Returns the number of examples."""
        return {"examples": tf.constant(float(features["input_ids"].shape[0]))}

    def loss_and_metrics(self, model, features, normalizers, training, dropout_seed):
        """Returns the mean loss, and its sum and that of the right answers with their weights."""
        logits = model_logits(model, features, training, dropout_seed)
        losses = self._losses(logits, features)
        count = tf.constant(float(losses.shape[0]))
        sums = {}
        if self.num_labels:
            predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
            right = tf.cast(predictions == features["label_ids"], tf.float32)
            sums["accuracy"] = (tf.reduce_sum(right), count)
        return tf.reduce_sum(losses) / normalizers["examples"], sums

    def predictions(self, model, features) -> dict[str, tf.Tensor]:
        """Returns for each example what the model gives and how it compares with the label.

        `outputs`, float32, are the probabilities of the classes, [B, num_labels], or the numbers,
        [B]; `label_ids` the record's own; `per_example_loss`, float32 [B].
        """
        logits = model_logits(model, features)
        return {
            "outputs": tf.nn.softmax(logits) if self.num_labels else logits[:, 0],
            "label_ids": features["label_ids"],
            "per_example_loss": self._losses(logits, features),
        }

    def _losses(self, logits, features) -> tf.Tensor:
        """Returns cross-entropy, or the squared error, of each example."""
        label_ids = features["label_ids"]
        if not self.num_labels:
            return tf.square(logits[:, 0] - label_ids)
        return cross_entropy(logits, label_ids)
