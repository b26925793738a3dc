"""Estimates the time of a pre-training step on a TPU without compiling it.

Most of a step is traffic between the chip and its HBM, so the estimate counts bytes. Its factors
were fitted to the compiler's cycles; docs/measurements/tpu.md has both side by side.
"""

import dataclasses
from collections.abc import Sequence

from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.matrix_products import Product

from .compiler import Chip

# Bytes of traffic in a step, forward and backward:
_NUMBER = 7.4  # for each number, most in bfloat16, that a product reads or writes
_FAR_NUMBER = 13.7  # added for each number of a tensor beyond the first _NEAR
_NEAR = 4e6  # numbers of a tensor that fit on the chip
_LOGIT = 45.0  # for each number of the product with the vocabulary, whose softmax is in float32
# For each weight; embeddings count twice, because words are looked up and predicted:
_WEIGHT = 11.3  # in each part of a batch: uses the weight twice, and sums its gradient
_UPDATE = 26.6  # once: casts the weight to bfloat16, updates it and its moments
_REDUCED = 33.7  # once with several replicas: the norm, and the clipped gradient
_EXPOSED = 0.22  # the share of the products' time, at the peak, that no traffic hides
_LOOKUP = 1.1  # the time of the look-ups, as products with one-hot rows at the peak


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The seconds of a replica's step."""

    products: float  # the model's matrix products at the chip's peak
    computing: float  # everything except the all-reduces
    fixed: float  # the part of `computing` that does not grow with the batch
    reducing: float  # the all-reduces, which wait for the gradients
    reduced: int  # bytes of all-reduces
    compiled: bool  # whether `computing` is from the compiler

    @property
    def bound(self) -> str:
        """What takes the largest part of the step."""
        memory = self.computing - self.products, "memory"
        return max((self.products, "matrix products"), memory, (self.reducing, "all-reduces"))[1]

    @property
    def fixed_share(self) -> float:
        """The share of the step that does not grow with the batch."""
        return (self.fixed + self.reducing) / (self.computing + self.reducing)

    def seconds(self, share: float = 1.0) -> float:
        """Returns the time of the step if its products reach at most this share of the peak."""
        return max(self.computing, self.products / share) + self.reducing


def count_weights(config: BertConfig, products: Sequence[Product]) -> int:
    """Returns the number of a model's trained weights, without biases and LayerNorm's."""
    width = config.embedding_width
    tables = {(width, config.vocab_size)}  # shared by a generator of the same width
    weights = width * (config.max_position_embeddings + config.type_vocab_size)
    for product in products:
        if product.name == "vocabulary" and product.passes > 1:
            tables.add((product.k, product.n))
        elif product.batch == 1 and product.passes > 1:  # not attention's or a teacher's
            shared = config.num_hidden_layers / len(config.layer_scopes) * product.in_encoder or 1
            weights += round(product.count / shared) * product.k * product.n
    return weights + sum(k * n for k, n in tables)


def estimate_step(
    config: BertConfig,
    products: Sequence[Product],
    chip: Chip,
    replicas: int,
    parts: int = 1,
    cycles: float | None = None,
) -> StepTime:
    """Returns the estimated time of a step; in distillation, of a student.

    `products` are for the batches of all replicas, each computed in `parts` parts. `cycles` are the
    compiler's, if they are known.
    """
    weights = count_weights(config, products)
    words = config.vocab_size * config.embedding_width
    traffic = (_WEIGHT * parts + _UPDATE + _REDUCED * (replicas > 1)) * (weights + words)
    fixed, lookups = traffic / chip.bandwidth, 0
    for product in products:
        for size in (product.k, product.n):
            numbers = product.batch * product.m * size / replicas
            far = max(0.0, 1 - _NEAR * parts / numbers)
            each = _LOGIT if product.name == "vocabulary" else _NUMBER + _FAR_NUMBER * far
            traffic += product.passes / 3 * product.count * numbers * each
        if product.name == "intermediate":  # one per model, each with one-hot look-ups
            lookups += min(product.passes, 2) * product.m
    looking_up = _LOOKUP * 2 * lookups * words / replicas / chip.flops
    at_the_peak = sum(x.passes * x.flops for x in products) / replicas / chip.flops
    computing = max(traffic / chip.bandwidth + _EXPOSED * at_the_peak, at_the_peak) + looking_up
    if cycles:
        fixed, computing = fixed / computing * cycles / chip.clock, cycles / chip.clock
    reducing = chip.all_reduce_seconds(4 * weights, replicas)  # float32
    return StepTime(at_the_peak, computing, fixed, reducing, 4 * weights, bool(cycles))
