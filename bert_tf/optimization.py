"""Adam with decoupled weight decay, and the learning rate: warm-up, then linear decay.

Original: optimization.py. The paper, appendix A.2: Adam with beta_1 = 0.9, beta_2 = 0.999, weight
decay of 0.01, warm-up over the first 10,000 steps and linear decay.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import keras
import tensorflow as tf

Schedule = Callable[[tf.Tensor], tf.Tensor]

# Constants of the original's create_optimizer.
CLIP_NORM = 1.0  # the largest global norm of a step's gradients
WEIGHT_DECAY_RATE = 0.01
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


def linear_schedule(init_lr: float, num_train_steps: int, num_warmup_steps: int) -> Schedule:
    """Returns the learning rate as a function of the step: linear warm-up, then linear decay to 0.

    The decay is a line from `init_lr` at step 0. The warm-up rises towards `init_lr`, and at step
    `num_warmup_steps` the rate drops to the line of the decay (original: create_optimizer).

    The function takes an integer scalar and returns float32 [].

    Args:
        init_lr: learning rate at which the decay starts.
        num_train_steps: step at which the rate reaches 0, where it stays.
        num_warmup_steps: number of steps of the warm-up; 0 for none.
    """

    def learning_rate(step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        done = tf.minimum(step, float(num_train_steps)) / float(num_train_steps)
        decayed = init_lr * (1.0 - done)
        if not num_warmup_steps:
            return decayed
        warming_up = init_lr * (step / float(num_warmup_steps))
        return tf.where(step < float(num_warmup_steps), warming_up, decayed)

    return learning_rate


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
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
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


class AdamWeightDecayOptimizer:
    """Adam with decoupled weight decay, its moments and its step counter.

    Original: the class of this name. `global_step` is the number of updates so far.

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
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
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
            decay = self.weight_decay_rate if self._do_use_weight_decay(variable.path) else 0.0
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

    def _do_use_weight_decay(self, name: str) -> bool:
        return not any(re.search(r, name) for r in self.exclude_from_weight_decay)


def _slot(variable: keras.Variable, name: str) -> tf.Variable:
    zeros = tf.zeros(variable.shape, tf.float32)
    return tf.Variable(zeros, trainable=False, name=f"{variable.path}/{name}")


def create_optimizer(
    variables: Sequence[keras.Variable], learning_rate: Schedule
) -> AdamWeightDecayOptimizer:
    """Returns the optimizer of BERT's pre-training and fine-tuning (the paper, A.2).

    The original's function of this name also computes and clips the gradients. Here the caller
    does, by `tf.GradientTape` and `tf.clip_by_global_norm(gradients, optimization.CLIP_NORM)`.

    Args:
        variables: the trainable variables.
        learning_rate: such as `linear_schedule` returns.
    """
    return AdamWeightDecayOptimizer(
        variables,
        learning_rate,
        weight_decay_rate=WEIGHT_DECAY_RATE,
        exclude_from_weight_decay=EXCLUDE_FROM_WEIGHT_DECAY,
    )
