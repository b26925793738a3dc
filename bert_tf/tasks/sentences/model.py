"""Sentence vectors: the mean of BERT's last layer; losses on pairs and triplets; predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`; T is the number of texts of an example.
The mean over the tokens and the regression of the cosine are from Sentence-BERT
(https://arxiv.org/abs/1908.10084, section 3), multiple negatives ranking is from
https://arxiv.org/abs/1705.00652, section 4.4, and the sizes of vectors are from
https://arxiv.org/abs/2205.13147. Hard negatives and the loss of triplets match
sentence-transformers (MultipleNegativesSymmetricRankingLoss; TripletLoss with the cosine distance).
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import cross_entropy, example_weights, squared_errors
from bert_tf.model.inputs import finite, get_shape_list, shaped
from bert_tf.model.layers import weighted_sum
from bert_tf.model.saving import register
from bert_tf.modeling import BertOutput
from bert_tf.tasks.sentences.settings import COSINE, IN_BATCH_NEGATIVES, LOSSES, TRIPLET
from bert_tf.tasks.task_model import TaskModel

_MASKED = -1e9  # added to a logit to exclude it from a softmax


def in_batch_negatives(
    first: tf.Tensor,
    second: tf.Tensor,
    weights: tf.Tensor,
    similarity_scale: float,
    negatives: tf.Tensor | None = None,
    related: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each pair's loss in the batch, and whether the first text finds its partner.

    Each text must choose its partner among the other side's texts: the cross entropy of a softmax
    over the cosines times `similarity_scale`. The loss is the mean of both directions. The paper
    only goes from a message to its reply, but the order of two paraphrases means nothing.

    Args:
        first, second: float32 [B, H], the vectors of the pairs' texts, each of length 1.
        weights: float32 [B]; a pair of weight 0 is padding, and is not used as a negative.
        similarity_scale: factor of the cosines.
        negatives: float32 [B, H], vectors that the first texts must also tell from their partners.
        related: which texts are not negatives of each other, see `related_texts`; None if all texts
            differ.

    Returns:
        The losses, and 1 where the partner has the highest cosine with the first text, else 0; both
        float32 [B].
    """
    logits = similarity_scale * tf.matmul(first, second, transpose_b=True)  # [B, B]
    absent = _MASKED * tf.cast(weights == 0.0, tf.float32)
    from_first, from_second = logits + absent, tf.transpose(logits) + absent
    partners = tf.range(get_shape_list(logits)[0])
    if related is not None:
        others = tf.cast(partners != partners[:, tf.newaxis], tf.float32)  # all except the partner
        related = _MASKED * tf.cast(related, tf.float32)
        from_first += others * related[0, :, 1]
        from_second += others * related[1, :, 0]
    if negatives is not None:
        more = similarity_scale * tf.matmul(first, negatives, transpose_b=True)  # [B, B]
        more = more if related is None else more + related[0, :, 2]
        from_first = tf.concat([from_first, more + absent], axis=-1)
    losses = cross_entropy(from_first, partners) + cross_entropy(from_second, partners)
    best = tf.argmax(from_first, axis=-1, output_type=tf.int32)
    return losses / 2.0, tf.cast(best == partners, tf.float32)


def related_texts(input_ids: tf.Tensor) -> tf.Tensor:
    """Returns which texts are equal or partners of each other, bool [T, B, T, B].

    Two texts are partners if they, or texts equal to them, are the first and the second text of an
    example. `input_ids` are int32 [B, T, S], with 2 or 3 texts; they are compared by two 32-bit
    hashes, polynomials of their ids.
    """
    batch, num_texts, length = get_shape_list(input_ids)
    ids = tf.reshape(tf.transpose(input_ids, [1, 0, 2]), [-1, length])  # [T*B, S]
    equal = tf.ones([], tf.bool)
    for base in (0x2C1B3C6D, 0x297A2D39):
        powers = tf.math.cumprod(tf.fill([length], base))
        number = tf.reduce_sum(ids * powers, axis=1)
        equal &= number == number[:, tf.newaxis]  # [T*B, T*B]
    from_first, from_second = tf.split(tf.cast(equal[:, : 2 * batch], tf.float32), 2, axis=1)
    to_partners = tf.concat([from_second, from_first], axis=1)  # [T*B, 2*B]
    partners = tf.matmul(to_partners, tf.cast(equal[: 2 * batch], tf.float32)) > 0.0
    return tf.reshape(equal | partners, [num_texts, batch, num_texts, batch])


