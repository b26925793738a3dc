"""Losses of a student against its teacher, one number for each row.

Source: DistilBERT (https://arxiv.org/abs/1910.01108, section 2), with the scales of transformers'
research project `distillation`. Comparing all layers: TinyBERT (https://arxiv.org/abs/1909.10351,
section 3.1, the uniform mapping), but by the cosine.

Dimension letters and dtypes: see `bert_tf/modeling.py`; R is any number of rows: positions or
examples.
"""

from collections.abc import Sequence

import tensorflow as tf

# Added to squared norms, so that the gradient of a vector of zeros is finite.
_NORM_EPSILON = 1e-12


def soft_cross_entropy(
    student_logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns temperature^2 * KL(teacher || student) of each row, float32 [R].

    Both distributions are softmax(logits / temperature), of logits float32 [R, classes]. The higher
    the temperature, the more the unlikely classes count. Its square keeps the size of the gradient
    about the same at every temperature (https://arxiv.org/abs/1503.02531, section 2).
    """
    student = tf.nn.log_softmax(student_logits / temperature)
    teacher = tf.nn.log_softmax(teacher_logits / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)


def soft_binary_cross_entropy(
    student_logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns temperature^2 * KL(teacher || student) of each row, float32 [R].

    It is the mean over the classes, each of which is there or not with the probability
    sigmoid(logit / temperature), of logits float32 [R, classes]; see `soft_cross_entropy`.
    """
    student, teacher = student_logits / temperature, teacher_logits / temperature
    there = tf.sigmoid(teacher)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=there, logits=student)
    entropies = tf.nn.sigmoid_cross_entropy_with_logits(labels=there, logits=teacher)
    return temperature**2 * tf.reduce_mean(losses - entropies, axis=-1)


def squared_distance(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns the sum of squared differences of each row, float32 [R]; both are [R, size]."""
    return tf.reduce_sum(tf.square(student - teacher), axis=-1)


def cosine_distance(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns 1 - cosine of the angle between the two vectors of each row, float32 [R]."""
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
        student: the outputs of the student's layers, float [B, S, H] each.
        teacher: the outputs of the teacher's layers, which get no gradients.
        all_layers: whether to compare each of the student's layers with the teacher's layer at the
            same share of the depth (`matching_layers`), instead of only the last layers.
    """
    if not all_layers:
        student, teacher = student[-1:], teacher[-1:]
    places = matching_layers(len(student), len(teacher))
    distances = []
    for mine, place in zip(student, places, strict=True):
        theirs = tf.stop_gradient(teacher[place])
        pair = (tf.reshape(x, [-1, x.shape[-1]]) for x in (mine, theirs))
        distances.append(cosine_distance(*pair))
    return tf.add_n(distances) / len(distances)


def matching_layers(student: int, teacher: int) -> list[int]:
    """Returns the teacher's layer, from 0, that each of the student's is compared with.

    Both end at the same share of the depth: 1, 3, 5 for a student with 3 layers and a teacher with
    6. The last layer matches the last.
    """
    return [-(-(i + 1) * teacher // student) - 1 for i in range(student)]
