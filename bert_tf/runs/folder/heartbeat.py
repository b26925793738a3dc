"""A heartbeat file that keeps two runs from writing to one directory.

A run rewrites `run.heartbeat` in its output directory every few seconds. As long as the file
changes, no other run may write there. A file that does not change was left by a run that was
killed. Clocks are not compared, so this works between machines and in a bucket.

On a local disk the run also locks the file (flock), so that only one of several runs on a machine
can start. A bucket does not have locks: two runs that start within the same second may both start.
The file then names the run that wrote last. The other run notices this at its next beat and stops
at the end of its current loop. A run also checks the file before each write.

Programs that evaluate or predict hold `eval.heartbeat` and `predict.heartbeat` in the same way, so
that two of them do not write the same results.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid

from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import temporary_names
from bert_tf.start import lazy_tensorflow as tf

FILE_NAME = "run.heartbeat"
BEAT_SECONDS = 10.0  # from one rewrite of the file to the next
EXPIRES_SECONDS = 30.0  # three beats, because a beat may fail or take long
# From taking a directory without a lock to checking whether a different run took it at the same
# moment: longer than writing a small file takes, also in a bucket.
SETTLE_SECONDS = 1.0
TRAINING = "training"
_OWNER_KEYS = {"id": str, "host": str, "pid": int, "pid_space": str}
# The reason in a second program's error, by what that program does.
_RULES = {
    TRAINING: "Two runs must not share a directory",
    "evaluating": "Two programs must not write the same results",
    "predicting": "Two programs must not write the same results",
}


class InUseError(UserError):
    """A different program holds the directory; `training` says whether that program trains."""

    def __init__(self, message: str, training: bool):
        super().__init__(message)
        self.training = training


class Heartbeat:
    """Holds an output directory for one run; a context manager.

    Entering takes the directory, unless a different run holds it; leaving releases it, also after
    an exception. In between a thread rewrites the file. Call `check` before writing anything that a
    different run must not overwrite, and `check_beats` now and then.

    `doing`, a key of `_RULES`, is what the run does; for `trains` see `InUseError`.
    `left_at` is when a killed run last renewed the file, in seconds since 1970; None if the last
    run was not killed.
    """

    def __init__(
        self,
        output_dir: str,
        file_name: str = FILE_NAME,
        doing: str = TRAINING,
        trains: bool = True,
    ):
        self._output_dir = output_dir
        self._path = os.path.join(output_dir, file_name)
        self._doing = doing
        self._owner = {
            "id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pid_space": temporary_names.process_space(),
            "trains": trains,
        }
        self.left_at: float | None = None
        self._lock: int | None = None  # a file descriptor
        self._beats = 0
        self._taken_over_by: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        with contextlib.ExitStack() as stack:
            stack.callback(self._unlock)
            try:
                if not self._take_lock():
                    self._wait_for_the_last_run()
                self._write()
                if self._lock is None:
                    time.sleep(SETTLE_SECONDS)
                    if owner := self._other_owner():
                        raise self._in_use(owner)
            except tf.errors.OpError as error:
                raise OSError(f"{self._path} must be writable: {error.message}") from error
            stack.pop_all()
        self._thread.start()
        return self

    def __exit__(self, *unused) -> None:
        self._ended.set()
        self._thread.join(BEAT_SECONDS)  # a limit, because the thread may be stuck in a write
        try:
            owner = _parse(self._read())
            if owner and owner["id"] == self._owner["id"]:
                tf.io.gfile.remove(self._path)
        except tf.errors.OpError as error:
            logging.warning("%s cannot be removed: %s", self._path, error.message)
        self._unlock()

    def _take_lock(self) -> bool:
        """Locks the file where that is possible; returns whether the file is new."""
        if "://" in self._path:
            return self._read() is None
        while True:
            existed = os.path.lexists(self._path)
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise OSError(f"{self._path} must be writable: {error.strerror}") from error
            created = not existed and not os.fstat(descriptor).st_size
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    owner = _parse(self._read())
                    lives = owner and temporary_names.runs(owner["pid"])
                    raise self._in_use(owner if lives else None) from error
                return created  # a file system without locks
            if _is_at(descriptor, self._path):
                self._lock = descriptor
                return created
            os.close(descriptor)  # the run that held the file has removed it meanwhile

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def check(self) -> None:
        """Reads the file, and checks that this run still holds the directory."""
        with contextlib.suppress(tf.errors.OpError):
            self._look()
        self.check_beats()

    def check_beats(self) -> None:
        """Checks the same as `check`, but uses what the last beat read instead of the file."""
        if self._taken_over_by:
            raise OSError(
                f"--output_dir={self._output_dir} has been taken over by {self._taken_over_by}:"
                " this run must not write there any more. Both were started together, or this"
                f" one did not renew {self._path} for {EXPIRES_SECONDS:g} seconds, or the"
                " file was deleted"
            )

    def _wait_for_the_last_run(self) -> None:
        """Waits until the run that left a file is known to be dead; `InUseError` if it is alive."""
        found = self._read()
        if found is None:
            return
        with contextlib.suppress(tf.errors.OpError):
            self.left_at = tf.io.gfile.stat(self._path).mtime_nsec / 1e9
        owner = _parse(found)
        if owner and owner["pid_space"] == self._owner["pid_space"]:
            pid = owner["pid"]
            # The last run's lock is free, or its process is gone.
            if self._lock is not None or pid == os.getpid() or not temporary_names.runs(pid):
                logging.info("%s was left by %s, which has ended", self._path, _name(owner))
                return
        logging.info(
            "%s exists, written by %s: watching it for %g seconds",
            *(self._path, _name(owner), EXPIRES_SECONDS),
        )
        expires = time.monotonic() + EXPIRES_SECONDS
        while time.monotonic() < expires:
            time.sleep(min(1.0, BEAT_SECONDS / 4))
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

    def _look(self) -> None:
        """Notes whether a different run has taken over the file."""
        if not self._taken_over_by and (owner := self._other_owner()):
            self._taken_over_by = _name(owner)
            logging.error("%s now belongs to %s", self._path, self._taken_over_by)

    def _beat(self) -> None:
        while not (self._taken_over_by or self._ended.wait(BEAT_SECONDS)):
            try:
                self._look()
                if not self._taken_over_by:
                    self._write()
            except tf.errors.OpError as error:
                logging.warning("%s cannot be renewed: %s", self._path, error.message)

    def _read(self) -> str | None:
        try:
            with tf.io.gfile.GFile(self._path, "rb") as reader:
                return reader.read().decode(errors="replace")
        except tf.errors.NotFoundError:
            return None

    def _write(self) -> None:
        self._beats += 1
        with tf.io.gfile.GFile(self._path, "w") as writer:
            writer.write(json.dumps({**self._owner, "beats": self._beats}))

    def _other_owner(self) -> dict | None:
        owner = _parse(self._read())
        return owner if owner and owner["id"] != self._owner["id"] else None

    def _in_use(self, owner: dict | None) -> InUseError:
        return InUseError(
            f"--output_dir={self._output_dir} is in use: {_name(owner)} is {self._doing} there and"
            f" renews {self._path}. {_RULES[self._doing]}: wait for that one,"
            " stop it, or name another --output_dir. (If you are sure that it is dead, delete the"
            " file.)",
            training=bool(owner and owner.get("trains")),
        )


def _parse(content: str | None) -> dict | None:
    """Returns the owner named in the file; None if the file is incomplete, perhaps mid-write."""
    with contextlib.suppress(ValueError, RecursionError):
        # The last object, because TensorFlow's ram:// appends when a file is rewritten.
        owner = json.loads("{" + (content or "").rpartition("{")[2])
        kinds = _OWNER_KEYS.items()
        if isinstance(owner, dict) and all(type(owner.get(k)) is t for k, t in kinds):
            return owner if 0 < owner["pid"] < 2**31 else None
    return None


def _name(owner: dict | None) -> str:
    return f"process {owner['pid']} on {owner['host'][:100]}" if owner else "an unknown run"


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
