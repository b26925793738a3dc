"""Losses of a student against its teacher, one number for each row.

Source: DistilBERT (https://arxiv.org/abs/1910.01108, section 2), with the scales of transformers'
research project `distillation`. Dimension letters and dtypes: see `bert_tf/modeling.py`; R is any
number of rows: positions or examples.
"""

import tensorflow as tf

# Added to squared norms, so that the gradient of a vector of zeros is finite.
_NORM_EPSILON = 1e-12


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
