"""Random numbers from stateless hashes, and seeds of examples and initializers."""

import contextlib
import contextvars
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.bounds import switched

# From TensorFlow's `_philox_scramble_seed`, and from its enumeration of algorithms.
_SCRAMBLING_KEY, _PHILOX = 0x02461E293EC8F720, 1
# Constants of SplitMix64 (Steele, Lea and Flood, 2014).
_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def random_bits(shape: Sequence[int | tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """Returns random integers, uint32 of `shape`, determined by `seed`; all bits are random.

    Each is a hash of its position in the tensor and of two key words that Philox derives from the
    seed. XLA fuses the hash into the operation that uses the numbers, but cannot fuse Philox, which
    makes four numbers at a time: by the TPU compiler's estimate, dropout masks made by Philox took
    seven times as long as the rest of a step.

    Args:
        shape: the size of each axis, a number, or int32 [] if dynamic. The integers repeat after
            2**32.
        seed: int32 [2].
    """
    known = tuple(None if tf.is_tensor(size) else size for size in shape)
    return _compiled(known)(seed, [size for size in shape if tf.is_tensor(size)])


@functools.cache
def _compiled(known: tuple[int | None, ...]) -> Callable[[tf.Tensor, list], tf.Tensor]:
    # Compiled, because TensorFlow's own kernels would pass over the memory 25 times; in a step that
    # XLA compiles, this changes nothing. Each shape has a separate function, because TensorFlow
    # warns of a function that it traces for several shapes.

    @tf.function(jit_compile=True, autograph=False)
    def random_bits(seed: tf.Tensor, unknown: list[tf.Tensor]) -> tf.Tensor:
        others = iter(unknown)
        sizes = [next(others) if size is None else size for size in known]
        key = _philox([2], seed, tf.uint32)
        position, stride = key[0], tf.ones([], tf.uint32)
        for axis, size in enumerate(reversed(sizes)):
            numbers = tf.cast(tf.range(size), tf.uint32) * stride
            position += tf.reshape(numbers, [-1] + [1] * axis)
            stride *= tf.cast(size, tf.uint32)
        return _hash(_hash(position) ^ key[1])

    return random_bits


def _hash(x: tf.Tensor) -> tf.Tensor:
    """Returns `lowbias32` of uint32 integers, a bijection."""
    # Flipping a bit of `x` flips each bit of the result with a probability of almost one half.
    # Chris Wellons found the constants: https://nullprogram.com/blog/2018/07/31/.
    x = xor_shift(x, 16) * tf.constant(0x7FEB352D, tf.uint32)
    x = xor_shift(x, 15) * tf.constant(0x846CA68B, tf.uint32)
    return xor_shift(x, 16)


def xor_shift(x: tf.Tensor, shift: int) -> tf.Tensor:
    """Returns `x` ^ (`x` >> `shift`), a bijection of unsigned integers."""
    return x ^ tf.bitwise.right_shift(x, tf.constant(shift, x.dtype))


def _philox(shape: Sequence[int], seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns `tf.random.stateless_uniform(shape, seed, None, None, dtype, "philox")`."""
    # That function adds 30 operations to a graph. The algorithm is pinned because the automatic
    # choice differs between XLA and TensorFlow's own kernels.

    def draw(shape: Any, key: tf.Tensor, counter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=shape, key=key, counter=counter, dtype=dtype, alg=_PHILOX
        )

    scrambling = tf.constant([_SCRAMBLING_KEY], tf.uint64)
    mixed = draw([2], scrambling, tf.cast(seed, tf.uint64), tf.uint64)
    return draw(shape, mixed[:1], mixed * tf.constant([0, 1], tf.uint64), dtype)


def fold_in(seed: tf.Tensor | None, data: int | tf.Tensor) -> tf.Tensor | None:
    """Returns a new seed, int32 [2], from a seed, int32 [2], and a number; None from None."""
    if seed is None:
        return None
    return tf.stack([_philox([], seed, tf.int32), data])


def fold_in_range(seed: tf.Tensor | None, count: int) -> list[tf.Tensor | None]:
    """Returns `fold_in(seed, i)` for each i below `count`."""
    if seed is None:
        return [None] * count
    first = _philox([], seed, tf.int32)
    return [tf.stack([first, i]) for i in range(count)]


_own_random: contextvars.ContextVar[random.Random | None] = contextvars.ContextVar(
    "own_random", default=None
)
_initial_weights = contextvars.ContextVar("initial_weights", default="drawn")


def reading_weights(all_are_set: bool = False) -> contextlib.AbstractContextManager[None]:
    """Models built in this context start with zeros, because a checkpoint sets their weights next.

    Drawing 340 million random numbers takes seconds. If `all_are_set`, the caller sets every
    weight, and memory is not even cleared, so it takes no room before it is written.
    """
    return switched(_initial_weights, "unset" if all_are_set else "zeros")


def initial_weights() -> str:
    """Returns the initial weights of models built in this context: "drawn", "zeros" or "unset"."""
    return _initial_weights.get()


def seeded(seed: int) -> contextlib.AbstractContextManager[None]:
    """Seeds the initial weights of models built in this context, independently of other threads."""
    return switched(_own_random, random.Random(seed))


def initializer_seed() -> int | None:
    """Returns the seed of the next initializer inside `seeded`; None outside: Keras draws one.

    The seed is what Keras would draw after `random.seed`; other threads do not affect it.
    """
    own = _own_random.get()
    return own and own.randint(1, 10**9)


def hash_numbers(*numbers: tf.Tensor | int) -> tf.Tensor:
    """Returns the hash of integers of at least 0, uint64, in the shape that they broadcast to.

    Their order matters. TensorFlow's stateless random ops take one seed per call. These hashes give
    each example of a batch a seed, so its random numbers depend neither on the batch nor on the
    number of machines.
    """
    value = tf.zeros([], tf.uint64)
    for number in numbers:
        value = _mix(value + _uint64(_GAMMA) + _mix(tf.cast(number, tf.uint64)))
    return value


def uniform(bits: tf.Tensor) -> tf.Tensor:
    """Converts random integers, uint32 or uint64, to numbers from 0 to below 1, float32."""
    unused = tf.constant(8 * bits.dtype.size - 24, bits.dtype)
    high = tf.bitwise.right_shift(bits, unused)  # 24 bits, which float32 holds exactly
    return tf.cast(high, tf.float32) * 2.0**-24


def below(bits: tf.Tensor, stop: int) -> tf.Tensor:
    """Converts hashes to numbers from 0 to below `stop`, int32."""
    return tf.cast(bits % _uint64(stop), tf.int32)


def _mix(value: tf.Tensor) -> tf.Tensor:
    for shift, multiplier in _MULTIPLIERS:
        value = xor_shift(value, shift) * _uint64(multiplier)
    return xor_shift(value, _LAST_SHIFT)


def _uint64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.uint64)
