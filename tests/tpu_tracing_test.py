"""The loops traced under the real TPUStrategy, and whether a TPU could run every op in them.

The tests of mark `tpu_build` need the `tpu` extra's TensorFlow, which alone knows the TPU's
kernels; .ci/run makes an environment for them.
"""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

from bert_tf import optimization
from bert_tf.bounds import inputs_were_checked
from bert_tf.engine import distribution, input_pipeline, steps
from bert_tf.engine.evaluator import EvaluationInput, Evaluator, evaluation_dataset
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.loops import PredictionLoop, TrainingLoop
from bert_tf.engine.prediction import Predictor
from bert_tf.engine.whole_file_input import WholeFileInput
from bert_tf.files import records
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.teacher import DistilledClassification
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.tasks.pretraining.training.distillation import DistilledPretraining
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import tpu_strategy
from tests.support.predicting_model import PredictingModel
from tests.support.pretraining_runs import CONFIG, run_forked, write_records
from tests.support.registered_tasks import VARIANTS, prepare
from tests.support.trainers import make_trainer

pytestmark = pytest.mark.slow
CORES = 4
SCHEMA = pretraining_schema(12, 2)
# What the pre-training loop is traced with: further arguments of the model, and of a step.
PRETRAINING = {
    "default": ({}, {}),
    "gathered_float32": ({"use_one_hot_embeddings": False, "dtype": "float32"}, {}),
    "recomputed": ({"recompute_activations": True}, {"accumulation_steps": 2}),
    "global_mean_clip": ({}, {"gradient_reduction": "global_mean_clip"}),
    "distilled": ({}, {}),
}


def distilled_pretraining(strategy, **options):
    """Returns what makes an objective of a student: pre-training by a teacher of three layers."""
    config = BertConfig.from_dict({**CONFIG, "num_hidden_layers": 3})
    with strategy.scope():
        teacher = PretrainingModel(config, **options)
        teacher.trainable = False
    alphas = {"ce": 5.0, "mlm": 2.0, "cos": 1.0, "mse": 1.0}
    return lambda student: DistilledPretraining(student, teacher, alphas, 2.0)


def distilled_classification(strategy, config, **options):
    """Returns what makes an objective of a student: classification by a teacher."""
    with strategy.scope():
        teacher = ClassificationModel(config, 2, **options)
        teacher.trainable = False
    alphas = {"ce": 0.5, "labels": 0.5, "cos": 1.0}
    return lambda student: DistilledClassification(
        student, teacher, alphas, 2.0, cos_all_layers=True
    )


FINE_TUNING = [*VARIANTS, "distilled_classification"]


class Mistaken(PredictingModel):
    """Stands for mistakes: strings, and a shape that depends on values."""

    def predictions(self, outputs, features):
        ids = tf.strings.to_number(tf.strings.as_string(features["input_ids"]), tf.int32)
        odd = tf.reduce_sum(tf.boolean_mask(ids, ids % 2 == 1))
        return {"odd": tf.fill([features["input_ids"].shape[0]], odd)}


def trace_loops(folder, mistaken=False):
    """Prints, as JSON, what there is on the TPU in each loop; runs in a process of its own."""
    strategy = tpu_strategy.pretend_tpu(CORES)
    files = [write_records(f"{folder}/{i}.tfrecord", 20 + i, 12, 2, seed=i) for i in range(2)]
    source = EvaluationInput(8, files, SCHEMA, 0)
    found = {}

    def note(name, loop, iterator):
        traced = loop.runner._loop.get_concrete_function(iterator, tf.constant(3))
        nodes = tpu_strategy.nodes_on_tpu(traced)
        ops = sorted({node.op for node in nodes})
        found[name] = {
            "ops": ops,
            "sums": sum(node.op == "CrossReplicaSum" for node in nodes),
            "dynamic": sorted({n.op for n in nodes if tpu_strategy.has_dynamic_shape(n)}),
            "strings": sorted({n.op for n in nodes if tpu_strategy.has_strings(n)}),
            "without_kernel": [
                op
                for op in ops
                if "XLA_TPU_JIT"
                not in {k.device_type for k in kernels.get_registered_kernels_for_op(op).kernel}
            ],
            "traces": loop.runner._loop.experimental_get_tracing_count(),
        }

    for name, (of_task, of_step) in PRETRAINING.items():
        options = {"use_one_hot_embeddings": True, "dtype": "bfloat16", **of_task}
        kind = Mistaken if mistaken else PredictingModel
        build = functools.partial(kind, BertConfig.from_dict(CONFIG), **options)
        more = {}
        if name == "distilled":
            more["objective"] = distilled_pretraining(strategy, **options)
        schedule = optimization.linear_schedule(1e-2, 10, 0)
        trainer = make_trainer(build, strategy, f"{folder}/{name}", schedule, **more)
        model, optimizer, objective = trainer.model, trainer.optimizer, trainer.objective
        if name == "default":
            evaluator = Evaluator(model, strategy)
            iterator = iter(evaluation_dataset(source, 41))
            note("evaluation", evaluator._loop, iterator)
            predict = inputs_were_checked()(lambda x, _, m=model: m.predictions(m(x), x))
            loop = PredictionLoop(strategy, predict)
            note("prediction", loop, iterator)
            if mistaken:
                break
        shard = distribution.input_shard(strategy)
        iterator = input_pipeline.TrainingInput(files, SCHEMA, 16, 1, shard).iterator

        def step(features, seed, objective=objective, optimizer=optimizer, of_step=of_step):
            return steps.train_step(objective, optimizer, features, seed, **of_step)

        note(name, TrainingLoop(strategy, step), iterator)
        unused = 4 if name == "distilled" else 0  # pooler and head of the next sentence
        found[name]["variables"] = len(model.trainable_variables) - unused
    if not mistaken:
        for name in FINE_TUNING:
            model = trace_fine_tuning(f"{folder}/{name}", strategy, note, name)
            found[name]["variables"] = len(model.trainable_variables)
    print("FOUND", json.dumps(found))


