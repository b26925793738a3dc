"""Tests of the task models as Keras models: features by name, fit and evaluate, save and load."""

import inspect
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import modeling, optimization
from bert_tf.errors import UserError
from bert_tf.model.layers import Composite
from bert_tf.model.saving import Savable
from bert_tf.modeling import AlbertConfig, BertConfig
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.task_model import TaskModel
from tests.support.objectives import compute
from tests.support.refusals import refuses
from tests.support.small_pretraining import SMALL
from tests.tasks.every_task_test import TASKS, every_task, make, make_features, new_model

CONFIG = {**SMALL, "num_hidden_layers": 1}
SAME_MODEL = ("regression", "sentences_in_batch_negatives")  # as another task, but for its loss
INPUTS = ("input_ids", "input_mask", "segment_ids")


def small_config(**changes):
    return BertConfig.from_dict({**CONFIG, **changes})


def as_arrays(features):
    """Returns features as NumPy makes them: int64, float64 and bool."""
    wide = {"int32": np.int64, "float32": np.float64}
    arrays = {name: x.numpy().astype(wide[x.dtype.name]) for name, x in features.items()}
    arrays["input_mask"] = arrays["input_mask"] == 1
    return arrays


def eager(model, loss=None, **options):
    """Returns the model, compiled to run without a graph, which takes a second to make."""
    model.compile(keras.optimizers.SGD(0.0), loss, run_eagerly=True, **options)
    return model


def results(model, *args, **options):
    return model.evaluate(*args, verbose=0, return_dict=True, **options)


# --- features -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [x for x in TASKS if x not in SAME_MODEL])
def test_a_dictionary_of_features_gives_what_its_inputs_give(name):
    model = make(name)
    features = make_features(name, 3)
    names = [*INPUTS, *(["masked_lm_positions"] if name == "pretraining" else [])]
    expected = model(*(features[n] for n in names))
    for given in (features, as_arrays(features), [features[n] for n in names]):
        tf.nest.map_structure(np.testing.assert_array_equal, model(given), expected)
    ones, zeros = tf.ones_like(features["input_mask"]), tf.zeros_like(features["segment_ids"])
    expected = model({**features, "input_mask": ones, "segment_ids": zeros})
    without = {n: x for n, x in features.items() if n not in INPUTS[1:]}
    for given in (without, {**without, "input_mask": None, "segment_ids": None}):
        tf.nest.map_structure(np.testing.assert_array_equal, model(given), expected)


IDS = np.ones((2, 5), int)


def test_inputs_that_are_missing_superfluous_or_no_numbers():
    for name, given, message in (
        ("classification", {"input_mask": IDS}, "Model must have 'input_ids'; received 'input_m"),
        ("pretraining", {"input_ids": IDS}, "have 'masked_lm_positions'; received 'input_ids'"),
        ("pretraining", [IDS] * 7, "may hold at most 'input_ids', .*received 7"),
    ):
        refuses(message, make(name), given)
    model = make("classification")
    features = make_features("classification", 2)
    data = tf.data.Dataset.from_tensors({**features, "guid": tf.constant(["a", "b"])})
    assert results(eager(model), data) == results(model, features)


def test_the_encoder_predicts_vectors_of_every_text():
    model, features = make("extraction"), make_features("classification", 5)
    model.run_eagerly = True
    predicted = model.predict(as_arrays(features), batch_size=2, verbose=0)
    expected = model(*(features[n] for n in INPUTS))
    assert predicted.keys() == {"sequence_output", "pooled_output"}
    for name, value in predicted.items():
        np.testing.assert_allclose(value, getattr(expected, name), rtol=1e-5, atol=1e-5)


# --- the losses of the original -------------------------------------------------------------------


@every_task
def test_evaluate_gives_the_loss_and_the_metrics_of_the_task(name):
    model = make(name)
    features = make_features(name, 4)
    loss, sums = compute(model, features)
    assert tuple(sums) == model.task_metrics
    means = {metric: float(total / weight) for metric, (total, weight) in sums.items()}
    found = results(eager(model), as_arrays(features), batch_size=4)
    assert found == pytest.approx({"loss": float(loss), **means}, rel=1e-5)


