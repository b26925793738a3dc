"""A heartbeat file that keeps two runs from writing to one directory.

A run rewrites `run.heartbeat` in its output directory every few seconds. Another run that sees the
file change must not write there. A file that does not change was left by a run that was killed.
No clocks are compared, so this works between machines and in a bucket.
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
EXPIRES_SECONDS = 30.0  # three beats, because one may fail or take long
SETTLE_SECONDS = 1.0  # longer than it takes to write a small file, also in a bucket


class Heartbeat:
    """Holds an output directory for one run; a context manager.

    Entering takes the directory, unless another run has it. Leaving gives it back, also after an
    exception. In between a thread rewrites the file. Call `check` before writing anything that
    another run must not overwrite.

    Args:
        output_dir: an existing directory, on any file system that TensorFlow reaches.
        beat_seconds: time from one rewrite to the next.
        expires_seconds: a file that does not change for so long is left behind; several beats.
        settle_seconds: time after taking the directory at which to look whether another run took
            it at the same moment.
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
        """Checks that this run still had the directory at the last beat.

        Raises:
            OSError: another run has taken it over.
        """
        if self._taken_over_by:
            raise OSError(
                f"--output_dir={self._output_dir} has been taken over by {self._taken_over_by}:"
                " this run must not write there any more. Both were started together, or this"
                f" one did not renew {self._path} for {self._expires_seconds:g} seconds, or the"
                " file was deleted"
            )

    def _wait_for_the_last_run(self) -> None:
        """Waits until it is certain that the file, if there is one, is of no living run."""
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
        """Returns the content of the file, None if there is no file."""
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
    """Returns the owner that the file names; None if it is not complete, being written just now."""
    with contextlib.suppress(ValueError):
        # The last object: where TensorFlow's ram:// writes a file again, it appends.
        owner = json.loads("{" + (content or "").rpartition("{")[2])
        if isinstance(owner, dict) and {"id", "host", "pid", "pid_space"} <= owner.keys():
            return owner
    return None


def _name(owner: dict | None) -> str:
    return f"process {owner['pid']} on {owner['host']}" if owner else "an unknown run"


def _pid_space() -> str:
    """Returns a name for the set of processes among which this one's number is unique.

    The host's name is not enough: containers may share it, and each numbers its own processes.
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
        return False  # the number was given to this process since
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
