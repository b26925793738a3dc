"""Tests of what an export refuses, and of the folder that it writes."""

import dataclasses
import functools
import json
import os
import sys

import numpy as np
import onnx
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from bert_tf.errors import UserError
from bert_tf.export import exporting, formats, running
from bert_tf.export.exporting import check_length, export
from bert_tf.export.settings import ExportSettings
from bert_tf.export.signatures import input_specs
from bert_tf.files.model_input import ModelInput, write_model_input
from bert_tf.model.configuration import BertConfig
from bert_tf.pretrained.folder import read_folder
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert
from tests.support.exported_heads import write_head
from tests.support.model_folders import CONFIG, random_weights, write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_head(tmp_path_factory.mktemp("model"), "classification")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "onnx", "input_kind": "text"}, "--input_kind=text needs --format=saved_model"),
        ({"format": "litert", "input_kind": "text"}, "litert has no operations for text"),
        ({"batch_size": 4}, "--batch_size fixes the shape of ids, but"),
        ({"seq_length": 8, "input_kind": "text"}, "--seq_length fixes the shape of ids, but"),
        (
            {"format": "onnx", "dtype": "bfloat16"},
            "--dtype=bfloat16 needs --format=saved_model, since .*; received --format=onnx. Change",
        ),
        (
            {"format": "litert", "dtype": "bfloat16", "quantize": "int8"},
            "--dtype=bfloat16 needs --format=saved_model, since .*; received --format=litert",
        ),
        ({"dtype": "float16"}, "--dtype=float16 must be one of float32, bfloat16$"),
        ({"format": "tflite"}, "--format=tflite must be one of saved_model, onnx, litert"),
        ({"head": "squad"}, "--head=squad needs .* run_squad.py trains; .* has 'classification'$"),
        (
            {"seq_length": 33, "input_kind": "ids"},
            "--seq_length=33 must be at most 32, the model's longest",
        ),
        ({"max_seq_length": 33}, "between 4 and 32 .* received 33"),
        ({"output": ""}, "--output= must not be empty"),
        ({"input": "no/such/folder"}, "--input=no/such/folder: there is no such folder"),
    ],
)
def test_what_does_not_fit_is_refused(folder, tmp_path, options, message):
    with pytest.raises(UserError, match=message) as error:
        export(ExportSettings(**{"input": folder, "output": str(tmp_path / "new"), **options}))
    assert "\n" not in str(error.value) and len(str(error.value)) <= 500
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("kind", "module", "package"),
    [("onnx", "onnxruntime", "onnxruntime"), ("litert", "ai_edge_litert", "ai-edge-litert")],
)
def test_a_missing_package_is_named(folder, tmp_path, monkeypatch, kind, module, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    message = f"--format={kind} needs {package}; run `pip install {package}"
    with pytest.raises(UserError, match=message):
        export(ExportSettings(input=folder, output=str(tmp_path / "new"), format=kind))
    assert not os.listdir(tmp_path)


def test_only_an_export_is_replaced(folder, tmp_path):
    output = tmp_path / "served" / "1"
    settings = ExportSettings(input=folder, output=str(output), input_kind="ids")
    output.mkdir(parents=True)
    export(settings)  # to an empty folder
    first = (output / "export.json").read_text()
    (output / "export.json").write_text("{}")
    export(settings)
    assert (output / "export.json").read_text() == first
    assert os.listdir(tmp_path / "served") == ["1"]
    for name in ("notes.txt", "2"):
        (output / name).mkdir()
        with pytest.raises(UserError, match=f"it has '{name}'. Choose another folder"):
            export(settings)
        (output / name).rmdir()
    (output / "export.json").unlink()
    with pytest.raises(UserError, match="or one that an earlier export wrote"):
        export(settings)
    file = tmp_path / "file"
    file.write_text("")
    for path, message in (
        (str(file), "must name a folder, but it is a file"),
        (folder, f"--output={folder} must be a new or empty folder"),
    ):
        with pytest.raises(UserError, match=message):
            export(dataclasses.replace(settings, output=path))


def test_an_export_that_fails_leaves_what_was_there(folder, tmp_path, monkeypatch):
    output = tmp_path / "1"
    settings = ExportSettings(input=folder, output=str(output), input_kind="ids")
    export(settings)
    (output / "export.json").write_text("earlier")
    with monkeypatch.context() as patch:
        patch.setattr(running, "largest_difference", lambda expected, found: float("nan"))
        with pytest.raises(RuntimeError, match="computes something else"):
            export(settings)
    monkeypatch.setattr(exporting, "readme", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(settings)
    assert (output / "export.json").read_text() == "earlier" and os.listdir(tmp_path) == ["1"]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_outputs_of_int8_that_are_no_numbers_are_refused(monkeypatch, wrong):
    settings = ExportSettings(input="in", output="out", format="onnx", quantize="int8")
    for value in (0.5, wrong):
        monkeypatch.setattr(running, "open_exported", lambda *_, y=value: lambda _: {"y": y})
        check = functools.partial(exporting._check, "place", settings, {})
        if value == 0.5:
            check(lambda: {"y": tf.constant(1.0)})
            continue
        with pytest.raises(RuntimeError, match="The exported model computes something else"):
            check(lambda: {"y": tf.constant(1.0)})


def test_fixed_shapes(folder, tmp_path):
    output = str(tmp_path / "fixed")
    options = {"format": "litert", "batch_size": 2, "seq_length": 8}
    export(ExportSettings(input=folder, output=output, **options))
    details = Interpreter(f"{output}/model.tflite").get_input_details()
    assert [detail["shape_signature"].tolist() for detail in details] == [[2, 8]] * 3
    ids = np.ones([2, 8], np.int32)
    run = running.open_exported(output, "litert", "serving_default")
    outputs = run({"input_ids": ids, "input_mask": ids, "segment_ids": 0 * ids})
    assert outputs["probabilities"].shape == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["onnx", "litert"])
def test_int8_is_a_quarter_of_the_size(tmp_path, kind):
    """LiteRT does not quantize small matrices, so this model is larger than the other ones."""
    config = {**CONFIG, "vocab_size": 1000, "hidden_size": 120, "intermediate_size": 400}
    model = PretrainingModel(BertConfig.from_dict(config))
    shapes = {variable.path: tuple(variable.shape) for variable in model.variables}
    weights = numpy_bert.random_weights(shapes, seed=2)
    source = write_model(tmp_path / "m", {k: np.float32(v / 4) for k, v in weights.items()})
    (tmp_path / "m" / "bert_config.json").write_text(json.dumps(config))
    sizes, outputs = {}, {}
    specs = input_specs("encoder")
    inputs = running.sample_inputs(specs, config["vocab_size"], 32)
    for quantize in (None, "int8"):
        output = str(tmp_path / str(quantize))
        options = {"format": kind, "head": "encoder", "quantize": quantize}
        export(ExportSettings(input=source, output=output, **options))
        sizes[quantize] = os.path.getsize(os.path.join(output, formats.FILES[kind]))
        outputs[quantize] = running.open_exported(output, kind, "serving_default")(inputs)
    assert sizes["int8"] < 0.35 * sizes[None]
    difference = running.largest_difference(outputs[None], outputs["int8"])
    assert 1e-4 < difference < 0.2
    # A text has the same answer without the texts and the padding beside it.
    run = running.open_exported(str(tmp_path / "int8"), kind, "serving_default")
    for row, length in enumerate(inputs["input_mask"].sum(-1)):
        alone = run({name: value[row : row + 1, :length] for name, value in inputs.items()})
        beside = outputs["int8"]["sequence_output"][row, :length]
        assert np.abs(alone["sequence_output"][0] - beside).max() < 1e-3
    if kind == "onnx":
        path = str(tmp_path / "int8" / "model.onnx")
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        integers = [x for x in model.graph.initializer if x.data_type == onnx.TensorProto.INT8]
        # Words, and six matrices a layer, beside their zero points.
        assert len([x for x in integers if len(x.dims) == 2]) == 1 + 6 * config["num_hidden_layers"]
        openvino = pytest.importorskip("openvino")
        found = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(
            inputs
        )
        found = {name: found[name] for name in outputs[None]}
        assert running.largest_difference(outputs[None], found) < 0.2


@pytest.mark.parametrize(
    "trained, flags, refusal, warning",
    [
        (16, {}, None, None),
        (16, {"max_seq_length": 16}, None, None),
        (16, {"max_seq_length": 12}, None, None),
        (16, {"max_seq_length": 17}, None, "--max_seq_length=17 is longer than the 16 word piec"),
        (None, {"max_seq_length": 32}, None, None),
        (
            16,
            {"seq_length": 17},
            "at most 16, the length that the model was trained w.*gth=17",
            None,
        ),
        (None, {"seq_length": 33}, "at most 32, the model's longest input", None),
        (16, {"max_seq_length": 20, "seq_length": 21}, "at most 20, --max_seq_length", None),
    ],
)
def test_the_length_of_an_export(tmp_path, warnings, trained, flags, refusal, warning):
    settings = ExportSettings(input="x", output="y", input_kind="ids", **flags)
    path = write_model(tmp_path, random_weights())
    write_model_input(path, ModelInput(None, trained))
    folder = read_folder(path, max_seq_length=settings.max_seq_length)
    if refusal:
        with pytest.raises(UserError, match=f"--seq_length=.* must be {refusal}"):
            check_length(settings, folder)
    else:
        check_length(settings, folder)
        assert [text[: len(warning or "")] for text in warnings] == ([warning] if warning else [])
