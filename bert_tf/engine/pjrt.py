"""Devices that JAX's client (PJRT) drives: TPUs of all generations and hosts, GPUs, CPUs.

TensorFlow reads the records, keeps the variables and lowers each step; JAX compiles and runs it.
"""

import collections
import contextlib
import ctypes
import dataclasses
import os
import re
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_all_reduce

from bert_tf.engine import distribution, tf_in_jax
from bert_tf.engine.distribution import InputShard
from bert_tf.engine.steps import Replicas
from bert_tf.errors import UserError

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h
_SMALL = 64  # elements; variables up to this size are fetched after each loop
_AXIS = "replica"  # of the mesh of devices


@dataclasses.dataclass
class _Held:
    """A variable's value on the devices.

    variable: a weak reference to the variable.
    array: the value, on every device.
    host: the variable's value when both were last equal. Kept alive so that an assignment gets a
        new buffer: the changed address tells us.
    is_newer: whether `array` is newer than the variable.
    """

    variable: Any
    array: Any
    host: tf.Tensor
    is_newer: bool = False


class PjrtStrategy:
    """Stands in for a `tf.distribute.Strategy`: one replica on each JAX device.

    Variables stay TensorFlow's, on the CPU. Their values are copied to the devices before a step
    reads them, stay there, and are updated there. `fetch` brings them back. A value that TensorFlow
    assigns meanwhile replaces the one on the devices. If a tensor that was read from a variable
    is assigned to it again, this goes unnoticed: the memory is the same.

    Args:
        devices: JAX's devices, of all processes, in the order of their replicas. Descriptions of
            devices are enough to lower a step.
    """

    def __init__(self, devices: Sequence[Any]):
        self.jax = jax = tf_in_jax.load_jax()
        jax.config.update("jax_enable_x64", True)  # global_step is an int64
        self.num_replicas_in_sync = len(devices)
        self.on_tpu = devices[0].platform == "tpu"
        self.mesh = jax.sharding.Mesh(np.array(devices), (_AXIS,))
        self.divided = jax.NamedSharding(self.mesh, jax.P(_AXIS))
        self.everywhere = jax.NamedSharding(self.mesh, jax.P())
        processes = len({device.process_index for device in devices})
        self.input_shard = InputShard(jax.process_index(), processes, replicas=len(devices))
        self._held: dict[int, _Held] = {}  # by the variable's id, while it exists

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns a context for creating variables; it changes nothing."""
        return contextlib.nullcontext()

    def replicas(self, number: tf.Tensor) -> Replicas:
        """Returns the replicas of a step, as seen by replica `number`, int32 []."""
        group = [list(range(self.num_replicas_in_sync))]

        def total(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            if self.num_replicas_in_sync == 1:
                return tensors
            return [xla_all_reduce(x, group, "Add", "CrossReplica") for x in tensors]

        return Replicas(self.num_replicas_in_sync, total, number)

    def put(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Starts to copy this process's part of a batch to its devices; returns the whole batch."""
        make = self.jax.make_array_from_process_local_data
        return {name: make(self.divided, np.asarray(x)) for name, x in batch.items()}

    def gather(self, value: np.ndarray | float) -> np.ndarray:
        """Returns the values of all processes, in their order; waits until each has called this."""
        from jax.experimental.multihost_utils import process_allgather

        with together():
            return process_allgather(value)

    def check_same(self, words: Sequence[str]) -> None:
        check_same(self.gather, words)

    def hold(self, variable: tf.Variable) -> _Held:
        """Returns a variable's value on the devices; if it was assigned, copies it there first."""
        key = id(variable)
        held = self._held.get(key)
        host = variable.read_value()  # copies nothing
        if held is None or _address(host) != _address(held.host):
            # A copy, because on a CPU JAX may share numpy's memory, which here is TensorFlow's.
            make, value = self.jax.make_array_from_callback, np.array(memoryview(host))
            array = make(value.shape, self.everywhere, value.__getitem__)
            if held is None:
                weakref.finalize(variable, self._held.pop, key, None)
            held = self._held[key] = _Held(weakref.ref(variable), array, host)
        return held

    def fetch(self, variables: Iterable[tf.Variable] | None = None) -> None:
        """Copies the devices' values to these TensorFlow variables; None: to all small ones."""
        if variables is None:
            chosen = [x for x in [*self._held.values()] if x.array.size <= _SMALL]
        else:
            chosen = [self._held[id(x)] for x in variables if id(x) in self._held]
        newer = [(x.variable(), x, x.array.addressable_data(0)) for x in chosen if x.is_newer]
        for _, _, array in newer:
            array.copy_to_host_async()
        for variable, held, array in newer:
            if variable is not None and _address(variable.read_value()) == _address(held.host):
                variable.assign(np.asarray(array))
                held.host = variable.read_value()
            held.is_newer = False


def _address(host: tf.Tensor) -> int:
    return np.asarray(memoryview(host)).__array_interface__["data"][0]


