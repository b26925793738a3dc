"""The pre-training model with its losses and metrics: masked LM and next sentence prediction.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import ElectraConfig
from bert_tf.model.heads import cross_entropy, example_weights
from bert_tf.model.inputs import WEIGHTS, finite, get_shape_list, in_range, shaped
from bert_tf.model.saving import register
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM, MLM_NSP, MLM_SOP
from bert_tf.tasks.pretraining.training.heads import PretrainingHeads
from bert_tf.tasks.task_model import TaskModel

# Added to the sum of the masked-LM weights (original: get_masked_lm_output), so that the loss of a
# batch without predictions is 0.
WEIGHT_EPSILON = 1e-5
# Objective -> the name of its loss on pairs of texts, if it has one.
_PAIR_OBJECTIVES = {MLM_NSP: "next_sentence", MLM_SOP: "sentence_order", MLM: None}


@register
class PretrainingModel(TaskModel):
    """BERT with its pre-training heads, and the same variables as a released checkpoint.

    Args:
        objective: `mlm_nsp`, `mlm` or `mlm_sop`. With `mlm`, features have no
            `next_sentence_labels`, and the pooler and the next sentence head keep their weights.
            With `mlm_sop`, the labels, the head and the metrics' names are for the order of
            sentences. None means `mlm_nsp`, or `mlm` for a model without a next sentence head.
        **options: see `BertModel`.
    """

    required_inputs = ("input_ids", "masked_lm_positions")
    label_names: tuple[str, ...] = ("masked_lm_ids", "masked_lm_weights")
    task_metrics: tuple[str, ...] = ("masked_lm_loss", "masked_lm_accuracy")

    def __init__(self, config: BertConfig, objective: str | None = None, **options: Any):
        if isinstance(config, ElectraConfig):
            check_objective(config, MLM)  # ELECTRA has different heads
        super().__init__(config, **options)
        objective = objective or (MLM_NSP if config.has_next_sentence else MLM)
        if objective not in _PAIR_OBJECTIVES:
            raise UserError(
                f"objective must be one of {listed(_PAIR_OBJECTIVES)}; received {quoted(objective)}"
            )
        self.cls = PretrainingHeads(config, self.bert.dtype_policy)
        self.pair_objective = _PAIR_OBJECTIVES[objective]
        if self.pair_objective:
            self.label_names += ("next_sentence_labels",)
            self.task_metrics += tuple(f"{self.pair_objective}_{x}" for x in ("loss", "accuracy"))

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        masked_lm_positions: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
        position_ids: tf.Tensor | None = None,
        cls_positions: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns logits of masked LM, float32 [B*P, V], and next sentence, float32 [B, 2].

        The next-sentence logits are [B*K, 2] for packed rows, and None for RoBERTa.

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding; None is all ones. For packed
                rows see `BertModel`.
            segment_ids: int32 [B, S], 1 for the second sentence; None is all zeros.
            masked_lm_positions: int32 [B, P], the positions to predict; 0 if unused.
            training: whether dropout is on.
            dropout_seed: int32 [2]; None draws one.
            position_ids: int32 [B, S] for packed rows; see `BertModel`.
            cls_positions: int32 [B, K] for packed rows; see `BertModel`.
        """
        inputs = input_ids, input_mask, segment_ids
        packed = {"position_ids": position_ids, "cls_positions": cls_positions}
        output = self.bert(*inputs, training=training, dropout_seed=dropout_seed, **packed)
        sequence, pooled = output.sequence_output, output.pooled_output
        return self.cls(sequence, pooled, masked_lm_positions, output.embedding_table)

    def normalizers(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the sums of weights of the masked positions and of the examples, float32 [].

        For packed rows also `examples`, the number of their sequences.
        """
        weights = example_weights(features)
        sums = {
            "masked_lm": tf.reduce_sum(masked_lm_weights(features, weights)),
            "next_sentence": tf.reduce_sum(_next_sentence_weights(features, weights)),
        }
        if "position_ids" in features:
            sequences = tf.reduce_max(features["input_mask"], axis=1)  # [B]
            sums["examples"] = tf.reduce_sum(weights * tf.cast(sequences, tf.float32))
        return sums

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `masked_lm_ids` and the labels of pairs, int32, and `masked_lm_weights`."""
        found = checked_weights(features)
        shape, meaning = get_shape_list(features["masked_lm_positions"]), "a number for each mask"
        counted = found["masked_lm_weights"] * example_weights(features)[:, tf.newaxis] > 0.0
        name = "masked_lm_ids"
        ids = shaped(features[name], name, shape, meaning)
        found[name] = in_range(ids, name, self.bert.config.vocab_size, "vocab_size", counted)
        if self.pair_objective:
            shape, meaning = get_shape_list(features["input_ids"])[:1], "a number for each example"
            if "cls_positions" in features:
                shape, meaning = get_shape_list(features["cls_positions"]), "one for each sequence"
            name = "next_sentence_labels"
            labels = shaped(features[name], name, shape, meaning)
            found[name] = in_range(labels, name, 2, "0 or 1")
        return found

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the sum of the losses, float32 [], and losses and accuracies as metrics.

        Original: get_masked_lm_output and get_next_sentence_output (ALBERT's:
        get_sentence_order_output) for the losses, metric_fn for the metrics.
        """
        masked_lm_logits, next_sentence_logits = outputs
        example_weight = example_weights(features)
        losses = {
            "masked_lm": (
                masked_lm_logits,
                features["masked_lm_ids"],
                masked_lm_weights(features, example_weight),
                normalizers["masked_lm"] + WEIGHT_EPSILON,
            )
        }
        if self.pair_objective:
            losses[self.pair_objective] = (
                next_sentence_logits,
                features["next_sentence_labels"],
                _next_sentence_weights(features, example_weight),
                normalizers["next_sentence"],
            )
        total = tf.zeros([], tf.float32)
        sums: Sums = {}
        for name, (logits, label_ids, weights, normalizer) in losses.items():
            parts = loss_and_accuracy(name, logits, label_ids, weights)
            total += tf.math.divide_no_nan(parts[f"{name}_loss"][0], normalizer)
            sums |= parts
        return total, sums


def check_objective(config: BertConfig, objective: str) -> None:
    """Raises UserError if the model does not have the heads that the objective trains."""
    if (objective == ELECTRA) != isinstance(config, ElectraConfig):
        raise UserError(
            f"--objective={objective} does not fit a model of kind {config.NAME}:"
            f" --objective={ELECTRA} of run_pretraining.py trains an ELECTRA, which can be neither"
            " the student nor the teacher of run_distillation.py; the other objectives train"
            " other models. A configuration is an ELECTRA's if it has"
            ' "model_type": "electra"'
        )
    if objective == ELECTRA:
        return
    if objective != MLM and not config.has_next_sentence:
        raise UserError(
            f"--objective={objective} needs a model with a head for pairs of sentences; the model"
            " of --bert_config_file has none. Set --objective=mlm"
        )


def loss_and_accuracy(
    name: str, logits: tf.Tensor, label_ids: tf.Tensor, weights: tf.Tensor
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Returns `NAME_loss` and `NAME_accuracy`: (weighted sum, sum of the weights), float32 [].

    `logits` are float32 [R, classes], `label_ids` int32 with R values in any shape, and `weights`
    float32 [R].
    """
    label_ids = tf.reshape(label_ids, [-1])
    predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
    right = tf.cast(predictions == label_ids, tf.float32)
    weight = tf.reduce_sum(weights)
    return {
        f"{name}_loss": (tf.reduce_sum(weights * cross_entropy(logits, label_ids)), weight),
        f"{name}_accuracy": (tf.reduce_sum(weights * right), weight),
    }


def checked_weights(features: Features) -> dict[str, tf.Tensor]:
    """Returns the weights of the masked positions by name; see `TaskModel.checked_labels`."""
    shape, name = get_shape_list(features["masked_lm_positions"]), "masked_lm_weights"
    weights = shaped(features[name], name, shape, "a number for each mask")
    return {name: finite(weights, name, bounds=WEIGHTS)}


def masked_lm_weights(features: Features, example_weight: tf.Tensor) -> tf.Tensor:
    """Returns the weights of the masked positions, float32 [B*P]."""
    weights = features["masked_lm_weights"] * example_weight[:, tf.newaxis]  # [B, P]
    return tf.reshape(weights, [-1])


def _next_sentence_weights(features: Features, example_weight: tf.Tensor) -> tf.Tensor:
    """Returns the weights of the next sentence labels, float32 [B], or [B*K] for packed rows."""
    if "next_sentence_weights" not in features:
        return example_weight
    weights = features["next_sentence_weights"] * example_weight[:, tf.newaxis]  # [B, K]
    return tf.reshape(weights, [-1])
