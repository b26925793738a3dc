"""Pre-training of a student with a teacher: soft targets, masked LM, hidden states.

Source: DistilBERT (https://arxiv.org/abs/1910.01108, section 3). Dimension letters and dtypes: see
`bert_tf/modeling.py`.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.errors import UserError, as_given
from bert_tf.model.heads import example_weights, soft_cross_entropy, squared_distance, token_weights
from bert_tf.model.layers import gather_indexes
from bert_tf.tasks.distilled import Distilled
from bert_tf.tasks.pretraining.training.model import (
    WEIGHT_EPSILON,
    PretrainingModel,
    loss_and_accuracy,
    masked_lm_weights,
)

# What to do if the student cannot start from the teacher's weights.
OTHER_WEIGHTS = (
    "Change --bert_config_file, or give --student_layers=none for random initial weights, or"
    " --init_checkpoint"
)
_ENCODER = ("bert/embeddings/", "bert/encoder/")


class DistilledPretraining(Distilled):
    """Pre-training with a teacher. For the other arguments see `Distilled`.

    Args:
        student: the model to train; its objective is masked LM only.
        alphas: the weights of the losses: `ce` of the soft targets, `mlm` of masked LM, `cos` of
            the hidden states, `mse` of the logits. A loss of weight 0 is not computed, except that
            the masked-LM loss stays a metric, without gradients.
        restrict_ce_to_mask: compute `ce` and `mse` only at masked positions, with their weights,
            instead of at all tokens.
    """

    def __init__(
        self,
        student: PretrainingModel,
        teacher: PretrainingModel,
        alphas: Mapping[str, float],
        temperature: float,
        restrict_ce_to_mask: bool = False,
        cos_all_layers: bool = False,
    ):
        super().__init__(student, teacher, alphas, temperature, cos_all_layers)
        # Logits of every position take much memory, so they are computed only if a loss needs them.
        by_logits = self.alphas["ce"] or self.alphas["mse"]
        self._every_position = bool(by_logits) and not restrict_ce_to_mask

    def outputs_of(self, model: PretrainingModel, features, training: bool, dropout_seed):
        """Returns the layers' outputs, float [B, S, H] each, and masked-LM logits, float32.

        The logits are [B*P, V], or [B*S, V] if a loss needs the logits of every position.
        """
        inputs = [features.get(name) for name in ("input_ids", "input_mask", "segment_ids")]
        packed = {name: features.get(name) for name in ("position_ids", "cls_positions")}
        output = model.bert(*inputs, training=training, dropout_seed=dropout_seed, **packed)
        positions = None if self._every_position else features["masked_lm_positions"]
        logits = model.cls.predictions(output.sequence_output, positions, output.embedding_table)
        return output.all_encoder_layers, logits

    def parts(self, layers, logits, targets, features, normalizers):
        """Returns all losses except `cos`, and their metrics.

        `ce` and `mse` are divided by the number of tokens, or of masked positions. Losses of weight
        0 are left out of the sum: with zero gradients, weight decay would still shrink the head.
        """
        alphas = self.alphas
        masked_weights = masked_lm_weights(features, example_weights(features))
        masked_logits, weights, counted = logits, masked_weights, normalizers["masked_lm"]
        if self._every_position:
            by_position = tf.reshape(logits, [*layers[-1].shape[:2], -1])  # [B, S, V]
            masked_logits = gather_indexes(by_position, features["masked_lm_positions"])  # [B*P, V]
            weights, counted = token_weights(features), normalizers["tokens"]
        sums = loss_and_accuracy(
            "masked_lm", masked_logits, features["masked_lm_ids"], masked_weights
        )
        parts = []
        if alphas["mlm"]:
            normalizer = normalizers["masked_lm"] + WEIGHT_EPSILON
            parts.append((alphas["mlm"], sums["masked_lm_loss"][0], normalizer))

        def add(name: str, losses: tf.Tensor) -> None:
            total = tf.reduce_sum(weights * losses)
            parts.append((alphas[name], total, counted))
            sums[f"{name}_loss"] = (total, tf.reduce_sum(weights))

        if alphas["ce"]:
            add("ce", soft_cross_entropy(logits, targets, self._temperature))
        if alphas["mse"]:
            add("mse", squared_distance(logits, targets))
        return parts, sums


def copy_weights(
    student: PretrainingModel,
    weights: Mapping[str, tf.Variable],
    teacher_scopes: Sequence[str],
    layers: Sequence[int],
) -> None:
    """Copies weights by name; the student's layers get the teacher's `layers`, in order."""
    sources = [teacher_scopes[layer] for layer in layers]
    scopes = list(zip(student.bert.config.layer_scopes, sources, strict=True))
    for variable in student.variables:
        name = variable.path
        for scope, source in scopes:
            if variable.path.startswith(scope):
                name = source + name.removeprefix(scope)
        value = weights.get(name)
        if value is None and not variable.path.startswith(_ENCODER):
            continue  # the variable belongs to a head that the teacher lacks
        if value is None or value.shape != variable.shape:
            received = "missing" if value is None else value.shape.as_list()
            raise UserError(
                "The student can begin with the teacher's weights only where their sizes are"
                f" equal: {variable.path} is {list(variable.shape)} by --bert_config_file, and"
                f" {received} in the teacher. {OTHER_WEIGHTS}"
            )
        variable.assign(value.numpy())


def unneeded(alphas: Mapping[str, float]) -> tuple[str, ...]:
    """Returns the name prefixes of variables that a teacher may lack because no loss needs them."""
    names = ("bert/pooler/", "cls/seq_relationship/")
    return names if alphas["ce"] or alphas["mse"] else (*names, "cls/predictions/")


def choose_layers(given: str | None, student: int, teacher: int, unit: str = "layers") -> list[int]:
    """Returns the teacher's layers, from 0, that the student's layers are initialized from.

    Without `given` (--student_layers) they are spread evenly and include the first and the last: 0,
    2, 4, 7, 9, 11 for 6 of 12, as in DistilBERT. Messages call layers `unit`: groups in an ALBERT.
    """
    if student > teacher:
        raise UserError(
            f"The student must have at most as many {unit} as the teacher to begin with its"
            f" weights; num_hidden_{unit} of --bert_config_file is {student}, and the teacher's is"
            f" {teacher}. {OTHER_WEIGHTS}"
        )
    if given is None:
        last, gaps = teacher - 1, max(1, student - 1)
        return [(2 * i * last + gaps) // (2 * gaps) for i in range(student)]
    numbers = [number.strip() for number in given.split(",")]
    layers = [int(x[:9]) for x in numbers if x.isdecimal() and x.isascii()]
    if len(layers) != student or len(numbers) != student or max(layers) >= teacher:
        raise UserError(
            f"--student_layers={as_given(given)} must be none, or {student} of the teacher's"
            f" {unit}, from 0 to {teacher - 1}, separated by commas: as many as the student has"
            f" (num_hidden_{unit} of --bert_config_file)"
        )
    return layers
