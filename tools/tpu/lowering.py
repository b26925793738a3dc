"""Lowers a pre-training step as a TPU runs it, on a machine without a TPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import distribution
from bert_tf.engine.loops import TrainingLoop
from bert_tf.engine.pjrt import PjrtStrategy, Step
from bert_tf.engine.steps import train_step
from bert_tf.runs.training.fine_tuning_checks import check_hidden_sizes, check_inputs
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM, pretraining_schema
from bert_tf.tasks.pretraining.training.distillation import DistilledPretraining
from bert_tf.tasks.pretraining.training.electra import pretraining_model
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.pretraining.training.settings import DistillationSettings, RecordBatches

from .report import Run


def lower(run: Run, phase: RecordBatches, devices: Sequence[Any]) -> Step:
    """Returns the training step of a phase, as `--tpu=pjrt` runs it on these devices of JAX.

    `phase.batch_size` is the batch size of one replica.
    """
    model = pretraining_model(run.config, run.objective, run.electra, **run.options)
    objective = model if run.teacher is None else _distilled(model, run, phase)
    optimizer = optimization.create_optimizer(
        model.trainable_variables, optimization.linear_schedule(1e-4, 1_000_000, 10_000), run.adam
    )

    def replica_step(features: dict[str, tf.Tensor], seed: tf.Tensor) -> Any:
        return train_step(
            *(objective, optimizer, features, seed),
            accumulation_steps=run.accumulation_steps,
            gradient_reduction=run.gradient_reduction,
        )

    strategy = PjrtStrategy(devices)
    schema = pretraining_schema(
        *(phase.max_seq_length, phase.max_predictions_per_seq),
        MLM if run.objective == ELECTRA else run.objective,  # as training masks them
        max_sequences_per_pack=run.max_sequences_per_pack,
    )
    loop, batch = TrainingLoop(strategy, replica_step), {}
    for name, feature in schema.items():
        dtype = np.int32 if feature.dtype is np.int64 else feature.dtype
        shape = (phase.batch_size * len(devices), *feature.shape)
        batch[name] = tf.TensorSpec(shape, dtype)
    if distribution.several_processes(strategy):
        batch["stop"] = tf.TensorSpec([len(devices)], np.float32)
    return loop.runner.step_of(batch)


def _distilled(student: PretrainingModel, run: Run, phase: RecordBatches) -> DistilledPretraining:
    """Returns a student's objective, with a random teacher and DistilBERT's loss weights."""
    check_inputs(run.config, run.teacher, "--teacher_config_file", phase.max_seq_length)
    check_hidden_sizes(run.config, run.teacher)
    options = {**run.options, "recompute_activations": False}
    teacher = PretrainingModel(run.teacher, run.objective, **options)
    teacher.trainable = False
    names = ("alpha_ce", "alpha_mlm", "alpha_cos", "alpha_mse")
    alphas = {name.removeprefix("alpha_"): getattr(DistillationSettings, name) for name in names}
    temperature = DistillationSettings.temperature
    return DistilledPretraining(student, teacher, alphas, temperature, run.restrict_ce_to_mask)
