"""Peak memory of Python programs."""

import re

from tests.support.pretraining_runs import run_code


def peak_memory(program: str, *arguments: object) -> int:
    """Returns the peak memory, in bytes, of Python code in its own process."""
    # Not getrusage: its figure includes the memory of the process that started this one.
    program += "\nprint(open('/proc/self/status').read())\n"
    output = run_code(program, *arguments)
    return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", output)[1])
