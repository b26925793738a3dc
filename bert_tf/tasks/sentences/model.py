"""Sentence vectors: the mean of BERT's last layer; losses on pairs; predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`; T is the number of texts of an example.

The mean over the tokens and the regression of the cosine are from Sentence-BERT
(https://arxiv.org/abs/1908.10084, section 3). The loss with the other pairs of a batch as negatives
is multiple negatives ranking (https://arxiv.org/abs/1705.00652, section 4.4).
"""

from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import cross_entropy, example_weights, squared_errors
from bert_tf.model.ranges import finite, shaped
from bert_tf.model.saving import register
from bert_tf.model.shapes import get_shape_list
from bert_tf.tasks.sentences.schema import COSINE, IN_BATCH_NEGATIVES, LOSSES
from bert_tf.tasks.task_model import TaskModel

_MASKED = -1e9  # added to a logit to exclude it from a softmax


@register
class SentenceModel(TaskModel):
    """BERT with the mean of its last layer over a text's tokens, scaled to length 1.

    Args:
        loss: one of `schema.LOSSES`.
        score_scale: the score that stands for a cosine of 1, for the loss `cosine`.
        similarity_scale: see `in_batch_negatives`.
        **options: see `BertModel`.
    """

    label_names: tuple[str, ...] = ("label_ids",)
    input_rank = 3

    def __init__(
        self,
        config: BertConfig,
        loss: str = COSINE,
        score_scale: float = 1.0,
        similarity_scale: float = 20.0,
        **options: Any,
    ):
        if loss not in LOSSES:
            raise UserError(f"loss must be one of {listed(LOSSES)}; received {quoted(loss)}")
        super().__init__(config, **options)
        self.bert.pooler.trainable = False  # vectors do not depend on it; a checkpoint may lack it
        self.loss_name = loss
        self.score_scale = score_scale
        self.similarity_scale = similarity_scale
        self.task_metrics: tuple[str, ...] = ()
        if loss == IN_BATCH_NEGATIVES:
            self.task_metrics, self.label_names = ("accuracy",), ()  # every pair is a right one
            self.compares_examples = True

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns a vector of each text, float32 [B, T, H], of Euclidean length 1.

        The mean includes [CLS] and [SEP], but not padding.

        Args:
            input_ids: int32 [B, T, S].
            input_mask: int32 [B, T, S], 1 for tokens and 0 for padding; None is all ones.
            segment_ids: int32 [B, T, S], all 0; None is the same.
            training: whether dropout is on.
            dropout_seed: int32 [2]; None draws one.
        """
        _, num_texts, seq_length = get_shape_list(input_ids, expected_rank=3, name="input_ids")
        if input_mask is None:
            input_mask = tf.ones_like(input_ids)
        sequences = [
            None if x is None else tf.reshape(x, [-1, seq_length])
            for x in (input_ids, input_mask, segment_ids)
        ]
        output = self.bert(*sequences, training=training, dropout_seed=dropout_seed)
        hidden = output.sequence_output  # [B*T, S, H]
        mask = tf.cast(sequences[1], tf.float32)  # [B*T, S]
        total = tf.einsum("bs,bsh->bh", mask, tf.cast(hidden, tf.float32))
        # The sum is enough: dividing it by the number of tokens would not change its direction.
        vectors = tf.math.l2_normalize(total, axis=-1)
        return tf.reshape(vectors, [-1, num_texts, vectors.shape[-1]])

    def normalizers(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the number of pairs, float32 []."""
        return {"pairs": tf.reduce_sum(example_weights(features))}

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `label_ids`, a score of each pair, float32 [B]; {} for in-batch negatives."""
        batch, num_texts, _ = get_shape_list(features["input_ids"])
        if num_texts != 2:
            raise UserError(
                f"The loss needs input_ids [B, 2, S]: pairs; received {num_texts} texts"
            )
        if not self.label_names:
            return {}
        labels = shaped(features["label_ids"], "label_ids", [batch], "a score for each pair")
        return {"label_ids": finite(labels, "label_ids", example_weights(features) > 0.0)}

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean loss and, with `in_batch_negatives`, the accuracy; all float32 [].

        The accuracy is the number of first texts whose nearest second text in the batch is their
        partner, and the number of first texts.
        """
        weights = example_weights(features)
        sums = {}
        if self.loss_name == IN_BATCH_NEGATIVES:
            first, second = outputs[:, 0], outputs[:, 1]
            losses, right = in_batch_negatives(first, second, weights, self.similarity_scale)
            sums["accuracy"] = (tf.reduce_sum(weights * right), tf.reduce_sum(weights))
        else:
            losses = self._squared_errors(_cosines(outputs), features)
        loss = tf.reduce_sum(weights * losses)
        return tf.math.divide_no_nan(loss, normalizers["pairs"]), sums

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns the vectors of each example and, for pairs, the cosine, the score and the loss.

        `vectors`: float32 [B, T, H]. For pairs: `outputs`: the cosines, float32 [B]. `label_ids`:
        the records' scores. `per_example_loss`: float32 [B], only with the loss `cosine`.
        """
        found = {"vectors": outputs}
        if outputs.shape[1] == 2:
            found["outputs"] = _cosines(outputs)
            found["label_ids"] = features["label_ids"]
            if self.loss_name == COSINE:
                found["per_example_loss"] = self._squared_errors(found["outputs"], features)
        return found

    def _squared_errors(self, cosines: tf.Tensor, features: Features) -> tf.Tensor:
        """Returns the squared error of each pair's cosine, float32 [B]."""
        return squared_errors(cosines, features["label_ids"] / self.score_scale)


def in_batch_negatives(
    first: tf.Tensor, second: tf.Tensor, weights: tf.Tensor, similarity_scale: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each pair's loss among the pairs of the batch, and whether it finds its partner.

    Each text must choose its partner among the other side's texts: the cross entropy of a softmax
    over the cosines times `similarity_scale`. The loss is the mean of both directions. The paper
    has only one, from a message to its reply; the order of two paraphrases means nothing.

    Args:
        first, second: float32 [B, H], the vectors of the pairs' texts, each of length 1.
        weights: float32 [B]; a pair of weight 0 is padding, and is not used as a negative.

    Returns:
        The losses, and 1 where the partner has the highest cosine with the first text, else 0;
        both float32 [B].
    """
    logits = similarity_scale * tf.matmul(first, second, transpose_b=True)  # [B, B]
    absent = _MASKED * tf.cast(weights == 0.0, tf.float32)
    from_first, from_second = logits + absent, tf.transpose(logits) + absent
    partners = tf.range(get_shape_list(logits)[0])
    losses = cross_entropy(from_first, partners) + cross_entropy(from_second, partners)
    best = tf.argmax(from_first, axis=-1, output_type=tf.int32)
    return losses / 2.0, tf.cast(best == partners, tf.float32)


def _cosines(vectors: tf.Tensor) -> tf.Tensor:
    """Returns the cosine of each pair of vectors of length 1: float32 [B, 2, H] -> [B]."""
    return tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)
