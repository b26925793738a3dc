"""Names unfinished files, and removes files that killed processes left.

Also identifies the process that made a file, so that other processes can tell if it still runs.
"""

import contextlib
import functools
import hashlib
import os
import re
import socket
import time
import uuid

from bert_tf.files.paths import names_in
from bert_tf.start import lazy_tensorflow as tf

# The digest of `process_space()`, the process ID, and a random part.
_NAME = re.compile(r"([0-9a-f]{8})-(\d{1,10})-[0-9a-f]{12}\.(unfinished|working)")
_UNFINISHED, WORKING = "unfinished", "working"


def temporary_name(folder: str, ending: str = _UNFINISHED) -> str:
    """Returns a new name in a folder, for a file or folder that is renamed when it is complete.

    The ending `WORKING` is for a file that only this process uses. The name identifies the process.
    It does not contain the final name, which may be as long as the file system allows. The first
    call for a folder removes the files that killed processes of this machine left there.
    """
    _remove_left_behind(folder)
    name = f"{_space_digest()}-{os.getpid()}-{uuid.uuid4().hex[:12]}.{ending}"
    return os.path.join(folder, name)


def is_temporary(name: str) -> bool:
    """Returns whether `temporary_name` made a file's name (without its folder), in any process."""
    return _NAME.fullmatch(name) is not None


def is_left_behind(name: str) -> bool:
    """Returns whether a file's name is temporary and the process that made the file seems gone.

    For files of other machines, it assumes that unfinished ones are left behind and working ones
    are not.
    """
    made = _NAME.fullmatch(name)
    if not made:
        return False
    if made[1] != _space_digest():
        return made[3] == _UNFINISHED
    return not runs(int(made[2]))


@functools.cache
def _remove_left_behind(folder: str) -> None:
    with contextlib.suppress(tf.errors.OpError):
        for name in names_in(folder):
            made = _NAME.fullmatch(name)
            if made and made[1] == _space_digest() and is_left_behind(name):
                path = os.path.join(folder, name)
                with contextlib.suppress(tf.errors.OpError):
                    (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)


def _space_digest() -> str:
    return hashlib.sha256(process_space().encode()).hexdigest()[:8]


@functools.cache
def process_space() -> str:
    """Returns a name for the set of processes within which this process's ID is unique.

    The host name is not enough: containers may share it, and each numbers its own processes.
    """
    names = [socket.gethostname()]
    with contextlib.suppress(OSError):  # only Linux has /proc
        with open("/proc/sys/kernel/random/boot_id") as reader:
            names.append(reader.read().strip())
        names.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(names)


def age() -> float:
    """Returns the seconds since this process was started; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        with open("/proc/self/stat") as reader:
            ticks = int(reader.read().rpartition(")")[2].split()[19])  # proc_pid_stat(5), field 22
        began = ticks / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 0.0)
    return 0.0


def runs(pid: int) -> bool:
    """Returns whether a process with this ID exists in this process's space."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
