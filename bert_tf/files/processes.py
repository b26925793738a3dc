"""Identifies the process that made a file, so that other processes can tell if it still runs."""

import contextlib
import functools
import os
import socket
import time


@functools.cache
def process_space() -> str:
    """Returns a name for the set of processes within which this process's number is unique.

    The host name is not enough: containers may share it, and each numbers its own processes.
    """
    names = [socket.gethostname()]
    with contextlib.suppress(OSError):  # only Linux has /proc
        with open("/proc/sys/kernel/random/boot_id") as reader:
            names.append(reader.read().strip())
        names.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(names)


def age() -> float:
    """Returns the seconds since this process was started; 0 if the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        with open("/proc/self/stat") as reader:
            ticks = int(reader.read().rpartition(")")[2].split()[19])  # proc_pid_stat(5), 22
        began = ticks / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 0.0)
    return 0.0


def runs(pid: int) -> bool:
    """Returns whether a process of this number exists in this process's space."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
