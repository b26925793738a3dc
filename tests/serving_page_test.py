"""The service of docs/serving.md answers, refuses and goes on; constraints.txt is complete."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bert_tf
from tests.support.exported_heads import write_head

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ("compile", "pjrt", "tpu")  # with versions of their own
PAGE = (ROOT / "docs" / "serving.md").read_text()


def service() -> str:
    (code,) = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return code


def test_the_service_is_short():
    assert len([line for line in service().splitlines() if line.strip()]) <= 30


@contextlib.contextmanager
def started(
    root: Path, folder: str, server: Sequence[str] = ("serve.py", "{port}")
) -> Iterator[tuple[str, subprocess.Popen]]:
    """Starts the service; yields its address and its process."""
    (root / "serve.py").write_text(service())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *(word.format(port=port) for word in server)]
    places = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": places, "PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment["MODEL"] = folder
    with open(root / "log", "w") as log:
        process = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.2)
        assert process.poll() is None, (root / "log").read_text()
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("service")
    folder = write_head(root / "model", "classification")
    with started(root, folder) as (address, _):
        yield address, folder


def post(address: str, body: bytes) -> tuple[int, object]:
    try:
        with urllib.request.urlopen(address, body, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.slow
def test_the_service_answers(served):
    address, folder = served
    texts = ["the cat sat", ["a dog", "ran on a mat"], ""]
    expected = bert_tf.load(folder).classify(["the cat sat", ("a dog", "ran on a mat"), ""])
    for _ in range(3):
        status, found = post(address, json.dumps({"texts": texts}).encode())
        assert status == 200
        for one, other in zip(found, expected, strict=True):
            assert one == pytest.approx(other.probabilities, abs=1e-6)
    assert post(address, b'{"texts": []}') == (200, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "body, error",
    [
        (b"", "send "),
        (b"{", "Expecting property name"),
        (b"\xff", "can't decode"),
        (b"[" * 200_000, "recursion"),
        (b"[]", "list indices"),
        (b'{"text": ["a"]}', "'texts'"),
        (b'{"texts": "a"}', "send "),
        (b'{"texts": [1]}', "must be a text or a pair"),
        (b'{"texts": [["a", "b", "c"]]}', "texts"),
        (json.dumps({"texts": ["a"] * 101}).encode(), "at most 100 texts"),
        (json.dumps({"texts": ["a" * (1 << 20)]}).encode(), "1 MiB"),
    ],
)
def test_the_service_refuses_and_goes_on(served, body, error):
    address, _ = served
    status, found = post(address, body)
    assert status == 400 and error in found["error"]
    assert post(address, b'{"texts": ["a cat"]}')[0] == 200


WORDS = "the cat dog sat ran on a mat , . paris is in france un ( )".split()


def outcome(address: str, text: str) -> list[float] | None:
    """Returns the probabilities that the service gives; None for an error that a client sees."""
    try:
        status, found = post(address, json.dumps({"texts": [text]}).encode())
    except (OSError, http.client.HTTPException, ValueError):  # the last: JSON that is cut
        return None
    assert status == 200
    return list(found[0].values())


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_ends_amid_requests_answers_none_of_them_wrongly(served, tmp_path, ending):
    """Of two workers one is ended: the other one answers everything, before and after."""
    address, folder = served
    texts = [" ".join(WORDS[i % 17 : i % 17 + 1 + i % 9]) for i in range(600)]
    expected = [list(x.probabilities.values()) for x in bert_tf.load(folder).classify(texts)]
    with started(tmp_path, folder) as (ended, process), ThreadPoolExecutor(8) as pool:
        both = [[pool.submit(outcome, where, text) for where in (address, ended)] for text in texts]
        while not both[60][1].done():
            time.sleep(0.01)
        process.send_signal(ending)
        stayed, left = ([future.result() for future in one] for one in zip(*both, strict=True))
        assert process.wait(timeout=10) == -ending
    assert None not in stayed and None not in left[:40] and left.count(None) > 300
    for found in (stayed, left):
        for one, other in zip(found, expected, strict=True):
            assert one is None or one == pytest.approx(other, abs=1e-6)


PRELOADED = "-m gunicorn --preload --workers=4 --no-control-socket --bind=127.0.0.1:{port}".split()
PRELOADED.append("serve:application")


@pytest.mark.slow
def test_workers_answer_with_an_exported_model_that_was_loaded_before_the_fork(served, tmp_path):
    pytest.importorskip("gunicorn", reason="needs gunicorn, a package of the extra `ci`")
    _, folder = served
    keras_model = bert_tf.load(folder)
    exported = str(tmp_path / "exported")
    bert_tf.export_model(keras_model, exported, format="onnx")
    texts = [" ".join(WORDS[i % 17 : i % 17 + 1 + i % 9]) for i in range(100)]
    expected = [list(x.probabilities.values()) for x in keras_model.classify(texts)]
    with (
        started(tmp_path, exported, PRELOADED) as (address, process),
        ThreadPoolExecutor(8) as pool,
    ):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        ended: set[str] = set()
        for _ in range(2):
            for worker in ended:  # gunicorn forks others
                os.kill(int(worker), signal.SIGKILL)
            end = time.monotonic() + 60
            while len(workers := {*children.read_text().split()} - ended) < 4:
                assert time.monotonic() < end, (tmp_path / "log").read_text()
                time.sleep(0.1)
            found = [*pool.map(lambda text: outcome(address, text), texts)]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
            ended = workers
        process.terminate()
        assert process.wait(timeout=20) == 0


def requirements() -> list[Requirement]:
    """Returns the packages that setup.py names, without those of the builds for TPUs."""
    names: dict[str, object] = {}
    source = (ROOT / "setup.py").read_text().replace("setup(", "arguments = dict(", 1)
    source = source.replace("from setuptools import find_packages, setup", "find_packages = list")
    source = re.sub(r"find_packages\(include=.*?\)", "[]", source)
    exec(source, {"__file__": str(ROOT / "setup.py"), "__name__": "setup"} | names, names)
    arguments = names["arguments"]
    extras = {k: x for k, x in arguments["extras_require"].items() if k not in BUILDS}
    found = [*arguments["install_requires"], *(x for extra in extras.values() for x in extra)]
    return [Requirement(text) for text in found]


def test_the_constraints_name_every_package():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and line[0] != "#"]
    versions = {canonicalize_name(name): version for name, version in pins}
    assert len(versions) == len(pins)
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        if name in ("setuptools", "wheel"):  # they build the package, and are no part of it
            continue
        assert name in versions, f"add {name} to constraints.txt"
        assert requirement.specifier.contains(versions[name]), f"constraints.txt: {name}"
    assert "-c constraints.txt" in (ROOT / ".ci" / "run").read_text()
