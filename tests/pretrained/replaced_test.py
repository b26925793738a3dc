"""A model's folder that is replaced while it is read, or while the model is in use."""

import copy
import functools
import os
import shutil

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import checkpoints, whole_folders
from bert_tf.model_folder.hugging_face import conversion
from bert_tf.pretrained import folder as folder_module
from tests.support.model_folders import random_weights, write_model
from tools.convert_checkpoint import convert

pytestmark = pytest.mark.usefixtures("eager")

TEXTS = ["the cat sat", "a dog ran on a mat"]
LABELS = ["no", "maybe", "yes"]


KINDS = ["checkpoint", "hugging face"]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(whole_folders, "_PAUSE", 0)


@pytest.fixture(scope="module")
def versions_of(tmp_path_factory):
    """Returns a function: kind of folder -> the paths of two versions of a model."""

    @functools.cache
    def write(kind):
        root, paths = tmp_path_factory.mktemp("versions"), []
        for seed in (3, 4):
            path = write_model(root / f"{seed}", random_weights("classifier", seed=seed), LABELS)
            if kind == "hugging face":
                convert(path, f"{root}/hf{seed}", "safetensors")
                path = f"{root}/hf{seed}"
            paths.append(path)
        return paths

    return write


@pytest.fixture(scope="module")
def loaded(versions_of):
    """Returns a function: kind of folder -> the models that are loaded from its versions."""
    return functools.cache(lambda kind: [bert_tf.load(path) for path in versions_of(kind)])


def answers(model):
    return np.array([list(found.probabilities.values()) for found in model.classify(TEXTS)])


def exchange(path, new):
    """Puts a copy of a version in place of the one that is there."""
    shutil.copytree(new, f"{path}.new")
    os.rename(path, f"{path}.old{len(os.listdir(os.path.dirname(path)))}")
    os.rename(f"{path}.new", path)


def at_call(monkeypatch, where, name, number, action):
    """Makes a function do something at its call of this number, from 0; at each from 0 on if -1.

    Returns the list of its calls.
    """
    function, calls = getattr(where, name), []

    def hooked(*arguments, **options):
        calls.append(name)
        if number in (-1, len(calls) - 1):
            action()
        return function(*arguments, **options)

    monkeypatch.setattr(where, name, hooked)
    return calls


PLACES = [
    *((kind, folder_module, "heads_of", 0) for kind in KINDS),
    ("checkpoint", checkpoints.CheckpointReader, "read", 0),
    ("checkpoint", checkpoints.CheckpointReader, "read", 9),
    ("hugging face", conversion, "_read_files", 0),
    ("hugging face", conversion, "_read_files", 1),
]


@pytest.mark.parametrize("kind, where, name, number", PLACES)
def test_a_folder_replaced_while_it_is_loaded_is_the_old_or_the_new_one(
    versions_of, loaded, tmp_path, monkeypatch, kind, where, name, number
):
    old, new = versions_of(kind)
    expected = [answers(model) for model in loaded(kind)]
    path = str(tmp_path / "current")
    shutil.copytree(old, path)
    calls = at_call(monkeypatch, where, name, number, lambda: exchange(path, new))
    found = answers(bert_tf.load(path))
    assert len(calls) > number
    assert any(np.allclose(found, one, atol=1e-6) for one in expected)
    assert not np.allclose(*expected, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_is_replaced_again_and_again_is_told(
    versions_of, tmp_path, monkeypatch, kind
):
    old, new = versions_of(kind)
    path = str(tmp_path / "current")
    shutil.copytree(old, path)
    at_call(monkeypatch, folder_module, "heads_of", -1, lambda: exchange(path, new))
    with pytest.raises(UserError, match=f"^{path} was replaced or changed while it was read. Load"):
        bert_tf.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_stays_the_one_that_was_loaded(versions_of, loaded, tmp_path, kind):
    """With a head that is built later: from the old weights, or not at all."""
    (old, new), (expected, _) = versions_of(kind), loaded(kind)
    path = str(tmp_path / "current")
    shutil.copytree(old, path)
    model = bert_tf.load(path)
    heads = [lambda x: [found.probability for found in x.classify(TEXTS)]]
    heads.append(lambda x: [y.probability for y in x.fill_mask("the [MASK] sat", top_k=3)[0]])
    built = heads.pop(model.heads[0] == "masked_lm")(model)
    assert built
    exchange(path, new)
    shutil.rmtree(next(x for x in tmp_path.iterdir() if "old" in x.name))
    (later,) = heads
    if os.path.exists(f"{path}/config.json"):  # its weights would be read again
        with pytest.raises(UserError, match=f"^{path} was replaced or changed while it was read"):
            later(model)
    else:
        np.testing.assert_allclose(later(model), later(expected), atol=1e-6)
    with pytest.raises(UserError, match="is loaded from its folder, .* the weights differ now"):
        copy.deepcopy(model)
