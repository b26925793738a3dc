"""The training step and the evaluation step of a replica, as pure functions of their batch.

The route from the command line to the update of the weights:
    tasks/program.py `main`              makes one settings object from the flags
    tasks/fine_tuner.py                  makes records, and the phases of fine-tuning
    tasks/pretraining/training/run.py    makes the phases of pre-training
    runs/training/trainer.py             runs the phases; saves and evaluates between loops of steps
    engine/loops.py                      runs a loop of steps on the devices
    engine/steps.py `train_step`         loss, gradients, reduction over replicas, clipping: here
    optimization.py `apply_reduced`      updates each variable
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from bert_tf.bounds import inputs_were_checked, switched
from bert_tf.engine.distribution import GRADIENT_REDUCTIONS
from bert_tf.optimization import CLIP_NORM, AdamWeightDecayOptimizer
from bert_tf.seeds import fold_in

# (a part of the batch's tensors by name, its seed, int32 [2]) -> dense tensors in any structure.
ComputePart = Callable[[Mapping[str, tf.Tensor], tf.Tensor], Any]


class Parts:
    """A batch in `count` equal parts. Both methods give part i the same seed, so the same dropout.

    `features` are tensors [batch, ...], `seed` is int32 [2].
    """

    def __init__(self, features: Mapping[str, tf.Tensor], seed: tf.Tensor, count: int):
        self._features = {
            name: tf.reshape(x, [count, x.shape[0] // count, *x.shape[1:]])
            for name, x in features.items()
        }
        self._seed = seed
        self._count = count

    def sum(self, compute: ComputePart) -> Any:
        """Returns the sum of `compute`'s results over the parts."""
        traced, outputs = self._traced(compute)

        def body(i: tf.Tensor, total: Any) -> tuple[tf.Tensor, Any]:
            return i + 1, tf.nest.map_structure(tf.add, total, self._compute(traced, i))

        zeros = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), outputs)
        return tf.while_loop(lambda i, total: i < self._count, body, (tf.constant(0), zeros))[1]

    def map(self, compute: ComputePart) -> Any:
        """Returns `compute`'s results for the parts, concatenated along the first axis."""
        traced, outputs = self._traced(compute)
        found = tf.map_fn(
            lambda i: self._compute(traced, i),
            tf.range(self._count),
            fn_output_signature=tf.nest.map_structure(
                lambda x: tf.TensorSpec(x.shape, x.dtype), outputs
            ),
        )
        return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), found)

    def _compute(self, traced: Callable[..., Any], i: tf.Tensor) -> Any:
        part = {name: x[i] for name, x in self._features.items()}
        return traced(part, fold_in(self._seed, i))

    def _traced(self, compute: ComputePart) -> tuple[Callable[..., Any], Any]:
        function = tf.function(compute, autograph=False)
        specs = {name: tf.TensorSpec(x.shape[1:], x.dtype) for name, x in self._features.items()}
        seed = tf.TensorSpec(self._seed.shape, self._seed.dtype)
        return function, function.get_concrete_function(specs, seed).structured_outputs


Features = Mapping[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]
Gradients = list[tf.Tensor | tf.IndexedSlices | None]
# The step of one replica: (its part of the batch, its seed, int32 [2]) -> tensors in any structure.
ReplicaStep = Callable[[dict[str, tf.Tensor], tf.Tensor], Any]


class Objective(Protocol):
    """The loss that a step minimizes, with the layers and trainable variables of its model.

    A task's model is its own objective. In distillation, student and teacher together are the
    objective.

    An objective with `compared_features` is contrastive: it compares the examples of a batch with
    each other. Its outputs are one tensor, [batch, ...], and `normalizers` and `loss_and_metrics`
    read only these features, by name, and `example_weight`. A training step calls them for the
    batches of all replicas together.

    If `sums_losses` is true, a training step minimizes the sum of the losses: normalizers are 1.

    `finish(results)`, if there is one, computes an evaluation's metrics, by name, from their means
    over the batches.
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
        """Returns the sums of weights, float32 [] by name, that divide the loss of a batch.

        `example_weight`, float32 [batch], is the weight of each example; evaluation batches have
        it, with 0 for padding. Without it, as in training, every example has weight 1.

        If a row holds several examples, `examples` is the sum of all examples' weights, by which an
        evaluation weights the loss of a batch.
        """

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the loss, float32 [], and each metric: a weighted sum and its weight, float32 [].

        The losses of a batch's parts add up to the loss of the whole batch, because `normalizers`
        are the whole batch's; in evaluation they are summed over all replicas. If all weights of a
        batch are 0, so is its loss. `example_weight`, if the features have it, weights the loss and
        every metric.
        """


