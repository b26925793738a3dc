"""Adam with decoupled weight decay, LAMB, and the learning rate: warm-up, then decay.

Original: optimization.py. The paper, appendix A.2: Adam with beta_1 = 0.9, beta_2 = 0.999, weight
decay of 0.01, warm-up over the first 10,000 steps and linear decay. LAMB, for large batches,
follows google-research/albert's lamb_optimizer.py (https://arxiv.org/abs/1904.00962, algorithm 2).

`AdamWeightDecayOptimizer` and `LAMBOptimizer` are Keras optimizers for `compile`. For a custom
training step, such as the programs', `create_optimizer` makes one of them.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.bounds import Bounds, plain_number
from bert_tf.errors import UserError, quoted
from bert_tf.optimizer_defaults import (
    BETA_1,
    BETA_2,
    CLIP_NORM,
    EPSILON,
    EXCLUDE_FROM_WEIGHT_DECAY,
    OPTIMIZERS,
    WEIGHT_DECAY_RATE,
)

Schedule = Callable[[tf.Tensor], tf.Tensor]
Gradients = Sequence[tf.Tensor | tf.IndexedSlices | None]


@keras.saving.register_keras_serializable("bert_tf")
@dataclasses.dataclass(eq=False)
class PolynomialSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate as a function of the step: linear warm-up, then decay to 0.

    The decay is init_lr * (1 - step / num_train_steps) ** decay_power. The warm-up rises towards
    `init_lr`, and at its end the rate drops to the curve of the decay (original: create_optimizer;
    ALBERT's also has `poly_power` and `start_warmup_step`).

    Args:
        init_lr: learning rate at which the decay starts.
        num_train_steps: step at which the rate reaches 0 and stays there.
        num_warmup_steps: number of steps of the warm-up; 0 for none.
        decay_power: exponent of the decay; 1 is linear.
        start_warmup_step: step at which the warm-up starts from 0. With -n, step 0 has the rate of
            the warm-up's n-th step, and the warm-up ends n steps earlier. Before a positive
            `start_warmup_step` rates are negative, as in the original.
        scales_decay: whether the warm-up multiplies the decay, as in ELECTRA, or replaces it.

    Raises:
        UserError: a number is out of range.
    """

    init_lr: float
    num_train_steps: int
    num_warmup_steps: float = 0
    decay_power: float = 1.0
    start_warmup_step: int = 0
    scales_decay: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, plain_number(getattr(self, field.name)))
        steps = {"num_train_steps": self.num_train_steps, "num_warmup_steps": self.num_warmup_steps}
        Bounds(at_least=0).check(init_lr=self.init_lr, **steps)  # a phase may have 0 steps
        Bounds(above=0).check(decay_power=self.decay_power)

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the rate, float32 [], of the update after `step` (an integer) updates."""
        step = tf.cast(step, tf.float32)
        left = 1.0 - tf.minimum(step, float(self.num_train_steps)) / float(self.num_train_steps)
        decayed = self.init_lr * (left if self.decay_power == 1.0 else left**self.decay_power)
        if not self.num_warmup_steps:
            return decayed
        step -= float(self.start_warmup_step)
        if self.scales_decay:
            return decayed * tf.minimum(1.0, step / float(self.num_warmup_steps))
        warming_up = self.init_lr * (step / float(self.num_warmup_steps))
        return tf.where(step < float(self.num_warmup_steps), warming_up, decayed)

    def get_config(self) -> dict[str, float | int]:
        """Returns the arguments of the constructor."""
        return dataclasses.asdict(self)


def linear_schedule(
    init_lr: float, num_train_steps: int, num_warmup_steps: int
) -> PolynomialSchedule:
    """Returns BERT's schedule: linear warm-up from step 0, then linear decay."""
    Bounds(above=0).check(num_train_steps=num_train_steps)
    return PolynomialSchedule(init_lr, num_train_steps, num_warmup_steps)


