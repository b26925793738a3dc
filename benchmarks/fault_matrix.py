"""Tries every fault at every instant of a run, and shows what happens.

    python -m benchmarks.fault_matrix    # prints the table of docs/reliability.md

tests/support/fault_matrix.py says what an instant, a fault and its outcome are.
"""

import argparse
import tempfile
from pathlib import Path

if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    from tests.support import fault_matrix  # imports TensorFlow

    with tempfile.TemporaryDirectory() as name:
        print(fault_matrix.table(Path(name)))