@dataclasses.dataclass(frozen=True)
class Replicas:
    """The replicas that make a step together: the only link between a step and its devices.

    `sum`: each replica's dense tensors -> their sums over all `count` replicas, on each replica.
    `number`: the index of this replica, from 0; only `gather` and `own` need it.
    """

    count: int
    sum: Callable[[list[tf.Tensor]], list[tf.Tensor]]
    number: tf.Tensor | int = 0

    def gather(self, rows: tf.Tensor) -> tf.Tensor:
        """Concatenates all replicas' rows: [R, ...] -> [count*R, ...]. Not differentiable."""
        if self.count == 1:
            return rows
        mine = tf.reshape(tf.range(self.count) == self.number, [-1] + [1] * rows.shape.rank)
        (blocks,) = self.sum([tf.where(mine, rows[tf.newaxis], tf.zeros([], rows.dtype))])
        return tf.reshape(blocks, [-1, *rows.shape[1:]])

    def own(self, gathered: tf.Tensor) -> tf.Tensor:
        """Returns this replica's rows of what `gather` returned."""
        if self.count == 1:
            return gathered
        size = gathered.shape[0] // self.count
        blocks = tf.reshape(gathered, [self.count, size, *gathered.shape[1:]])
        return tf.gather(blocks, self.number)  # XLA slices only at constant positions


_replicas: contextvars.ContextVar[Replicas | None] = contextvars.ContextVar(
    "_replicas", default=None
)


def replicas_are(replicas: Replicas) -> contextlib.AbstractContextManager[None]:
    """Sets the default replicas of steps traced in this context."""
    return switched(_replicas, replicas)


def replicas_of_strategy() -> Replicas:
    """Returns the replicas that `replicas_are` set, otherwise the `tf.distribute` strategy's."""
    if replicas := _replicas.get():
        return replicas
    context = tf.distribute.get_replica_context()
    return Replicas(
        context.num_replicas_in_sync,
        lambda tensors: context.all_reduce(tf.distribute.ReduceOp.SUM, tensors),
        context.replica_id_in_sync_group,
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
    update: Callable[..., None] | None = None,
    skip_above_norm: float | None = None,
) -> dict[str, tf.Tensor | tuple[tf.Tensor, tf.Tensor]]:
    """Updates the model once; returns loss, gradient norm, learning rate and further metrics.

    Args:
        optimizer: built with the objective's trainable variables; its `global_step` counts the
            steps.
        features: the replica's batch; every feature's first axis is the batch.
        seed: int32 [2], of this run and replica; the step is folded in here.
        accumulation_steps: number of equal parts that the batch is computed in, one after the
            other, to save memory. The gradient is the same as for the whole batch, because every
            part's loss is divided by the whole batch's normalizers. For contrastive objectives see
            `_comparison`.
        gradient_reduction: one of `distribution.GRADIENT_REDUCTIONS`.
        replicas: None for `replicas_of_strategy`.
        clip_norm: the largest global norm of the gradients; 0 does not clip.
        update: updates the variables with their gradients; None for `optimizer.apply_reduced`.
        skip_above_norm: if the gradient norm, averaged over the replicas, is larger, the step
            changes no variable but is counted; the metric `skipped` is 1. None: never skip.
    """
    replicas = replicas or replicas_of_strategy()
    seed = fold_in(seed, tf.cast(optimizer.global_step, tf.int32))
    variables = [variable.value for variable in objective.trainable_variables]
    if getattr(objective, "compared_features", ()) and (
        accumulation_steps > 1 or replicas.count > 1
    ):
        loss, sums, gradients = _comparison(
            objective, variables, features, seed, accumulation_steps, replicas
        )
    else:
        normalizers = objective.normalizers(features)
        if getattr(objective, "sums_losses", False):
            normalizers = dict.fromkeys(normalizers, tf.ones([]))

        def compute(part: Features, part_seed: tf.Tensor):
            with tf.GradientTape() as tape, inputs_were_checked():
                outputs = objective(part, training=True, dropout_seed=part_seed)
                loss, sums = objective.loss_and_metrics(outputs, part, normalizers)
            return loss, sums, tape.gradient(loss, variables)

        loss, sums, gradients = _accumulate(compute, features, seed, accumulation_steps)
    with tf.name_scope("optimizer"):  # a name for profiles and tools/tpu/cycles.py
        gradients, norm = reduce_gradients(gradients, gradient_reduction, replicas, clip_norm)
        learning_rate = tf.convert_to_tensor(optimizer.learning_rate)
        update = update or optimizer.apply_reduced
        if skip_above_norm is None:
            update(gradients)
        else:
            mean = norm if replicas.count == 1 else replicas.sum([norm])[0] / replicas.count
            skip = mean > skip_above_norm
            update(gradients, skip)
            sums = {**sums, "skipped": tf.cast(skip, tf.float32)}
    return {"loss": loss, "gradient_norm": norm, "learning_rate": learning_rate, **sums}


