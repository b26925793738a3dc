"""The TPU compiler on a machine without a TPU: HLO in, an executable's figures out.

libtpu holds the compiler of every TPU generation, and JAX's client of it compiles for a topology
that is only described. Both are imported when they are called for, never with this module.
"""

import dataclasses
import importlib
import math
import os
import re
import types
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Chip:
    """What one TPU chip, or a share of it, can do at most.

    flops: bfloat16 operations a second of its matrix units, as published.
    bandwidth: bytes a second between it and its HBM, as published.
    memory: GiB of HBM that programs can have, as the compiler says when one is too large.
    """

    flops: float
    bandwidth: float
    memory: float

    def share(self, parts: int) -> "Chip":
        """Returns one of `parts` equal parts."""
        return Chip(self.flops / parts, self.bandwidth / parts, self.memory / parts)


# By what the compiler calls the device. Published: https://docs.cloud.google.com/tpu/docs/NAME for
# v3, v4, v5e, v5p and v6e; for v2, "A Domain Specific Supercomputer for Training Deep Neural
# Networks", https://dl.acm.org/doi/10.1145/3360307. The memory is that of libtpu 0.0.50.
CHIPS = {
    "TPU v2": Chip(46e12, 700e9, 2 * 7.48),
    "TPU v3": Chip(123e12, 900e9, 2 * 15.48),
    "TPU v4": Chip(275e12, 1200e9, 2 * 15.25),
    "TPU v5 lite": Chip(197e12, 819e9, 15.75),
    "TPU v5": Chip(459e12, 2765e9, 95.73),
    "TPU v6 lite": Chip(918e12, 1638e9, 31.24),
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """The devices of a slice: TensorCores, or whole chips where the compiler joins their cores.

    devices: JAX's descriptions of them.
    device: what each can do at most.
    """

    name: str
    devices: Sequence[Any]
    device: Chip


@dataclasses.dataclass(frozen=True)
class Executable:
    """What the compiler says of its result; sizes in bytes of HBM, all for one device.

    arguments: weights, optimizer slots and the batch.
    outputs: what the program returns.
    aliased: the share of the outputs that is written over arguments.
    temporaries: everything in between, at the worst moment.
    code: the program.
    flops: operations of every kind by the compiler's count, the bodies of loops counted once.
    hlo: the text of the optimised program.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    code: int
    flops: float
    hlo: str

    @property
    def hbm(self) -> int:
        """Bytes of HBM that the program takes."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


class DoesNotFit(Exception):
    """The compiler found no way to run the program in the device's memory; says what it said."""


def _import(name: str) -> types.ModuleType:
    """Returns a module of JAX, loaded so that it neither looks for a TPU nor waits for one."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # Else libtpu asks Google Compute Engine's metadata server for minutes,
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    # and a second process finds its lock file taken.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    # and it complains that it does not know the machines of a slice.
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    try:
        importlib.import_module("libtpu")
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"compiling for TPUs needs the TPU compiler, and {error.name or error} is not here:"
            ' in an environment of its own, run pip install -e ".[compile]"'
        ) from error


def open_topology(name: str) -> Topology:
    """Returns a topology by its name, `GENERATION:SHAPE` such as v5e:2x4 or v4:2x2x1.

    Raises:
        UserError: there is no such topology, or no compiler.
    """
    topologies = _import("jax.experimental.topologies")
    try:
        chips = math.prod(int(size) for size in name.partition(":")[2].split("x"))
        # The older compiler, that of Python 3.11, has 2x2 chips on a host unless told otherwise.
        host = {"chips_per_host_bounds": (1, 1, 1)} if chips == 1 else {}
        devices = topologies.get_topology_desc(name, "tpu", **host).devices
        chip = CHIPS[devices[0].device_kind]
    except (RuntimeError, ValueError, KeyError) as error:
        raise UserError(
            "--topology is GENERATION:SHAPE, the shape counting chips, such as v2:2x2, v3:2x2,"
            f" v4:2x2x1, v5e:2x4, v5p:2x2x1 or v6e:2x4; not {name!r} ({error})"
        ) from error
    return Topology(name, devices, chip.share(len(devices) // chips))


def compile_hlo(hlo: bytes, topology: Topology, replicas: int) -> Executable:
    """Returns the executable of a serialized HloModuleProto for the topology's first devices.

    Args:
        hlo: the program of each replica.
        topology: where.
        replicas: how many devices run it, one replica on each.

    Raises:
        DoesNotFit: it takes more memory than a device has.
    """
    compiler = _import("jax._src.compiler")
    client = _import("jax._src.lib").xla_client
    devices = tuple(topology.devices[:replicas])
    module = _stablehlo(hlo)
    options = compiler.get_compile_options(
        num_replicas=replicas,
        num_partitions=1,
        device_assignment=[[device.id] for device in devices],
    )
    try:
        with module.context:
            result = devices[0].client.compile(
                module, executable_devices=client.DeviceList(devices), compile_options=options
            )
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise DoesNotFit(_reason(str(error))) from error
        raise
    memory = result.get_compiled_memory_stats()
    return Executable(
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        aliased=memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
        flops=result.cost_analysis()["flops"],
        hlo=result.hlo_modules()[0].to_string(),
    )


def _reason(message: str) -> str:
    """Returns the sentence of the compiler's error that says how much memory is missing."""
    found = re.search(r"Ran out of memory.*?(?=\.\s|\.?$)", message, re.MULTILINE)
    return " ".join((found.group() if found else message.splitlines()[0]).split())


def _stablehlo(hlo: bytes):
    """Returns an MLIR module, the form in which JAX's client takes a program."""
    ir = _import("jaxlib.mlir.ir")
    context = _import("jax._src.interpreters.mlir").make_ir_context()
    with context:
        text = _import("jax._src.lib")._jax.mlir.hlo_to_stablehlo(hlo)
        module = ir.Module.parse(text)
    _remove_copies(module.operation)
    return module


def _remove_copies(operation) -> None:
    """Takes out mhlo.copy, which TensorFlow writes for variables and StableHLO does not know."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in [op.operation for op in block.operations]:
                if inner.name == "mhlo.copy":
                    inner.results[0].replace_all_uses_with(inner.operands[0])
                    inner.erase()
                else:
                    _remove_copies(inner)
