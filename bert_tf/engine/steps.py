"""The training step and the evaluation step of a replica, as pure functions of their batch.

The route from the command line to the update of the weights:
    tasks/program.py `main`              makes one settings object from the flags
    tasks/fine_tuner.py                  makes records, and the run's plan; for pre-training run.py
    runs/training/trainer.py             goes through phases; loops between saves and evaluations
    engine/loops.py                      makes the steps of a loop, no Python between them
    engine/replicate.py                  makes one step on all replicas
    engine/steps.py `train_step`         loss, gradients, reduction over replicas, clipping: here
    optimization.py `apply_reduced`      updates each variable
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from bert_tf.bounds import inputs_were_checked
from bert_tf.engine.distribution import GRADIENT_REDUCTIONS
from bert_tf.errors import UserError
from bert_tf.optimization import CLIP_NORM, AdamWeightDecayOptimizer
from bert_tf.seeds import fold_in

Features = Mapping[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]
Gradients = list[tf.Tensor | tf.IndexedSlices | None]


class Objective(Protocol):
    """What a step minimizes, and layers and trainable variables of the model that it trains.

    A task's model is its own objective. In distillation, student and teacher together are the
    objective.
    """

    layers: Sequence[keras.layers.Layer]
    trainable_variables: Sequence[keras.Variable]

    def __call__(
        self, features: Features, *, training: bool, dropout_seed: tf.Tensor | None
    ) -> Any:
        """Returns the outputs for a batch or a part of it, in any structure.

        `training` switches dropout on; `dropout_seed` is int32 [2], and None draws one.
        """

    def normalizers(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the sums of weights by name, float32 [], by which a batch's loss is divided.

        `example_weight`, float32 [batch], is the weight of each example; evaluation batches have
        it, with 0 for padding. Without it, as in training, every example has weight 1.

        If a row holds several examples, `examples` is the sum of all examples' weights, by which an
        evaluation weights the loss of a batch.
        """

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the loss of a batch, or of a part of it, and its metrics.

        The losses of a batch's parts add up to the loss of the whole batch, because all are divided
        by the whole batch's normalizers. If all weights of a batch are 0, so is its loss.

        Args:
            outputs: what `__call__` returned for these features.
            features: with or without `example_weight`, which weights the loss and every metric.
            normalizers: normalizers of the whole batch, over all replicas.

        Returns:
            The loss, float32 [], and each metric as a pair of float32 []: a weighted sum and the
            sum of its weights.
        """


@dataclasses.dataclass(frozen=True)
class Replicas:
    """The replicas that make a step together: the only link between a step and its devices.

    `sum`: each replica's dense tensors -> their sums over all `count` replicas, on each replica.
    """

    count: int
    sum: Callable[[list[tf.Tensor]], list[tf.Tensor]]


def replicas_of_strategy() -> Replicas:
    """Returns the replicas of the `tf.distribute` strategy in whose replica this is called."""
    context = tf.distribute.get_replica_context()
    return Replicas(
        context.num_replicas_in_sync,
        lambda tensors: context.all_reduce(tf.distribute.ReduceOp.SUM, tensors),
    )


def train_step(
    objective: Objective,
    optimizer: AdamWeightDecayOptimizer,
    features: Features,
    seed: tf.Tensor,
    accumulation_steps: int = 1,
    gradient_reduction: str = GRADIENT_REDUCTIONS[0],
    replicas: Replicas | None = None,
    clip_norm: float = CLIP_NORM,
    update: Callable[[Sequence[tf.Tensor | tf.IndexedSlices | None]], None] | None = None,
) -> dict[str, tf.Tensor | tuple[tf.Tensor, tf.Tensor]]:
    """Updates the model once; returns loss, gradient norm, learning rate and further metrics.

    Args:
        objective: gives the loss; its variables are trained.
        optimizer: built with the trainable variables; its `global_step` counts the steps.
        features: the replica's batch; every feature's first axis is the batch.
        seed: int32 [2], of this run and replica; the step is folded in here.
        accumulation_steps: the number of equal parts that the batch is computed in, one after
            another, to save memory. The gradient is the same as for the whole batch, because every
            part's loss is divided by the whole batch's normalizers.
        gradient_reduction: one of `distribution.GRADIENT_REDUCTIONS`.
        replicas: all replicas, this one included; None for the strategy's replicas.
        clip_norm: the largest global norm of the gradients; 0 does not clip.
        update: updates the variables with their gradients; None for `optimizer.apply_reduced`.
    """
    replicas = replicas or replicas_of_strategy()
    seed = fold_in(seed, tf.cast(optimizer.global_step, tf.int32))
    normalizers = objective.normalizers(features)
    variables = [variable.value for variable in objective.trainable_variables]

    def compute(part: Features, part_seed: tf.Tensor):
        with tf.GradientTape() as tape, inputs_were_checked():
            outputs = objective(part, training=True, dropout_seed=part_seed)
            loss, sums = objective.loss_and_metrics(outputs, part, normalizers)
        return loss, sums, tape.gradient(loss, variables)

    if accumulation_steps == 1:
        loss, sums, gradients = compute(features, seed)
    else:
        loss, sums, gradients = _accumulate(compute, features, seed, accumulation_steps)
        gradients = [gradients.get(i) for i in range(len(variables))]
    gradients, norm = reduce_gradients(gradients, gradient_reduction, replicas, clip_norm)
    learning_rate = tf.convert_to_tensor(optimizer.learning_rate)
    (update or optimizer.apply_reduced)(gradients)
    return {"loss": loss, "gradient_norm": norm, "learning_rate": learning_rate, **sums}


def reduce_gradients(
    gradients: Gradients,
    gradient_reduction: str,
    replicas: Replicas,
    clip_norm: float = CLIP_NORM,
) -> tuple[Gradients, tf.Tensor]:
    """Returns the gradients reduced over replicas and clipped, and the norm before clipping.

    `local_clip_sum` clips each replica's own gradient, then sums. The original does so on TPUs: it
    does not call CrossShardOptimizer.compute_gradients, which would divide. The returned norm is
    the replica's own. `global_mean_clip` clips the mean of the replicas' gradients and returns the
    norm of this mean.

    With one replica both are the same, and IndexedSlices are kept: their norm counts duplicate rows
    separately, as in the original. With several replicas the reduction makes them dense. A
    `clip_norm` of 0 does not clip, but the norm is still returned.

    Raises:
        UserError: `gradient_reduction` is unknown.
    """
    if gradient_reduction not in GRADIENT_REDUCTIONS:
        raise UserError(
            f"--gradient_reduction must be one of {', '.join(GRADIENT_REDUCTIONS)}; it is"
            f" {gradient_reduction!r}"
        )

    def total(gradients: Gradients) -> Gradients:
        if replicas.count == 1:
            return gradients
        dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        sums = iter(replicas.sum(dense))
        return [None if g is None else next(sums) for g in gradients]

    def clip(gradients: Gradients) -> tuple[Gradients, tf.Tensor]:
        if not clip_norm:
            return gradients, tf.linalg.global_norm(gradients)
        return tf.clip_by_global_norm(gradients, clip_norm)

    if gradient_reduction == "local_clip_sum":
        gradients, norm = clip(gradients)
        return total(gradients), norm
    if replicas.count > 1:
        gradients = [None if g is None else g / replicas.count for g in total(gradients)]
    return clip(gradients)


def _accumulate(compute, features, seed, accumulation_steps: int):
    """Returns the sums, over the parts of the batch, of what `compute` returns.

    Gradients are by the number of their variable, without None, which a loop cannot carry.
    """
    parts = {
        name: tf.reshape(x, [accumulation_steps, x.shape[0] // accumulation_steps, *x.shape[1:]])
        for name, x in features.items()
    }

    @tf.function(autograph=False)
    def compute_part(part: Features, part_seed: tf.Tensor):
        loss, sums, gradients = compute(part, part_seed)
        dense = {i: tf.convert_to_tensor(g) for i, g in enumerate(gradients) if g is not None}
        return loss, sums, dense

    def body(i: tf.Tensor, total):
        part = compute_part({name: x[i] for name, x in parts.items()}, fold_in(seed, i))
        return i + 1, tf.nest.map_structure(tf.add, total, part)

    specs = {name: tf.TensorSpec(x.shape[1:], x.dtype) for name, x in parts.items()}
    traced = compute_part.get_concrete_function(specs, tf.TensorSpec(seed.shape, seed.dtype))
    zeros = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), traced.structured_outputs)
    loop = tf.while_loop(lambda i, total: i < accumulation_steps, body, (tf.constant(0), zeros))
    return loop[1]


def evaluation_step(
    objective: Objective, features: Features, replicas: Replicas | None = None
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Returns the objective's metrics on a batch, and `loss`, each a weighted sum and its weight.

    Their sums over the replicas equal the values of one device with the whole batch. `features`
    have `example_weight`, float32 [batch], 0 for examples to ignore. For `replicas` see
    `train_step`.
    """
    replicas = replicas or replicas_of_strategy()
    normalizers = objective.normalizers(features)
    count = normalizers.get("examples", tf.reduce_sum(features["example_weight"]))
    all_count = count
    if replicas.count > 1:
        totals = replicas.sum([*normalizers.values(), count])
        normalizers, all_count = dict(zip(normalizers, totals[:-1], strict=True)), totals[-1]
    with inputs_were_checked():
        outputs = objective(features, training=False, dropout_seed=None)
    loss, sums = objective.loss_and_metrics(outputs, features, normalizers)
    return {"loss": (loss * all_count, count), **sums}
