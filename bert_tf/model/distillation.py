"""A student with its teacher as an objective, and the losses between the two, one for each row.

Source: DistilBERT (https://arxiv.org/abs/1910.01108, section 2), with the scales of transformers'
research project `distillation`. All layers' vectors: TinyBERT (https://arxiv.org/abs/1909.10351,
section 3.1, the uniform mapping), by the cosine.

Dimension letters and dtypes: see `bert_tf/modeling.py`; R is any number of rows: positions or
examples.
"""

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from bert_tf.model.heads import token_weights
from bert_tf.model.task_model import Sums, TaskModel

# Added to squared norms, so that the gradient of a vector of zeros is finite.
_NORM_EPSILON = 1e-12

# Of a loss: its weight, its sum over a batch, and what divides the sum.
Part = tuple[float, tf.Tensor, tf.Tensor]


class Distilled:
    """A student that learns from a teacher: a `bert_tf.engine.steps.Objective`.

    The teacher computes its answers in each step, so they fit every batch, whatever its length.

    Args:
        student: is trained.
        teacher: gives targets, without dropout; it gets no gradients.
        alphas: the weight of each loss. `cos` is the cosine distance of the layers' vectors, the
            mean over all tokens; it is not computed if its weight is 0.
        cos_all_layers: whether `cos` compares all layers or the last; see `layers_distance`.
    """

    def __init__(
        self,
        student: TaskModel,
        teacher: TaskModel,
        alphas: Mapping[str, float],
        cos_all_layers: bool = False,
    ):
        self.student = student
        self.teacher = teacher
        self.alphas = dict(alphas)
        self._cos_all_layers = cos_all_layers

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The student's."""
        return self.student.layers

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """The student's."""
        return self.student.trainable_variables

    def __call__(self, features, training=False, dropout_seed=None):
        """Returns the student's and the teacher's `outputs_of` a batch; see `TaskModel`."""
        student = self.outputs_of(self.student, features, training, dropout_seed)
        return student, self.outputs_of(self.teacher, features, False, None)

    def outputs_of(self, model: TaskModel, features, training: bool, dropout_seed):
        """Returns the layers' outputs, float [B, S, H] each, and logits, float32 [R, classes]."""
        raise NotImplementedError

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        """Returns those of the student, and `tokens`, the sum of the tokens' weights."""
        tokens = tf.reduce_sum(token_weights(features))
        return {**self.student.normalizers(features), "tokens": tokens}

    def loss_and_metrics(self, outputs, features, normalizers) -> tuple[tf.Tensor, Sums]:
        """Returns the weighted sum of the losses, float32 [], and each loss as a metric."""
        (layers, logits), (teacher_layers, targets) = outputs
        targets = tf.stop_gradient(targets)
        parts, sums = self.parts(layers, logits, targets, features, normalizers)
        if self.alphas["cos"]:
            weights = token_weights(features)
            distance = layers_distance(layers, teacher_layers, self._cos_all_layers)
            total = tf.reduce_sum(weights * distance)
            parts.append((self.alphas["cos"], total, normalizers["tokens"]))
            sums["cos_loss"] = (total, tf.reduce_sum(weights))
        loss = tf.zeros([], tf.float32)
        for alpha, total, normalizer in parts:
            loss += alpha * tf.math.divide_no_nan(total, normalizer)
        return loss, sums

    def parts(self, layers, logits, targets, features, normalizers) -> tuple[list[Part], Sums]:
        """Returns the losses but `cos`, and the metrics.

        Args:
            layers: the outputs of the student's layers, float [B, S, H] each.
            logits: of the student, float32 [R, classes].
            targets: the logits of the teacher, float32 [R, classes].
            features: the batch.
            normalizers: see `TaskModel.loss_and_metrics`.
        """
        raise NotImplementedError


def soft_cross_entropy(
    student_logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns temperature^2 * KL(teacher || student) of each row, float32 [R].

    Both distributions are softmax(logits / temperature). The square keeps the size of the gradient
    about the same at every temperature (https://arxiv.org/abs/1503.02531, section 2).

    Args:
        student_logits: float32 [R, classes].
        teacher_logits: float32 [R, classes].
        temperature: above 0; the higher, the more the unlikely classes count.
    """
    student = tf.nn.log_softmax(student_logits / temperature)
    teacher = tf.nn.log_softmax(teacher_logits / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)


def squared_distance(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns the sum of squared differences of each row, float32 [R].

    Args:
        student: float32 [R, size].
        teacher: float32 [R, size].
    """
    return tf.reduce_sum(tf.square(student - teacher), axis=-1)


def cosine_distance(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns 1 - cosine of the angle between the two vectors of each row, float32 [R].

    Args:
        student: float [R, H].
        teacher: float [R, H].
    """
    student, teacher = tf.cast(student, tf.float32), tf.cast(teacher, tf.float32)

    def squares(vectors):
        return tf.reduce_sum(tf.square(vectors), axis=-1) + _NORM_EPSILON

    products = tf.reduce_sum(student * teacher, axis=-1)
    return 1.0 - products * tf.math.rsqrt(squares(student) * squares(teacher))


def layers_distance(
    student: Sequence[tf.Tensor], teacher: Sequence[tf.Tensor], all_layers: bool
) -> tf.Tensor:
    """Returns the mean of the cosine distances between layers for each position, float32 [B*S].

    Args:
        student: the outputs of its layers, float [B, S, H] each.
        teacher: the same of the teacher; it gets no gradients.
        all_layers: whether each of the student's is compared, with the teacher's layer at the same
            share of its depth (`matching_layers`); else the last ones alone.
    """
    if not all_layers:
        student, teacher = student[-1:], teacher[-1:]
    places = matching_layers(len(student), len(teacher))
    distances = []
    for mine, place in zip(student, places, strict=True):
        theirs = tf.stop_gradient(teacher[place])
        distances.append(
            cosine_distance(*(tf.reshape(x, [-1, x.shape[-1]]) for x in (mine, theirs)))
        )
    return tf.add_n(distances) / len(distances)


def matching_layers(student: int, teacher: int) -> list[int]:
    """Returns the teacher's layer, from 0, that each of the student's is compared with.

    They end at the same share of the depth: 1, 3, 5 for 3 of 6. The last matches the last.

    Args:
        student: number of the student's layers.
        teacher: number of the teacher's layers.
    """
    ends = (-(-(i + 1) * teacher // student) for i in range(student))
    return [end - 1 for end in ends]
