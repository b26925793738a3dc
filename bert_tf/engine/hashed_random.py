"""Random numbers that are a function of their example, not of earlier draws.

TensorFlow's stateless random ops take one seed per call. In this module each example of a batch has
its own seed, so its random numbers depend neither on the batch nor on the number of machines.
"""

import tensorflow as tf

# Constants of SplitMix64 (Steele, Lea and Flood, 2014).
_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def hash_numbers(*numbers: tf.Tensor | int) -> tf.Tensor:
    """Returns the hash of integers of at least 0, uint64, in the shape that they broadcast to.

    Their order matters.
    """
    value = tf.zeros([], tf.uint64)
    for number in numbers:
        value = _mix(value + _uint64(_GAMMA) + _mix(tf.cast(number, tf.uint64)))
    return value


def uniform(bits: tf.Tensor) -> tf.Tensor:
    """Converts hashes to numbers from 0 to below 1, float32."""
    high = tf.bitwise.right_shift(bits, _uint64(40))  # 24 bits, which float32 holds exactly
    return tf.cast(high, tf.float32) * 2.0**-24


def below(bits: tf.Tensor, stop: int) -> tf.Tensor:
    """Converts hashes to numbers from 0 to below `stop`, int32."""
    return tf.cast(bits % _uint64(stop), tf.int32)


def _mix(value: tf.Tensor) -> tf.Tensor:
    for shift, multiplier in _MULTIPLIERS:
        value = _xor_shift(value, shift) * _uint64(multiplier)
    return _xor_shift(value, _LAST_SHIFT)


def _xor_shift(value: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, _uint64(shift)))


def _uint64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.uint64)