def test_labels_may_be_the_y_of_keras():
    for name in ("regression", "squad", "pretraining"):
        model = make(name)
        features = as_arrays(make_features(name, 3))
        expected = results(eager(model), features)
        labels = {n: features.pop(n) for n in model.label_names}
        assert results(model, features, labels) == expected
        assert results(model, features, tuple(labels.values())) == expected
        first = labels.pop(model.label_names[0])
        data = tf.data.Dataset.from_tensors(({**features, **labels}, first))
        assert results(model, data) == expected


def test_missing_and_superfluous_labels_are_refused():
    model = eager(make("squad"))
    features = make_features("squad", 2)
    start = features.pop("start_positions")
    message = "of SquadModel must have 'start_positions' for its loss; received 'end_pos"
    refuses(message, model.test_on_batch, features)
    with pytest.raises(UserError, match="may hold at most 'start_positions', 'end_positions'; rec"):
        model.test_on_batch(features, (start, start, start))
    model = eager(FeaturesModel(small_config()))
    refuses("No loss to compute", model.test_on_batch, {"input_ids": IDS}, kind=ValueError)


# --- fit ------------------------------------------------------------------------------------------


def learnable(size=10):
    """Returns features of texts whose first token is their class."""
    rng = np.random.default_rng(5)
    input_ids = rng.integers(3, 53, (size, 7))
    input_ids[:, 0] = np.arange(size) % 3
    return {"input_ids": input_ids, "input_mask": np.ones((size, 7), int)}


@pytest.mark.slow
def test_fit_on_a_dataset_of_features(capsys):
    features = learnable()
    features["label_ids"] = features["input_ids"][:, 0]
    data = tf.data.Dataset.from_tensor_slices(features).batch(4)  # the last batch has 2
    keras.utils.set_random_seed(1)
    model = ClassificationModel(small_config(), 3)
    model.compile(optimization.AdamWeightDecayOptimizer(5e-3))
    assert model.jit_compile is bool(tf.config.list_physical_devices("GPU"))
    history = model.fit(data, validation_data=data, epochs=6, verbose=0).history
    assert history.keys() == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history["val_loss"][-1] < 0.5 * history["loss"][0]
    assert history["val_accuracy"][-1] > history["accuracy"][0]
    logits = model(features).numpy()
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -log_probs[np.arange(10), features["label_ids"]]
    # Both the mean over all examples, although the last batch is smaller.
    np.testing.assert_allclose(history["val_loss"][-1], losses.mean(), rtol=1e-4)
    accuracy = np.mean(logits.argmax(-1) == features["label_ids"])
    np.testing.assert_allclose(history["val_accuracy"][-1], accuracy, rtol=1e-6)
    model.summary()
    assert "bert (BertModel)" in capsys.readouterr().out
    model.compile(keras.optimizers.SGD(0.1), jit_compile=True)
    assert model.jit_compile is True


