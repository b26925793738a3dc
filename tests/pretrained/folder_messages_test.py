"""A model's folder: what is said of it, and what happens if it is replaced while it is in use."""

import copy
import functools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import checkpoints, whole_folders
from bert_tf.model_folder.hugging_face import conversion
from bert_tf.pretrained import folder as folder_module
from bert_tf.pretrained.folder import read_folder
from tests.support.model_folders import random_weights, write_model
from tests.support.refusals import refusal
from tools.convert_checkpoint import convert

pytestmark = pytest.mark.usefixtures("eager")

FINE_TUNED = {"classifier": ["no", "maybe", "yes"], "regressor": [], "squad": None}
FINE_TUNED["tagger"] = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@pytest.mark.parametrize("flag, argument", [(None, " max_seq"), ("input", " --max_seq")])
@pytest.mark.parametrize("head", FINE_TUNED)
def test_a_length_that_nothing_tells_is_told_once(tmp_path, warnings, head, flag, argument):
    path = write_model(tmp_path, random_weights(head), FINE_TUNED[head])
    assert read_folder(path, flag=flag).max_seq_length == 32
    (warning,) = warnings
    assert warning == (
        f"{path} does not say which --max_seq_length the model was fine-tuned with: earlier"
        " versions wrote no model_input.json. Texts are cut at 32 word pieces, the model's limit."
        f" If it was trained with 128, set{argument}_length=128"
    )
    for length in (20, 512):  # the second is a larger model's
        (tmp_path / "model_input.json").write_text(json.dumps({"max_seq_length": length}))
        assert read_folder(path, flag=flag).max_seq_length == min(length, 32)
        assert read_folder(path, max_seq_length=28, flag=flag).max_seq_length == 28
    assert len(warnings) == 1


def test_the_limit_is_right_for_a_model_that_was_only_pretrained(tmp_path, warnings):
    assert read_folder(write_model(tmp_path, random_weights())).max_seq_length == 32
    assert not warnings


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    weights = random_weights("classifier")
    return write_model(tmp_path_factory.mktemp("model"), weights, FINE_TUNED["classifier"])


def test_values_of_another_type_are_refused(path):
    for rule, *pairs in (
        ("a whole number above 0", ("max_seq_length", "16"), ("max_seq_length", True)),
        ("a whole number above 0", ("window_stride", 7.5), ("window_stride", 0)),
        ("one of texts, pairs, choices", ("reads", "pair"), ("reads", ["texts"])),
        ("one of mean, max", ("long_text", "true"), ("long_text", False)),
    ):
        for name, value in pairs:
            Path(path, "model_input.json").write_text(json.dumps({name: value}))
            message = f"/model_input.json: {name} must be {rule}; it is {value!r}; correct it, or"
            assert f"{path}{message}" in refusal(read_folder, path)


SECRET = ["root:x:0:0", "daemon:x:1:1", "alice:x:1000:1000", "mail:x:8:8"]

KEYS = json.dumps(dict.fromkeys(SECRET, "key"))


def test_a_message_has_at_most_a_line_of_a_file(path, tmp_path):
    """The file may be a link to another one."""
    for number, (name, content, message) in enumerate(
        [
            ("labels.txt", "\n".join(SECRET), "it names 4: 'root:x:0:0' and 3 more"),
            ("labels.txt", "\n".join(SECRET[:2]), "it names 2: 'root:x:0:0' and 1 more"),
            ("vocab.txt", "\n".join(SECRET), "It has 4 tokens, the first is 'root:x:0:0'"),
            ("model_input.json", KEYS, "it has 'root:x:0:0' and 3 more"),
            ("model_input.json", json.dumps(SECRET), "received a list"),
            ("labels.txt", "x" * 5000 + "\n" + "\n".join(SECRET), "'xxx"),
        ]
    ):
        folder = shutil.copytree(path, tmp_path / f"{number}")
        (folder / "model_input.json").unlink(missing_ok=True)
        (tmp_path / "elsewhere").write_text(content + "\n")
        (folder / name).unlink(missing_ok=True)
        os.symlink("../elsewhere", folder / name)
        told = refusal(read_folder, str(folder))
        assert message in told and len(told) < 500
        assert sum(line in told for line in SECRET) <= 1


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
    with pytest.raises(
        UserError, match="loaded from its folder, .* in memory differs from the folder"
    ):
        copy.deepcopy(model)
