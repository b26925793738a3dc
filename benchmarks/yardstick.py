"""Measures how fast this machine computes a training step's matrix products on their own."""

import functools
from collections.abc import Callable

import tensorflow as tf

from benchmarks.take_turns import timed
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.matrix_products import Product, forward_products
from bert_tf.tasks.pretraining.training.settings import RecordBatches


def operands(product: Product) -> list[tuple[list[int], list[int], bool, bool]]:
    """Returns the operands of the three products that training makes of one forward product.

    These are the forward product and the gradients of its first and its second operand. Each
    operand tuple is (shape of a, shape of b, transpose a, transpose b).
    """
    first, result = [product.m, product.k], [product.m, product.n]
    flip = product.transpose_b
    second = [product.n, product.k] if flip else [product.k, product.n]
    of_second = (result, first) if flip else (first, result)
    shapes = [(first, second, False, flip), (result, second, False, not flip)]
    shapes.append((*of_second, True, False))
    batch = [product.batch] if product.batch > 1 else []
    return [(batch + a, batch + b, *flags) for a, b, *flags in shapes]


class Yardstick:
    """Times the matrix products of a training step on this machine, on their own and in float32.

    Each product runs with TensorFlow's kernels and with XLA; the faster one counts.
    """

    def __init__(self, config: BertConfig, phase: RecordBatches):
        products = [p for p in forward_products(config, phase) if p.flops > 1e6]
        self.flops = sum(3 * product.flops for product in products)
        self._calls = [(p.count, _kernels(*shapes)) for p in products for shapes in operands(p)]

    def seconds(self, repetitions: int = 3) -> float:
        """Returns the seconds that all products of a step take, each at its best repetition."""
        return sum(
            count * min(kernel() for _ in range(repetitions) for kernel in kernels)
            for count, kernels in self._calls
        )


def _kernels(a: list[int], b: list[int], *transposed: bool) -> list[Callable[[], float]]:
    """Returns functions that time a product by TensorFlow's own kernel and by XLA."""
    x, y = tf.random.normal(a), tf.random.normal(b)

    def multiply(x, y):
        return tf.matmul(x, y, *transposed)

    calls = []
    for xla in (False, True):
        kernel = tf.function(multiply, jit_compile=xla).get_concrete_function(x, y)
        kernel(x, y)  # the first call compiles
        calls.append(timed(functools.partial(kernel, x, y)))
    return calls
