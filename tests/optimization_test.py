"""Tests of bert_tf.optimization; golden figures: tests/tasks/pretraining/training/model_test.py."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.modeling import BertConfig
from bert_tf.optimizer_defaults import OPTIMIZERS
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert, small_pretraining
from tests.support.refusals import refuses

LAMB_OF = optimization.LAMBOptimizer.from_config
RATE, ADAM = optimization.PolynomialSchedule, optimization.AdamWeightDecayOptimizer


def _rates(schedule, at):
    return [float(schedule(tf.constant(step, tf.int64))) for step in at]


@pytest.mark.parametrize(
    "arguments",
    [(0,), (1,), (10,), (30,), (100,), (200,), (10, 0.5, -3), (10, 2.0, -9), (10, 0.5, 4)],
)
def test_the_schedule_against_numpy(arguments):
    schedule = optimization.PolynomialSchedule(5e-5, 100, *arguments)
    at = range(0, 130)
    expected = [numpy_bert.learning_rate(step, 5e-5, 100, *arguments) for step in at]
    np.testing.assert_allclose(_rates(schedule, at), expected, rtol=1e-6, atol=1e-11)
    again = type(schedule).from_config(schedule.get_config())
    assert _rates(again, at[::13]) == _rates(schedule, at[::13])


def test_schedules_in_a_row():
    first = optimization.linear_schedule(1.0, 20, 5)
    second = optimization.linear_schedule(0.5, 10, 0)
    third = optimization.linear_schedule(0.25, 4, 2)
    schedule = optimization.RestartingSchedule([(20, first), (10, second), (4, third)])
    expected = [*_rates(first, range(20)), *_rates(second, range(10)), *_rates(third, range(9))]
    assert _rates(schedule, range(39)) == expected
    assert expected[20] == 0.5 and expected[30] == 0.0 and expected[-1] == 0.0
    compiled = tf.function(schedule, jit_compile=True, autograph=False)
    found = _rates(compiled, [19, 20, 32])
    np.testing.assert_allclose(found, [expected[i] for i in (19, 20, 32)], rtol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_adam_update_against_numpy(seed):
    """Several steps of random gradients over ten orders of magnitude, in float64."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, size=rng.integers(1, 4)))
    param, m, v = (rng.normal(size=shape) * s for s in (1.0, 0.1, 0.0))
    decay = rng.choice([0.0, 0.01, 0.3])
    ours = theirs = (param, m, v)
    for _ in range(7):
        grad = rng.normal(size=shape) * 10.0 ** rng.uniform(-8, 2, size=shape)
        rate = 10.0 ** rng.uniform(-6, -1)
        ours = optimization.adam_weight_decay_update(
            *(tf.constant(x, tf.float64) for x in ours), tf.constant(grad), rate, decay
        )
        theirs = numpy_bert.adam_weight_decay(*theirs, grad, rate, decay)
        for ours_one, theirs_one in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(ours_one, theirs_one, rtol=1e-10, atol=1e-18)


def _variables(**values):
    return [keras.Variable(np.float32(value), name=name) for name, value in values.items()]


def test_which_variables_are_decayed():
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3}
    model = PretrainingModel(BertConfig(53, **sizes, intermediate_size=20))
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.5)
    before = {v.path: v.numpy() for v in model.variables}
    for variable in model.variables:
        before[variable.path] += 1.0  # biases are 0 and would not tell
        variable.assign(before[variable.path])
    optimizer.apply_gradients([(tf.zeros(v.shape), v) for v in model.trainable_variables])
    decayed = set()
    for variable in model.variables:
        ratio = variable.numpy() / before[variable.path]
        assert np.ptp(ratio) < 1e-6
        if ratio.max() < 1.0:
            np.testing.assert_allclose(ratio, 1 - 0.5 * 0.01, rtol=1e-6)
            decayed.add(variable.path)
    others = ("bias", "beta", "gamma")
    assert decayed == {v.path for v in model.variables if not v.path.endswith(others)}


