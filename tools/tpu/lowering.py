"""Lowers a pre-training step to HLO as a TPU runs it, on a machine without a TPU."""

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_all_reduce

from bert_tf import optimization
from bert_tf.engine.steps import Replicas, train_step
from bert_tf.runs.training.teacher import check_hidden_sizes, check_inputs
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM, pretraining_schema
from bert_tf.tasks.pretraining.training.distillation import DistilledPretraining
from bert_tf.tasks.pretraining.training.electra import pretraining_model
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.pretraining.training.phases import RecordBatches
from bert_tf.tasks.pretraining.training.settings import DistillationSettings

from . import hlo_text
from .report import Program, Run


def lower(run: Run, phase: RecordBatches) -> Program:
    """Returns the training step of a phase as HLO.

    TensorFlow's CPU build lowers it. The TPU build differs only in its default random generator,
    and `bert_tf.model.dropout.dropout` does not use the default. `phase.batch_size` is the batch
    size of one replica.
    """
    model = pretraining_model(run.config, run.objective, run.electra, **run.options)
    objective = model if run.teacher is None else _distilled(model, run, phase)
    optimizer = optimization.create_optimizer(
        model.trainable_variables, optimization.linear_schedule(1e-4, 1_000_000, 10_000), run.adam
    )
    group = [list(range(run.replicas))]
    # TPUStrategy's all_reduce becomes this operation. The strategy itself needs a TPU build.
    replicas = Replicas(
        run.replicas,
        lambda tensors: [xla_all_reduce(x, group, "Add", "CrossReplica") for x in tensors],
    )

    @tf.function(jit_compile=True, autograph=False)
    def step(features, seed):
        metrics = train_step(
            *(objective, optimizer, features, seed),
            accumulation_steps=run.accumulation_steps,
            gradient_reduction=run.gradient_reduction,
            replicas=replicas,
        )
        return tf.stack(tf.nest.flatten(metrics))

    # Lowering needs tensors; specs are not enough.
    lengths = (phase.max_seq_length, phase.max_predictions_per_seq)
    schema = pretraining_schema(
        *(*lengths, MLM if run.objective == ELECTRA else run.objective),  # as training masks them
        max_sequences_per_pack=run.max_sequences_per_pack,
    )
    features = {}
    for name, feature in schema.items():
        dtype = tf.int32 if feature.dtype is np.int64 else feature.dtype
        features[name] = tf.zeros([phase.batch_size, *feature.shape], dtype)
    get_ir = step.experimental_get_compiler_ir(features, tf.zeros([2], tf.int32))
    products = hlo_text.matrix_products(get_ir(stage="hlo"))
    return Program(get_ir(stage="hlo_serialized"), products)


def _distilled(student: PretrainingModel, run: Run, phase: RecordBatches) -> DistilledPretraining:
    """Returns a student's objective: a random teacher, and DistilBERT's weights of the losses."""
    check_inputs(run.config, run.teacher, "--teacher_config_file", phase.max_seq_length)
    check_hidden_sizes(run.config, run.teacher)
    options = {**run.options, "recompute_activations": False}
    teacher = PretrainingModel(run.teacher, run.objective, **options)
    teacher.trainable = False
    names = ("alpha_ce", "alpha_mlm", "alpha_cos", "alpha_mse")
    alphas = {name.removeprefix("alpha_"): getattr(DistillationSettings, name) for name in names}
    temperature = DistillationSettings.temperature
    return DistilledPretraining(student, teacher, alphas, temperature, run.restrict_ce_to_mask)
