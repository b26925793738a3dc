"""Steps that JAX's client (PJRT) runs: against numpy, and against TensorFlow's own runtime.

JAX fixes its devices when it starts, so each number of replicas has a process of its own.
"""

import gc
import os
import signal
import types
import weakref

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import distribution, interrupts, pjrt, tf_in_jax
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.loops import PredictionLoop, TrainingLoop
from bert_tf.runs.flags import command_flags
from bert_tf.runs.training.watch import Watch
from bert_tf.seeds import random_bits
from tests import electra_test, lamb_test
from tests.engine import replicas_test
from tests.support import line_task
from tests.support.golden import needs_golden
from tests.support.pretraining_runs import run_forked, variables
from tests.support.refusals import refuses
from tests.support.trainers import make_trainer
from tests.tasks.pretraining.training import model_test

pytest.importorskip("jax")


@pytest.fixture(scope="module")
def strategy():
    return pjrt.connect(1)


def counting(variable):
    """A step that adds x to each element of the variable, and returns their mean."""

    def step(features, seed):
        variable.assign_add(tf.fill(variable.shape, features["x"][0]))
        return {"total": tf.reduce_mean(variable.read_value())}

    return step


def numbers(count=100):
    return iter(tf.data.Dataset.range(1, count + 1).map(lambda i: {"x": [tf.cast(i, tf.float32)]}))


def test_values_stay_on_the_devices_until_they_are_fetched(strategy):
    many = tf.Variable(tf.zeros([100]))
    loop = TrainingLoop(strategy, counting(many))
    rows = loop.run(numbers(), 4, lambda _: None)
    np.testing.assert_array_equal(rows["total"], [1.0, 3.0, 6.0, 10.0])
    assert many.numpy()[0] == 0.0
    strategy.fetch([many])
    assert (many.numpy() == 10.0).all()
    # What TensorFlow assigns between two loops replaces what is on the devices.
    many.assign(tf.fill([100], 50.0))
    rows = loop.run(numbers(), 2, lambda _: None)
    np.testing.assert_array_equal(rows["total"], [51.0, 53.0])
    many.assign(tf.fill([100], 7.0))
    strategy.fetch([many])  # older than what was assigned
    assert (many.numpy() == 7.0).all()


@pytest.mark.parametrize("engine", ["pjrt", "tensorflow"])
def test_a_loop_tells_the_lengths_that_it_cut_batches_to(strategy, engine):
    def step(features, seed):
        return {"length": tf.cast(tf.shape(features["ids"])[1], tf.float32)}

    needed = [3, 9, 4, 5, 2, 6, 1]
    batches = {"ids": np.zeros([7, 1, 9], np.int32), "longest": np.int32(needed)}
    loop = TrainingLoop(
        strategy if engine == "pjrt" else tf.distribute.get_strategy(),
        step,
        buckets=Buckets((4, 6, 9), ("ids",)),
    )
    iterator = iter(tf.data.Dataset.from_tensor_slices(batches))
    for lengths in ([4, 9, 4], [6], [4, 6, 4]):
        rows = loop.run(iterator, len(lengths), lambda _: None)
        assert loop.lengths.tolist() == rows["length"].tolist() == lengths
    assert rows.keys() == {"length"}


def test_small_variables_are_fetched_after_each_loop(strategy):
    total, told = tf.Variable(0.0), []
    rows = TrainingLoop(strategy, counting(total)).run(numbers(), 5, told.append)
    np.testing.assert_array_equal(rows["total"], np.cumsum(range(1, 6)))
    assert total.numpy() == 15.0 and sum(told) == 5


@pytest.mark.parametrize("size", [1, 100])
def test_the_devices_drop_a_variable_that_is_gone(strategy, size):
    """As between two folds of a cross-validation, each with a model of its own."""
    variable = tf.Variable(tf.zeros([size]))
    TrainingLoop(strategy, counting(variable)).run(numbers(), 2, lambda _: None)
    strategy.fetch([variable])
    key, gone = id(variable), weakref.ref(variable)
    assert key in strategy._held
    del variable
    gc.collect()
    assert gone() is None and key not in strategy._held


