"""Two runs into one directory, as real processes: alive, killed, stopped, at the same time."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from absl import logging

from bert_tf.errors import UserError
from bert_tf.runs.heartbeat import Heartbeat
from tests.support import standin_storage
from tests.support.pretraining_runs import ROOT

# A run: begins at the first line it is sent, answers "check", and ends at the end of its input.
RUN = """
import sys
from bert_tf.runs.heartbeat import Heartbeat
print("ready", flush=True)
sys.stdin.readline()
try:
    with Heartbeat(sys.argv[1], beat_seconds=0.2, expires_seconds=float(sys.argv[2])) as heartbeat:
        print("began", flush=True)
        for _ in sys.stdin:
            try:
                heartbeat.check()
                print("ours", flush=True)
            except OSError as error:
                print(error, flush=True)
except ValueError as error:
    print(error, flush=True)
"""


class Run:
    """A process that has all it needs and waits for the word to begin."""

    def __init__(self, output_dir, expires_seconds=30, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(output_dir), str(expires_seconds)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        assert self.hear() == "ready"

    def say(self, word: str) -> None:
        print(word, file=self.process.stdin, flush=True)

    def hear(self) -> str:
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, word: str) -> str:
        self.say(word)
        return self.hear()

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait() == 0


@pytest.fixture
def log(caplog):
    """What has been logged, warnings and infos."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)
    yield caplog
    logging.set_verbosity(verbosity)


def heartbeat(output_dir, expires_seconds=30.0, settle_seconds=0.1) -> Heartbeat:
    return Heartbeat(str(output_dir), 0.1, expires_seconds, settle_seconds)


def written_elsewhere(beats=1) -> str:
    owner = {"id": "other", "host": "tpu-7", "pid": 11, "pid_space": "tpu-7", "beats": beats}
    return json.dumps(owner)


def wait_until(condition) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_the_file_says_who_and_is_renewed_and_removed(tmp_path):
    path = tmp_path / "run.heartbeat"
    with heartbeat(tmp_path) as first:
        owner = json.loads(path.read_text())
        assert (owner["host"], owner["pid"]) == (socket.gethostname(), os.getpid())

        def beats() -> int:
            return json.loads(path.read_text() or '{"beats": 0}')["beats"]

        wait_until(lambda: beats() >= owner["beats"] + 2)
        first.check()
    assert os.listdir(tmp_path) == []
    with pytest.raises(ZeroDivisionError):
        with heartbeat(tmp_path):
            assert path.exists()
            raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_a_live_run_keeps_its_directory_and_a_killed_one_does_not(tmp_path, log):
    live = Run(tmp_path)
    assert live.ask("begin") == "began"
    began = time.monotonic()
    with pytest.raises(UserError) as error:
        heartbeat(tmp_path).__enter__()
    assert time.monotonic() - began < 10, "a renewed file needs no waiting to the end"
    assert str(error.value) == (
        f"--output_dir={tmp_path} is in use: process {live.pid} on {socket.gethostname()} is"
        f" training there and renews {tmp_path}/run.heartbeat. Two runs must not share a directory:"
        " wait for that one, stop it, or name another --output_dir. (If you are sure that it is"
        " dead, delete the file.)"
    )
    assert f"written by process {live.pid} on {socket.gethostname()}: watching it" in log.text
    assert live.ask("check") == "ours"
    live.process.kill()
    live.process.wait()
    assert (tmp_path / "run.heartbeat").exists()
    began = time.monotonic()
    with heartbeat(tmp_path) as restarted:
        assert time.monotonic() - began < 5, "its own restart need not wait"
        assert f"was left by process {live.pid}" in log.text
        restarted.check()


@pytest.mark.parametrize("left", [written_elsewhere(), written_elsewhere()[:20], "", "[1]"])
def test_what_a_killed_run_left_elsewhere_expires(tmp_path, log, left):
    path = tmp_path / "run.heartbeat"
    path.write_text(left)
    began = time.monotonic()
    with heartbeat(tmp_path, expires_seconds=0.7):
        assert time.monotonic() - began > 0.7
        who = "process 11 on tpu-7" if left.endswith("}") else "an unknown run"
        warnings = [r.getMessage() for r in log.records if r.levelname == "WARNING"]
        assert warnings == [f"{path} was left by a run that was killed ({who}) and is taken over"]
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_number_that_is_given_again_is_no_live_run(tmp_path):
    """The run before had this process's number, in a container that was started again, say."""
    with heartbeat(tmp_path):
        left = json.loads((tmp_path / "run.heartbeat").read_text())
    (tmp_path / "run.heartbeat").write_text(json.dumps({**left, "id": "other"}))
    began = time.monotonic()
    with heartbeat(tmp_path):
        assert time.monotonic() - began < 5


