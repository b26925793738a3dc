"""Measurements: `python -m benchmarks.NAME`, in a checkout."""

from bert_tf.start import quiet_start

quiet_start.import_tensorflow()  # before a benchmark does
