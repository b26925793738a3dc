"""Shim."""

from bert_tf.runs.fine_tuning_checks import EvaluationSettings, FineTuningSettings  # noqa: F401
from bert_tf.runs.training_settings import TrainingSettings  # noqa: F401
