"""A file that says that a run is alive, so that two runs into one directory are noticed.

The run renews `run.heartbeat` in its output directory every few seconds. Whoever finds the file
renewed must not write there; a file that stays as it is was left by a run that was killed. Nobody
compares clocks, so that this holds between machines, and a bucket will do as well as a disk.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError

FILE_NAME = "run.heartbeat"
BEAT_SECONDS = 10.0
EXPIRES_SECONDS = 30.0  # three beats: one that fails or takes long must not look like death
SETTLE_SECONDS = 1.0  # longer than writing a small file takes, in a bucket too


class Heartbeat:
    """Holds an output directory for one run; a context manager.

    Entering takes the directory, or finds that another run has it. Leaving, be it by an exception,
    gives it back. In between a thread renews the file, and `check` is to be called before anything
    is written that another run must not overwrite.

    Args:
        output_dir: the directory, which exists. On any file system of TensorFlow's.
        beat_seconds: time between two renewals.
        expires_seconds: how long a file must stay as it is to count as left behind; several beats.
        settle_seconds: how long after taking the directory to look for another run that did the
            same at that moment.
    """

    def __init__(
        self,
        output_dir: str,
        beat_seconds: float = BEAT_SECONDS,
        expires_seconds: float = EXPIRES_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
    ):
        self._output_dir = output_dir
        self._path = os.path.join(output_dir, FILE_NAME)
        self._beat_seconds = beat_seconds
        self._expires_seconds = expires_seconds
        self._settle_seconds = settle_seconds
        self._owner = {
            "id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pid_space": _pid_space(),
        }
        self._beats = 0
        self._taken_over_by: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        """Returns the heartbeat once the directory is this run's.

        Raises:
            UserError: another run has the directory.
            OSError: the file cannot be read or written.
        """
        try:
            self._wait_for_the_last_run()
            self._write()
        except tf.errors.OpError as error:
            raise OSError(f"{self._path} must be writable: {error.message}") from error
        self._thread.start()
        return self

    def __exit__(self, *unused) -> None:
        self._ended.set()
        self._thread.join(self._beat_seconds)  # no longer: it may be stuck in a write
        try:
            if self._is_ours(_parse(self._read())):
                tf.io.gfile.remove(self._path)
        except tf.errors.OpError as error:
            logging.warning("%s cannot be removed: %s", self._path, error.message)

    def check(self) -> None:
        """Returns nothing if the directory is still this run's, as far as the last beat has shown.

        Raises:
            OSError: another run has taken it over.
        """
        if self._taken_over_by:
            raise OSError(
                f"--output_dir={self._output_dir} has been taken over by {self._taken_over_by}:"
                " this run must not write there any more. Both were started together, or this one"
                f" was not heard of for {self._expires_seconds:g} seconds, or {self._path} was"
                " deleted"
            )

    def _wait_for_the_last_run(self) -> None:
        """Returns once no run that has left a file behind is alive."""
        found = self._read()
        if found is None:
            return
        owner = _parse(found)
        if owner and owner["pid_space"] == self._owner["pid_space"] and not _runs(owner["pid"]):
            logging.info("%s was left by %s, which has ended", self._path, _name(owner))
            return
        logging.info(
            "%s is there, written by %s: watching it for %g seconds",
            self._path,
            _name(owner),
            self._expires_seconds,
        )
        expires = time.monotonic() + self._expires_seconds
        while time.monotonic() < expires:
            time.sleep(min(1.0, self._beat_seconds / 4))
            try:
                now = self._read()
            except tf.errors.OpError as error:
                logging.warning("%s cannot be read: %s", self._path, error.message)
                continue
            if now is None:
                return
            if now != found and (alive := _parse(now)):
                raise self._in_use(alive)
        logging.warning(
            "%s was left by a run that was killed (%s) and is taken over", self._path, _name(owner)
        )

    def _beat(self) -> None:
        # Of two runs that start together both may have found nothing. The one that wrote last is
        # the one that both read soon after.
        seconds = self._settle_seconds
        while not self._ended.wait(seconds):
            seconds = self._beat_seconds
            try:
                owner = _parse(self._read())
                if owner and not self._is_ours(owner):
                    self._taken_over_by = _name(owner)
                    logging.error("%s is now that of %s", self._path, self._taken_over_by)
                    return
                self._write()
            except tf.errors.OpError as error:
                logging.warning("%s cannot be renewed: %s", self._path, error.message)

    def _read(self) -> str | None:
        """Returns what the file holds, None if there is none."""
        try:
            with tf.io.gfile.GFile(self._path, "rb") as reader:
                return reader.read().decode(errors="replace")
        except tf.errors.NotFoundError:
            return None

    def _write(self) -> None:
        self._beats += 1
        with tf.io.gfile.GFile(self._path, "w") as writer:
            writer.write(json.dumps({**self._owner, "beats": self._beats}))

    def _is_ours(self, owner: dict | None) -> bool:
        return owner is not None and owner["id"] == self._owner["id"]

    def _in_use(self, owner: dict) -> UserError:
        return UserError(
            f"--output_dir={self._output_dir} is in use: {_name(owner)} is training there and"
            f" renews {self._path}. Two runs must not share a directory: wait for that one, stop"
            " it, or name another --output_dir. (If you are sure that it is dead, delete the file.)"
        )


def _parse(content: str | None) -> dict | None:
    """Returns what the file says, None for what is no complete heartbeat: it is being written."""
    with contextlib.suppress(ValueError):
        # The last object: where TensorFlow's ram:// writes a file again, it appends.
        owner = json.loads("{" + (content or "").rpartition("{")[2])
        if isinstance(owner, dict) and {"id", "host", "pid", "pid_space"} <= owner.keys():
            return owner
    return None


def _name(owner: dict | None) -> str:
    return f"process {owner['pid']} on {owner['host']}" if owner else "an unknown run"


def _pid_space() -> str:
    """Returns a name for the processes that share this one's numbering.

    The host's name is not enough: containers may share it, and each counts processes anew.
    """
    names = [socket.gethostname()]
    with contextlib.suppress(OSError):  # there is no /proc beyond Linux
        with open("/proc/sys/kernel/random/boot_id") as reader:
            names.append(reader.read().strip())
        names.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(names)


def _runs(pid: int) -> bool:
    """Returns whether another process of this number exists."""
    if pid == os.getpid():
        return False  # a number that has been given again
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
