"""A label for each token: the model, its loss and its predictions.

Dimension letters: B batch size, S sequence length, H hidden size, F size of what is classified.
"""

import keras
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import OutputLayer, cross_entropy, model_logits
from bert_tf.modeling import BertModel
from bert_tf.tasks.tagging.head import FEATURE_LAYERS, BiLstm, check_feature_layers


class TaggingModel(keras.Model):
    """BERT with a layer that classifies each token (the paper, section 5.3 and figure 4d).

    Args:
        config: sizes and rates.
        num_labels: the number of labels.
        feature_layers: None to fine-tune all of BERT. Else one of `head.FEATURE_LAYERS`: BERT is
            frozen, and a two-layer BiLSTM stands between these layers and the classification.
        lstm_size: units of the BiLSTM in each direction.
        **options: further arguments of `BertModel`.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        feature_layers: str | None = None,
        lstm_size: int = 768,
        **options,
    ):
        super().__init__(name="")  # a name would stand before those of the variables
        self.bert = BertModel(config, **options)
        self.bert.pooler.trainable = False  # no tag depends on it
        self.feature_layers = feature_layers
        self.lstm = None
        size = config.hidden_size
        if feature_layers:
            self.bert.trainable = False
            size *= FEATURE_LAYERS[feature_layers].width
            self.lstm = BiLstm(size, lstm_size, dtype=self.bert.dtype_policy)
            size = 2 * lstm_size
        self.head = OutputLayer(num_labels, size)
        self.built = True

    def call(self, input_ids, input_mask, segment_ids, training=False, dropout_seed=None):
        """Returns float32 logits, [B, S, labels].

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding.
            segment_ids: int32 [B, S].
            training: whether dropout is on. A frozen BERT is without it.
            dropout_seed: int32 [2].
        """
        fine_tuned = self.lstm is None
        output = self.bert(
            input_ids,
            input_mask,
            segment_ids,
            training=training and fine_tuned,
            dropout_seed=dropout_seed,
        )
        if fine_tuned:
            tokens = output.sequence_output  # [B, S, F]
        else:
            features = tf.stop_gradient(FEATURE_LAYERS[self.feature_layers].of(output))
            tokens = self.lstm(features, input_mask)
        return self.head(tokens, training=training, dropout_seed=dropout_seed)


class TaggingTask:
    """Tagging for the loops of `bert_tf.runs.training`.

    Args:
        config: sizes and rates.
        num_labels: the number of labels.
        feature_layers: see `TaggingModel`.
        **options: its further arguments.

    Raises:
        UserError: BERT has too few layers for `feature_layers`.
    """

    def __init__(
        self, config: BertConfig, num_labels: int, feature_layers: str | None = None, **options
    ):
        if feature_layers:
            check_feature_layers(feature_layers, config.num_hidden_layers)
        self.config = config
        self.num_labels = num_labels
        self.feature_layers = feature_layers
        self._options = options

    def build_model(self) -> TaggingModel:
        """Returns a new model with initial weights."""
        return TaggingModel(self.config, self.num_labels, self.feature_layers, **self._options)

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        """Returns the number of words that count in a batch; every record has one at least."""
        return {"words": tf.reduce_sum(tf.cast(features["label_mask"], tf.float32))}

    def loss_and_metrics(self, model, features, normalizers, training, dropout_seed):
        """Returns the mean cross entropy of the words that count, and their accuracy."""
        logits = model_logits(model, features, training, dropout_seed)
        label_ids, weights = features["label_ids"], tf.cast(features["label_mask"], tf.float32)
        loss = tf.reduce_sum(weights * cross_entropy(logits, label_ids)) / normalizers["words"]
        predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
        right = weights * tf.cast(predicted == label_ids, tf.float32)
        return loss, {"accuracy": (tf.reduce_sum(right), tf.reduce_sum(weights))}

    def predictions(self, model, features) -> dict[str, tf.Tensor]:
        """Returns each word's label and loss, at its first piece.

        `predictions`, int32 [B, S], are places in the list of labels, -1 where `label_mask` is 0.
        `losses`, float32 [B, S], are the cross entropies with `label_ids`, 0 where it is 0.
        """
        logits = model_logits(model, features)
        begins_word = features["label_mask"] > 0
        predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
        losses = cross_entropy(logits, features["label_ids"])
        return {
            "predictions": tf.where(begins_word, predicted, -1),
            "losses": tf.where(begins_word, losses, 0.0),
        }
