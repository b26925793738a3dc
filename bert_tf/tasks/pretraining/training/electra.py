"""ELECTRA's pre-training (https://arxiv.org/abs/2003.10555, section 2): two models in one step.

A generator, a small masked LM, predicts masked tokens, and samples from its predictions replace
them. The discriminator, which is the model to keep, predicts which tokens were replaced.

Original: google-research/electra, run_pretraining.py. Dimension letters and dtypes: see
`bert_tf/modeling.py`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.model.activations import get_activation
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import ElectraConfig
from bert_tf.model.heads import example_weights, token_weights
from bert_tf.model.inputs import get_shape_list
from bert_tf.model.layers import dropout_seed_of_call, make_dense
from bert_tf.model.saving import Savable, register
from bert_tf.modeling import BertModel
from bert_tf.seeds import fold_in, hash_numbers, random_bits, uniform
from bert_tf.tasks.pretraining.schema import ELECTRA
from bert_tf.tasks.pretraining.training.dynamic_masking import write_at
from bert_tf.tasks.pretraining.training.heads import Transform, masked_lm_logits
from bert_tf.tasks.pretraining.training.model import (
    PretrainingModel,
    check_objective,
    checked_weights,
    loss_and_accuracy,
    masked_lm_weights,
)
from bert_tf.tasks.task_model import TaskModel

_EPSILON = 1e-6  # added to the sums of weights that divide the losses
# Numbers folded into a call's seed; the discriminator's dropout uses 0 and 1.
_GENERATOR, _SAMPLES = 3, 4
_DISALLOWED = 1000.0  # subtracted from the logit of the right token
# Thresholds of tf.metrics.auc, from just below 0 to just above 1.
_THRESHOLDS = np.array([-1e-7, *np.arange(1, 199) / 199, 1.0 + 1e-7], np.float32)
_TRUE, _FALSE = "disc_true_positive_rates", "disc_false_positive_rates"


class ElectraOutputs(NamedTuple):
    """Outputs of an `ElectraPretrainingModel`; all but the first are None without a discriminator.

    Attributes:
        masked_lm_logits: float32 [B*P, V], of the generator.
        sampled_ids: int32 [B, P], tokens drawn from the generator's probabilities.
        fake_input_ids: int32 [B, S], the original tokens, with `sampled_ids` at the masked places.
        labels: int32 [B, S], 1 where a token differs from the original.
        logits: float32 [B, S], of the discriminator; above 0 for a replaced token.
    """

    masked_lm_logits: tf.Tensor
    sampled_ids: tf.Tensor | None = None
    fake_input_ids: tf.Tensor | None = None
    labels: tf.Tensor | None = None
    logits: tf.Tensor | None = None


@register
class GeneratorPredictions(Transform):
    """Logits over the vocabulary at masked places (scope `generator_predictions`)."""

    def __init__(self, config: ElectraConfig, dtype=None):
        super().__init__(config, dtype, "generator_predictions")
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            super().build()
            shape, options = (self.config.vocab_size,), {"dtype": "float32", "autocast": False}
            self.output_bias = self.add_weight(shape, "zeros", name="output_bias", **options)
            self.built = True

    def call(self, sequence_output, positions, embedding_table):
        """Returns logits, float32 [B*P, V]; see `heads.MaskedLanguageModel`."""
        return masked_lm_logits(
            super().call, sequence_output, positions, embedding_table, self.output_bias
        )


@register
class DiscriminatorPredictions(Savable, keras.layers.Layer):
    """A logit for each token (scope `discriminator_predictions`)."""

    def __init__(self, config: ElectraConfig, dtype=None):
        super().__init__(name="discriminator_predictions", dtype=dtype)
        self.config = config
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            config, size = self.config, self.config.hidden_size
            act = get_activation(config.hidden_act)
            self.dense = make_dense(size, size, config, self.dtype_policy, "dense", act)
            self.output_layer = make_dense(
                1, size, config, self.dtype_policy, "dense_1", glorot=True
            )
            self.built = True

    def call(self, sequence_output):
        """Maps the last layer, float [B, S, H], to logits, float32 [B, S]."""
        batch_size, length, size = get_shape_list(sequence_output)
        hidden = self.dense(tf.reshape(sequence_output, [-1, size]))  # [B*S, H]
        return tf.cast(tf.reshape(self.output_layer(hidden), [batch_size, length]), tf.float32)


@register
class ElectraPretrainingModel(TaskModel):
    """Generator and discriminator, with the variables of a released checkpoint.

    For the arguments see `ElectraSettings`, and for `options` see `BertModel`.
    """

    required_inputs = ("input_ids", "masked_lm_positions", "masked_lm_ids")
    label_names: tuple[str, ...] = ("masked_lm_weights",)
    task_metrics: tuple[str, ...] = ("masked_lm_loss", "masked_lm_accuracy")

    def __init__(
        self,
        config: ElectraConfig,
        electra_objective: bool = True,
        generator_hidden_size: float = 0.25,
        generator_layers: float = 1.0,
        untied_generator: bool = True,
        untied_generator_embeddings: bool = False,
        uniform_generator: bool = False,
        gen_weight: float = 1.0,
        disc_weight: float = 50.0,
        temperature: float = 1.0,
        disallow_correct: bool = False,
        **options: Any,
    ):
        check_objective(config, ELECTRA)
        super().__init__(config, **options)
        self.gen_weight, self.disc_weight = gen_weight, disc_weight
        self.temperature, self.disallow_correct = temperature, disallow_correct
        policy = self.bert.dtype_policy
        self.generator = self.generator_predictions = self.discriminator_predictions = None
        if not uniform_generator:
            self.generator = self.bert
            generator_config = config
            if electra_objective and untied_generator:
                generator_config = config.generator(
                    generator_hidden_size, generator_layers, untied_generator_embeddings
                )
                shared = None if untied_generator_embeddings else self.bert.embeddings
                options = {**options, "dtype": policy, "embeddings": shared}
                self.generator = BertModel(generator_config, name="generator", **options)
            self.generator_predictions = GeneratorPredictions(generator_config, policy)
        if electra_objective:
            self.discriminator_predictions = DiscriminatorPredictions(config, policy)
            self.task_metrics += ("sampled_masked_lm_accuracy", "disc_loss")
            self.task_metrics += ("disc_accuracy", "disc_precision", "disc_recall")
        else:
            self.required_inputs = self.required_inputs[:2]

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        masked_lm_positions: tf.Tensor | None = None,
        masked_lm_ids: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
    ) -> ElectraOutputs:
        """Returns the outputs of both models.

        Args:
            input_ids: int32 [B, S], masked.
            input_mask: int32 [B, S], 1 for tokens and 0 for padding; None is all ones.
            segment_ids: int32 [B, S], 1 for the second segment; None is all zeros.
            masked_lm_positions: int32 [B, P], the places to predict; 0 for none.
            masked_lm_ids: int32 [B, P], the original tokens there.
            dropout_seed: int32 [2]; determines dropout and samples. If None, training draws a seed;
                outside training a row's samples follow from its masked and original tokens.
        """
        seed = dropout_seed_of_call(training, dropout_seed)
        shape = *get_shape_list(masked_lm_positions), self.bert.config.vocab_size  # [B, P, V]
        if self.generator is None:
            logits = tf.zeros([shape[0] * shape[1], shape[2]])
        else:
            generator_seed = fold_in(seed, _GENERATOR)
            output = self.generator(
                input_ids, input_mask, segment_ids, training, dropout_seed=generator_seed
            )
            logits = self.generator_predictions(
                output.sequence_output, masked_lm_positions, output.embedding_table
            )
        if self.discriminator_predictions is None:
            return ElectraOutputs(logits)
        original, _ = write_at(input_ids, masked_lm_ids, masked_lm_positions)
        noise_seed = fold_in(seed, _SAMPLES)
        if seed is None:  # the samples of a row follow from its tokens, whatever the batch
            hashes = hash_numbers(input_ids, original, tf.range(input_ids.shape[1]))  # [B, S]
            noise_seed = tf.reduce_sum(hashes, axis=1)
        sampled = self._sample(tf.reshape(logits, shape), masked_lm_ids, noise_seed)
        fake, written = write_at(original, sampled, masked_lm_positions)
        labels = tf.cast(written & (fake != original), tf.int32)
        output = self.bert(fake, input_mask, segment_ids, training, dropout_seed=seed)
        found = self.discriminator_predictions(output.sequence_output)
        return ElectraOutputs(logits, sampled, fake, labels, found)

    def _sample(self, logits: tf.Tensor, right_ids: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns tokens drawn from the softmax of float32 [B, P, V] logits, int32 [B, P]."""
        logits = tf.stop_gradient(logits) / self.temperature
        if self.disallow_correct:
            logits -= _DISALLOWED * tf.one_hot(right_ids, logits.shape[-1])
        noise = self.uniform_noise(get_shape_list(logits), seed)
        gumbel = -tf.math.log(-tf.math.log(noise + 1e-9) + 1e-9)
        return tf.argmax(tf.nn.softmax(logits + gumbel), axis=-1, output_type=tf.int32)

    def uniform_noise(self, shape: list[int | tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        """Returns float32 [B, P, V] in [0, 1), from a seed, int32 [2], or row seeds, uint64 [B]."""
        if seed.dtype == tf.uint64:
            number = tf.reshape(tf.range(shape[1] * shape[2]), shape[1:])  # [P, V]
            return uniform(hash_numbers(seed[:, tf.newaxis, tf.newaxis], number))
        return uniform(random_bits(shape, seed))

    def normalizers(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the sums of weights of the places to predict and of the tokens, float32 []."""
        return {
            "masked_lm": tf.reduce_sum(masked_lm_weights(features, example_weights(features))),
            "disc": tf.reduce_sum(token_weights(features)),
        }

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `masked_lm_weights`; the other labels are inputs."""
        return checked_weights(features)

    def loss_and_metrics(
        self, outputs: ElectraOutputs, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the weighted sum of both losses, float32 [], and the original's metrics.

        In an evaluation (with `example_weight`) the metrics include the rates from which `finish`
        computes disc_auc.
        """
        weights = masked_lm_weights(features, example_weights(features))
        label_ids = tf.reshape(features["masked_lm_ids"], [-1])
        sums = loss_and_accuracy("masked_lm", outputs.masked_lm_logits, label_ids, weights)
        total = self.gen_weight * sums["masked_lm_loss"][0] / (normalizers["masked_lm"] + _EPSILON)
        if outputs.logits is None:
            return total, sums
        right = tf.cast(tf.reshape(outputs.sampled_ids, [-1]) == label_ids, tf.float32)
        sums["sampled_masked_lm_accuracy"] = tf.reduce_sum(weights * right), tf.reduce_sum(weights)
        loss, disc_sums = self._discriminator(outputs, features, normalizers)
        return total + self.disc_weight * loss, sums | disc_sums

    def _discriminator(
        self, outputs: ElectraOutputs, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        logits, labels = outputs.logits, tf.cast(outputs.labels, tf.float32)
        weights = tf.reshape(token_weights(features), tf.shape(logits))  # [B, S]
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits) * weights
        row_weights = example_weights(features)
        rows = tf.reduce_sum(losses, axis=1) / (tf.reduce_sum(weights, axis=1) + _EPSILON)
        found = tf.cast(logits > 0, tf.float32)
        right = tf.cast(found == labels, tf.float32)
        sums: Sums = {"disc_loss": (tf.reduce_sum(rows * row_weights), tf.reduce_sum(row_weights))}
        kinds = {"accuracy": weights, "precision": weights * found, "recall": weights * labels}
        for name, counted in kinds.items():
            sums[f"disc_{name}"] = tf.reduce_sum(counted * right), tf.reduce_sum(counted)
        if "example_weight" in features:
            sums |= _rates(tf.sigmoid(logits) * weights, labels * weights, row_weights)
        return tf.reduce_sum(losses) / (normalizers["disc"] + _EPSILON), sums

    def finish(self, results: dict[str, Any]) -> dict[str, float]:
        """Replaces the rates of `_rates` with disc_auc, by trapezoids as in tf.metrics.auc."""
        if _TRUE in results:
            results["disc_auc"] = -float(np.trapezoid(results.pop(_TRUE), results.pop(_FALSE)))
        return results

    def predictions(self, outputs: ElectraOutputs, features: Features) -> dict[str, tf.Tensor]:
        """Returns the probability that each token was replaced, float32 [B, S]."""
        return {"probabilities": tf.sigmoid(outputs.logits)}


def pretraining_model(
    config: BertConfig,
    objective: str | None = None,
    electra: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> TaskModel:
    """Returns the model of a configuration; `electra` are arguments of ELECTRA's model only."""
    if isinstance(config, ElectraConfig):
        return ElectraPretrainingModel(config, **electra, **options)
    return PretrainingModel(config, objective, **options)


def _rates(probs: tf.Tensor, labels: tf.Tensor, row_weights: tf.Tensor) -> Sums:
    """Returns the rates of true and false positives at each threshold.

    Padding, where `probs` and `labels` are 0, counts as true negatives, as in the original.
    """
    kinds = tf.stack([labels, 1.0 - labels], axis=-1) * row_weights[:, tf.newaxis, tf.newaxis]
    kinds = tf.reshape(kinds, [-1, 2])  # [B*S, 2]
    number_below = tf.searchsorted(_THRESHOLDS, tf.reshape(probs, [-1]))
    counts = tf.math.unsorted_segment_sum(kinds, number_below, len(_THRESHOLDS) + 1)
    positives = tf.unstack(tf.cumsum(counts, exclusive=True, reverse=True)[:-1], axis=1)
    totals = tf.unstack(tf.reduce_sum(kinds, axis=0))
    pairs = zip(map(tf.unstack, positives), totals, strict=True)
    return dict(zip((_TRUE, _FALSE), pairs, strict=True))