def test_exclusions_are_regular_expressions_searched_anywhere():
    names = ("output_bias", "my_layer_norm", "LayerNorm_2", "layernorm", "w")
    given = optimization.AdamOptions(weight_decay_rate=0.25, exclude_from_weight_decay=("^a.$",))
    for variables, options, expected in (
        (_variables(**dict.fromkeys(names, 1.0)), (), [1.0, 1.0, 1.0, 0.99, 0.99]),
        (_variables(ab=1.0, ba=1.0), (given,), [1.0, 0.75]),
    ):
        optimizer = optimization.create_optimizer(variables, lambda step: 1.0, *options)
        optimizer.apply_gradients([(tf.zeros([]), v) for v in variables])
        np.testing.assert_allclose([v.numpy() for v in variables], expected, rtol=1e-6)


@pytest.mark.parametrize("clips", [False, True])
def test_the_optimizer_against_numpy(clips):
    """Decay, exclusions, warm-up; Keras's methods also clip to a norm of 1 in every other step."""
    rng = np.random.default_rng(1)
    shapes = {"kernel": (3, 4), "bias": (5,), "idle": (2,)}
    variables = _variables(**{name: rng.normal(size=shape) for name, shape in shapes.items()})
    schedule = optimization.linear_schedule(0.1, 6, 2)
    if clips:
        optimizer = optimization.AdamWeightDecayOptimizer(schedule)
        optimizer.build(variables)
    else:
        optimizer = optimization.create_optimizer(variables, schedule)
    state = {v.name: (v.numpy().astype(np.float64), 0.0, 0.0) for v in variables}
    for step in range(5):
        scale = 3.0 if step % 2 else 0.03
        gradients = {n: rng.normal(size=shapes[n]) * scale for n in ("kernel", "bias")}
        tensors = [*(tf.constant(g, tf.float32) for g in gradients.values()), None]
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        assert (norm > 1) == (step % 2 == 1)
        if clips:
            optimizer.apply_gradients(zip(tensors, variables, strict=True))
            gradients = {name: g / max(norm, 1.0) for name, g in gradients.items()}
        else:
            optimizer.apply_reduced(tensors)
        rate = numpy_bert.learning_rate(step, 0.1, 6, 2)
        for name, decay in (("kernel", 0.01), ("bias", 0.0)):
            state[name] = numpy_bert.adam_weight_decay(*state[name], gradients[name], rate, decay)
        assert optimizer.global_step.numpy() == step + 1
    named = optimizer.checkpoint_variables()
    assert set(named) == {"global_step"} | {
        f"{v.name}/{slot}" for v in variables for slot in ("adam_m", "adam_v")
    }
    for variable in variables:
        param, m, v = state[variable.name]
        np.testing.assert_allclose(variable.numpy(), param, rtol=1e-5, atol=1e-6)
        for slot, moments in (("adam_m", m), ("adam_v", v)):
            found = named[f"{variable.name}/{slot}"]
            np.testing.assert_allclose(found, moments + 0 * param, rtol=1e-5, atol=1e-10)
    assert named["global_step"].dtype == tf.int64
    assert not any(v.trainable for v in named.values())


