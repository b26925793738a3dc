"""Adam with decoupled weight decay, and the learning rate: warm-up, then linear decay.

Original: optimization.py. The paper, appendix A.2: Adam with beta_1 = 0.9, beta_2 = 0.999, weight
decay of 0.01, warm-up over the first 10,000 steps and linear decay.

`AdamWeightDecayOptimizer` is an optimizer of Keras, for `compile`. The programs' steps take the
smaller `StepOptimizer`, which `create_optimizer` makes; its state has the names of a checkpoint.
Both make the same update.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import keras
import tensorflow as tf

Schedule = Callable[[tf.Tensor], tf.Tensor]

# Constants of the original's create_optimizer.
CLIP_NORM = 1.0  # the largest global norm of a step's gradients
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6  # of Adam
WEIGHT_DECAY_RATE = 0.01
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


@keras.saving.register_keras_serializable("bert_tf")
class LinearSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate as a function of the step: linear warm-up, then linear decay to 0.

    The decay is a line from `init_lr` at step 0. The warm-up rises towards `init_lr`, and at step
    `num_warmup_steps` the rate drops to the line of the decay (original: create_optimizer).

    Args:
        init_lr: learning rate at which the decay starts.
        num_train_steps: step at which the rate reaches 0, where it stays.
        num_warmup_steps: number of steps of the warm-up; 0 for none.
    """

    def __init__(self, init_lr: float, num_train_steps: int, num_warmup_steps: int = 0):
        self.init_lr = init_lr
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the rate of a step, float32 [].

        Args:
            step: an integer scalar, the number of updates before this one.
        """
        step = tf.cast(step, tf.float32)
        done = tf.minimum(step, float(self.num_train_steps)) / float(self.num_train_steps)
        decayed = self.init_lr * (1.0 - done)
        if not self.num_warmup_steps:
            return decayed
        warming_up = self.init_lr * (step / float(self.num_warmup_steps))
        return tf.where(step < float(self.num_warmup_steps), warming_up, decayed)

    def get_config(self) -> dict[str, float | int]:
        """Returns the arguments of the constructor."""
        return {
            "init_lr": self.init_lr,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


def linear_schedule(init_lr: float, num_train_steps: int, num_warmup_steps: int) -> LinearSchedule:
    """Returns the `LinearSchedule` of these arguments."""
    return LinearSchedule(init_lr, num_train_steps, num_warmup_steps)


def restarting_schedule(schedules: Sequence[tuple[int, Schedule]]) -> Schedule:
    """Returns a schedule made of several in a row, each counting its steps from 0.

    Args:
        schedules: pairs of a number of steps and the schedule for these steps.
    """

    def learning_rate(step: tf.Tensor) -> tf.Tensor:
        first = 0
        rate = tf.zeros([], tf.float32)
        for num_steps, schedule in schedules:
            rate = tf.where(step >= first, schedule(step - first), rate)
            first += num_steps
        return rate

    return learning_rate


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

    Args:
        param: the parameter, float32 [...].
        m: its first moment, of the same shape, as all that follow.
        v: its second moment.
        grad: its gradient.
        learning_rate: float32 [].
        weight_decay_rate: rate of the decay; 0 for none.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the square root of the second moment.
    """
    next_m = beta_1 * m + (1.0 - beta_1) * grad
    next_v = beta_2 * v + (1.0 - beta_2) * tf.square(grad)
    update = next_m / (tf.sqrt(next_v) + epsilon)
    if weight_decay_rate:
        update += weight_decay_rate * param
    return param - learning_rate * update, next_m, next_v


def _decay_of(name: str, weight_decay_rate: float, exclusions: Iterable[str]) -> float:
    """Returns the rate of a variable's decay: 0 if one of the expressions matches in its name."""
    return 0.0 if any(re.search(r, name) for r in exclusions) else weight_decay_rate