def test_a_value_that_is_not_finite_ends_the_loop_after_two_more_steps(strategy):
    values = [1.0, np.nan, 1.0, 1.0, 1.0]
    batches = iter(tf.data.Dataset.from_tensor_slices({"x": np.float32(values)[:, None]}))
    loop = TrainingLoop(strategy, lambda features, seed: {"x": features["x"][0]})
    rows = loop.run(batches, 5, lambda _: None)
    np.testing.assert_array_equal(rows["x"], values[:4])


def test_the_end_of_the_input_is_an_error_and_leaves_no_time(strategy):
    loop = TrainingLoop(strategy, lambda features, seed: {"x": features["x"][0]})
    batches = numbers(5)
    loop.run(batches, 3, lambda _: None)
    with pytest.raises(tf.errors.OutOfRangeError):
        loop.run(batches, 7, lambda _: None)
    assert loop.input_seconds == 0.0


@pytest.mark.parametrize("several", [False, True])
def test_an_interrupt_ends_the_loop(several, strategy, monkeypatch):
    monkeypatch.setattr(distribution, "several_processes", lambda strategy: several)
    total = tf.Variable(0.0)
    loop = TrainingLoop(strategy, counting(total))

    class Iterator:
        """Sends SIGTERM when the fifth batch is drawn."""

        def __init__(self):
            self.batches = numbers(10)

        def get_next(self):
            batch = next(self.batches)
            if batch["x"][0] == 5.0:
                os.kill(os.getpid(), signal.SIGTERM)
            return batch

    iterator = Iterator()
    with pytest.raises(interrupts.Terminated), interrupts.hold():
        loop.run(iterator, 10, lambda _: None)
    done = total.numpy()
    assert 1 + 2 + 3 + 4 + 5 <= done < 55
    rest = [batch["x"][0].numpy() for batch in iterator.batches]
    assert done + sum(rest) == 55  # no batch is lost


def test_random_bits_are_those_of_tensorflow(strategy):
    def draw(features, seed):
        return {"bits": random_bits([1, 210], tf.stack([7, features["x"][0]]))}

    batches = tf.data.Dataset.from_tensor_slices({"x": np.int32([[5], [9]])})
    found, expected = (
        PredictionLoop(of, draw).run(iter(batches), 2, lambda _: None)["bits"]
        for of in (strategy, tf.distribute.get_strategy())
    )
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) == 420


def test_an_input_that_tensorflow_makes_a_constant_of_is_an_error(strategy):
    def one_of(features, seed):
        return {"x": tf.constant([[5], [6], [7]])[features["x"][0]]}

    def checked(features, seed):
        message = ["x[x] is", features["x"][features["x"][0]]]
        with tf.control_dependencies([tf.debugging.Assert(features["x"][0] < 9, message)]):
            return {"x": tf.identity(features["x"])}

    batches = tf.data.Dataset.from_tensors({"x": np.int32([0])})
    message = "a step of 2 inputs and 0 variables to a program of 1 parameters: TensorFlow made a"
    for step in (one_of, checked):
        with pytest.raises(RuntimeError, match=message):
            PredictionLoop(strategy, step).run(iter(batches), 1, lambda _: None)


@pytest.mark.parametrize("error", [AttributeError("mallopt"), TypeError("bad argument type")])
def test_a_system_without_glibc_keeps_its_way_with_memory(error, monkeypatch):
    def load(name):
        raise error

    monkeypatch.setattr(pjrt.ctypes, "CDLL", load)
    updated = []
    config = types.SimpleNamespace(update=lambda *setting: updated.append(setting))
    pjrt._keep_memory(types.SimpleNamespace(config=config))
    assert updated == [("jax_cpu_enable_async_dispatch", False)]


