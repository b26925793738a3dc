"""Tests of numbers: those of NumPy and TensorFlow, those that no float holds, and what is none."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.bounds import Bounds, as_float, plain_number
from bert_tf.errors import UserError
from bert_tf.runs.training.watch import CallbackWatch, verbosity
from bert_tf.tasks.arguments import option_value
from bert_tf.tasks.classification.rows import number
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.support.refusals import refuses

SCALARS = [np.float32, np.float64, np.float16, np.array, tf.constant, tf.convert_to_tensor]


@pytest.mark.parametrize("kind", SCALARS)
def test_numbers_of_other_libraries_are_numbers(kind):
    value = kind(0.25)
    optimizer = optimization.LAMBOptimizer(value, global_clipnorm=kind(0.5), epsilon=value)
    rate = optimization.linear_schedule(value, kind(16), kind(2))
    found = optimizer.get_config()
    numbers = [found[name] for name in ("learning_rate", "global_clipnorm", "epsilon")]
    assert [*map(type, numbers)] == [float] * 3 and numbers == [0.25, 0.5, 0.25]
    assert rate.get_config() == optimization.linear_schedule(0.25, 16, 2).get_config()


def test_whole_numbers_are_learning_rates():
    for value in (1, np.int64(1), np.uint8(1), tf.constant(1)):
        found = optimization.AdamWeightDecayOptimizer(value).get_config()["learning_rate"]
        assert type(found) is float and found == 1.0


def test_what_is_no_number_stays_as_it_is():
    for value in (np.ones([1]), tf.Variable(1.0), "1", None, tf.ones([2])):
        assert plain_number(value) is value
    traced = tf.function(lambda x: x if plain_number(x) is x else -x)
    assert traced(tf.constant(1.0)).numpy() == 1.0


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), 10**5000, 2**200], ids=["400", "-400", "5000", "200"]
)
def test_integers_that_no_float32_holds(value):
    assert not Bounds(above=-(10**5001)).hold(value)
    assert as_float(value) in (float("inf"), float("-inf"), 2.0**200)
    refuses("x must be a finite number, .*; received ", Bounds(at_least=0).check, x=value)
    refuses(r"labels\[3\] must be a number from", number, value, "labels[3]")
    with pytest.raises(UserError, match="--epsilon=.* must be above 0"):
        ClassifierSettings(output_dir="o", vocab_file="v", epsilon=value)
    assert option_value("epsilon", value, float) == as_float(value)


def test_verbosity_is_keras_s():
    for value, expected in ((0, 0), (1, 1), (2, 2), ("auto", 1), (True, 1)):
        assert verbosity(value) == expected
    for value in ("x", 3, -1, None, 1.5, "1", [1]):
        refuses("verbose must be 0, 1, 2 or 'auto'; received", CallbackWatch, verbose=value)


def test_float32_only_rounds_bounds_that_are_allowed():
    for value in (0.1, 1e16, 0.3):
        assert Bounds(at_least=value, at_most=value).hold(value)
    assert not Bounds(at_least=0, below=1).hold(1 - 1e-9)  # 1 in float32
