"""The service of docs/serving.md answers, refuses and goes on; constraints.txt is complete."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

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


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Starts the service; returns its address and its model's folder."""
    root = tmp_path_factory.mktemp("service")
    folder = write_head(root / "model", "classification")
    (root / "serve.py").write_text(service())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(root / "serve.py"), folder, str(port)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with open(root / "log", "w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.2)
        assert process.poll() is None, (root / "log").read_text()
        yield f"http://127.0.0.1:{port}", folder
    finally:
        process.kill()
        process.wait()


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