@keras.saving.register_keras_serializable("bert_tf")
class AdamWeightDecayOptimizer(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay as an optimizer of Keras (original: the class of this name).

    With its defaults it makes the update of BERT's pre-training and fine-tuning (the paper, A.2).

        model.compile(AdamWeightDecayOptimizer(linear_schedule(5e-5, num_train_steps, num_warmup)))

    A step's learning rate is that of the number of updates before it.

    Args:
        learning_rate: a float, or a schedule such as `linear_schedule` returns.
        weight_decay_rate: rate of the decay; 0 for none.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the square root of the second moment.
        exclude_from_weight_decay: regular expressions. A variable is not decayed if one of them
            matches anywhere in its name, which is its `path`.
        global_clipnorm: the largest global norm of a step's gradients; None does not clip.
        name: name of the optimizer.
        **options: see `keras.optimizers.Optimizer`.
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
        **options,
    ):
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, name=name, **options)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        # A method of Keras's optimizers has the name of the argument.
        self._exclusions = tuple(exclude_from_weight_decay or ())

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the moments of the trainable variables; Keras calls it."""
        if not self.built:
            super().build(variables)
            self._names = [variable.path for variable in variables]
            self._m, self._v = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])

    def update_step(self, gradient, variable, learning_rate) -> None:
        """Updates a variable and its moments; Keras calls it.

        Args:
            gradient: a tensor, or IndexedSlices, which update every row as a tensor would.
            variable: the variable.
            learning_rate: float32 [].
        """
        i = self._get_variable_index(variable)
        m, v = self._m[i], self._v[i]
        next_param, next_m, next_v = adam_weight_decay_update(
            tf.convert_to_tensor(variable),
            tf.convert_to_tensor(m),
            tf.convert_to_tensor(v),
            tf.convert_to_tensor(gradient),
            tf.convert_to_tensor(learning_rate),
            _decay_of(self._names[i], self.weight_decay_rate, self._exclusions),
            self.beta_1,
            self.beta_2,
            self.epsilon,
        )
        self.assign(variable, next_param)
        self.assign(m, next_m)
        self.assign(v, next_v)

    def checkpoint_variables(self) -> dict[str, tf.Variable]:
        """Returns the moments and the step counter by their names in a checkpoint of the original.

        `build` must have been called.
        """
        named = {"global_step": self._iterations.value}
        for name, m, v in zip(self._names, self._m, self._v, strict=True):
            named[f"{name}/adam_m"], named[f"{name}/adam_v"] = m.value, v.value
        return named

    def get_config(self) -> dict:
        """Returns what `from_config` makes an equal optimizer of, without its moments."""
        return {
            **super().get_config(),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude_from_weight_decay": list(self._exclusions),
        }


class StepOptimizer:
    """Adam with decoupled weight decay for the programs' steps, its moments and its step counter.

    Original: AdamWeightDecayOptimizer. `global_step` is the number of updates so far. It does not
    clip: the step does, before or after the sum over replicas.

    Args:
        variables: the trainable variables; `path` is a variable's name in a checkpoint.
        learning_rate: a function of `global_step` before the update.
        weight_decay_rate: rate of the decay; 0 for none.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the square root of the second moment.
        exclude_from_weight_decay: regular expressions. A variable is not decayed if one of them
            matches anywhere in its name.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        learning_rate: Schedule,
        weight_decay_rate: float = 0.0,
        beta_1: float = BETA_1,
        beta_2: float = BETA_2,
        epsilon: float = EPSILON,
        exclude_from_weight_decay: Sequence[str] = (),
    ):
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = tuple(exclude_from_weight_decay)
        self.global_step = tf.Variable(0, trainable=False, dtype=tf.int64, name="global_step")
        self._slots = {v.path: (_slot(v, "adam_m"), _slot(v, "adam_v")) for v in variables}

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """The moments and the step counter, by their names in a checkpoint."""
        named = {"global_step": self.global_step}
        for path, (m, v) in self._slots.items():
            named[f"{path}/adam_m"], named[f"{path}/adam_v"] = m, v
        return named

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[tf.Tensor | tf.IndexedSlices | None, keras.Variable]]
    ) -> None:
        """Updates the variables and adds one to `global_step`.

        Args:
            grads_and_vars: pairs of a gradient and its variable. A variable whose gradient is None
                stays as it is and is not decayed. IndexedSlices update every row, as the dense
                gradient would.
        """
        learning_rate = self.learning_rate(self.global_step)
        for grad, variable in grads_and_vars:
            if grad is None:
                continue
            m, v = self._slots[variable.path]
            param = variable.value
            decay = _decay_of(variable.path, self.weight_decay_rate, self.exclude_from_weight_decay)
            next_param, next_m, next_v = adam_weight_decay_update(
                tf.convert_to_tensor(param),
                tf.convert_to_tensor(m),
                tf.convert_to_tensor(v),
                tf.convert_to_tensor(grad),
                learning_rate,
                decay,
                self.beta_1,
                self.beta_2,
                self.epsilon,
            )
            param.assign(next_param)
            m.assign(next_m)
            v.assign(next_v)
        self.global_step.assign_add(1)


def _slot(variable: keras.Variable, name: str) -> tf.Variable:
    zeros = tf.zeros(variable.shape, tf.float32)
    return tf.Variable(zeros, trainable=False, name=f"{variable.path}/{name}")


def create_optimizer(
    variables: Sequence[keras.Variable],
    learning_rate: Schedule,
    weight_decay_rate: float = WEIGHT_DECAY_RATE,
    beta_1: float = BETA_1,
    beta_2: float = BETA_2,
    epsilon: float = EPSILON,
) -> StepOptimizer:
    """Returns the optimizer of BERT's pre-training and fine-tuning (the paper, A.2).

    The original's function of this name also computes and clips the gradients. Here the caller
    does, by `tf.GradientTape` and `tf.clip_by_global_norm(gradients, optimization.CLIP_NORM)`.

    Args:
        variables: the trainable variables.
        learning_rate: such as `linear_schedule` returns.
        weight_decay_rate: rate of the decay; biases and LayerNorm have none.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the square root of the second moment.
    """
    return StepOptimizer(
        variables,
        learning_rate,
        weight_decay_rate,
        beta_1,
        beta_2,
        epsilon,
        EXCLUDE_FROM_WEIGHT_DECAY,
    )