@dataclasses.dataclass(frozen=True, eq=False)
class RestartingSchedule:
    """Several schedules in a row: (number of steps, schedule that counts these steps from 0)."""

    schedules: Sequence[tuple[int, Schedule]]

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the rate of a step, float32 []."""
        first = 0
        rate = tf.zeros([], tf.float32)
        for num_steps, schedule in self.schedules:
            rate = tf.where(step >= first, schedule(step - first), rate)
            first += num_steps
        return rate


def schedule_parts(schedule: Schedule) -> list[tuple[int, PolynomialSchedule]] | None:
    """Returns (steps, schedule) for each part of a polynomial schedule; None for other kinds."""
    if isinstance(schedule, PolynomialSchedule):
        return [(schedule.num_train_steps, schedule)]
    if not isinstance(schedule, RestartingSchedule):
        return None
    parts = [(n, part) for n, part in schedule.schedules if isinstance(part, PolynomialSchedule)]
    return parts if len(parts) == len(schedule.schedules) else None


def adam_weight_decay_update(
    param: tf.Tensor,
    m: tf.Tensor,
    v: tf.Tensor,
    grad: tf.Tensor,
    learning_rate: tf.Tensor,
    weight_decay_rate: float,
    beta_1: float = BETA_1,
    beta_2: float = BETA_2,
    epsilon: float = EPSILON,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the next parameter, first moment and second moment.

    Adam without bias correction. The decay is added to the update, not to the gradient, so the
    moments do not contain it (original: AdamWeightDecayOptimizer.apply_gradients).

    `param`, its moments `m` and `v` and its gradient are float32 of one shape, `learning_rate` is
    float32 []; for the numbers see `AdamWeightDecayOptimizer`.
    """
    next_m = beta_1 * m + (1.0 - beta_1) * grad
    next_v = beta_2 * v + (1.0 - beta_2) * tf.square(grad)
    update = next_m / (tf.sqrt(next_v) + epsilon)
    if weight_decay_rate:
        update += weight_decay_rate * param
    return param - learning_rate * update, next_m, next_v


