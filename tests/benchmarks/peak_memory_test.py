"""Tests of benchmarks/peak_memory.py."""

import inspect
import resource
import subprocess
import sys

from benchmarks import peak_memory


def test_memory_that_was_freed_counts():
    before = peak_memory.peak_memory()
    used = bytearray(b"x") * (200 << 20)
    del used
    assert peak_memory.peak_memory() >= max(before, 200)


def test_the_memory_of_the_process_that_started_it_does_not_count():
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    program = inspect.getsource(peak_memory) + "print(peak_memory())"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True)
    assert 1 < float(done.stdout) < 60 < own
