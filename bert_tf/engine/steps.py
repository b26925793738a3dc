"""The training step and the evaluation step of a replica, as pure functions of their batch.

The route from the command line to the update of the weights:
    run_X.py `main`                      makes one settings object of the flags
    tasks/X/run.py                       makes records or opens them, and the run's task and plan
    runs/training/trainer.py             goes through phases; loops between saves and evaluations
    engine/training_loop.py              makes the steps of a loop, no Python between them
    engine/replicate.py                  makes one step on all replicas
    engine/steps.py `train_step`         loss, gradients, reduction over replicas, clipping: here
    optimization.py `apply_gradients`    updates each variable
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import keras
import tensorflow as tf

from bert_tf.engine.distribution import GRADIENT_REDUCTIONS
from bert_tf.errors import UserError
from bert_tf.optimization import CLIP_NORM, StepOptimizer
from bert_tf.seeds import fold_in

Features = Mapping[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]
Gradients = list[tf.Tensor | tf.IndexedSlices | None]


@runtime_checkable
class Task(Protocol):
    """What a task provides for training and evaluation (`train_step`, `evaluation_step`)."""

    def build_model(self) -> keras.Model:
        """Returns the model, its variables created and named as in a checkpoint."""

    def normalizers(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the sums of weights, float32 [], by which the loss of a batch is divided.

        Args:
            features: a whole batch. `example_weight`, float32 [batch], is the weight of each
                example; evaluation batches have it, with 0 for padding. Without it, as in training,
                every example has weight 1.

        Returns:
            The sums by name. If rows hold several examples each, `examples` is among them: the
            sum of the weights of all, by which an evaluation weights the loss of a batch.
        """

    def loss_and_metrics(
        self,
        model: keras.Model,
        features: Features,
        normalizers: dict[str, tf.Tensor],
        training: bool,
        dropout_seed: tf.Tensor | None,
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the loss of a batch, or of a part of it, and its metrics.

        Losses of the parts of a batch add up to that of the whole, because all are divided by the
        normalizers of the whole. A batch with weight 0 only has loss 0.

        Args:
            model: the task's model.
            features: the (part of the) batch, with or without `example_weight`, which weights the
                loss and every metric.
            normalizers: those of the whole batch, over all replicas.
            training: whether dropout is on.
            dropout_seed: int32 [2]; None draws one.

        Returns:
            The loss, float32 [], and each metric as a pair of float32 []: a weighted sum and the
            sum of its weights.
        """


@runtime_checkable
class InitializedTask(Protocol):
    """A task whose model begins with weights that are neither random nor --init_checkpoint's."""

    def initialize(self, model: keras.Model) -> None:
        """Sets these weights, at the start of a run that does not resume.

        Args:
            model: from `build_model`; it has the weights of --init_checkpoint, if there is one.

        Raises:
            UserError: they do not fit the model.
        """


@runtime_checkable
class PredictionTask(Protocol):
    """What a task provides for prediction (`bert_tf.engine.prediction.Predictor`)."""

    def build_model(self) -> keras.Model:
        """Returns the model, its variables created and named as in a checkpoint."""

    def predictions(self, model: keras.Model, features: Features) -> dict[str, tf.Tensor]:
        """Returns predictions by name, tensors [batch, ...] of static shapes, without dropout.

        `example_weight` has no part in it: the caller drops the rows that fill up a batch.
        """


@runtime_checkable
class FineTuningTask(Task, PredictionTask, Protocol):
    """A task that is trained and predicts. Its scores are computed from its predictions."""


@dataclasses.dataclass(frozen=True)
class Replicas:
    """The replicas that make a step together: the one seam between a step and its devices.

    count: how many there are.
    sum: each replica's dense tensors -> their sums over all replicas, on each replica.
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
    task: Task,
    model: keras.Model,
    optimizer: StepOptimizer,
    features: Features,
    seed: tf.Tensor,
    accumulation_steps: int = 1,
    gradient_reduction: str = GRADIENT_REDUCTIONS[0],
    replicas: Replicas | None = None,
    clip_norm: float = CLIP_NORM,
    update: Callable[[Sequence[tf.Tensor | tf.IndexedSlices | None]], None] | None = None,
) -> dict[str, tf.Tensor | tuple[tf.Tensor, tf.Tensor]]:
    """Updates the model once; returns loss, gradient norm, learning rate and the task's metrics.

    Args:
        task: gives the loss.
        model: the task's model.
        optimizer: its `global_step` counts the steps.
        features: the replica's batch; every feature's first axis is the batch.
        seed: int32 [2], of this run and replica; the step is folded in here.
        accumulation_steps: the number of equal parts that the batch is computed in, one after
            another, to save memory. The gradient is that of the whole batch: every part's loss
            is divided by the whole batch's normalizers.
        gradient_reduction: one of `distribution.GRADIENT_REDUCTIONS`.
        replicas: the replicas, of which this is one; None for those of the strategy.
        clip_norm: the largest global norm of the gradients; 0 does not clip.
        update: updates the variables with their gradients; None for `optimizer.apply_gradients`.
    """
    replicas = replicas or replicas_of_strategy()
    seed = fold_in(seed, tf.cast(optimizer.global_step, tf.int32))
    normalizers = task.normalizers(features)
    variables = [variable.value for variable in model.trainable_variables]

    def compute(part: Features, part_seed: tf.Tensor):
        with tf.GradientTape() as tape:
            loss, sums = task.loss_and_metrics(model, part, normalizers, True, part_seed)
        return loss, sums, tape.gradient(loss, variables)

    if accumulation_steps == 1:
        loss, sums, gradients = compute(features, seed)
    else:
        loss, sums, gradients = _accumulate(compute, features, seed, accumulation_steps)
        gradients = [gradients.get(i) for i in range(len(variables))]
    gradients, norm = reduce_gradients(gradients, gradient_reduction, replicas, clip_norm)
    learning_rate = optimizer.learning_rate(optimizer.global_step)
    if update is not None:
        update(gradients)
    else:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return {"loss": loss, "gradient_norm": norm, "learning_rate": learning_rate, **sums}


def reduce_gradients(
    gradients: Gradients,
    gradient_reduction: str,
    replicas: Replicas,
    clip_norm: float = CLIP_NORM,
) -> tuple[Gradients, tf.Tensor]:
    """Returns the gradients reduced over replicas and clipped, and the norm before clipping.

    `local_clip_sum` clips each replica's own gradient, then sums. The original does so on TPUs: it
    does not call CrossShardOptimizer.compute_gradients, which would divide. The norm is that of the
    replica. `global_mean_clip` clips the mean of the replicas' gradients, whose norm it returns.

    With one replica both are the same, and IndexedSlices stay as they are: their norm counts
    duplicate rows apart, as in the original. With several replicas the reduction makes them dense.
    A `clip_norm` of 0 does not clip; the norm is returned all the same.

    Raises:
        UserError: there is no such way to reduce gradients.
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
    """Returns the sums of what `compute` returns for each part of the batch.

    The gradients are those that there are, by the number of their variable: a loop carries no None.
    """
    parts = {
        name: tf.reshape(x, [accumulation_steps, x.shape[0] // accumulation_steps, *x.shape[1:]])
        for name, x in features.items()
    }

    @tf.function(autograph=False)
    def compute_part(part: Features, part_seed: tf.Tensor):
        loss, sums, gradients = compute(part, part_seed)
        return (
            loss,
            sums,
            {i: tf.convert_to_tensor(g) for i, g in enumerate(gradients) if g is not None},
        )

    def body(i: tf.Tensor, total):
        part = compute_part({name: x[i] for name, x in parts.items()}, fold_in(seed, i))
        return i + 1, tf.nest.map_structure(tf.add, total, part)

    specs = {name: tf.TensorSpec(x.shape[1:], x.dtype) for name, x in parts.items()}
    traced = compute_part.get_concrete_function(specs, tf.TensorSpec(seed.shape, seed.dtype))
    zeros = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), traced.structured_outputs)
    loop = tf.while_loop(lambda i, total: i < accumulation_steps, body, (tf.constant(0), zeros))
    return loop[1]


def evaluation_step(
    task: Task, model: keras.Model, features: Features, replicas: Replicas | None = None
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Returns the task's metrics on a batch, and `loss`, each a weighted sum and its weight.

    Summed over the replicas they are those of one device with the whole batch.

    Args:
        task: gives the loss and the metrics.
        model: the task's model.
        features: the replica's batch, with `example_weight`, float32 [batch], 0 for examples not
            to count.
        replicas: the replicas, of which this is one; None for those of the strategy.
    """
    replicas = replicas or replicas_of_strategy()
    normalizers = task.normalizers(features)
    count = normalizers.get("examples", tf.reduce_sum(features["example_weight"]))
    all_count = count
    if replicas.count > 1:
        totals = replicas.sum([*normalizers.values(), count])
        normalizers, all_count = dict(zip(normalizers, totals[:-1], strict=True)), totals[-1]
    loss, sums = task.loss_and_metrics(model, features, normalizers, False, None)
    return {"loss": (loss * all_count, count), **sums}
