"""Sentence vectors: the mean of BERT's last layer; losses on pairs; predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`; T is the number of texts of an example.

The mean over the tokens and the regression of the cosine are from Sentence-BERT
(https://arxiv.org/abs/1908.10084, section 3). For the other losses see `loss`.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import example_weights, squared_errors
from bert_tf.model.layers import weighted_sum
from bert_tf.model.ranges import finite, shaped
from bert_tf.model.saving import register
from bert_tf.model.shapes import get_shape_list
from bert_tf.tasks.sentences.loss import cosines, in_batch_negatives, triplet_losses, truncated
from bert_tf.tasks.sentences.schema import COSINE, IN_BATCH_NEGATIVES, LOSSES, TRIPLET
from bert_tf.tasks.task_model import TaskModel


@register
class SentenceModel(TaskModel):
    """BERT with the mean of its last layer over a text's tokens, scaled to length 1.

    Args:
        loss: "cosine", "in_batch_negatives" or "triplet"; docs/sentences.md explains them.
        score_scale: for "cosine": the score that stands for a cosine of 1.
        similarity_scale: for "in_batch_negatives": factor of the cosines before the softmax.
        triplet_margin: for "triplet": by how much the cosine of the first two texts should exceed
            the cosine of the first and the third.
        matryoshka_dims: sizes that vectors are truncated to. The loss is the sum of the losses of
            all sizes (https://arxiv.org/abs/2205.13147). (): whole vectors.
        **options: see `BertModel`.

    Raises:
        UserError: `loss` is unknown, or a size is larger than the model's vectors.
    """

    label_names: tuple[str, ...] = ("label_ids",)
    input_rank = 3

    def __init__(
        self,
        config: BertConfig,
        loss: str = COSINE,
        score_scale: float = 1.0,
        similarity_scale: float = 20.0,
        triplet_margin: float = 0.5,
        matryoshka_dims: Sequence[int] = (),
        **options: Any,
    ):
        if loss not in LOSSES:
            raise UserError(f"loss must be one of {listed(LOSSES)}; received {quoted(loss)}")
        super().__init__(config, **options)
        self.bert.pooler.trainable = False  # vectors do not depend on it; a checkpoint may lack it
        self.loss_name = loss
        self.score_scale = score_scale
        self.similarity_scale = similarity_scale
        self.triplet_margin = triplet_margin
        check_sizes(matryoshka_dims, config)
        self.sizes: tuple[int | None, ...] = tuple(matryoshka_dims) or (None,)
        self.task_metrics: tuple[str, ...] = ()
        if loss != COSINE:
            self.task_metrics, self.label_names = ("accuracy",), ()  # every pair is a right one
            self.compares_examples = loss == IN_BATCH_NEGATIVES

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns a vector of each of an example's T texts, float32 [B, T, H], of length 1.

        The mean includes [CLS] and [SEP], but not padding.

        Args:
            input_ids: int32 [B, T, S]: T is 1 for single texts, 2 for pairs, 3 for triplets.
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
        total = weighted_sum(mask, tf.cast(hidden, tf.float32))
        # The sum is enough: dividing it by the number of tokens would not change its direction.
        vectors = tf.math.l2_normalize(total, axis=-1)
        return tf.reshape(vectors, [-1, num_texts, vectors.shape[-1]])

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `label_ids`, a score of each pair, float32 [B]; {} for the other losses."""
        batch, num_texts, _ = get_shape_list(features["input_ids"])
        allowed = {COSINE: (2,), TRIPLET: (3,)}.get(self.loss_name, (2, 3))
        if num_texts not in allowed:
            kinds = " or ".join(
                {2: "[B, 2, S]: pairs", 3: "[B, 3, S]: triplets"}[n] for n in allowed
            )
            raise UserError(f"The loss needs input_ids {kinds}; received {num_texts} texts")
        if not self.label_names:
            return {}
        labels = shaped(features["label_ids"], "label_ids", [batch], "a score for each pair")
        counted, bounds = example_weights(features) > 0.0, {}
        if self.loss_name == COSINE:
            bounds = {"bounds": (-self.score_scale, self.score_scale, "score_scale")}
        return {"label_ids": finite(labels, "label_ids", counted, **bounds)}

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean loss and, except for `cosine`, the accuracy; all float32 [].

        The accuracy is the number of first texts that are nearest to their partner, among all
        second and third texts of the batch or, for `triplet`, of the triplet; and the number of
        first texts. It is that of the first size of vectors.
        """
        weights = example_weights(features)
        found = [self._example_losses(truncated(outputs, size), features) for size in self.sizes]
        losses, right = found[0]
        sums = {}
        if right is not None:
            sums["accuracy"] = (tf.reduce_sum(weights * right), tf.reduce_sum(weights))
        losses = sum((other for other, _ in found[1:]), losses)
        loss = tf.reduce_sum(weights * losses)
        return tf.math.divide_no_nan(loss, normalizers["examples"]), sums

    def _example_losses(
        self, vectors: tf.Tensor, features: Features
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns each example's loss and whether it is right, float32 [B]; None for `cosine`."""
        if self.loss_name == TRIPLET:
            return triplet_losses(vectors, self.triplet_margin)
        if self.loss_name == COSINE:
            return self._squared_errors(cosines(vectors), features), None
        negatives = vectors[:, 2] if vectors.shape[1] == 3 else None
        weights = example_weights(features)
        return in_batch_negatives(
            *(vectors[:, 0], vectors[:, 1], weights, self.similarity_scale, negatives)
        )

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns the vectors of each example and, for pairs, the cosine, the score and the loss.

        `vectors`: float32 [B, T, H]. For pairs: `outputs`: the cosines, float32 [B], and
        `outputs_SIZE` those of truncated vectors. `label_ids`: the records' scores.
        `per_example_loss`: float32 [B], only with the loss `cosine`.
        """
        found = {"vectors": outputs}
        if outputs.shape[1] == 2:
            found["outputs"] = cosines(outputs)
            for size in filter(None, self.sizes):
                found[f"outputs_{size}"] = cosines(truncated(outputs, size))
            found["label_ids"] = features["label_ids"]
            if self.loss_name == COSINE:
                found["per_example_loss"] = self._squared_errors(found["outputs"], features)
        return found

    def _squared_errors(self, cosines: tf.Tensor, features: Features) -> tf.Tensor:
        """Returns the squared error of each pair's cosine, float32 [B]."""
        return squared_errors(cosines, features["label_ids"] / self.score_scale)


def check_sizes(sizes: Sequence[int], config: BertConfig) -> None:
    """Raises UserError if a model's vectors cannot be truncated to all `matryoshka_dims`."""
    if sizes and max(sizes) > config.hidden_size:
        raise UserError(
            f"--matryoshka_dims must be at most hidden_size of --bert_config_file, which is"
            f" {config.hidden_size}; got {','.join(map(str, sizes))}. Leave the larger sizes out"
        )