def test_a_run_elsewhere_whose_file_goes_away_or_is_renewed(tmp_path, monkeypatch):
    path = tmp_path / "run.heartbeat"
    path.write_text(written_elsewhere())
    monkeypatch.setattr(time, "sleep", lambda seconds: path.write_text(written_elsewhere(2)))
    with pytest.raises(UserError, match="in use: process 11 on tpu-7 is training there"):
        heartbeat(tmp_path).__enter__()
    monkeypatch.setattr(time, "sleep", lambda seconds: path.unlink(missing_ok=True))
    heartbeat(tmp_path)._wait_for_the_last_run()


def test_a_run_that_was_stopped_too_long_loses_its_directory(tmp_path):
    stopped = Run(tmp_path)
    assert stopped.ask("begin") == "began"
    stopped.process.send_signal(signal.SIGSTOP)
    with heartbeat(tmp_path, expires_seconds=1.5) as second:
        stopped.process.send_signal(signal.SIGCONT)
        message = "ours"
        while message == "ours":
            message = stopped.ask("check")
        assert message.startswith(
            f"--output_dir={tmp_path} has been taken over by process {os.getpid()} on"
            f" {socket.gethostname()}: this run must not write there any more."
        )
        stopped.end()
        second.check()
        assert json.loads((tmp_path / "run.heartbeat").read_text())["pid"] == os.getpid()


def test_of_two_runs_that_start_together_one_goes_on(tmp_path):
    runs = [Run(tmp_path, expires_seconds=5), Run(tmp_path, expires_seconds=5)]
    for run in runs:
        run.say("begin")
    answers = sorted(run.hear() for run in runs)
    if answers == ["began", "began"]:  # both before the other's file was there
        time.sleep(1.5)
        answers = sorted(run.ask("check") for run in runs)
        assert answers[1] == "ours"
        assert answers[0].startswith(f"--output_dir={tmp_path} has been taken over by process ")
    else:
        assert answers[0].startswith(f"--output_dir={tmp_path} is in use: process ")
    for run in runs:
        run.end()
    assert os.listdir(tmp_path) == []


def test_a_beat_that_fails_is_a_warning(tmp_path, log):
    path = tmp_path / "run.heartbeat"
    with heartbeat(tmp_path) as ours:
        os.remove(path)
        while not path.is_dir():  # a beat may come in between
            path.unlink(missing_ok=True)
            try:
                path.mkdir()
            except FileExistsError:
                pass
        wait_until(lambda: log.text.count(f"{path} cannot be renewed: ") >= 2)
        ours.check()
        path.rmdir()
        wait_until(path.is_file)
    assert not path.exists()


def test_a_directory_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file/run.heartbeat must be writable: .*Not a directory"):
        heartbeat(tmp_path / "file").__enter__()


def test_in_a_bucket(tmp_path):
    name = "bucket/out/run.heartbeat"
    with standin_storage.running(tmp_path) as storage:
        storage.objects[name] = written_elsewhere().encode()
        run = Run("gs://bucket/out", 1.0, **storage.environment())
        assert run.ask("begin") == "began"
        assert json.loads(storage.objects[name])["pid"] == run.pid
        before = storage.objects[name]
        wait_until(lambda: storage.objects[name] != before)
        assert run.ask("check") == "ours"
        storage.objects[name] = written_elsewhere(2).encode()
        message = "ours"
        while message == "ours":
            # A beat that had read its own file before may still write.
            storage.objects[name] = written_elsewhere(2).encode()
            message = run.ask("check")
        assert "gs://bucket/out has been taken over by process 11 on tpu-7" in message
        run.end()
        assert storage.objects[name] == written_elsewhere(2).encode()