class Step:
    """A step that calls a function on every replica; JAX compiles it when it is first called.

    `function` is a tf.function with jit_compile. Called with a replica's part of the inputs and its
    number, int32 [], it returns tensors in any structure. `specs` are the inputs of all replicas.
    If `joins`, the replicas' results are concatenated along the first axis; otherwise they must be
    equal.
    """

    def __init__(
        self, strategy: PjrtStrategy, function: Any, specs: dict[str, tf.TensorSpec], joins: bool
    ):
        self._strategy, self._specs = strategy, specs
        count, jax = strategy.num_replicas_in_sync, strategy.jax
        of_replica = {
            name: tf.TensorSpec([x.shape[0] // count, *x.shape[1:]], x.dtype)
            for name, x in specs.items()
        }
        number = tf.TensorSpec([], tf.int32)
        self.program = program = tf_in_jax.lower(function, (of_replica, number))

        def step(inputs: dict[str, Any], kept: list[Any], old: list[Any]) -> Any:
            return program((inputs, jax.lax.axis_index(_AXIS)), kept, old)

        parts, same = jax.P(_AXIS), jax.P()
        mapped = jax.shard_map(
            step,
            mesh=strategy.mesh,
            in_specs=(parts, same, same),
            out_specs=(parts if joins else same, same),
            check_vma=False,
        )
        self._call = jax.jit(mapped, donate_argnums=2)

    def lower(self) -> Any:
        """Lowers the step for descriptions of devices; returns a `jax.stages.Lowered`."""
        strategy, program = self._strategy, self.program

        def like(x: Any, sharding: Any) -> Any:
            dtype = x.dtype.as_numpy_dtype
            return strategy.jax.ShapeDtypeStruct(tuple(x.shape), dtype, sharding=sharding)

        inputs = {name: like(x, strategy.divided) for name, x in self._specs.items()}
        variables = [like(x, strategy.everywhere) for x in program.variables]
        return self._call.lower(inputs, *program.parted(variables))

    def hold(self) -> tuple[list[_Held], list[_Held]]:
        """Puts variables on the devices; returns the ones only read, and the ones updated."""
        return self.program.parted([self._strategy.hold(x) for x in self.program.variables])

    def __call__(self, inputs: dict[str, Any], kept: list[_Held], updated: list[_Held]) -> Any:
        """Starts the step on the results of `put` and `hold`; does not wait for its results."""
        old = [x.array for x in updated]
        results, new = self._call(inputs, [x.array for x in kept], old)
        for x, array in zip(updated, new, strict=True):
            x.array, x.is_newer = array, True
        return results


def _keep_memory(jax: Any) -> None:
    """Lets steps on the CPU reuse memory: faster on one device, no difference on several.

    XLA allocates a step's intermediate results anew in each step. Getting that memory from the
    system, page by page, took a fifth of the time. So the C library keeps freed memory, and the
    thread that starts a step also runs it, because other threads allocate large blocks from the
    system.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    with contextlib.suppress(AttributeError, TypeError):  # only glibc has it; Windows: TypeError
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)  # never


def connect(
    num_cpu_devices: int | None,
    num_tpu_cores: int | None = None,
    processes: tuple[str | None, int | None, int | None] = (None, None, None),
    cache_dir: str | None = None,
    tpu_cache_dir: str | None = None,
) -> PjrtStrategy:
    """Returns the strategy for all of JAX's devices.

    Args:
        num_cpu_devices: number of devices to split the CPU into; None for the TPU, or what JAX
            finds.
        num_tpu_cores: required number of devices; None for any.
        processes: address of process 0, HOST:PORT, or "auto" where JAX finds the processes by
            itself; number of processes; index of this one. All None for a single process.
        cache_dir: local or gs:// folder for compiled steps; None for `tpu_cache_dir` on a TPU, and
            for no cache on other devices.
    """
    jax = tf_in_jax.load_jax()
    tf.config.set_visible_devices([], "GPU")  # their memory is JAX's
    if num_cpu_devices is not None:
        jax.config.update("jax_platforms", "cpu")
        if jax.config.jax_num_cpu_devices != num_cpu_devices:  # may be set only once
            jax.config.update("jax_num_cpu_devices", num_cpu_devices)
        _keep_memory(jax)
    coordinator, *numbers = processes
    if coordinator:
        join(coordinator, *numbers)
    try:
        devices = jax.devices()
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"--tpu=pjrt: JAX finds no devices ({error}). End other programs that use the TPU; if"
            ' libtpu is missing, run pip install -e ".[pjrt]"'
        ) from error
    if num_cpu_devices is None and devices[0].platform == "cpu":
        raise UserError(
            "--tpu=pjrt: JAX finds no TPU and no GPU here. To run on the CPU, give"
            " --num_cpu_devices, 1 or more"
        )
    if num_tpu_cores is not None and len(devices) != num_tpu_cores:
        raise UserError(
            f"--num_tpu_cores={num_tpu_cores}, but JAX finds {len(devices)} devices"
            f" ({devices[0].device_kind})"
        )
    counts = collections.Counter(device.process_index for device in devices)
    if len({*counts.values()}) > 1:
        raise UserError(
            "--tpu=pjrt: all processes must have the same number of devices; in the order of"
            f" --process_index they have {', '.join(str(n) for _, n in sorted(counts.items()))}."
            " Use identical machines, and the same --num_cpu_devices on each"
        )
    strategy = PjrtStrategy(devices)
    if cache_dir := cache_dir or (tpu_cache_dir if strategy.on_tpu else None):
        jax.config.update("jax_compilation_cache_dir", cache_dir)
        logging.info("Compiled steps are kept in %s", cache_dir)
    logging.info("Running with PJRT on %d replicas: %s", len(devices), devices[0].device_kind)
    return strategy


# --- several processes: each has the devices of its own host --------------------------------------

WAIT_SECONDS = 300.0  # for the other processes at the start
_TEXT_BYTES = 2**16  # words are compared up to this length
_PARTING_SECONDS = 10.0  # for the other processes at the end of a failed run

# What JAX's errors contain, from gRPC or gloo, when another process has ended.
_LOST = re.compile(
    "Gloo|UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED|ABORTED|[Cc]onnection (reset|clos)"
)
_lost: list[float] = []  # seconds to wait before the exit, once another process has ended


def join(coordinator: str, number: int | None, index: int | None) -> None:
    """Connects to the other processes of the run.

    `coordinator` is the HOST:PORT of process 0, or "auto" where JAX finds the processes by itself;
    the `number` of processes and the `index` of this one are None with "auto".
    """
    if index == 0:
        _check_port(coordinator)
    problems: list[Exception] = []

    def meet() -> None:
        try:
            # JAX aborts the program at the end of this time.
            seconds = int(2 * WAIT_SECONDS) + 60
            places = () if coordinator == "auto" else (coordinator, number, index)
            _jax().distributed.initialize(*places, initialization_timeout=seconds)
        except Exception as error:
            problems.append(error)

    logging.info("Waiting for the other processes of --coordinator=%s", coordinator)
    distribution.at_failure(_leave)
    meeting = threading.Thread(target=meet, daemon=True)  # so that Ctrl-C and SIGTERM still work
    meeting.start()
    meeting.join(WAIT_SECONDS)
    if meeting.is_alive():
        _lost.append(0.0)
        missing = "process 0 did not answer" if index else "the other processes did not connect"
        raise ConnectionError(
            f"--coordinator={coordinator}: {missing} within {WAIT_SECONDS:g} s. Start the same"
            " command on every machine, each with its own --process_index, and open the port in"
            " the firewall"
        )
    for error in problems:
        raise UserError(
            f"--coordinator={coordinator}: JAX cannot join the processes ({error})"
        ) from error


def _check_port(coordinator: str) -> None:
    """Checks that this process, number 0, can open its port; otherwise JAX would crash."""
    port = int(coordinator.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise UserError(
            f"--coordinator={coordinator}: process 0 cannot open port {port}"
            f" ({error.strerror}). End the program that uses it, such as an earlier run, or choose"
            " another port, the same on every machine"
        ) from error


def check_same(gather: Callable[[np.ndarray], np.ndarray], words: Sequence[str]) -> None:
    """Checks that all processes have the same words, such as --NAME=VALUE."""
    own = "\n".join(words).encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
    rows = gather(np.frombuffer(own, np.uint8))
    texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]
    first = texts[0].split("\n")
    for index, text in enumerate(texts):
        if text != texts[0]:
            its = text.split("\n")
            here, there = (
                " ".join(word for word in mine if word not in others) or "none of these"
                for mine, others in ((its, first), (first, its))
            )
            raise UserError(
                f"The processes of --coordinator have different flags: process {index} has {here},"
                f" process 0 has {there}. Start the same command on every machine, each with its"
                " own --process_index"
            )


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Raises ConnectionError if JAX fails in this context because another process has ended."""
    from jax.errors import JaxRuntimeError

    try:
        yield
    # ValueError: from steps in the calling thread, without `jax_cpu_enable_async_dispatch`.
    except (JaxRuntimeError, ValueError) as error:
        is_own = isinstance(error, UserError) or not _jax().distributed.is_initialized()
        if is_own or not _LOST.search(str(error)):
            raise
        _lost.append(_PARTING_SECONDS / 2 if _jax().process_index() == 0 else 0.0)
        raise ConnectionError(
            "Another process of this run has ended or cannot be reached. Start the same command"
            f" again on every machine; it continues from the last checkpoint ({error})"
        ) from error


def _leave(status: int) -> None:
    """Ends the program after a failure.

    At Python's exit JAX would wait minutes for lost processes, and then abort. Process 0 leaves
    last: JAX aborts the others once process 0 has ended.
    """
    if _lost:
        time.sleep(_lost[0])
    else:  # tell the others, if they still run
        parting = threading.Thread(target=_jax().distributed.shutdown, daemon=True)
        parting.start()
        parting.join(_PARTING_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _jax() -> Any:
    import jax

    return jax
