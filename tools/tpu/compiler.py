"""Calls the TPU compiler on a machine without a TPU and returns the figures of the executable.

libtpu contains the compilers of all TPU generations, and JAX can call them with only a description
of a topology. Both packages are optional, so they are imported where they are used.
"""

import dataclasses
import importlib
import math
import os
import re
from collections.abc import Sequence
from typing import Any

from bert_tf.engine.distribution import CHIP_FLOPS
from bert_tf.errors import UserError, quoted


@dataclasses.dataclass(frozen=True)
class Chip:
    """The peaks of a TPU chip, or of a part of it."""

    flops: float  # published bfloat16 FLOP/s of the matrix units
    bandwidth: float  # published bytes per second between the chip and its HBM
    links: float  # published bytes per second that the chip can send to its neighbours
    memory: float  # GiB of HBM for programs, as the compiler's out-of-memory error states it
    clock: float  # cycles per second of a TensorCore

    def divided(self, devices: int) -> "Chip":
        # The devices share the chip's links, and send their summed gradients only once.
        shares = self.flops / devices, self.bandwidth / devices, self.links, self.memory / devices
        return Chip(*shares, self.clock)

    def all_reduce_seconds(self, size: int, replicas: int) -> float:
        """Returns the least time in which the links can sum `size` bytes over the replicas."""
        # A reduce-scatter and an all-gather: in each, a device sends all but a replica's share.
        return 2 * size * (1 - 1 / replicas) / self.links


# By the compiler's name of the device; for the pages and the paper see engine/distribution.py.
# Links: half the "bidirectional" bandwidth on the pages of v5e, v5p, v6e and tpu7x. The page of v3
# only has the all-reduce bandwidth of a pod, 340 TB/s for 1,024 chips. v4 has 6 links of 50 GB/s
# (https://arxiv.org/abs/2304.01433, table 4), and v2 has 4 of 496 Gbit/s.
# The memory is what libtpu 0.0.50 states. For TPU7x it is all the memory of the chip, 192 GiB.
# Clocks: v2 and v3 from the paper, v4 from the arXiv paper's table 4, v5e from
# https://jax-ml.github.io/scaling-book/tpus. Google does not publish the others: they are
# the peak divided by 2 operations of each multiplier: 8 x 128 x 128 in a chip of v5p, 4 x 256 x 256
# in v6e, 8 x 256 x 256 in TPU7x. For v2 to v5e this gives the published clocks. Google's pages
# and JAX's tpu_info.py count half as many multipliers for v6e and TPU7x: 262,144 operations a cycle
# and core. But libtpu 0.0.42.1 estimates 369,231 and 422,142 for a product of 8192 x 8192.
CHIPS = {
    kind: Chip(CHIP_FLOPS[kind], *others)
    for kind, others in {
        "TPU v2": (700e9, 248e9, 2 * 7.48, 0.7e9),
        "TPU v3": (900e9, 332e9, 2 * 15.48, 0.94e9),
        "TPU v4": (1200e9, 300e9, 2 * 15.25, 1.05e9),
        "TPU v5 lite": (819e9, 200e9, 15.75, 1.5e9),
        "TPU v5": (2765e9, 600e9, 95.73, 1.75e9),
        "TPU v6 lite": (1638e9, 400e9, 31.24, 1.75e9),
        "TPU7x": (7380e9, 600e9, 2 * 96.0, 2.2e9),
    }.items()
}
# The names of generations in tpu/accelerators.txt.
GENERATIONS = {
    **{"v2": "TPU v2", "v3": "TPU v3", "v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5"},
    **{"v6e": "TPU v6 lite", "tpu7x": "TPU7x"},
}
# Options where the compiler's defaults differ from Cloud TPU: the machine of a v5litepod-8 or v6e-8
# has all eight chips, a machine of a larger slice four. JAX joins the two cores of a v4's chip, as
# on v5p.
_OPTIONS = {
    "1x1": {"chips_per_host_bounds": (1, 1, 1)},
    "2x4": {"chips_per_host_bounds": (2, 4, 1)},
    "v4": {"chip_config_name": "megacore"},
}
_MOST_CHIPS = 2**14  # more than the largest slice: 9,216 chips, of TPU7x


@dataclasses.dataclass(frozen=True)
class Topology:
    """A TPU slice: JAX's descriptions of the devices, and the peaks of one device.

    A device is a TensorCore, or a chip if the compiler joins a chip's cores.
    """

    name: str
    devices: Sequence[Any]
    device: Chip


@dataclasses.dataclass(frozen=True)
class Executable:
    """The compiler's figures for a compiled program on one device. Sizes are bytes of HBM."""

    arguments: int  # weights, optimizer slots and the batch
    outputs: int
    aliased: int  # the part of the outputs that overwrites arguments
    temporaries: int  # peak size of intermediate results
    code: int  # size of the program
    flops: float  # operations of every kind; the compiler counts the body of a loop once
    text: str = dataclasses.field(default="", repr=False)  # the program, for `cycles`

    @property
    def hbm(self) -> int:
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


class DoesNotFit(Exception):
    """The program needs more memory than the device has; the message is the compiler's."""


def describe_no_tpu() -> None:
    """Lets JAX and libtpu start without a TPU."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # Otherwise libtpu queries Google Compute Engine's metadata server for minutes.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    # Otherwise a second process fails on libtpu's lock file.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    # Otherwise libtpu warns that it does not know the hosts of the slice.
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")


def open_topology(name: str) -> Topology:
    """Returns the topology named `GENERATION:SHAPE`, such as v5e:2x4 or v4:2x2x1."""
    describe_no_tpu()
    try:
        importlib.import_module("libtpu")
        topologies = importlib.import_module("jax.experimental.topologies")
    except ImportError as error:
        raise UserError(
            f"compiling for TPUs needs the extra `compile`: {error.name or error} is not installed."
            ' In a separate environment, run pip install -e ".[compile]"'
        ) from error
    try:
        generation, _, shape = name.partition(":")
        sizes = [int(size) for size in shape.split("x")]
        chips = math.prod(sizes)
        if min(sizes) < 1 or chips > _MOST_CHIPS:  # the compiler crashes without chips
            raise ValueError(f"each size must be at least 1, and the chips at most {_MOST_CHIPS}")
        options = _OPTIONS.get(shape, {}) | _OPTIONS.get(generation, {})
        devices = topologies.get_topology_desc(name, "tpu", **options).devices
        chip = CHIPS[devices[0].device_kind]
    except (RuntimeError, ValueError, KeyError) as error:
        raise UserError(
            "--topology must be GENERATION:SHAPE with the shape in chips, such as v2:2x2, v3:2x2,"
            f" v4:2x2x1, v5e:2x4, v5p:2x2x1, v6e:2x4 or tpu7x:2x2x1; received {quoted(name)}"
            f" ({error})"
        ) from error
    return Topology(name, devices, chip.divided(len(devices) // chips))


def compile_step(step: Any) -> Executable:
    """Compiles a `jax.stages.Lowered` step; raises DoesNotFit if it needs too much memory."""
    try:
        compiled = step.compile()
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise DoesNotFit(_reason(str(error))) from error
        raise
    memory = compiled.memory_analysis()
    return Executable(
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        aliased=memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
        flops=compiled.cost_analysis()["flops"],
        text=compiled.as_text(),
    )


def _reason(message: str) -> str:
    """Returns the sentence of the compiler's error that states the missing memory."""
    found = re.search(r"Ran out of memory.*?(?=\.\s|\.?$)", message, re.MULTILINE)
    return " ".join((found.group() if found else message.splitlines()[0]).split())
