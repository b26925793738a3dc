"""Two runs into one directory, as real processes: alive, killed, stopped, at the same time."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import time
from multiprocessing.connection import Listener

import pytest

from bert_tf.runs.folder import heartbeat as module
from bert_tf.runs.folder.heartbeat import Heartbeat
from tests.support import forked_programs, standin_storage
from tests.support.refusals import refusal, refuses

# Runs: each begins with a directory and seconds, answers "check", and ends at "end".
RUN = """
import sys
from multiprocessing.connection import Client
from bert_tf.runs.folder import heartbeat as module
module.BEAT_SECONDS = 0.2
test = Client(sys.argv[1])
while begin := test.recv():
    output_dir, module.EXPIRES_SECONDS = begin
    try:
        with module.Heartbeat(output_dir) as heartbeat:
            test.send("began")
            while (word := test.recv()) != "end":
                if word is None:
                    sys.exit()
                try:
                    heartbeat.check()
                    test.send("ours")
                except OSError as error:
                    test.send(str(error))
        test.send("ended")
    except ValueError as error:
        test.send(str(error))
"""


class Runs:
    """A process that makes one run after another."""

    def __init__(self, **environment):
        with Listener() as listener:
            words = [sys.executable, "-c", RUN, str(listener.address)]
            self.process = forked_programs.start(words, os.devnull, {**os.environ, **environment})
            self._run = listener.accept()
        self.pid = self.process.pid

    def begin(self, output_dir, expires_seconds=30.0) -> None:
        """Begins a run; `hear` says whether it did."""
        self._run.send((str(output_dir), expires_seconds))

    def hear(self) -> str:
        return self._run.recv()

    def ask(self, word: str) -> str:
        self._run.send(word)
        return self.hear()

    def end(self) -> None:
        self._run.send(None)
        self.process.join()
        assert self.process.exitcode == 0


@pytest.fixture(scope="module")
def three():
    """Three processes, which start at the same time and serve all tests."""
    processes = [Runs() for _ in range(3)]
    yield processes
    for process in processes:
        process.end()


@pytest.fixture
def log(caplog):
    caplog.set_level("INFO", "absl")
    return caplog


@pytest.fixture(autouse=True)
def times(monkeypatch):
    """Short times; a test may set others."""

    def set_times(**seconds: float) -> None:
        for name, value in seconds.items():
            monkeypatch.setattr(module, f"{name}_SECONDS", value)

    set_times(BEAT=0.1, SETTLE=0.1)
    return set_times


def heartbeat(output_dir) -> Heartbeat:
    return Heartbeat(str(output_dir))


def written_elsewhere(**changes) -> str:
    owner = {"id": "other", "host": "tpu-7", "pid": 11, "pid_space": "tpu-7", "beats": 1}
    return json.dumps({**owner, **changes})


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
    # The previous run had this process's number, for example before its container restarted.
    path.write_text(json.dumps({**owner, "id": "other"}))
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), heartbeat(tmp_path):
        assert time.monotonic() - began < 5
        assert path.exists()
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_a_live_run_keeps_its_directory_and_a_killed_one_does_not(tmp_path, log):
    live = Runs()
    live.begin(tmp_path)
    assert live.hear() == "began"
    assert refusal(heartbeat(tmp_path).__enter__) == (
        f"--output_dir={tmp_path} is in use: process {live.pid} on {socket.gethostname()} is"
        f" training there and renews {tmp_path}/run.heartbeat. Two runs must not share a directory:"
        " wait for that one, stop it, or name another --output_dir. (If you are sure that it is"
        " dead, delete the file.)"
    )
    assert live.ask("check") == "ours"
    live.process.kill()
    live.process.join()
    assert (tmp_path / "run.heartbeat").exists()
    began = time.monotonic()
    with heartbeat(tmp_path) as restarted:
        assert time.monotonic() - began < 5, "its own restart need not wait"
        assert f"was left by process {live.pid}" in log.text
        restarted.check()


@pytest.mark.parametrize("left", [written_elsewhere(), "", "[1]", written_elsewhere(pid="7")])
def test_what_a_killed_run_left_elsewhere_expires(tmp_path, log, times, left):
    times(EXPIRES=0.4)
    path = tmp_path / "run.heartbeat"
    path.write_text(left)
    began = time.monotonic()
    with heartbeat(tmp_path):
        assert time.monotonic() - began > 0.4
        who = "process 11 on tpu-7" if left == written_elsewhere() else "an unknown run"
        warnings = [r.getMessage() for r in log.records if r.levelname == "WARNING"]
        assert warnings == [f"{path} was left by a run that was killed ({who}) and is taken over"]
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_run_elsewhere_whose_file_is_removed_or_renewed(tmp_path, monkeypatch):
    path = tmp_path / "run.heartbeat"
    path.write_text(written_elsewhere())
    monkeypatch.setattr(time, "sleep", lambda seconds: path.write_text(written_elsewhere(beats=2)))
    refuses("in use: process 11 on tpu-7 is training there", heartbeat(tmp_path).__enter__)
    monkeypatch.setattr(time, "sleep", lambda seconds: path.unlink(missing_ok=True))
    heartbeat(tmp_path)._wait_for_the_last_run()


@pytest.mark.slow
def test_a_stopped_run_keeps_its_directory(tmp_path, three, times):
    times(EXPIRES=0.1)
    stopped = three[0]
    stopped.begin(tmp_path)
    assert stopped.hear() == "began"
    os.kill(stopped.pid, signal.SIGSTOP)
    refuses(f"in use: process {stopped.pid} on ", heartbeat(tmp_path).__enter__)
    os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.ask("check") == "ours"
    assert stopped.ask("end") == "ended"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("left", "rounds"), [(None, 20), ("", 3), (written_elsewhere(), 3)])
def test_one_of_several_runs_that_start_together_begins(tmp_path, three, left, rounds):
    for _ in range(rounds):
        if left is not None:
            (tmp_path / "run.heartbeat").write_text(left)
        for run in three:
            run.begin(tmp_path, expires_seconds=0.2)
        answers = [run.hear() for run in three]
        assert sorted(answer == "began" for answer in answers) == [False, False, True], answers
        for run, answer in zip(three, answers, strict=True):
            if answer == "began":
                assert run.ask("check") == "ours"
                assert run.ask("end") == "ended"
            else:
                assert answer.startswith(f"--output_dir={tmp_path} is in use: ")
        assert os.listdir(tmp_path) == []


def test_without_locks_the_last_to_write_begins(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "run.heartbeat"
    with heartbeat(tmp_path) as ours:
        assert json.loads(path.read_text())["pid"] == os.getpid()
        ours.check()
    sleep = time.sleep

    def another_writes(seconds):
        path.write_text(written_elsewhere())
        sleep(0)

    monkeypatch.setattr(time, "sleep", another_writes)
    refuses("is in use: process 11 on tpu-7 is training there", heartbeat(tmp_path).__enter__)
    assert path.read_text() == written_elsewhere()


def test_a_check_reads_the_file(tmp_path, times):
    (tmp_path / "file").write_text("")
    message = "file/run.heartbeat must be writable: .*Not a directory"
    refuses(message, heartbeat(tmp_path / "file").__enter__, kind=OSError)
    times(BEAT=1000.0)
    path = tmp_path / "run.heartbeat"
    with heartbeat(tmp_path) as ours:
        ours.check()
        path.write_text(written_elsewhere())
        refuses("taken over by process 11 on tpu-7: this run must not", ours.check, kind=OSError)
    assert path.read_text() == written_elsewhere()


def test_a_beat_that_fails_is_a_warning(tmp_path, log):
    path = tmp_path / "run.heartbeat"
    with heartbeat(tmp_path) as ours:
        os.remove(path)
        while not path.is_dir():  # a beat may come in between
            path.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
        wait_until(lambda: log.text.count(f"{path} cannot be renewed: ") >= 2)
        ours.check()
        path.rmdir()
        wait_until(path.is_file)
    assert not path.exists()


@pytest.mark.slow
def test_in_a_bucket(tmp_path):
    name = "bucket/out/run.heartbeat"
    with standin_storage.running(tmp_path) as storage:
        storage.objects[name] = written_elsewhere().encode()
        run = Runs(**storage.environment())
        run.begin("gs://bucket/out", 1.0)
        assert run.hear() == "began"
        assert json.loads(storage.objects[name])["pid"] == run.pid
        before = storage.objects[name]
        wait_until(lambda: storage.objects[name] != before)
        assert run.ask("check") == "ours"
        storage.objects[name] = written_elsewhere(beats=2).encode()
        message = "ours"
        while message == "ours":
            # A beat that had read its own file before may still write.
            storage.objects[name] = written_elsewhere(beats=2).encode()
            message = run.ask("check")
        assert "gs://bucket/out has been taken over by process 11 on tpu-7" in message
        run.end()
        assert storage.objects[name] == written_elsewhere(beats=2).encode()
