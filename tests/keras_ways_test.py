"""Every public model in each way that Keras and TensorFlow keep it, copy it and build with it."""

import functools
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.saving import saving_lib

from bert_tf import modeling, seeds
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.pretraining.training.electra import ElectraPretrainingModel
from bert_tf.tasks.squad.model import JointSquadModel
from tests.support.objectives import set_random_weights
from tests.support.refusals import refuses
from tests.support.small_pretraining import SMALL
from tests.tasks.every_task_test import TASKS, make_features, new_model

S = 7
BERT = {**SMALL, "hidden_dropout_prob": 0.3, "num_hidden_layers": 1}
CONFIGS = {
    "bert": modeling.BertConfig.from_dict(BERT),
    "albert": modeling.AlbertConfig.from_dict({**BERT, "embedding_size": 6, "inner_group_num": 2}),
    "roberta": modeling.RobertaConfig.from_dict({**BERT, "model_type": "roberta"}),
    "distilbert": modeling.DistilBertConfig.from_dict(
        {name: value for name, value in BERT.items() if name != "type_vocab_size"}
    ),
    "electra": modeling.ElectraConfig.from_dict({**BERT, "embedding_size": 6}),
}


# Name -> the model, and the task whose features it takes.
OTHERS = {
    "extraction": (lambda: FeaturesModel(CONFIGS["bert"]), "classification"),
    "joint squad": (lambda: JointSquadModel(CONFIGS["electra"], beam_size=3), "squad"),
    "electra": (
        lambda: ElectraPretrainingModel(CONFIGS["electra"], generator_hidden_size=0.5),
        "pretraining",
    ),
}
# The model of sentences is one for all losses, that of classification one for all labels.
NAMES = [*(f"bert of {x}" for x in CONFIGS), *OTHERS, *TASKS]
NAMES = [x for x in NAMES if x not in ("sentences_in_batch_negatives", "regression")]


def new(name):
    if name in OTHERS:
        return OTHERS[name][0]()
    if name.startswith("bert of "):
        return modeling.BertModel(CONFIGS[name.removeprefix("bert of ")])
    return new_model(name)


@pytest.fixture(scope="module", autouse=True)
def less_work_for_keras():
    """Draws no initial weights, compiles no masks, and lists once what Keras does not save.

    Keras means to list that once, but keeps the list under a name by which it never asks.
    """
    tf.config.run_functions_eagerly(True)
    with pytest.MonkeyPatch.context() as patch, seeds.reading_weights():
        patch.setattr(saving_lib, "get_attr_skipset", functools.cache(saving_lib.get_attr_skipset))
        yield
    tf.config.run_functions_eagerly(False)


@functools.cache
def model_and_inputs(name):
    """Returns a model with random weights, a batch of its inputs by name, and its outputs."""
    model = new(name)
    set_random_weights(model)
    _, task = OTHERS.get(name, (None, "classification"))
    features = make_features(name if name in TASKS else task, 3)
    labels = getattr(model, "label_names", ())
    names = [x for x in inspect.signature(model.call).parameters if x in features]
    features = {x: features[x] for x in names if x not in labels}
    return model, features, outputs(model(features))


@functools.cache
def weights(model):
    return {x.path: x.numpy() for x in model.variables}


def assert_same(model, other):
    """The weights, which the inputs of every output are."""
    found = {x.path: x.numpy() for x in other.variables}
    assert [*found] == [*weights(model)]
    assert not [x for x, value in weights(model).items() if not np.array_equal(found[x], value)]


def outputs(values):
    return [np.asarray(x) for x in tf.nest.flatten(values)]


every_model = pytest.mark.parametrize("name", NAMES)


QUANTIZE = "Keras's quantize does not support bert_tf's layers. For 8-bit integers use bert_tf"


class Own(keras.Model):
    """A user's model around one of ours."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, features, training=False):
        return tf.nest.flatten(self.inner(features, training=training))


@every_model
def test_files_and_copies(name, tmp_path):
    model, features, expected = model_and_inputs(name)
    model.save(tmp_path / "kept.keras")
    loaded = keras.models.load_model(tmp_path / "kept.keras")
    assert type(loaded) is type(model) and loaded.get_config() == model.get_config()
    assert_same(model, loaded)
    learned = [[x.path for x in made.trainable_variables] for made in (model, loaded)]
    assert learned[0] == learned[1]
    answers = loaded
    if name in ("bert of bert", "electra", "classification"):
        refuses(QUANTIZE, loaded.quantize, "int8", kind=NotImplementedError)
        answers = Own(loaded)
        answers.build(None)
        with pytest.warns(UserWarning, match=QUANTIZE):
            answers.quantize("int8")
    for found, value in zip(outputs(answers(features)), expected, strict=True):
        np.testing.assert_array_equal(found, value)
    copied = keras.models.clone_model(model)
    model.save_weights(tmp_path / "kept.weights.h5")
    copied.load_weights(tmp_path / "kept.weights.h5")
    assert_same(model, copied)
    set_random_weights(copied, seed=1)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "kept"))
    tf.train.Checkpoint(model=copied).restore(path).assert_consumed()
    assert_same(model, copied)


# In models that hold these, `training` is given once, and again at each call.
FIXED = {"bert of bert": True, "classification": False, "pretraining": True}
# Classes that other names have, too, with another configuration.
SAME_CALL = {"bert of roberta", "bert of distilbert", "bert of electra"}


@pytest.mark.parametrize("name", [x for x in NAMES if x not in SAME_CALL])
def test_a_model_inside_another(name, tmp_path, monkeypatch):
    model, features, expected = model_and_inputs(name)
    inputs = {x: keras.Input((*v.shape[1:],), dtype="int32", name=x) for x, v in features.items()}
    found = model(inputs, **({"training": FIXED[name]} if name in FIXED else {}))
    outer = keras.Model(inputs, {str(i): x for i, x in enumerate(tf.nest.flatten(found))})
    outer.save(tmp_path / "outer.keras")

    def traced_before(*args, **kwargs):  # the copies are equal models, and have equal inputs
        return keras.tree.map_structure(lambda x: keras.KerasTensor(x.shape), found)

    monkeypatch.setattr(type(model), "compute_output_spec", traced_before)
    loaded = keras.models.load_model(tmp_path / "outer.keras")
    assert_same(model, loaded)
    copied = keras.models.clone_model(outer)
    copied.set_weights([*weights(model).values()])
    copied.compile(run_eagerly=True)
    predicted = copied.predict_on_batch({x: v.numpy() for x, v in features.items()})
    for i, value in enumerate(expected):
        np.testing.assert_allclose(predicted[str(i)], value, atol=1e-6)
    with_dropout = outputs(loaded(features, training=True))
    dropped = any(np.abs(a - b).max() > 1e-6 for a, b in zip(with_dropout, expected, strict=True))
    assert dropped is (name != "extraction")


@pytest.mark.parametrize("name", [x for x in NAMES if x not in SAME_CALL])
def test_a_model_in_a_sequence(name):
    model, features, _ = model_and_inputs(name)
    ids = features["input_ids"]
    if len(getattr(model, "required_inputs", ())) > 1:
        message = "must have 'masked_lm_positions'.*; received 'input_"
        return refuses(message, keras.Sequential([model]), ids)
    sequence = keras.Sequential([model])
    first, second = outputs(sequence(ids, training=False)), outputs(model(ids))
    for found, expected in zip(first, second, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert all(np.isfinite(x).all() for x in outputs(sequence(ids, training=True)))
