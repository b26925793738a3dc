"""Tests of exports from Python: the model as it is in memory, and what is refused."""

import re

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.export import exporting
from tests.support.model_folders import random_weights, write_model
from tests.support.refusals import refusal


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    weights = {k: v for k, v in random_weights("classifier").items() if not k.startswith("cls/")}
    model = bert_tf.load(write_model(folder, weights, ["a", "b", "c"]))
    bias = next(v for v in model.model.variables if v.path == "output_bias")
    bias.assign([0.0, 9.0, 0.0])  # as training in memory would
    return model


def test_the_options_are_the_tool_s_flags(model, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(exporting, "export", lambda *arguments: seen.append(arguments))
    bert_tf.export_model(model, tmp_path / "out", format="onnx", quantize="int8", seq_length=16)
    bert_tf.export_model(model, tmp_path / "half", dtype="bfloat16")
    (settings, folder), (half, _) = seen
    assert (settings.dtype, half.dtype) == ("float32", "bfloat16")
    assert (settings.format, settings.quantize, settings.seq_length) == ("onnx", "int8", 16)
    assert settings.output == str(tmp_path / "out")
    assert folder.read("output_bias").tolist() == [0.0, 9.0, 0.0]
    assert folder.labels == ("a", "b", "c")


@pytest.mark.parametrize(
    "options,message",
    [
        (
            {"vocab_file": "x"},
            "export_model takes no 'vocab_file'; its options are format,",
        ),
        ({"fromat": "onnx"}, "export_model takes no 'fromat'"),
        ({"format": "h5"}, "format=h5 must be one of saved_model, onnx, litert"),
        ({"quantize": "int8"}, "quantize=int8 needs format=onnx or litert"),
        ({"head": "squad"}, "head=squad needs a model with the head that run_squad.py trains"),
        ({"head": "regression"}, "head=regression needs a model with the head that a r"),
        ({"head": "multiple_choice"}, "head=multiple_choice needs a model with the head that run"),
        ({"batch_size": "2"}, "batch_size must be a whole number (int); received '2' (str)"),
        ({"batch_size": 2.0}, "batch_size must be a whole number (int); received 2.0 (float)"),
        ({"seq_length": True}, "seq_length must be a whole number (int); received True"),
        ({"format": 1}, "format must be a string; received 1 (int)"),
        ({"dtype": np.float32}, "dtype must be a string; received"),
    ],
)
def test_wrong_options_are_refused(model, tmp_path, options, message):
    with pytest.raises(UserError, match="^" + re.escape(message)):
        bert_tf.export_model(model, tmp_path / "out", **options)


@pytest.mark.parametrize("other", [None, "output/serving", 3])
def test_wrong_arguments_are_refused(model, tmp_path, other):
    ending = "received None" if other is None else f"received {other!r} ({type(other).__name__})"
    assert refusal(bert_tf.export_model, other, tmp_path) == (
        f"model must be what bert_tf.load returns; {ending}"
    )
    if not isinstance(other, str):
        message = refusal(bert_tf.export_model, model, other)
        assert message == f"output must be a path; {ending}"


def test_none_is_the_default(model, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(exporting, "export", lambda settings, folder: seen.append(settings))
    options = {"format": None, "dtype": None, "input_kind": "ids", "batch_size": np.int64(2)}
    bert_tf.export_model(model, tmp_path, **options)
    assert (seen[0].format, seen[0].dtype, seen[0].batch_size) == ("saved_model", "float32", 2)
    assert type(seen[0].batch_size) is int


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_a_model_without_finite_answers_is_refused(tmp_path, wrong):
    settings = exporting.ExportSettings(input="models/x", output=str(tmp_path), input_kind="ids")
    outputs = {"logits": tf.constant([1.0]), "probabilities": tf.constant([0.5, wrong])}
    assert refusal(exporting._check, str(tmp_path), settings, {}, lambda: outputs) == (
        "--input=models/x must be a model that answers with finite numbers; its probabilities for"
        " random ids are not. Weights are too large: choose a different model"
    )


def test_a_model_is_not_exported_before_it_is_trained_for_its_task(model, tmp_path):
    for untrained in (model.for_classification(["x", "y"]), model.for_tagging()):
        with pytest.raises(UserError, match="export_model needs a trained model; call fit first"):
            bert_tf.export_model(untrained, tmp_path / "out")
    assert exporting.held_folder(model.for_classification()).labels == ("a", "b", "c")


@pytest.mark.slow
def test_the_exported_model_has_the_weights_in_memory(model, tmp_path):
    bert_tf.export_model(model, tmp_path / "out")
    served = tf.saved_model.load(tmp_path / "out").signatures["serving_default"]
    outputs = served(tf.constant(["the cat sat"]))
    expected = [*model.classify("the cat sat").probabilities.values()]
    np.testing.assert_allclose(outputs["probabilities"][0], expected, atol=1e-5)
    assert expected[1] > 0.9
