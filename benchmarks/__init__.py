"""Measurements: `python -m benchmarks.NAME`, in a checkout."""

import sys

from bert_tf.start import quiet_start

if "--help" not in sys.argv:
    quiet_start.import_tensorflow()  # before a benchmark does