def reduce_gradients(
    gradients: Gradients, gradient_reduction: str, replicas: Replicas, clip_norm: float = CLIP_NORM
) -> tuple[Gradients, tf.Tensor]:
    """Returns the gradients reduced over replicas and clipped, and the norm before clipping.

    `local_clip_sum` clips each replica's own gradient, then sums. The original does so on TPUs: it
    does not call CrossShardOptimizer.compute_gradients, which would make a mean of the sum. The
    returned norm is the replica's own. `global_mean_clip` clips the mean of the replicas' gradients
    and returns the norm of this mean.

    With one replica both are the same, and IndexedSlices are kept: their norm counts duplicate rows
    separately, as in the original. With several replicas the reduction makes them dense. A
    `clip_norm` of 0 does not clip, but the norm is still returned.
    """

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


def _accumulate(compute, features: Features, seed: tf.Tensor, num_parts: int):
    """Sums loss, metrics and gradients over parts; with one part gradients may be IndexedSlices."""
    if num_parts == 1:
        return compute(features, seed)
    missing: list[bool] = []  # a loop cannot carry None

    def compute_part(part: Features, part_seed: tf.Tensor):
        loss, sums, gradients = compute(part, part_seed)
        missing[:] = [gradient is None for gradient in gradients]
        return loss, sums, [tf.convert_to_tensor(g) for g in gradients if g is not None]

    loss, sums, dense = Parts(features, seed, num_parts).sum(compute_part)
    found = iter(dense)
    return loss, sums, [None if is_missing else next(found) for is_missing in missing]


def _comparison(
    objective: Objective,
    variables: Sequence[tf.Variable],
    features: Features,
    seed: tf.Tensor,
    num_parts: int,
    replicas: Replicas,
) -> tuple[tf.Tensor, Sums, Gradients]:
    """Returns loss, metrics and gradients of a contrastive objective.

    Loss and metrics are computed from all replicas' batches together. The gradients are this
    replica's share of the loss's gradients, times the number of replicas: their mean over the
    replicas is the gradient of the loss.

    With several parts every part is computed twice (gradient caching,
    https://arxiv.org/abs/2101.06983, section 3): first the outputs without gradients; then, from
    the gradients of the outputs, the gradients of the variables.
    """

    @inputs_were_checked()
    def outputs_of(part: Features, part_seed: tf.Tensor) -> tf.Tensor:
        return objective(part, training=True, dropout_seed=part_seed)

    def back_propagate(part: Features, part_seed: tf.Tensor):
        inputs = dict(part)
        by_outputs = inputs.pop("output_gradients")
        with tf.GradientTape() as part_tape:
            outputs = outputs_of(inputs, part_seed)
        nothing = tf.zeros([])
        return nothing, {}, part_tape.gradient(outputs, variables, output_gradients=by_outputs)

    with tf.GradientTape() as tape:
        if num_parts == 1:
            outputs = outputs_of(features, seed)
        else:
            with tape.stop_recording():
                outputs = Parts(features, seed, num_parts).map(outputs_of)
    everyones = replicas.gather(outputs)
    batch = {"example_weight": tf.ones([everyones.shape[0]])}
    for name in ("example_weight", *objective.compared_features):
        if name in features:
            batch[name] = replicas.gather(features[name])
    with tf.GradientTape() as loss_tape:
        loss_tape.watch(everyones)
        loss, sums = objective.loss_and_metrics(everyones, batch, objective.normalizers(batch))
    by_outputs = replicas.count * replicas.own(loss_tape.gradient(loss, everyones))
    if num_parts == 1:
        return loss, sums, tape.gradient(outputs, variables, output_gradients=by_outputs)
    batch = {**features, "output_gradients": by_outputs}
    return loss, sums, _accumulate(back_propagate, batch, seed, num_parts)[2]


def evaluation_step(
    objective: Objective, features: Features
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Returns the objective's metrics on a batch, and `loss`, each a weighted sum and its weight.

    Their sums over the replicas equal the values of one device with the whole batch. `features`
    have `example_weight`, float32 [batch], 0 for examples to ignore. A contrastive objective
    compares only the examples on its replica.
    """
    replicas = replicas_of_strategy()
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
