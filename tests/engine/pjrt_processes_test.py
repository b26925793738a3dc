"""Tests of what several processes under JAX tell, and of what the installation must have."""

import collections
import sys
import threading
import types

import absl.flags
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import distribution, pjrt, tf_in_jax
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import DeviceSettings
from tests.support.refusals import refuses


class Ended(Exception):
    """Stands for the end of the process, with its status."""


class StandIn:
    """Stands for JAX with its distributed service."""

    def __init__(self, monkeypatch, initialize=lambda *_, **__: None, index=0):
        self.left = False
        self.distributed = types.SimpleNamespace(
            initialize=initialize, shutdown=self.leave, is_initialized=lambda: True
        )
        self.process_index = lambda: index
        self.slept = []
        monkeypatch.setattr(pjrt, "_jax", lambda: self)
        monkeypatch.setattr(pjrt, "_lost", [])
        monkeypatch.setattr(pjrt, "WAIT_SECONDS", 0.05)
        monkeypatch.setattr(pjrt.time, "sleep", self.slept.append)
        monkeypatch.setattr(pjrt.os, "_exit", self.end)
        monkeypatch.setattr(distribution, "_at_failure", [])

    def leave(self):
        self.left = True

    def end(self, status):
        raise Ended(status)


def fail(status):
    refuses(f"^{status}$", distribution.fail, status, kind=Ended)


@pytest.mark.parametrize(
    "index, missing",
    [(0, "the other processes did not connect"), (3, "process 0 did not answer")],
)
def test_processes_that_do_not_come_are_told(index, missing, monkeypatch):
    given = []

    def wait(*places, **options):
        given.append((places, options["initialization_timeout"]))
        threading.Event().wait(1)

    jax = StandIn(monkeypatch, wait)
    message = f"^--coordinator=a:1: {missing} within 0.05 s. Start the same command on every mach"
    refuses(message, pjrt.join, "a:1", 4, index, kind=ConnectionError)
    assert given == [(("a:1", 4, index), 60)]
    fail(74)
    assert jax.slept == [0.0] and not jax.left


def test_what_jax_says_of_a_cluster_is_told(monkeypatch):
    def refuse(*places, **_):
        raise ValueError(f"{len(places)} places: coordinator_address should be defined.")

    jax = StandIn(monkeypatch, refuse)
    message = r"^--coordinator=auto: JAX cannot join the p.*\(0 places: coor"
    refuses(message, pjrt.join, "auto", None, None)
    fail(1)
    assert jax.left  # the others are not kept waiting


@pytest.mark.parametrize("index, seconds", [(0, 5.0), (1, 0.0)])
@pytest.mark.parametrize(
    "text, kind",
    [
        ("UNKNOWN: Gloo all-reduce failed: Read error", "ValueError"),
        ("UNKNOWN: Gloo all-reduce failed: Connection closed by peer", "JaxRuntimeError"),
        ("UNAVAILABLE: failed to connect", "JaxRuntimeError"),
    ],
)
def test_a_process_that_has_ended_is_told(index, seconds, text, kind, monkeypatch):
    """The first process leaves last, because JAX aborts the others without it."""
    errors = pytest.importorskip("jax.errors")
    jax = StandIn(monkeypatch, index=index)
    pjrt.join("a:1", 2, index)
    message = "Another process of this run has ended.*last checkpoint"
    with pytest.raises(ConnectionError, match=message), pjrt.together():
        raise getattr(errors, kind, ValueError)(text)
    fail(74)
    assert jax.slept == [seconds]


def test_other_errors_of_jax_stay(monkeypatch):
    error = pytest.importorskip("jax.errors").JaxRuntimeError
    jax = StandIn(monkeypatch)
    with pytest.raises(error, match="RESOURCE"), pjrt.together():
        raise error("RESOURCE_EXHAUSTED: out of memory")
    with pytest.raises(UserError, match="ABORTED"), pjrt.together():  # a ValueError, too
        raise UserError("--output_dir=ABORTED_run must be a folder")
    jax.distributed.is_initialized = lambda: False
    with pytest.raises(error, match="Gloo"), pjrt.together():
        raise error("Gloo")


