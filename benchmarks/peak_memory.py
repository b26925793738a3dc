"""The peak memory of a process."""

import re
import resource
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_memory() -> float:
    """Returns the most memory that this process has used so far, in MiB.

    On Linux, ru_maxrss won't do: a process starts with the ru_maxrss of the one that started it.
    """
    if STATUS.exists():
        return int(re.search(r"^VmHWM:\s*(\d+) kB", STATUS.read_text(), re.MULTILINE)[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
