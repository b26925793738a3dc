"""Steps on 2 and 4 logical devices against numpy and against one device.

TensorFlow fixes its devices when it starts, so each number of replicas has a process of its own.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import distribution, input_pipeline, steps
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.engine.loops import PredictionLoop, TrainingLoop
from bert_tf.engine.prediction import Predictor, join
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import ElectraConfig
from bert_tf.seeds import fold_in
from bert_tf.tasks.pretraining.schema import MLM, pretraining_schema
from bert_tf.tasks.pretraining.training.distillation import DistilledPretraining
from bert_tf.tasks.pretraining.training.electra import ElectraPretrainingModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert
from tests.support.objectives import compute
from tests.support.predicting_model import PredictingModel
from tests.support.pretraining_runs import CONFIG, run_forked, write_records

SCHEMA = pretraining_schema(12, 3)
LEARNING_RATE = 1e-2
# Of each way to reduce gradients; which of them goes with which does not matter.
OPTIMIZERS = {
    "local_clip_sum": optimization.AdamOptions(),
    "global_mean_clip": optimization.AdamOptions("lamb", lamb_bias_correction=True),
}
QUIET = {**CONFIG, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def quiet_model(objective=None):
    return PretrainingModel(BertConfig.from_dict(QUIET), objective)


class WithoutNoise(ElectraPretrainingModel):
    """Samples the likeliest token, so that the parts of a batch have the samples of the whole."""

    def uniform_noise(self, shape, seed):
        return tf.fill(shape, 0.5)


def quiet_electra(kind=WithoutNoise):
    config = ElectraConfig.from_dict({**QUIET, "embedding_size": 6})
    return kind(config, generator_hidden_size=0.5)


def make_files(folder, counts):
    return [write_records(f"{folder}/{i}.tfrecord", n, 12, 3, seed=i) for i, n in enumerate(counts)]


def random_weights(model, seed):
    """Returns weights by name: big enough that gradients are clipped."""
    rng = np.random.RandomState(seed)
    return {
        v.path: rng.normal(v.path.endswith("gamma"), 0.3, v.shape).astype(np.float32)
        for v in model.variables
    }


def assign(model, weights):
    for variable in model.variables:
        variable.assign(weights[variable.path])


class NumpyReplicas:
    """Training on several replicas in numpy: only a replica's own gradient is TensorFlow's."""

    def __init__(self, model, objective, weights, gradient_reduction):
        self._model = model
        self._objective = objective
        self._reduction = gradient_reduction
        self._num_steps = 0
        self.weights = {name: w.astype(np.float64) for name, w in weights.items()}
        self.m = {name: np.zeros(w.shape) for name, w in weights.items()}
        self.v = {name: np.zeros(w.shape) for name, w in weights.items()}

    def _gradients(self, part):
        """Returns loss, metrics and gradients by name."""
        variables = self._model.trainable_variables
        with tf.GradientTape() as tape:
            loss, sums = compute(self._objective, part)
        gradients = tape.gradient(loss, [v.value for v in variables])
        named = {
            v.path: tf.convert_to_tensor(g).numpy().astype(np.float64)
            for v, g in zip(variables, gradients, strict=True)
            if g is not None
        }
        return float(loss), {n: (float(a), float(b)) for n, (a, b) in sums.items()}, named

    @staticmethod
    def _clip(gradients):
        norm = np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
        return {name: g / max(norm, 1.0) for name, g in gradients.items()}, norm

    def step(self, batch, replicas):
        """Returns the metrics of a step: loss, norm, the task's sums over the whole batch."""
        assign(self._model, self.weights)
        size = batch["input_ids"].shape[0] // replicas
        each = [
            self._gradients({n: x[i * size : (i + 1) * size] for n, x in batch.items()})
            for i in range(replicas)
        ]
        names = each[0][2]
        if self._reduction == "local_clip_sum":
            clipped, norms = zip(*(self._clip(g) for _, _, g in each), strict=True)
            gradients = {name: sum(g[name] for g in clipped) for name in names}
            norm = np.mean(norms)
            assert min(norms) > 1.0, "nothing was clipped"
        else:
            mean = {name: sum(g[name] for _, _, g in each) / replicas for name in names}
            gradients, norm = self._clip(mean)
            assert norm > 1.0, "nothing was clipped"
        self._num_steps += 1
        for name, g in gradients.items():
            included = "LayerNorm" not in name and "bias" not in name
            state = (self.weights[name], self.m[name], self.v[name], g, LEARNING_RATE)
            decay = 0.01 * included
            if OPTIMIZERS[self._reduction].optimizer == "lamb":
                state = numpy_bert.lamb(*state, decay, included, self._num_steps)
            else:
                state = numpy_bert.adam_weight_decay(*state, decay)
            self.weights[name], self.m[name], self.v[name] = state
        sums = {
            key: tuple(sum(s[key][i] for _, s, _ in each) for i in range(2)) for key in each[0][1]
        }
        return {"loss": np.mean([loss for loss, _, _ in each]), "gradient_norm": norm, **sums}


