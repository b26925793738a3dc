"""Measurements: `python -m benchmarks.NAME`, in a checkout."""

import os
import sys

from bert_tf.start import quiet_start

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # the checkout

if "--help" not in sys.argv:
    quiet_start.import_tensorflow()  # before a benchmark does
