"""What is random in a loop follows from its seed; what ends a loop; what XLA compiles."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.eager import context

from bert_tf.engine import interrupts
from bert_tf.engine.loops import TrainingLoop, update_function, xla_pays_on_cpu
from bert_tf.model.configuration import BertConfig
from bert_tf.optimization import create_optimizer
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support.refusals import refuses

CONFIG = BertConfig(7, hidden_size=4, num_hidden_layers=1, num_attention_heads=2)


def first_number(features, seed):
    return {"x": tf.cast(features["x"], tf.float32)[0]}


def draws(seed):
    """Returns a random number of each step."""

    def step(features, seed):
        return {"x": tf.random.stateless_uniform([], seed + features["x"][0], alg="philox")}

    batches = tf.data.Dataset.range(4).map(lambda i: {"x": tf.fill([2], tf.cast(i, tf.int32))})
    loop = TrainingLoop(tf.distribute.get_strategy(), step, seed)
    return loop.run(iter(batches), 4, lambda _: None)["x"]


def test_the_seed_decides_what_is_random():
    once, again, other = (draws(seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(once, again)
    assert (once != other).all()


def test_an_error_while_progress_is_told_ends_the_loop():
    batches = tf.data.Dataset.from_tensors({"x": [1]}).repeat()
    loop = TrainingLoop(tf.distribute.get_strategy(), first_number)

    def fail(count):
        raise RuntimeError("the terminal is gone")

    refuses("the terminal is gone", loop.run, iter(batches), 2**31 - 1, fail, kind=RuntimeError)


@pytest.mark.parametrize("value", [1.0, np.inf])
def test_an_interrupt_ends_the_loop_but_a_value_that_is_not_finite_is_returned(value):
    """So that a run is not saved whose loss was not finite."""
    loop = TrainingLoop(tf.distribute.get_strategy(), lambda features, seed: features)
    batches = tf.data.Dataset.from_tensors({"x": value}).repeat()
    ended = []
    with pytest.raises(interrupts.Terminated), interrupts.hold():
        try:
            terminate = lambda count: count and os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
            ended.append(loop.run(iter(batches), 2**31 - 1, terminate)["x"][0])
        except interrupts.Terminated as interrupt:
            ended.append(interrupt)
        with pytest.raises(interrupts.Terminated):  # no other loop begins
            loop.run(iter(batches), 1, lambda count: None)
    (end,) = ended
    assert isinstance(end, interrupts.Terminated) if value == 1.0 else end == value


def test_an_error_leaves_no_time_of_the_loop_before():
    """It would be counted twice."""
    batches = iter(tf.data.Dataset.from_tensors({"x": [1]}).repeat(5))
    loop = TrainingLoop(tf.distribute.get_strategy(), first_number)
    loop.run(batches, 3, lambda _: None)
    assert loop.input_seconds > 0.0
    with pytest.raises(tf.errors.OutOfRangeError):
        loop.run(batches, 7, lambda _: None)
    assert loop.input_seconds == 0.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_xla_compiles_what_it_makes_faster(dtype):
    model = PretrainingModel(CONFIG, dtype=dtype)
    strategy, compiles = tf.distribute.get_strategy(), xla_pays_on_cpu(model)
    loop = TrainingLoop(strategy, first_number, compile_on_cpu=compiles)
    step = tf.function(loop.runner.step, autograph=False)
    traced = step.get_concrete_function({"x": tf.constant([1])})
    assert _compiles(traced) == (dtype == "float32")


def _compiles(traced):
    return any("_XlaMustCompile" in op.node_def.attr for op in traced.graph.get_operations())


def _updated(dtype, with_function):
    """Returns variables and moments after two updates, and whether XLA compiled them."""
    model = PretrainingModel(CONFIG, dtype=dtype)
    rng = np.random.default_rng(3)
    gradients = []
    for variable in model.trainable_variables:
        values = rng.normal(size=(2, *variable.shape)).astype(np.float32)
        variable.assign(values[0])
        gradients.append(None if "pooler" in variable.path else tf.constant(values[1]))
    # A row twice, as where words are gathered.
    gradients[0] = tf.IndexedSlices(tf.ones([3, 4]), tf.constant([2, 5, 2]), tf.constant([7, 4]))
    optimizer = create_optimizer(model.trainable_variables, lambda step: 0.1)
    update = update_function(tf.distribute.get_strategy(), model, optimizer)
    traced = tf.function(lambda: update(gradients), autograph=False).get_concrete_function()
    for _ in range(2):
        update(gradients) if with_function else optimizer.apply_reduced(gradients)
    values = [v.numpy() for v in (*model.variables, *optimizer.checkpoint_variables().values())]
    return values, _compiles(traced)


def test_the_update_of_a_bfloat16_model_is_compiled_by_itself():
    values, compiled = _updated("bfloat16", with_function=True)
    expected, _ = _updated("bfloat16", with_function=False)
    assert compiled and not _updated("float32", with_function=True)[1]
    assert values[0].dtype == np.float32
    for value, wanted in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-7)


def test_a_sum_is_added_in_order_in_a_large_graph():
    """Else TensorFlow's optimizers add the parts as they become ready, and bits differ by run."""

    rewriting = []

    def step(features, seed):
        options = context.context().function_call_options.config_proto_serialized
        rewriting.append(ConfigProto.FromString(options).graph_options.rewrite_options)
        parts = [tf.random.stateless_uniform([20_000_000], seed + i) for i in range(3)]
        return {"x": tf.reduce_sum(tf.add_n(parts)) * features["x"][0]}

    loop = TrainingLoop(tf.distribute.get_strategy(), step, compile_on_cpu=False)
    context.enable_run_metadata()
    loop.run(iter(tf.data.Dataset.from_tensors({"x": tf.ones([1])})), 1, lambda _: None)
    graphs = context.export_run_metadata().function_graphs
    context.disable_run_metadata()
    functions = [f for graph in graphs for f in graph.post_optimization_graph.library.function]
    operations = {node.op for function in functions for node in function.node_def}
    operations |= {node.op for graph in graphs for node in graph.post_optimization_graph.node}
    assert "AddN" in operations and "TemporaryVariable" not in operations
    assert rewriting[-1].meta_optimizer_iterations == RewriterConfig.ONE  # a second changes nothing
