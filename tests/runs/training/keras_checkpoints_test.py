"""Tests of the callback of Keras that writes the original's checkpoints."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.files import checkpoints
from bert_tf.runs.training.keras_checkpoints import CheckpointCallback
from tests.support.arrays import assert_same_arrays
from tests.support.refusals import refuses
from tests.support.small_pretraining import B, make_features, small_model

STEPS, EPOCHS = 2, 3  # of `fit`


class Stop(keras.callbacks.Callback):
    """Raises an interrupt when so many steps have been made."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations.numpy() == self.at:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def first_weights():
    return [v.numpy() for v in small_model(num_hidden_layers=1)[0].variables]


@pytest.fixture(scope="module")
def features():
    batches = [make_features(seed) for seed in range(STEPS)]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def new_model(first_weights, optimizer=None):
    model = small_model(num_hidden_layers=1)[0]
    for variable, value in zip(model.variables, first_weights, strict=True):
        variable.assign(value)
    schedule = optimization.linear_schedule(1e-2, STEPS * EPOCHS, 2)
    optimizer = optimizer or optimization.AdamWeightDecayOptimizer(schedule)
    model.compile(optimizer, run_eagerly=True)
    return model


def fit(model, features, *callbacks, epochs=EPOCHS):
    options = {"batch_size": B, "epochs": epochs, "shuffle": False, "verbose": 0}
    return model.fit(features, callbacks=list(callbacks), **options).epoch


def state(model):
    return {**{v.path: v.value for v in model.variables}, **model.optimizer.checkpoint_variables()}


def with_head(tmp_path, *layers):
    """Returns a model of BERT, these layers and a head, and its callback, at the start of `fit`."""
    bert = small_model(num_hidden_layers=1)[0].bert
    ids = keras.Input((7,), dtype="int32")
    vectors = bert(ids).pooled_output
    for layer in layers:
        vectors = layer(vectors)
    model = keras.Model(ids, keras.layers.Dense(2, name="head")(vectors))
    model.compile(optimization.AdamWeightDecayOptimizer(0.1), "mse")
    callback = CheckpointCallback(str(tmp_path))
    callback.set_model(model)
    return model, callback


@pytest.fixture(scope="module")
def straight(first_weights, features, tmp_path_factory):
    """A model after all steps, and the directory of its checkpoints."""
    folder = tmp_path_factory.mktemp("straight") / "made"
    model = new_model(first_weights)
    callback = CheckpointCallback(str(folder), save_checkpoints_steps=5, keep_checkpoint_max=2)
    assert fit(model, features, callback) == [0, 1, 2]
    return model, folder


def test_checkpoints_have_the_names_of_the_original_and_a_program_reads_them(straight):
    model, folder = straight
    assert sorted(p.name for p in folder.iterdir()) == [
        "checkpoint",
        "model.ckpt-5.data-00000-of-00001",
        "model.ckpt-5.index",
        "model.ckpt-6.data-00000-of-00001",
        "model.ckpt-6.index",
    ]
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-6")
    names = {name for name, _ in tf.train.list_variables(str(folder))}
    weights = {v.path for v in model.variables}
    slots = {f"{name}/{slot}" for name in weights for slot in ("adam_m", "adam_v")}
    assert names == {"global_step"} | weights | slots
    assert "bert/encoder/layer_0/attention/self/query/kernel/adam_v" in names
    model, folder = straight
    program_model = small_model(num_hidden_layers=1)[0]
    optimizer = optimization.create_optimizer(program_model.variables, lambda step: 0.0)
    weights = {v.path: v.value for v in program_model.variables}
    variables = {**weights, **optimizer.checkpoint_variables()}
    checkpoints.restore(variables, str(folder / "model.ckpt-6"))
    assert_same_arrays(variables, state(model))


def test_fit_resumes_from_the_newest(straight, first_weights, features, tmp_path):
    expected, _ = straight
    with pytest.raises(KeyboardInterrupt):
        fit(new_model(first_weights), features, CheckpointCallback(str(tmp_path), 4), Stop(4))
    other = [np.zeros_like(value) for value in first_weights]
    model = new_model(other)
    callback = CheckpointCallback(str(tmp_path), 4)
    assert fit(model, features, callback) == [2]
    assert_same_arrays(state(model), state(expected))
    # The next call of the same model is a call like any other.
    assert fit(model, features, callback, epochs=1) == [0]
    assert callback.global_step == STEPS * EPOCHS + STEPS


def test_an_interrupted_epoch_reads_its_data_from_the_start(first_weights, features, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(new_model(first_weights), features, CheckpointCallback(str(tmp_path), 3), Stop(3))
    model = new_model(first_weights)
    callback = CheckpointCallback(str(tmp_path), 3)
    assert fit(model, features, callback) == [1, 2]
    assert callback.global_step == STEPS * EPOCHS  # not one more
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-6")


def test_nothing_is_left_to_train(straight, first_weights, features, warnings):
    expected, folder = straight
    model = new_model(first_weights)
    assert fit(model, features, CheckpointCallback(str(folder))) == []
    assert "model.ckpt-6 is already at step 6 of 6. Raise epochs to continue" in warnings[-1]
    assert_same_arrays(state(model), state(expected))


def test_a_damaged_checkpoint_is_skipped(first_weights, features, tmp_path, warnings):
    model = new_model(first_weights)
    fit(model, features, CheckpointCallback(str(tmp_path), 1), epochs=1)
    (tmp_path / "model.ckpt-2.index").write_bytes(b"cut")
    again = new_model(first_weights)
    callback = CheckpointCallback(str(tmp_path))
    assert fit(again, features, callback, Stop(99), epochs=1) == [0]
    assert "model.ckpt-2 is damaged" in warnings[0]
    assert callback.global_step == STEPS


def test_what_the_callback_refuses(first_weights, features, tmp_path):
    for steps in (0, -3):
        message = f"save_checkpoints_steps must be at least 1, .*; received {steps}$"
        refuses(message, CheckpointCallback, str(tmp_path / "new"), steps)
    assert not (tmp_path / "new").exists()
    callback = CheckpointCallback(str(tmp_path), 1)
    model = new_model(first_weights, keras.optimizers.SGD())
    refuses("compile the model with it, not with SGD", fit, model, features, callback)
    model, callback = with_head(tmp_path)
    model.extra = keras.layers.Dense(2, name="head")
    model.extra.build((None, 24))
    message = "several of 'head/bias', 'head/kernel'. Give its layers"
    refuses(message, callback.on_train_begin)


def test_weights_that_are_not_finite_are_not_saved(first_weights, features, tmp_path):
    model = new_model(first_weights, optimization.AdamWeightDecayOptimizer(0.1))
    model.trainable_variables[-1].assign(model.trainable_variables[-1] * np.inf)
    with pytest.raises(FloatingPointError, match="diverged by step 1: .* is not finite.*Lower the"):
        fit(model, features, CheckpointCallback(str(tmp_path), 1))
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_has_no_seeds_of_dropout_layers(tmp_path):
    _, callback = with_head(tmp_path, keras.layers.Dropout(0.1, name="dropped"))
    callback.on_train_begin()
    callback.on_train_end()
    names = {name for name, _ in tf.train.list_variables(str(tmp_path))}
    assert {name.split("/")[0] for name in names} == {"bert", "head", "global_step"}
    assert {"head/kernel", "head/kernel/adam_m", "bert/pooler/dense/bias/adam_v"} < names
    assert (tmp_path / "model.ckpt-0.index").exists()
