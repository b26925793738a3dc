"""What is random in a loop follows from its seed; what XLA compiles."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine.training_loop import TrainingLoop, xla_pays_on_cpu
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.pretraining.model import PretrainingTask


def draws(seed):
    """Returns a random number of each step."""

    def step(features, seed):
        return {"x": tf.random.stateless_uniform([], seed + features["x"][0], alg="philox")}

    batches = tf.data.Dataset.range(4).map(lambda i: {"x": tf.fill([2], tf.cast(i, tf.int32))})
    loop = TrainingLoop(tf.distribute.get_strategy(), step, seed)
    return loop.run([iter(batches)], 4, lambda _: None)["x"]


def test_the_seed_decides_what_is_random():
    once, again, other = (draws(seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(once, again)
    assert (once != other).all()


def test_an_error_while_progress_is_told_ends_the_loop():
    def step(features, seed):
        return {"x": tf.cast(features["x"], tf.float32)[0]}

    batches = tf.data.Dataset.from_tensors({"x": [1]}).repeat()
    loop = TrainingLoop(tf.distribute.get_strategy(), step)

    def fail(count):
        raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError, match="the terminal is gone"):
        loop.run([iter(batches)], 2**31 - 1, fail)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_xla_compiles_what_it_makes_faster(dtype):
    config = BertConfig(7, hidden_size=4, num_hidden_layers=1, num_attention_heads=2)
    model = PretrainingTask(config, dtype=dtype).build_model()

    def step(features, seed):
        return {"x": tf.cast(features["x"], tf.float32)[0]}

    loop = TrainingLoop(tf.distribute.get_strategy(), step, compile_on_cpu=xla_pays_on_cpu(model))
    traced = tf.function(loop.step, autograph=False).get_concrete_function(
        [{"x": tf.constant([1])}]
    )
    compiled = [op for op in traced.graph.get_operations() if "_XlaMustCompile" in op.node_def.attr]
    assert bool(compiled) == (dtype == "float32")