def triplet_losses(vectors: tf.Tensor, margin: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each triplet's loss, and 1 where the second text is nearer than the third, else 0.

    The cosine of the first two texts should exceed the cosine of the first and the third by
    `margin`. The loss is the shortfall. `vectors` are float32 [B, 3, H], each of length 1.
    """
    gain = cosines(vectors[:, :2]) - cosines(vectors[:, ::2])
    return tf.maximum(margin - gain, 0.0), tf.cast(gain > 0.0, tf.float32)


def cosines(vectors: tf.Tensor) -> tf.Tensor:
    """Returns the cosine of each pair of vectors of length 1: float32 [B, 2, H] -> [B]."""
    return tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)


def truncated(vectors: tf.Tensor, size: int | None) -> tf.Tensor:
    """Truncates vectors to their first `size` elements, scaled to length 1; None keeps all."""
    return vectors if size is None else tf.math.l2_normalize(vectors[..., :size], axis=-1)


@register
class SentenceModel(TaskModel):
    """BERT with the mean of its last layer over a text's tokens, scaled to length 1.

    Args:
        loss: "cosine", "in_batch_negatives" or "triplet"; docs/sentences.md explains them.
        score_scale: for "cosine": the score of a cosine of 1.
        similarity_scale: for "in_batch_negatives": factor of the cosines before the softmax.
        triplet_margin: for "triplet": by how much the cosine of the first two texts should exceed
            the cosine of the first and the third.
        matryoshka_dims: sizes that vectors are truncated to. The loss is the sum of the losses of
            all sizes (https://arxiv.org/abs/2205.13147). () for whole vectors.
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
            self.task_metrics, self.label_names = ("accuracy",), ()  # no scores needed
            self.compared_features = ("input_ids",) if loss == IN_BATCH_NEGATIVES else ()

    def head_outputs(self, output: BertOutput, input_mask: Any, **dropout: Any) -> tf.Tensor:
        """Returns a vector of each text, float32 [B*T, H], of length 1; `call` returns [B, T, H].

        The mean includes [CLS] and [SEP], but not padding. T is 1 to 3: texts, pairs or triplets.
        """
        hidden = tf.cast(output.sequence_output, tf.float32)  # [B*T, S, H]
        mask = tf.ones_like(hidden[..., 0]) if input_mask is None else input_mask
        # The sum is enough: dividing it by the number of tokens would not change its direction.
        return tf.math.l2_normalize(weighted_sum(tf.cast(mask, tf.float32), hidden), axis=-1)

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `label_ids`, a score of each pair, float32 [B]; {} for the other losses."""
        batch, num_texts, _ = get_shape_list(features["input_ids"])
        allowed = {COSINE: (2,), TRIPLET: (3,)}.get(self.loss_name, (2, 3))
        if num_texts not in allowed:
            forms = {2: "[B, 2, S]: pairs", 3: "[B, 3, S]: triplets"}
            kinds = " or ".join(forms[number] for number in allowed)
            raise UserError(f"The loss needs input_ids {kinds}; received {num_texts} texts")
        if not self.label_names:
            return {}
        labels = shaped(features["label_ids"], "label_ids", [batch], "a score for each pair")
        counted, bounds = example_weights(features) > 0.0, (-self.score_scale, self.score_scale)
        return {"label_ids": finite(labels, "label_ids", counted, (*bounds, "score_scale"))}

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean loss and, except for `cosine`, the accuracy; all float32 [].

        The accuracy is the share of first texts whose partner is the nearest of all second and
        third texts in the batch or, for `triplet`, in the triplet. Only vectors of the first size
        are compared.
        """
        weights = example_weights(features)
        related = related_texts(features["input_ids"]) if self.compared_features else None
        found = [
            self._example_losses(truncated(outputs, size), features, related) for size in self.sizes
        ]
        losses, right = found[0]
        sums = {}
        if right is not None:
            sums["accuracy"] = (tf.reduce_sum(weights * right), tf.reduce_sum(weights))
        losses = sum((other for other, _ in found[1:]), losses)
        loss = tf.reduce_sum(weights * losses)
        return tf.math.divide_no_nan(loss, normalizers["examples"]), sums

    def _example_losses(
        self, vectors: tf.Tensor, features: Features, related: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns each example's loss and whether it is right (None for `cosine`), float32 [B]."""
        if self.loss_name == TRIPLET:
            return triplet_losses(vectors, self.triplet_margin)
        if self.loss_name == COSINE:
            return self._squared_errors(cosines(vectors), features), None
        negatives = vectors[:, 2] if vectors.shape[1] == 3 else None
        weights = example_weights(features)
        return in_batch_negatives(
            *(vectors[:, 0], vectors[:, 1], weights, self.similarity_scale, negatives),
            related=related,
        )

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns the vectors of each example and, for pairs, the cosine, the score and the loss.

        `vectors`: float32 [B, T, H]. For pairs: `outputs`: the cosines, float32 [B], and
        `outputs_SIZE` the cosines of truncated vectors. `label_ids`: the records' scores.
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
        return squared_errors(cosines, features["label_ids"] / self.score_scale)


def check_sizes(sizes: Sequence[int], config: BertConfig) -> None:
    """Raises UserError if a model's vectors cannot be truncated to all `matryoshka_dims`."""
    if sizes and max(sizes) > config.hidden_size:
        raise UserError(
            f"--matryoshka_dims must be at most hidden_size of --bert_config_file, which is"
            f" {config.hidden_size}; got {','.join(map(str, sizes))}. Leave the larger sizes out"
        )