def lamb_update(
    param: tf.Tensor,
    m: tf.Tensor,
    v: tf.Tensor,
    grad: tf.Tensor,
    learning_rate: tf.Tensor,
    weight_decay_rate: float,
    beta_1: float = BETA_1,
    beta_2: float = BETA_2,
    epsilon: float = EPSILON,
    layer_adaptation: bool = True,
    bias_correction_step: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the next parameter, first moment and second moment.

    LAMB: Adam's update with decoupled decay, scaled to the norm of the parameter (ALBERT's
    LAMBOptimizer.apply_gradients). The norms are over the whole variable.

    Args, in addition to the arguments of `adam_weight_decay_update`:
        layer_adaptation: whether to scale the update. An update is not scaled if its norm or the
            parameter's norm is 0.
        bias_correction_step: the number of this update, from 1, integer []. The update divides the
            moments by 1 - beta ** step, as in Adam's paper. None for no bias correction.
    """
    next_m = beta_1 * m + (1.0 - beta_1) * grad
    next_v = beta_2 * v + (1.0 - beta_2) * tf.square(grad)
    used_m, used_v = next_m, next_v
    if bias_correction_step is not None:
        step = tf.cast(bias_correction_step, param.dtype)
        used_m, used_v = next_m / _bias(beta_1, step), next_v / _bias(beta_2, step)
    update = used_m / (tf.sqrt(used_v) + epsilon)
    if weight_decay_rate:
        update += weight_decay_rate * param
    if layer_adaptation:
        param_norm, update_norm = tf.norm(param), tf.norm(update)
        scaled = tf.logical_and(param_norm > 0.0, update_norm > 0.0)
        learning_rate *= tf.where(scaled, param_norm / update_norm, tf.ones_like(param_norm))
    return param - learning_rate * update, next_m, next_v


def _bias(beta: float, step: tf.Tensor) -> tf.Tensor | float:
    """Returns 1 - beta ** step, accurate even if the power is close to 1."""
    return -tf.math.expm1(math.log(beta) * step) if beta else 1.0


@dataclasses.dataclass(frozen=True)
class AdamOptions:
    """The hyperparameters of an optimizer; see `AdamWeightDecayOptimizer` and `LAMBOptimizer`.

    `optimizer` is one of `OPTIMIZERS`; `learning_rate_factors` has pairs instead of a dictionary.
    """

    optimizer: str = OPTIMIZERS[0]
    weight_decay_rate: float = WEIGHT_DECAY_RATE
    beta_1: float = BETA_1
    beta_2: float = BETA_2
    epsilon: float = EPSILON
    exclude_from_weight_decay: tuple[str, ...] = EXCLUDE_FROM_WEIGHT_DECAY
    lamb_bias_correction: bool = False
    learning_rate_factors: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("weight_decay_rate", "beta_1", "beta_2", "epsilon"):
            object.__setattr__(self, name, plain_number(getattr(self, name)))
        Bounds(at_least=0).check(weight_decay_rate=self.weight_decay_rate, epsilon=self.epsilon)
        Bounds(at_least=0, below=1).check(beta_1=self.beta_1, beta_2=self.beta_2)
        for prefix, factor in self.learning_rate_factors:
            if not 0.0 <= factor < math.inf:
                raise UserError(
                    "learning_rate_factors must be finite numbers of at least 0; the one for"
                    f" {quoted(prefix)} is {factor}"
                )

    def learning_rate_factor(self, name: str) -> float:
        """Returns the factor of a variable's learning rate."""
        factors = (f for prefix, f in self.learning_rate_factors if name.startswith(prefix))
        return next(factors, 1.0)

    def update(
        self, name: str, param: Any, m: Any, v: Any, grad: Any, learning_rate: Any, step: Any
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the next value, first moment and second moment of the variable with this name.

        See `adam_weight_decay_update`. `grad` may be IndexedSlices, which update every row as a
        tensor would. `step` is the number of updates before this one.
        """
        excluded = any(re.search(expression, name) for expression in self.exclude_from_weight_decay)
        decay = 0.0 if excluded else self.weight_decay_rate
        # Also converts Keras variables.
        arguments: list[Any] = [tf.convert_to_tensor(x) for x in (param, m, v, grad, learning_rate)]
        if (factor := self.learning_rate_factor(name)) != 1.0:
            arguments[-1] *= factor
        arguments += [decay, self.beta_1, self.beta_2, self.epsilon]
        if self.optimizer == "lamb":
            corrected = tf.convert_to_tensor(step) + 1 if self.lamb_bias_correction else None
            arguments += [not excluded, corrected]
            return lamb_update(*arguments)
        return adam_weight_decay_update(*arguments)


@keras.saving.register_keras_serializable("bert_tf")
class AdamWeightDecayOptimizer(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay as a Keras optimizer (original: the class of this name).

    The defaults give the update of BERT's pre-training and fine-tuning (the paper, A.2). A schedule
    gets the number of updates before a step. `adam` holds the hyperparameters.

        model.compile(AdamWeightDecayOptimizer(linear_schedule(5e-5, num_train_steps, num_warmup)))

    Args:
        learning_rate: a float, or a schedule such as `linear_schedule` returns.
        weight_decay_rate: rate of the decay; 0 for none.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the square root of the second moment.
        exclude_from_weight_decay: regular expressions. A variable is not decayed if one of them
            matches anywhere in its name, which is its `path`.
        global_clipnorm: maximum global norm of a step's gradients; None does not clip.
        name: name of the optimizer.
        learning_rate_factors: prefix of variables' names -> factor of their learning rate, such as
            `layerwise_lr_factors` returns. The first matching prefix is used; other variables have
            the factor 1.
        **options: see `keras.optimizers.Optimizer`.

    Raises:
        UserError: a number is out of range, or Keras's `weight_decay` is given.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        weight_decay_rate: float = WEIGHT_DECAY_RATE,
        beta_1: float = BETA_1,
        beta_2: float = BETA_2,
        epsilon: float = EPSILON,
        exclude_from_weight_decay: Sequence[str] | None = EXCLUDE_FROM_WEIGHT_DECAY,
        global_clipnorm: float | None = CLIP_NORM,
        name: str = "AdamWeightDecayOptimizer",
        learning_rate_factors: Mapping[str, float] | None = None,
        **options: Any,
    ):
        learning_rate, global_clipnorm = map(plain_number, (learning_rate, global_clipnorm))
        if not callable(learning_rate):
            Bounds(at_least=0).check(learning_rate=learning_rate)
            learning_rate = float(learning_rate)
        if global_clipnorm is not None:
            Bounds(above=0).check(global_clipnorm=global_clipnorm)
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, name=name, **options)
        exclusions = tuple(exclude_from_weight_decay or ())
        factors = tuple((learning_rate_factors or {}).items())
        self.adam = AdamOptions(
            *("adamw", weight_decay_rate, beta_1, beta_2, epsilon, exclusions),
            learning_rate_factors=factors,
        )

    @property
    def weight_decay(self) -> None:
        """Always None: otherwise Keras would decay every variable a second time."""

    @weight_decay.setter
    def weight_decay(self, value: float | None) -> None:
        if value is not None:
            raise UserError(
                "weight_decay would make Keras decay the weights a second time; give"
                " weight_decay_rate instead"
            )

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Excludes more variables, given directly or by regular expressions; see Keras."""
        names = [*(var_names or ()), *(f"^{re.escape(x.path)}$" for x in var_list or ())]
        exclusions = (*self.adam.exclude_from_weight_decay, *names)
        self.adam = dataclasses.replace(self.adam, exclude_from_weight_decay=exclusions)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the moments of the trainable variables; Keras calls it."""
        if not self.built:
            super().build(variables)
            self._names = [variable.path for variable in variables]
            self._m, self._v = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Updates a variable and its moments; Keras calls it. IndexedSlices update every row."""
        i = self._get_variable_index(variable)
        states = variable, self._m[i], self._v[i]
        nexts = self.adam.update(self._names[i], *states, gradient, learning_rate, self.iterations)
        for state, value in zip(states, nexts, strict=True):
            self.assign(state, value)

    def apply_reduced(self, gradients: Gradients, skip: tf.Tensor | None = None) -> None:
        """Updates the variables with gradients that are already clipped and summed over replicas.

        Keras's `apply_gradients` would clip and sum the gradients again.

        Args:
            gradients: one for each variable of `build`, in order; None leaves a variable unchanged.
            skip: bool [], True to count the step but change no variable; None for False.
        """
        rate = self.learning_rate
        states = zip(self._trainable_variables, self._m, self._v, gradients, strict=True)
        # One variable at a time, so that memory never holds all old and new values. The
        # embeddings, first and largest, come last, when no other gradient is left.
        last: list[tf.Tensor] = []
        for *state, gradient in reversed(list(states)):
            if gradient is None:
                continue
            variables = [variable.value for variable in state]
            with tf.control_dependencies(last):
                param, m, v, gradient = map(tf.convert_to_tensor, (*variables, gradient))
            nexts = self.adam.update(state[0].path, param, m, v, gradient, rate, self.global_step)
            for variable, old, value in zip(variables, (param, m, v), nexts, strict=True):
                variable.assign(value if skip is None else tf.where(skip, old, value))
            last = [nexts[0]]
        self.global_step.assign_add(1)

    @property
    def global_step(self) -> tf.Variable:
        """The number of updates so far, int64 []."""
        return self._iterations.value

    def checkpoint_variables(self) -> dict[str, tf.Variable]:
        """Returns the moments and the step counter by their names in the original's checkpoints.

        `build` must have been called.
        """
        named = {"global_step": self.global_step}
        for name, m, v in zip(self._names, self._m, self._v, strict=True):
            named[f"{name}/adam_m"], named[f"{name}/adam_v"] = m.value, v.value
        return named

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`, without the moments."""
        names = ("weight_decay_rate", "beta_1", "beta_2", "epsilon")
        return {
            **super().get_config(),
            **{name: getattr(self.adam, name) for name in names},
            "exclude_from_weight_decay": list(self.adam.exclude_from_weight_decay),
            "learning_rate_factors": dict(self.adam.learning_rate_factors),
        }


@keras.saving.register_keras_serializable("bert_tf")
class LAMBOptimizer(AdamWeightDecayOptimizer):
    """LAMB as a Keras optimizer (ALBERT's class of this name).

    Variables that are excluded from weight decay are also excluded from the scaling of updates.

    Args:
        learning_rate: a float, or a schedule.
        bias_correction: whether to correct the bias of the moments, as MLPerf's and NVIDIA's LAMB
            do; ALBERT's does not.
        name: name of the optimizer.
        **options: see `AdamWeightDecayOptimizer`.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        bias_correction: bool = False,
        name: str = "LAMBOptimizer",
        **options: Any,
    ):
        super().__init__(learning_rate, name=name, **options)
        self.adam = dataclasses.replace(
            self.adam, optimizer="lamb", lamb_bias_correction=bias_correction
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`, without the moments."""
        return {**super().get_config(), "bias_correction": self.adam.lamb_bias_correction}


class _FunctionSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A function of the step as a Keras schedule; Keras calls plain functions without the step."""

    def __init__(self, function: Schedule):
        self._function = function

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        return self._function(tf.convert_to_tensor(step))


def create_optimizer(
    variables: Sequence[keras.Variable], learning_rate: Schedule, adam: AdamOptions = AdamOptions()
) -> AdamWeightDecayOptimizer:
    """Returns the optimizer of BERT's pre-training and fine-tuning (the paper, A.2), or LAMB.

    The original's function also computes and clips the gradients, to the norm `CLIP_NORM`.

    Args:
        variables: the trainable variables, which get moments.
        learning_rate: a function of the number of updates before a step, int64 [], such as
            `linear_schedule` returns.
        adam: the hyperparameters; by default biases and LayerNorm are not decayed.
    """
    kind = LAMBOptimizer if adam.optimizer == "lamb" else AdamWeightDecayOptimizer
    optimizer = kind(_FunctionSchedule(learning_rate), global_clipnorm=None)
    optimizer.adam = adam
    optimizer.build(variables)
    return optimizer