@pytest.mark.parametrize("kind", ["AdamWeightDecayOptimizer", "LAMBOptimizer"])
def test_learning_rate_factors_against_numpy(kind):
    """The first beginning that fits a name counts, for Keras's steps and for the programs'."""
    rng = np.random.default_rng(2)
    shapes = {"low_a_w": (3, 5), "low_w": (7,), "lower_w": (2, 4), "head": (6,)}
    factors = {"low_a": 0.125, "low_": 0.5, "lower_w": 0.0}
    expected = {"low_a_w": 0.125, "low_w": 0.5, "lower_w": 0.0, "head": 1.0}
    for ours in (False, True):
        values = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        variables = _variables(**values)
        optimizer = getattr(optimization, kind)(
            0.1, global_clipnorm=None, learning_rate_factors=factors
        )
        optimizer = type(optimizer).from_config(optimizer.get_config())
        optimizer.build(variables)
        state = {v.path: (v.numpy().astype(np.float64), 0.0, 0.0) for v in variables}
        for _ in range(3):
            gradients = {name: rng.normal(size=shape) for name, shape in shapes.items()}
            tensors = [tf.constant(g, tf.float32) for g in gradients.values()]
            if ours:
                optimizer.apply_reduced(tensors)
            else:
                optimizer.apply_gradients(zip(tensors, variables, strict=True))
            update = getattr(numpy_bert, "lamb" if kind[0] == "L" else "adam_weight_decay")
            for name, gradient in gradients.items():
                state[name] = update(*state[name], gradient, 0.1 * expected[name], 0.01)
        for variable in variables:
            np.testing.assert_allclose(variable.numpy(), state[variable.path][0], rtol=2e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_factors_a_step_has_the_same_operations(name):
    """A factor of 1 adds none, either."""
    ops = []
    for factors in ((), (("x", 0.5), ("v", 1.0)), (("v", 0.5),)):
        adam = optimization.AdamOptions(name, learning_rate_factors=factors)
        update = tf.function(lambda *xs, adam=adam: adam.update("v", *xs), autograph=False)
        spec = tf.TensorSpec([3], tf.float32)
        one = tf.TensorSpec([], tf.float32)
        graph = update.get_concrete_function(spec, spec, spec, spec, one, one).graph
        ops.append([op.type for op in graph.get_operations()])
    assert ops[0] == ops[1] and len(ops[2]) > len(ops[0])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_gradients_update_moments_of_every_row(name):
    """As dense gradients do: rows without a gradient are decayed, their moments shrink."""
    table = np.arange(12.0).reshape(4, 3) + 1
    results = []
    for sparse in (False, True):
        (variable,) = _variables(table=table)
        adam = optimization.AdamOptions(name)
        optimizer = optimization.create_optimizer([variable], lambda step: 0.1, adam)
        slices = tf.IndexedSlices(
            tf.constant([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]), tf.constant([2, 0, 2]), [4, 3]
        )
        for _ in range(2):
            gradient = slices if sparse else tf.convert_to_tensor(slices)
            optimizer.apply_gradients([(gradient, variable)])
        results.append(
            [variable.numpy(), *(v.numpy() for v in optimizer.checkpoint_variables().values())]
        )
    for dense, sparse in zip(*results, strict=True):
        np.testing.assert_array_equal(sparse, dense)
    assert (results[0][0][1] != table[1]).all()
    if name == "adamw":
        np.testing.assert_allclose(results[0][0][1], table[1] * (1 - 0.001) ** 2, rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_variable_is_read_after_the_next_has_its_new_value(name):
    """Otherwise the new values of all variables could be in memory at once, beside the old ones."""
    variables = _variables(a=np.ones(5), b=np.ones(6), frozen=np.ones(7), c=np.ones(8))
    optimizer = optimization.create_optimizer(
        variables, lambda step: 0.1, optimization.AdamOptions(name)
    )
    table = tf.IndexedSlices(tf.ones([2]), tf.constant([0, 3], tf.int64), [5])
    gradients = [table, tf.ones(6), None, tf.ones(8)]
    update = tf.function(lambda: optimizer.apply_reduced(gradients), autograph=False)
    graph = update.get_concrete_function().graph
    waiting = collections.Counter(
        (op.outputs[0].shape[0], before.outputs[0].shape[0])
        for op in graph.get_operations()
        for before in op.control_inputs
        if op.type == "ReadVariableOp"
    )
    assert waiting == {(5, 6): 3, (6, 8): 3}  # each with its moments


class _LookupModel(keras.Model):
    """Its loss has an IndexedSlices as gradient: the sum of some rows times their weights."""

    def __init__(self):
        super().__init__(name="")
        self.table = self.add_weight(shape=(4, 3), initializer="zeros", name="table")
        self.built = True

    def call(self, features, training=False, dropout_seed=None):
        return tf.gather(self.table.value, features["ids"])

    def normalizers(self, features):
        return {}

    def loss_and_metrics(self, outputs, features, normalizers):
        return tf.reduce_sum(outputs * features["weights"][:, tf.newaxis]), {}


def _lookup():
    model = _LookupModel()
    return model, optimization.create_optimizer([model.table], lambda step: tf.constant(0.0))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_gradient_norm_counts_duplicate_rows_apart(jit_compile):
    model, optimizer = _lookup()
    weights = np.array([3.0, 4.0, 1.0], np.float32)
    features = {"ids": tf.constant([2, 2, 0]), "weights": tf.constant(weights)}

    @tf.function(jit_compile=jit_compile, autograph=False)
    def step():
        return steps.train_step(model, optimizer, features, tf.constant([0, 0]))

    norm = np.sqrt(3 * (weights**2).sum())  # summed first it would be sqrt(3 * (7**2 + 1))
    np.testing.assert_allclose(step()["gradient_norm"], norm, rtol=1e-6)
    rows = np.array([1.0, 0.0, 7.0, 0.0]) / norm  # clipped apart, then summed
    expected = np.repeat(rows[:, None], 3, axis=1) * 0.1
    np.testing.assert_allclose(
        optimizer.checkpoint_variables()["table/adam_m"], expected, rtol=1e-6
    )


@pytest.mark.parametrize("gradient_reduction", ["local_clip_sum", "global_mean_clip"])
def test_the_norm_to_clip_to_is_an_argument(gradient_reduction):
    features = {"ids": tf.constant([1, 3]), "weights": tf.constant([3.0, 4.0])}
    for clip_norm, scale in ((2.0, 2 / 75**0.5), (0.0, 1.0), (9.0, 1.0)):
        model, optimizer = _lookup()
        given = model, optimizer, features, tf.constant([0, 0]), 1, gradient_reduction
        metrics = steps.train_step(*given, clip_norm=clip_norm)
        np.testing.assert_allclose(metrics["gradient_norm"], 75**0.5, rtol=1e-6)
        rows = optimizer.checkpoint_variables()["table/adam_m"].numpy()[:, 0]
        np.testing.assert_allclose(rows, [0.0, 0.3 * scale, 0.0, 0.4 * scale], rtol=1e-6)


@pytest.mark.parametrize("gradient_reduction", ["local_clip_sum", "global_mean_clip"])
def test_what_two_replicas_clip(gradient_reduction):
    """A replica's own gradient is one row of norm sqrt(3) * 100; the sum adds 3 to each number."""
    model, optimizer = _lookup()
    features = {"ids": tf.constant([1]), "weights": tf.constant([100.0])}
    seen = []

    def sum_with_other(gradients):
        seen.extend(gradients)
        return [g + 3.0 for g in gradients]

    replicas = steps.Replicas(2, sum_with_other)
    metrics = steps.train_step(
        *(model, optimizer, features, tf.constant([0, 0]), 1, gradient_reduction, replicas)
    )
    (reduced,) = seen
    mean = (reduced + 3.0) / 2
    if gradient_reduction == "local_clip_sum":  # each clips its own, and the sum is applied
        norm, reduced_norm, applied = 100 * 3**0.5, 1.0, reduced + 3.0
    else:
        norm, reduced_norm = np.linalg.norm(mean), 100 * 3**0.5
        applied = mean / norm
    np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(reduced), reduced_norm, rtol=1e-6)
    moments = optimizer.checkpoint_variables()["table/adam_m"]
    np.testing.assert_allclose(moments, 0.1 * applied, rtol=1e-6)


# --- as an optimizer of Keras ---------------------------------------------------------------------


def test_the_optimizer_of_keras_makes_the_update_of_the_programs_step():
    """On a whole model, whose word embeddings have IndexedSlices with rows that repeat."""
    schedule = optimization.linear_schedule(3e-2, 9, 2)
    models = (small_pretraining.small_model(num_hidden_layers=1)[0] for _ in range(2))
    ours, theirs = models
    features = small_pretraining.tensors(small_pretraining.make_features())
    optimizer = optimization.create_optimizer(theirs.trainable_variables, schedule)
    ours.compile(optimization.AdamWeightDecayOptimizer(schedule), run_eagerly=True)
    before = [v.numpy() for v in ours.variables]
    for step in range(4):
        metrics = steps.train_step(theirs, optimizer, features, tf.constant([0, step]))
        assert metrics["gradient_norm"] > 1.5  # so that the clip matters
        loss = ours.train_on_batch(features, return_dict=True)["loss"]
        ours.reset_metrics()
        np.testing.assert_allclose(loss, metrics["loss"], rtol=1e-5)
    for variable, other, old in zip(ours.variables, theirs.variables, before, strict=True):
        moved = np.abs(other - old).max()
        if not variable.path.endswith("key/bias"):  # no output depends on it
            np.testing.assert_allclose(variable, other, atol=1e-3 * moved, err_msg=variable.path)
            assert moved > 1e-3
    slots = ours.optimizer.checkpoint_variables()
    assert slots.keys() == optimizer.checkpoint_variables().keys()
    for name, slot in optimizer.checkpoint_variables().items():
        np.testing.assert_allclose(slots[name], slot, rtol=1e-3, atol=1e-6, err_msg=name)


def test_the_optimizer_of_keras_takes_its_rate_from_the_steps_before():
    halving = keras.optimizers.schedules.ExponentialDecay(0.5, decay_steps=1, decay_rate=0.5)
    for learning_rate, rates in ((halving, [0.5, 0.25, 0.125]), (0.2, [0.2, 0.2, 0.2])):
        (variable,) = _variables(w=1.0)
        optimizer = optimization.AdamWeightDecayOptimizer(learning_rate, weight_decay_rate=0.25)
        expected = 1.0
        for rate in rates:
            np.testing.assert_allclose(optimizer.learning_rate, rate, rtol=1e-6)
            optimizer.apply_gradients([(tf.zeros([]), variable)])
            expected *= 1 - 0.25 * rate
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)