def assert_close(actual, expected, name, more=0.0):
    # The second moments are of squares, whose rounding errors are twice as large and more.
    bound = (1e-4 if name.endswith("adam_v") else 2e-5) * np.abs(expected).max() + more
    np.testing.assert_array_less(np.abs(actual - expected), bound + 1e-30, err_msg=name)


def check_training(
    strategy, build, files, gradient_reduction, parts, objective_of=lambda model: model
):
    """Three steps from the same weights and batches; `strategy` may be one of several machines."""
    replicas = strategy.num_replicas_in_sync
    batch_size = 2 * replicas
    with strategy.scope():
        model = build()
        optimizer = optimization.create_optimizer(
            model.trainable_variables,
            lambda step: tf.constant(LEARNING_RATE),
            OPTIMIZERS[gradient_reduction],
        )
    weights = random_weights(model, seed=replicas)
    assign(model, weights)
    objective = objective_of(model)
    loop = TrainingLoop(
        strategy,
        lambda features, seed: steps.train_step(
            objective, optimizer, features, seed, parts, gradient_reduction
        ),
    )
    shard = distribution.input_shard(strategy)

    def iterator(shard):
        return input_pipeline.TrainingInput(files, SCHEMA, batch_size, 7, shard).iterator

    rows = loop.run(iterator(shard), 3, lambda _: None)
    alone = build()
    reference = NumpyReplicas(alone, objective_of(alone), weights, gradient_reduction)
    hosts = [iterator(distribution.InputShard(i, shard.count)) for i in range(shard.count)]
    for i in range(3):
        batches = [next(host) for host in hosts]
        whole = {name: tf.concat([b[name] for b in batches], 0) for name in batches[0]}
        expected = reference.step(whole, replicas)
        for name, value in expected.items():
            actual = rows[name]
            if isinstance(value, tuple):
                found, wanted = (a / b if b else 0.0 for a, b in ((x[i] for x in actual), value))
                np.testing.assert_allclose(found, wanted, rtol=2e-5, err_msg=name)
            else:
                np.testing.assert_allclose(actual[i], value, rtol=2e-5, err_msg=name)
    for variable in model.variables:
        name = variable.path
        local = values_of_replicas(strategy, variable.value)
        for value in local[1:]:
            np.testing.assert_array_equal(value, local[0], err_msg=name)
        if not name.endswith("key/bias"):  # its gradient is 0 but for rounding
            # The update of a gradient that is nearly 0 has the rounding errors of the largest one.
            m, v = reference.m[name], reference.v[name]
            rounding = 1e-5 * LEARNING_RATE * np.abs(m).max() / (np.sqrt(v) + 1e-6)
            assert_close(local[0], reference.weights[name], name, np.where(m == 0, 0, rounding))
            for slot, moments in (("adam_m", reference.m), ("adam_v", reference.v)):
                slots = values_of_replicas(
                    strategy, optimizer.checkpoint_variables()[f"{name}/{slot}"]
                )
                assert_close(slots[0], moments[name], f"{name}/{slot}")


def values_of_replicas(strategy, variable):
    """Returns the values of a variable on the replicas of this process."""
    if distribution.runs_by_pjrt(strategy):
        shards = strategy.hold(variable).array.addressable_shards
        return [np.asarray(shard.data) for shard in shards]
    return [x.numpy() for x in strategy.experimental_local_results(variable)]


def several_and_one(strategy, build):
    """Returns (strategy, model of the same weights) for several replicas and for one."""
    pairs = []
    for of in (strategy, tf.distribute.get_strategy()):
        with of.scope():
            model = build()
        assign(model, random_weights(model, 3))
        pairs.append((of, model))
    return pairs