@pytest.mark.slow
@every_task
def test_fit_and_predict_of_every_task_in_graphs(name):
    """Batches have a size that is not known when the graph is made."""
    keras.utils.set_random_seed(2)
    tensors = make_features(name, 10)
    features = as_arrays(tensors)
    model = new_model(name)
    model.compile(optimization.AdamWeightDecayOptimizer(1e-3))
    data = tf.data.Dataset.from_tensor_slices(features).batch(4)
    history = model.fit(data, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.9 * history[0]
    found = results(model, features, batch_size=10)
    np.testing.assert_allclose(found["loss"], compute(model, tensors)[0], rtol=1e-4)
    predicted, expected = model.predict(data, verbose=0), model(features)
    for ours, theirs in zip(tf.nest.flatten(predicted), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_dropout_follows_from_keras_seed():
    features = {**learnable(4), "label_ids": np.arange(4) % 3}
    model = eager(ClassificationModel(small_config(hidden_dropout_prob=0.4), 3))
    losses = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        losses.append([model.train_on_batch(features)[0] for _ in range(2)])
        model.reset_metrics()
    assert losses[0] == losses[1] != losses[2]


def test_a_loaded_model_continues_training_like_the_saved_one(tmp_path):
    features = {**learnable(4), "label_ids": np.arange(4) % 3}
    schedule = optimization.linear_schedule(1e-2, 6, 2)
    model = ClassificationModel(small_config(), 3)
    model.bert.embeddings.trainable = False
    model.compile(optimization.AdamWeightDecayOptimizer(schedule), run_eagerly=True)
    for _ in range(2):
        model.train_on_batch(features)
    loaded = reloaded(model, tmp_path / "model.keras")
    assert loaded.optimizer.iterations.numpy() == 2
    for again in (model, loaded):
        keras.utils.set_random_seed(1)
        again.train_on_batch(features)
    for ours, theirs in zip(loaded.variables, model.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert not loaded.compiled


# --- save and load --------------------------------------------------------------------------------


def reloaded(model, path):
    model.save(path)
    return keras.saving.load_model(path)


def paths(variables):
    return [variable.path for variable in variables]


def test_bfloat16_and_frozen_layers_are_kept(tmp_path):
    model = ClassificationModel(small_config(), 3, dtype="bfloat16")
    model.bert.encoder.encoder_layers[0].attention.trainable = False
    model.bert.embeddings.trainable = False
    loaded = reloaded(model, tmp_path / "model.keras")
    assert loaded.bert.compute_dtype == "bfloat16"
    learned = paths(loaded.trainable_variables)
    assert learned == paths(model.trainable_variables)
    assert not any("attention" in path or "embeddings" in path for path in learned)
    loaded.bert.trainable = False
    loaded.bert.trainable = True
    assert len(loaded.trainable_variables) == len(loaded.variables)
    model.trainable = False
    assert not reloaded(model, tmp_path / "model.keras").trainable_variables


def savable_classes(base=Savable):
    """Returns the imported classes of bert_tf that Keras can save."""
    found = {cls for sub in base.__subclasses__() for cls in {sub, *savable_classes(sub)}}
    return {cls for cls in found if cls.__module__.startswith("bert_tf.")}


ARGUMENTS = {
    "num_labels": 3,
    "use_one_hot_embeddings": True,
    "gather_token_types": True,
    "recompute_activations": True,
    "dtype": "float32",
    "index": 1,
    "input_size": 8,
    "units": 5,
    "activation": "relu",
    "name": "named",
    "num_outputs": 3,
    "size": 24,
}


def test_every_layer_is_made_again_from_its_config():
    classes = savable_classes() - {TaskModel, Composite}
    assert len(classes) > 20
    for cls in classes:
        parameters = inspect.signature(cls).parameters
        arguments = {
            name: ARGUMENTS.get(name, parameter.default)
            for name, parameter in parameters.items()
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        if "config" in arguments:
            kind = parameters["config"].annotation
            more = {"embedding_size": 6} if kind is AlbertConfig else {}
            arguments["config"] = kind.from_dict({**CONFIG, **more, "hidden_dropout_prob": 0.25})
        layer = cls(**arguments)
        if not layer.built:
            layer.build((None, 24))  # most know their sizes
        assert keras.saving.get_registered_name(cls) == f"bert_tf>{cls.__name__}"
        serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        if "config" in arguments:
            assert serialized["config"]["config"]["hidden_dropout_prob"] == 0.25
        again = keras.saving.deserialize_keras_object(serialized)
        if not again.built:
            again.build((None, 24))
        assert type(again) is cls
        assert again.get_config() == layer.get_config()
        assert [v.shape for v in again.variables] == [v.shape for v in layer.variables]
    kinds = {type(layer) for name in TASKS for layer in make(name)._flatten_layers()}
    ours = [x for x in kinds if x.__module__.startswith("bert_tf.")]
    assert all(issubclass(x, (Savable, keras.layers.Dense)) for x in ours)


def test_a_model_whose_activation_is_a_function_is_not_saved(tmp_path):
    model = modeling.BertModel(small_config(hidden_act=tf.nn.relu))
    with pytest.raises(UserError, match="must have the name of an activation.*not the function <f"):
        model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    named = modeling.BertModel(small_config(hidden_act="relu"))
    named.load_weights(tmp_path / "model.weights.h5")
    ids = learnable(2)["input_ids"]
    np.testing.assert_array_equal(named(ids).pooled_output, model(ids).pooled_output)


def test_later_changes_of_the_configuration_are_not_saved():
    config = small_config()
    model = ClassificationModel(config, 3)
    config.hidden_size = 99
    assert model.get_config()["config"]["hidden_size"] == 24
