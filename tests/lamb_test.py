"""LAMB, against numpy and golden figures of ALBERT's original."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.modeling import BertConfig
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert
from tests.support.golden import needs_golden
from tests.support.golden_training import check_training
from tests.support.small_pretraining import difference


def arrays_of(rng, **shapes):
    """Returns the numbers of some variables, float64, of scales that differ."""
    return {n: rng.normal(size=s) * 10.0 ** rng.uniform(-2, 1) for n, s in shapes.items()}


SHAPES = {"kernel": (3, 4), "table": (7, 2), "bias": (5,), "my_layer_norm": (6,), "w": ()}


def variables_of(values):
    return [keras.Variable(value.astype(np.float32), name=name) for name, value in values.items()]


@pytest.mark.parametrize(
    "corrects, decay, betas", [(False, 0.01, (0.9, 0.999)), (True, 0.0, (0.66, 0.0))]
)
def test_the_step_optimizer_against_numpy(corrects, decay, betas):
    """Zero gradients of a variable of zeros, too: nothing is divided by its norm."""
    rng = np.random.default_rng(3)
    values = {**arrays_of(rng, **SHAPES), "zeros": np.zeros((2, 2))}
    variables = variables_of(values)
    schedule = optimization.PolynomialSchedule(0.1, 9, 3, 0.5, -1)
    adam = optimization.AdamOptions("lamb", decay, *betas, lamb_bias_correction=corrects)
    optimizer = optimization.create_optimizer(variables, schedule, adam)

    @tf.function(jit_compile=True, autograph=False)
    def update(gradients):
        optimizer.apply_gradients([(gradients[v.name], v) for v in variables])

    state = {name: (value, 0 * value, 0 * value) for name, value in values.items()}
    for step in range(7):
        gradients = arrays_of(rng, **SHAPES)
        gradients["zeros"] = np.full((2, 2), 0.5 * (step > 3))
        update({name: tf.constant(g, tf.float32) for name, g in gradients.items()})
        rate = numpy_bert.learning_rate(step, 0.1, 9, 3, 0.5, -1)
        for name in values:
            scaled = "bias" not in name and "layer_norm" not in name
            state[name] = numpy_bert.lamb(
                *(*state[name], gradients[name], rate),
                *(decay * scaled, scaled, step + 1 if corrects else None, betas),
            )
    slots = optimizer.checkpoint_variables()
    of_slots = {f"{n}/{s}" for n in values for s in ("adam_m", "adam_v")}
    assert set(slots) == {"global_step"} | of_slots
    for variable in variables:
        param, m, v = state[variable.name]
        assert difference(variable.numpy(), param) < 1e-6, variable.name
        assert difference(slots[f"{variable.name}/adam_m"], m) < 1e-6
        assert difference(slots[f"{variable.name}/adam_v"], v) < 1e-6


def test_the_bias_correction_counts_updates_of_the_checkpoint():
    """A resumed run's 1000th update has next to none; a first one with the same moments has."""
    moved, adam = [], optimization.AdamOptions("lamb", 0.0, lamb_bias_correction=True)
    for global_step in (0, 999):
        (variable,) = variables_of({"bias": np.ones(2)})
        optimizer = optimization.create_optimizer([variable], lambda step: 1.0, adam)
        optimizer.global_step.assign(global_step)
        optimizer.apply_gradients([(tf.ones(2), variable)])
        moved.append(1 - variable.numpy()[0])
    root = np.sqrt(0.001 / (1 - 0.999**1000))
    np.testing.assert_allclose(moved, [1.0, 0.1 / (root + 1e-6)], rtol=1e-5)


@pytest.mark.parametrize("corrects", [False, True])
def test_the_optimizer_of_keras_makes_the_same_updates(corrects):
    rng = np.random.default_rng(4)
    values = arrays_of(rng, **SHAPES)
    ours, theirs = variables_of(values), variables_of(values)
    schedule = optimization.PolynomialSchedule(0.1, 9, 3, 0.5, -1)
    optimizer = optimization.LAMBOptimizer(schedule, bias_correction=corrects, global_clipnorm=None)
    assert keras.optimizers.serialize(optimizer)["registered_name"] == "bert_tf>LAMBOptimizer"
    optimizer = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    other = optimization.create_optimizer(
        theirs, schedule, optimization.AdamOptions("lamb", lamb_bias_correction=corrects)
    )
    for _ in range(4):
        gradients = [tf.constant(g, tf.float32) for g in arrays_of(rng, **SHAPES).values()]
        optimizer.apply_gradients(zip(gradients, ours, strict=True))
        other.apply_reduced(gradients)
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    slots = optimizer.checkpoint_variables()
    assert slots.keys() == other.checkpoint_variables().keys() and int(slots["global_step"]) == 4


@pytest.mark.slow
@needs_golden
@pytest.mark.parametrize("case", ["linear", "poly"])
def test_training_is_that_of_alberts_original(case, strategy=None):
    folder = Path(os.environ["BERT_TF_GOLDEN"]) / "lamb"
    model = PretrainingModel(BertConfig.from_json_file(str(folder / "bert_config.json")))
    check_training(model, folder / "model.ckpt-0", folder / case, 12, strategy)


def test_keras_s_way_to_exclude_variables_from_the_decay():
    for kind, decayed in (
        (optimization.AdamWeightDecayOptimizer, 1.5),
        (optimization.LAMBOptimizer, 0.0),  # a step of the norm
    ):
        optimizer = kind(1.0, weight_decay_rate=0.25)
        variables = variables_of(dict.fromkeys(["ab", "cde", "fe", "bias"], np.float64(2.0)))
        optimizer.exclude_from_weight_decay(var_list=[variables[2]], var_names=["^cd"])
        optimizer.build(variables)
        optimizer.apply_gradients([(tf.zeros([]), v) for v in variables])
        assert [float(v.numpy()) for v in variables] == [decayed, 2.0, 2.0, 2.0]
        again = kind.from_config(optimizer.get_config())
        assert again.adam.exclude_from_weight_decay[-2:] == ("^cd", "^fe$")
