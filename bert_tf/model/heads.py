"""Heads and losses that several tasks use: hidden states -> logits -> losses.

The losses of a student against its teacher are DistilBERT's (https://arxiv.org/abs/1910.01108,
section 2), with the scales of transformers' research project `distillation`. Layers are matched as
in TinyBERT (https://arxiv.org/abs/1909.10351, 3.1, uniform mapping) but compared by the cosine.

Dimension letters and dtypes: see `bert_tf/modeling.py`; R is any number of rows: positions or
examples.
"""

import functools
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, quoted
from bert_tf.model.configuration import OUTPUT_DROPOUT_PROB
from bert_tf.model.inputs import get_shape_list
from bert_tf.model.layers import dropout, dropout_seed_of_call, head_initializer
from bert_tf.model.saving import Savable, register
from bert_tf.seeds import fold_in


def linear(hidden: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """Returns logits, float32 [..., outputs]: a product in the dtype of `hidden`, plus the bias.

    `hidden` is float [..., size], `weights` float32 [outputs, size], `bias` float32 [outputs].
    """
    # In two dimensions: on a TPU, the gradient of a broadcast product lacks static shapes.
    *outer, size = get_shape_list(hidden)
    weights = tf.cast(weights, hidden.dtype)
    logits = tf.matmul(tf.reshape(hidden, [-1, size]), weights, transpose_b=True)
    logits = tf.cast(logits, tf.float32)
    if bias is not None:
        logits += bias
    return tf.reshape(logits, [*outer, logits.shape[-1]])


@register
class OutputLayer(Savable, keras.layers.Layer):
    """Dropout and a linear layer, the head of fine-tuning (original: run_classifier.create_model).

    Its variables are `output_weights` and `output_bias`, outside all scopes. With a bfloat16 policy
    the product is bfloat16, as in every other layer; variables and logits are float32. With
    `glorot` the weights start from Glorot's uniform distribution, as in ELECTRA's heads.
    """

    def __init__(
        self,
        num_outputs: int,
        size: int,
        use_bias: bool = True,
        dtype=None,
        dropout_prob: float = OUTPUT_DROPOUT_PROB,
        glorot: bool = False,
    ):
        super().__init__(name="output", dtype=dtype)
        is_number = isinstance(num_outputs, int | np.integer) and not isinstance(num_outputs, bool)
        if not is_number or num_outputs < 1:
            raise UserError(
                f"num_labels must be a whole number of at least 1; received {quoted(num_outputs)}"
            )
        if not isinstance(dropout_prob, int | float) or not 0 <= dropout_prob < 1:
            raise UserError(
                "output_dropout_prob must be at least 0 and below 1; received"
                f" {quoted(dropout_prob)}"
            )
        self.dropout_prob = dropout_prob
        # The variables are created here, not in build, which would put the layer's name into their
        # paths. Autocast would round both to the compute dtype.
        make = functools.partial(keras.Variable, dtype="float32", autocast=False)
        shape = num_outputs, size
        self.output_weights = make(head_initializer(glorot), shape=shape, name="output_weights")
        self.output_bias = None
        if use_bias:
            self.output_bias = make("zeros", shape=shape[:1], name="output_bias")
        self.built = True

    def call(self, hidden, training=False, dropout_seed=None):
        """Returns logits, float32 [..., num_outputs], for `hidden`, float [..., size].

        Keras casts `hidden` to the compute dtype. For `dropout_seed` see `BertModel.call`.
        """
        seed = dropout_seed_of_call(training, dropout_seed)
        hidden = dropout(hidden, self.dropout_prob, fold_in(seed, 2))
        bias = None if self.output_bias is None else self.output_bias.value
        return linear(hidden, self.output_weights.value, bias)


def example_weights(features) -> tf.Tensor:
    """Returns the weight of each example in the loss and the metrics, float32 [B].

    Evaluation batches have a feature `example_weight`: 1 for an example, 0 for padding that fills
    up the last batch. Training batches are full and lack the feature: every weight is 1.
    """
    weights = features.get("example_weight")
    if weights is not None:
        return weights
    size = features["input_ids"].shape[0]
    return tf.ones([tf.shape(features["input_ids"])[0] if size is None else size])


def token_weights(features) -> tf.Tensor:
    """Returns the weight of each position, float32 [B*S]: its example's, or 0 for padding."""
    tokens = tf.cast(features["input_mask"] > 0, tf.float32)  # packed rows number their sequences
    return tf.reshape(tokens * example_weights(features)[:, tf.newaxis], [-1])


def cross_entropy(logits: tf.Tensor, label_ids: tf.Tensor) -> tf.Tensor:
    """Returns losses, float32 [...], of logits, [..., classes], and classes, int32 [...]."""
    _check_shape(label_ids, logits.shape[:-1])
    classes = tf.shape(logits)[-1] if logits.shape[-1] is None else logits.shape[-1]
    one_hot_labels = tf.one_hot(label_ids, classes, dtype=tf.float32)
    return -tf.reduce_sum(tf.nn.log_softmax(logits) * one_hot_labels, axis=-1)


def binary_cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the mean binary cross entropy of each row, float32 [...].

    `logits` are float32 [..., classes]; `labels`, [..., classes], are 1 for the classes of the row.
    """
    _check_shape(labels, logits.shape)
    labels = tf.cast(labels, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses, axis=-1)


def squared_errors(values: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the squared error of each value, float32 [...]; `labels` are numbers [...]."""
    _check_shape(labels, values.shape)
    return tf.square(values - tf.cast(labels, tf.float32))


def _check_shape(labels: tf.Tensor, expected: tf.TensorShape) -> None:
    """Raises UserError if labels do not have the expected shape, instead of broadcasting them."""
    if not tf.TensorShape(labels.shape).is_compatible_with(expected):
        raise UserError(f"labels must have the shape {expected}; received {labels.shape}")


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
    """Returns temperature^2 * KL(teacher || student), the mean over a row's classes, float32 [R].

    The classes are independent: their probabilities are sigmoid(logit / temperature), for logits
    float32 [R, classes]; see `soft_cross_entropy`.
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

    `student` and `teacher` are outputs of layers, float [B, S, H] each; the teacher's get no
    gradients. Compares only the last layers, or with `all_layers` each student layer with the
    teacher's layer at the same share of the depth (`matching_layers`).
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
    """Returns, for each layer of the student, the teacher's layer at the same share of the depth.

    For 3 layers of the student and 6 of the teacher: 1, 3 and 5, counted from 0. The last layers
    always match.
    """
    return [-(-(i + 1) * teacher // student) - 1 for i in range(student)]