@pytest.mark.parametrize("value", [[[1.0], [2.0]], np.arange(100.0)])
def test_constants_that_a_step_captures_are_read(value, strategy):
    table, weight = tf.constant(value, tf.float32), tf.Variable(0.5)

    def step(features, seed):
        return {"x": weight * tf.reduce_sum(table) + features["x"], "same": features["x"]}

    found = PredictionLoop(strategy, step).run(numbers(3), 3, lambda _: None)
    np.testing.assert_array_equal(found["same"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(found["x"] - found["same"], [np.sum(value) / 2] * 3)


@pytest.mark.parametrize("aliases", [{0: 1}, {2: 1}])
def test_results_in_another_order_are_an_error(aliases, strategy, monkeypatch):
    of_function = tf_in_jax._stablehlo
    monkeypatch.setattr(tf_in_jax, "_stablehlo", lambda hlo: (*of_function(hlo)[:2], aliases))
    loop = TrainingLoop(strategy, counting(tf.Variable(0.0)))
    message = rf"of 1 results to a program whose results \[{[*aliases][0]}\] are new values of var"
    refuses(message, loop.run, numbers(), 1, lambda _: None, kind=RuntimeError)


@pytest.mark.parametrize("set_to", [None, 5.0])
def test_callbacks_see_and_set_what_the_devices_hold(set_to, strategy, tmp_path, monkeypatch):
    monkeypatch.setattr(pjrt, "_SMALL", 1)  # else it is fetched after each loop anyway
    line_task.write(tmp_path / "x.tfrecord", 40, 1)
    schedule = optimization.linear_schedule(0.1, 6, 0)
    run = make_trainer(line_task.LineModel, strategy, tmp_path / "out", schedule)
    kernel, seen = run.model.line.kernel, []

    class Callbacks(Watch):
        has_callbacks = True

        def after(self, step, metrics):
            seen.append(kernel.numpy())
            np.testing.assert_array_equal(seen[-1], strategy._held[id(kernel.value)].array)
            if set_to is not None:
                kernel.assign(tf.fill(kernel.shape, set_to))
            return len(seen) < 2

    run.train(line_task.phases([str(tmp_path / "x.tfrecord")], (6, 8)), watch=Callbacks())
    first, second = seen
    assert 0 < np.abs(second - (first if set_to is None else set_to)).max() < 0.5
    saved = variables(tmp_path / "out")["line/kernel"]
    np.testing.assert_array_equal(saved, second if set_to is None else [[set_to]] * 3)


@pytest.mark.parametrize("size", [100, 65536])
def test_a_saved_value_is_not_that_of_later_steps(strategy, size):
    """A checkpoint is written while the next steps update the devices' values in place."""
    many = tf.Variable(tf.zeros([size]))
    loop = TrainingLoop(strategy, counting(many))
    batches = numbers()
    loop.run(batches, 2, lambda _: None)
    strategy.fetch([many])
    saved = many.read_value()
    loop.run(batches, 3, lambda _: None)
    assert (saved.numpy() == 3.0).all() and (many.numpy() == 3.0).all()
    strategy.fetch([many])
    assert (saved.numpy() == 3.0).all() and (many.numpy() == 15.0).all()


@pytest.mark.parametrize("elements", [2**40, 2**43])
def test_too_little_memory_is_told_in_a_line(strategy, elements):
    def repeated(features, seed):
        return {"x": tf.fill([1, elements], features["x"][0])}

    with pytest.raises(RuntimeError) as caught:
        PredictionLoop(strategy, repeated).run(numbers(), 1, lambda _: None)
    assert command_flags._explain(caught.value) == (
        1,
        "this machine or device ran out of memory ('RESOURCE_EXHAUSTED: Out of memory allocating"
        f" {4 * elements} bytes.'); lower the batch size or the sequence length, or use a smaller"
        " model",
    )


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
def test_training_is_the_originals(strategy, parts):
    model_test.test_training_is_the_originals("model_gelu", parts, False, strategy)


@pytest.mark.slow
@needs_golden
def test_training_is_that_of_golden_figures(strategy):
    lamb_test.test_training_is_that_of_alberts_original("linear", strategy)
    electra_test.test_training_is_the_originals("small", "rtd", strategy)


def main(replicas, folder):
    strategy = pjrt.connect(replicas)
    replicas_test.check_replicas(strategy, replicas, folder)
    if replicas == 2:
        os.mkdir(f"{folder}/distil")
        replicas_test.distil(f"{folder}/distil", strategy)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas(replicas, tmp_path):
    code = f"from tests.engine import pjrt_test as t; t.main({replicas}, {str(tmp_path)!r})"
    run_forked(code)


def test_a_version_of_jax_that_lacks_something_is_told(monkeypatch):
    import jax
    from jax._src import lib

    monkeypatch.delattr(lib._jax.mlir, "hlo_to_stablehlo")
    refuses(f"does not work with jax {jax.__version__}.*0.10.2", tf_in_jax.load_jax)