def trace_fine_tuning(folder, strategy, note, name):
    """Training whose batches are cut to two lengths, and prediction at one; returns the model."""
    task = prepare("classification" if name == "distilled_classification" else name, 20)
    schema = task.schema
    tf.io.gfile.makedirs(folder)
    path = f"{folder}/train.tf_record"
    with tf.io.TFRecordWriter(path) as writer:
        for i in range(64):
            mask = [1] * (12 if i < 40 else 20)
            mask += [0] * (20 - len(mask))
            values = {
                key: mask * (int(np.prod(feature.shape)) // 20) or [1]
                for key, feature in schema.items()
            }
            writer.write(records.serialize(values, schema))
    config = BertConfig.from_dict({**CONFIG, "num_hidden_layers": 2})
    options = {"use_one_hot_embeddings": True, "dtype": "bfloat16"}
    more = {}
    if name == "distilled_classification":
        more["objective"] = distilled_classification(strategy, config, **options)
    schedule = optimization.linear_schedule(1e-2, 10, 0)
    build = functools.partial(task.build, config, **options)
    trainer = make_trainer(build, strategy, folder, schedule, **more)
    buckets = Buckets.of_schema((12, 20), schema)
    lengths = {"num_batches": 8, "buckets": buckets, "group_by_length": True}
    source = WholeFileInput([path], schema, 8, 1, **lengths)
    assert source.buckets.lengths == (12, 20)

    def step(features, seed):
        return steps.train_step(trainer.objective, trainer.optimizer, features, seed)

    note(name, TrainingLoop(strategy, step, buckets=source.buckets), source.iterator)
    predictor = Predictor(trainer.model, strategy)
    (batch,) = input_pipeline.record_chunks([path], schema, 64)
    features = {name: value.numpy() for name, value in batch.items()}
    note(f"{name}_prediction", predictor._loop, predictor._batches(features, 8))
    return trainer.model


def traced(folder, mistaken=False):
    code = f"from tests import tpu_tracing_test as t; t.trace_loops({str(folder)!r}, {mistaken})"
    return json.loads(run_forked(code).split("FOUND ")[1].splitlines()[0])


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return traced(tmp_path_factory.mktemp("traced"))


def test_every_loop_is_on_the_tpu(found):
    assert list(found) == [
        "evaluation",
        "prediction",
        *PRETRAINING,
        *(name + suffix for name in FINE_TUNING for suffix in ("", "_prediction")),
    ]
    for name, loop in found.items():
        assert "MatMul" in loop["ops"] or "Einsum" in loop["ops"], name
        assert loop["traces"] == 1, name
        # Nothing has a shape that depends on values, and nothing is the host's to do.
        assert loop["dynamic"] == [], name
        assert loop["strings"] == [], name
        assert not {"PyFunc", "EagerPyFunc", "PrintV2", "IteratorGetNext"} & set(loop["ops"]), name


def test_each_gradient_is_summed_once_and_the_metrics_once(found):
    """Also with accumulation: the sum is outside of the loop over the parts."""
    for name in PRETRAINING:
        assert found[name]["sums"] == found[name]["variables"] + 1, name
    for name in FINE_TUNING:  # two lengths, each a computation of its own
        # The vectors and ids of all replicas are gathered.
        gathered = 2 * (name == "sentences_in_batch_negatives")
        assert found[name]["sums"] == 2 * (found[name]["variables"] + 1 + gathered), name
    assert found["evaluation"]["sums"] == 4  # the weights of two means, examples, metrics
    assert found["prediction"]["sums"] == 0


def test_mistakes_would_be_found(tmp_path):
    prediction = traced(tmp_path, mistaken=True)["prediction"]
    assert {"AsString", "StringToNumber"} <= set(prediction["strings"])
    assert "Where" in prediction["dynamic"]


@pytest.mark.tpu_build
def test_every_op_has_a_tpu_kernel(found):
    for name, loop in found.items():
        # It is no computation: it tells the rewriter how many replicas there are.
        assert loop["without_kernel"] == ["TPUReplicateMetadata"], name


@pytest.mark.tpu_build
def test_an_op_without_a_tpu_kernel_would_be_found(tmp_path):
    prediction = traced(tmp_path, mistaken=True)["prediction"]
    assert {"AsString", "StringToNumber"} <= set(prediction["without_kernel"])