def check_evaluation(strategy, files, build=quiet_model, num_metrics=5):
    """Every example once, in batches that do not come out even, and over and over."""
    several, one = (Evaluator(model, of) for of, model in several_and_one(strategy, build))
    for max_steps in (0, 7):
        source = EvaluationInput(24, files, SCHEMA, max_steps)
        results, expected = several.evaluate(source), one.evaluate(source)
        assert results.keys() == expected.keys() and len(results) == num_metrics
        for name, value in expected.items():
            np.testing.assert_allclose(results[name], value, rtol=2e-6, err_msg=name)


def check_prediction(strategy, files):
    """Every example once and in its order, whatever the number of replicas."""

    def build():
        return PredictingModel(BertConfig.from_dict(QUIET))

    predictions, expected = (
        join(Predictor(model, of).predict(input_pipeline.record_chunks(files, SCHEMA, size), 24))
        for (of, model), size in zip(several_and_one(strategy, build), (48, 72), strict=True)
    )
    assert len(predictions["ids"]) == input_pipeline.count_records(files)
    np.testing.assert_array_equal(predictions["ids"], expected["ids"])
    np.testing.assert_allclose(predictions["next"], expected["next"], atol=1e-5)


def check_dropout(strategy):
    """Replicas with the same examples drop different units, and the same ones another time."""
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        model = PretrainingModel(BertConfig.from_dict(CONFIG))
    assign(model, random_weights(model, 5))

    def pooled(features, seed):
        ids = features["input_ids"]
        return {"pooled": model.bert(ids, training=True, dropout_seed=seed).pooled_output}

    def run(seed):
        batches = tf.data.Dataset.from_tensors({"input_ids": tf.ones([replicas, 6], tf.int32)})
        keyed = lambda features, replica: pooled(features, fold_in(replica, seed))  # noqa: E731
        loop = PredictionLoop(strategy, keyed)
        return loop.run(iter(batches.repeat()), 1, lambda _: None)["pooled"]

    first = run(1)
    assert first.shape == (replicas, CONFIG["hidden_size"])
    assert len(np.unique(first, axis=0)) == replicas
    np.testing.assert_array_equal(first, run(1))
    assert len(np.unique(np.concatenate([first, run(2)]), axis=0)) == 2 * replicas


def check_replicas(strategy, replicas, folder):
    assert strategy.num_replicas_in_sync == replicas
    files = make_files(folder, (40, 53, 32))
    parts = 2 if replicas == 2 else 1  # four have whole batches
    for gradient_reduction in distribution.GRADIENT_REDUCTIONS:
        check_training(strategy, quiet_model, files, gradient_reduction, parts)
    check_evaluation(strategy, files)
    check_prediction(strategy, files)
    check_dropout(strategy)


def distil(folder, strategy=None):
    """Steps of a student on two replicas, its teacher on both of them."""
    strategy = strategy or distribution.get_strategy("mirrored", 2)
    files = make_files(folder, (40, 53))
    with strategy.scope():
        teacher = PretrainingModel(BertConfig.from_dict({**QUIET, "num_hidden_layers": 2}))
        teacher.trainable = False
    assign(teacher, random_weights(teacher, 9))
    alphas = {"ce": 5.0, "mlm": 2.0, "cos": 1.0, "mse": 0.01}
    for restrict, parts in ((False, 1), (True, 2)):

        def distilled(student, restrict=restrict):
            return DistilledPretraining(student, teacher, alphas, 2.0, restrict)

        build = functools.partial(quiet_model, MLM)
        check_training(strategy, build, files, "local_clip_sum", parts, distilled)


def electra(folder):
    """Steps of a generator and a discriminator on two replicas, also in two parts."""
    strategy = distribution.get_strategy("mirrored", 2)
    files = make_files(folder, (40, 53))
    for gradient_reduction, parts in (("local_clip_sum", 2), ("global_mean_clip", 1)):
        check_training(strategy, quiet_electra, files, gradient_reduction, parts)
    check_evaluation(strategy, files, lambda: quiet_electra(ElectraPretrainingModel), 9)


@pytest.mark.slow
@pytest.mark.parametrize("check", ["distil", "electra"])
def test_two_replicas(check, tmp_path):
    run_forked(f"from tests.engine import replicas_test as t; t.{check}({str(tmp_path)!r})")


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas(replicas, tmp_path):
    run_forked(
        "from tests.engine import replicas_test as t\n"
        f"strategy = t.distribution.get_strategy('mirrored', {replicas})\n"
        f"t.check_replicas(strategy, {replicas}, {str(tmp_path)!r})"
    )