def test_the_optimizer_of_keras_is_made_again_of_its_config():
    clip = {"global_clipnorm": None, "clipnorm": 2.0}
    optimizer = ADAM(
        optimization.linear_schedule(0.1, 7, 3),
        *(0.5,),
        **{"exclude_from_weight_decay": ["^a.$"], **clip, "epsilon": 1e-3},
    )
    variables = _variables(ab=1.0, ba=1.0)
    serialized = keras.optimizers.serialize(optimizer)
    assert serialized["registered_name"] == "bert_tf>AdamWeightDecayOptimizer"
    again = keras.optimizers.deserialize(serialized)
    assert again.get_config() == optimizer.get_config()
    assert _rates(again._learning_rate, range(9)) == _rates(optimizer._learning_rate, range(9))
    again.apply_gradients([(tf.zeros([]), v) for v in variables])  # a rate of 0
    again.apply_gradients([(tf.zeros([]), v) for v in variables])
    values = [float(v.numpy()) for v in variables]
    np.testing.assert_allclose(values, [1.0, 1 - 0.5 * 0.1 / 3], rtol=1e-6)


def with_factor(factor):
    return ADAM(0.1, learning_rate_factors={"bert/": factor})


def test_numbers_that_train_nothing_are_refused():
    for kind, arguments, message in (
        (RATE, (-1e-3, 10), "init_lr must be a finite number, at least 0; received -0.001"),
        (RATE, (1e39, 10), "init_lr must .*, also in float32: 0, or from"),
        (RATE, ("5e-5", 10), "init_lr must be .*; received '5e-5'"),
        (optimization.linear_schedule, (1e-3, 0, 0), "num_train_steps must be .*, above 0; rec"),
        (RATE, (1e-3, -5), "num_train_steps must be .*, at least 0; received -5"),
        (RATE, (1e-3, 10, -1), "num_warmup_steps must be .* received -1"),
        (RATE, (1e-3, 10, 0, np.nan), "decay_power must be .*received nan"),
        (ADAM, (np.inf,), "learning_rate must be a finite number, .*received inf"),
        (ADAM, (10**400,), "learning_rate must .*, also in float32: 0, or from"),
        (ADAM, (tf.Variable(1e-3),), "learning_rate must be a finite number, .* <tf.Variable"),
        (ADAM, (True,), "learning_rate must be a finite number, at least 0; received True"),
        (ADAM, ("2e-5",), "learning_rate must be .*; received '2e-5'"),
        (RATE, (1e-3, 10**400), "num_train_steps must .*, also in float32"),
        (ADAM, (1e-3, -0.1), "weight_decay_rate must be .*; received -0"),
        (ADAM, (1e-3, 0.0, 0.9, 1.0), "beta_2 must be .* at least 0 and below 1; rec"),
        (ADAM, (1e-3, 0.0, 0.9, 0.9, 1e39), "epsilon must .* also in float32"),
        (ADAM, (1e-3, 0.0, 0.9, 0.9, 1e-6, None, 0), "global_clipnorm must be .*, above 0"),
        *(
            (with_factor, (x,), f"finite numbers of at least 0; the one for 'bert/' is {x}")
            for x in (-0.5, float("nan"), float("inf"))
        ),
        (lambda rate: ADAM(1e-3, weight_decay=rate), (0.0,), "would make Keras decay the weights"),
        (lambda rate: setattr(ADAM(1e-3), "weight_decay", rate), (0.1,), "give weight_decay_rate"),
        (LAMB_OF, ({"learning_rate": 1, "weight_decay": 0.1},), "give weight_decay_rate instead"),
    ):
        refuses(message, kind, *arguments)