@pytest.mark.parametrize(
    "others, difference",
    [
        ([["--a=1", "--b=x"], ["--a=1", "--b=y"]], "process 2 has --b=y, process 0 has --b=x."),
        ([["--a=2", "--b=z"], ["--a=3"]], "process 1 has --a=2 --b=z, process 0 has --a=1 --b=x"),
        ([["--a=1"]], "process 1 has none of these, process 0 has --b=x"),
        ([["--a=1", "--b=x", "--new=é"]], "process 1 has --new=é, process 0 has none of these"),
        ([["--a=1", "--b=x"]] * 3, None),
    ],
)
def test_processes_with_different_flags_are_told(others, difference):
    def gather(row):
        texts = ["\n".join(words).encode() for words in others]
        return np.stack([row, *(np.frombuffer(x.ljust(row.size, b"\0"), np.uint8) for x in texts)])

    own = ["--a=1", "--b=x"]
    if difference is None:
        pjrt.check_same(gather, own)
    else:
        refuses(f"of --coordinator have different fl.*: {difference}", pjrt.check_same, gather, own)


def test_the_flags_that_must_be_the_same_are_the_programs_own(monkeypatch):
    values = absl.flags.FlagValues()
    own = {"tpu": "pjrt", "phases": "1:2,3:4", "process_index": "3", "coordinator": "localhost:1"}
    for name, given in {**own, "output_dir": "o"}.items():
        absl.flags.DEFINE_string(name, given, "", flag_values=values)
    absl.flags.DEFINE_string("verbosity", "1", "", flag_values=values, module_name="absl.logging")
    monkeypatch.setattr(command_flags.flags, "FLAGS", values)
    assert command_flags._common_flags() == ["--phases=1:2,3:4", "--tpu=pjrt"]


def test_an_installation_that_does_not_fit_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    refuses(r"^--tpu=pjrt needs JAX: jax is not inst.*\[pjrt\]\"$", tf_in_jax.load_jax)
    for version in ("2.20.0", "2.22.0-rc1"):
        monkeypatch.setattr(tf, "__version__", version)
        refuses(rf"needs TensorFlow 2.21; this is {version}. In an env", tf_in_jax.load_jax)


CPU = types.SimpleNamespace(platform="cpu", device_kind="cpu")
V5E = types.SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")


def of_processes(*indices):
    tpu = {"platform": "tpu", "device_kind": "TPU v4"}
    return [types.SimpleNamespace(**tpu, process_index=index) for index in indices]


@pytest.mark.parametrize(
    "found, num_devices, message",
    [
        ([CPU] * 4, None, "finds no TPU and no GPU here. To run on the CPU, give --n"),
        ([V5E] * 4, 8, r"=8, but JAX finds 4 devices \(TPU v5 lite\)"),
        # The parts of a batch have one size.
        (of_processes(0, 0, 1), None, "in the order of --process_index they have 2, 1. Us"),
        (of_processes(1, 0, 2, 1), None, "in the order of --process_index they have 1, 2, 1. Us"),
        *(
            (
                error,
                None,
                rf"^--tpu=pjrt: JAX finds no devices \({error}\). End .*, run pip install",
            )
            for error in (RuntimeError("The TPU is already in use"), ValueError("x" * 9))
        ),
    ],
)
def test_devices_that_a_run_cannot_use(found, num_devices, message, monkeypatch):
    def devices():
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(pytest.importorskip("jax"), "devices", devices)
    refuses(message, pjrt.connect, None, num_devices)


@pytest.mark.parametrize("given", [{"tpu": "pjrt"}, {"use_tpu": True, "tpu_name": "pjrt"}])
def test_both_flags_for_a_tpu_take_pjrt(given, monkeypatch):
    absent = collections.defaultdict(lambda: types.SimpleNamespace(present=0))
    monkeypatch.setattr(command_flags.flags, "FLAGS", absent)
    monkeypatch.setattr(pjrt, "connect", lambda *arguments: arguments)
    devices = DeviceSettings(num_tpu_cores=8, **given)
    assert command_flags._tpu_strategy(devices) == (None, 8, (None, None, None), None, None)


@pytest.mark.parametrize(
    "output_dir, expected",
    [("out", "out/compilation_cache"), ("gs://a/out", "gs://a/out/compilation_cache")],
)
def test_where_compiled_steps_are_kept(output_dir, expected, monkeypatch):
    """A folder that is named, or on a TPU one in --output_dir."""

    class Flags(dict):
        output_dir = None

        def __missing__(self, name):
            return types.SimpleNamespace(present=0)

    found = Flags(output_dir=output_dir)
    found.output_dir = output_dir
    monkeypatch.setattr(command_flags.flags, "FLAGS", found)
    monkeypatch.setattr(pjrt, "connect", lambda *arguments: arguments[3:])
    assert command_flags._tpu_strategy(DeviceSettings(tpu="pjrt")) == (None, expected)
    devices = DeviceSettings(tpu="pjrt", compilation_cache_dir="/tmp/kept")
    assert command_flags._tpu_strategy(devices) == ("/tmp/kept", expected)
