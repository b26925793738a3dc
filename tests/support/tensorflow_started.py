"""Imports TensorFlow as programs do."""

from bert_tf.start import quiet_start

quiet_start.import_tensorflow()
