"""Tests of what an export refuses, which folder it writes, and what it says of a table's labels."""

import dataclasses
import functools
import json
import os
import re
import sys

import numpy as np
import onnx
import pytest
import tensorflow as tf
from scipy import stats

import bert_tf
from bert_tf.export import exporting, running
from bert_tf.export.exporting import check_length, export
from bert_tf.export.settings import ExportSettings
from bert_tf.export.signatures import input_specs
from bert_tf.files.model_notes import ModelInput, write_model_input
from bert_tf.model.configuration import BertConfig
from bert_tf.pretrained.folder import read_folder
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert
from tests.support.exported_heads import LABELS, write_head
from tests.support.model_folders import CONFIG, random_weights, write_model
from tests.support.refusals import refusal


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_head(tmp_path_factory.mktemp("model"), "classification", num_layers=1)


REFUSED = [
    ({"format": "onnx", "input_kind": "text"}, "--input_kind=text needs --format=saved_model"),
    ({"batch_size": 4}, "--batch_size fixes the shape of ids, but"),
    ({"seq_length": 8, "input_kind": "text"}, "--seq_length fixes the shape of ids, but"),
    (
        {"format": "onnx", "dtype": "bfloat16"},
        "--dtype=bfloat16 needs --format=saved_model, since .*; received --format=onnx. Change",
    ),
    ({"dtype": "float16"}, "--dtype=float16 must be one of float32, bfloat16$"),
    ({"format": "tflite"}, "--format=tflite must be one of saved_model, onnx, litert"),
    ({"head": "squad"}, "--head=squad needs .* run_squad.py trains; .* has 'classification'$"),
    ({"seq_length": 33, "input_kind": "ids"}, "--seq_length=33 must be at most 32, the model's l"),
    ({"max_seq_length": 33}, "from 4 to 32, .* received 33"),
    ({"output": ""}, "--output= must not be empty"),
    ({"input": "no/such/folder"}, "--input=no/such/folder: there is no such folder"),
]


def test_what_does_not_fit_is_refused(folder, tmp_path):
    for options, message in REFUSED:
        options = {"input": folder, "output": str(tmp_path / "new"), **options}
        told = refusal(lambda options: export(ExportSettings(**options)), options)
        assert re.search(message, told) and "\n" not in told and len(told) <= 500
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("kind, package", [("onnx", "onnxruntime"), ("litert", "ai-edge-litert")])
def test_a_missing_package_is_named(folder, tmp_path, monkeypatch, kind, package):
    module = package.replace("-", "_")
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    settings = ExportSettings(input=folder, output=str(tmp_path / "new"), format=kind)
    told = refusal(export, settings)
    assert f"--format={kind} needs {package}; run `pip install {package}" in told
    assert not os.listdir(tmp_path)


def test_only_an_export_is_replaced(folder, tmp_path, monkeypatch):
    """And one that fails leaves what was there."""
    output = tmp_path / "served" / "1"
    settings = ExportSettings(input=folder, output=str(output), format="onnx")
    output.mkdir(parents=True)
    export(settings)  # to an empty folder
    first = (output / "export.json").read_text()
    (output / "export.json").write_text("earlier")
    with monkeypatch.context() as patch:
        patch.setattr(running, "largest_difference", lambda expected, found: float("nan"))
        assert "gives wrong outputs" in refusal(export, settings, kind=RuntimeError)
        patch.undo()
        patch.setattr(exporting, "readme", lambda *_: 1 / 0)
        refusal(export, settings, kind=ZeroDivisionError)
    assert (output / "export.json").read_text() == "earlier"
    export(settings)
    assert (output / "export.json").read_text() == first
    assert os.listdir(tmp_path / "served") == ["1"]
    for name in ("notes.txt", "2"):
        (output / name).mkdir()
        assert f"it has '{name}'. Choose another folder" in refusal(export, settings)
        (output / name).rmdir()
    (output / "export.json").unlink()
    assert "or one that an earlier export wrote" in refusal(export, settings)
    (tmp_path / "file").write_text("")
    for path, message in (
        (f"{tmp_path}/file", "must name a folder, but it is a file"),
        (folder, f"--output={folder} must be a new or empty folder"),
    ):
        assert message in refusal(export, dataclasses.replace(settings, output=path))


def test_outputs_that_are_no_numbers_are_refused(monkeypatch, tmp_path):
    """Of an exported model after int8, and of the model itself."""
    settings = ExportSettings(input="models/x", output="out", format="onnx", quantize="int8")
    check = functools.partial(exporting._check, "place", settings, {})
    for value in (0.5, np.nan, np.inf, -np.inf):
        monkeypatch.setattr(running, "open_exported", lambda *_, y=value: lambda _: {"y": y})
        if value == 0.5:
            check({"y": tf.constant(1.0)})
            continue
        told = refusal(check, {"y": tf.constant(1.0)}, kind=RuntimeError)
        assert "The exported model gives wrong outputs" in told
        outputs = {"logits": tf.constant([1.0]), "probabilities": tf.constant([0.5, value])}
        assert refusal(check, outputs) == (
            "--input=models/x must be a model with finite outputs; for random ids"
            " 'probabilities' is not finite. Weights are too large: choose a different model"
        )


def test_fixed_shapes(folder, tmp_path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT")
    output = str(tmp_path / "fixed")
    options = {"format": "litert", "batch_size": 2, "seq_length": 8}
    export(ExportSettings(input=folder, output=output, **options))
    details = interpreter.Interpreter(f"{output}/model.tflite").get_input_details()
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
        sizes[quantize] = os.path.getsize(os.path.join(output, exporting.FILES[kind]))
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


def test_the_length_of_an_export(tmp_path, warnings):
    path = write_model(tmp_path, random_weights())
    known = "at most 16, the length that the model was trained w.*gth=17"
    longer = "--max_seq_length=17 is longer than the 16 word piec"
    for trained, flags, message, warning in (
        (16, {}, None, None),
        (16, {"max_seq_length": 16}, None, None),
        (16, {"max_seq_length": 12}, None, None),
        (16, {"max_seq_length": 17}, None, longer),
        (None, {"max_seq_length": 32}, None, None),
        (16, {"seq_length": 17}, known, None),
        (None, {"seq_length": 33}, "at most 32, the model's longest input", None),
        (16, {"max_seq_length": 20, "seq_length": 21}, "at most 20, --max_seq_length", None),
    ):
        settings = ExportSettings(input="x", output="y", input_kind="ids", **flags)
        write_model_input(path, ModelInput(None, trained))
        folder = read_folder(path, max_seq_length=settings.max_seq_length)
        warnings.clear()
        if message:
            told = refusal(check_length, settings, folder)
            assert re.search(f"--seq_length=.* must be {message}", told)
        else:
            check_length(settings, folder)
            assert [text[: len(longer)] for text in warnings] == ([warning] if warning else [])


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
    defaults = {"format": None, "dtype": None}
    bert_tf.export_model(model, tmp_path, input_kind="ids", batch_size=np.int64(2), **defaults)
    (settings, folder), (half, _), (plain, _) = seen
    assert (settings.dtype, half.dtype, plain.dtype) == ("float32", "bfloat16", "float32")
    assert (settings.format, settings.quantize, settings.seq_length) == ("onnx", "int8", 16)
    assert settings.output == str(tmp_path / "out")
    assert (plain.format, plain.batch_size, type(plain.batch_size)) == ("saved_model", 2, int)
    assert folder.read("output_bias").tolist() == [0.0, 9.0, 0.0]
    assert folder.labels == ("a", "b", "c")


def test_wrong_options_are_refused(model, tmp_path):
    for options, message in (
        ({"vocab_file": "x"}, "export_model has no option 'vocab_file'; its options are"),
        ({"format": "h5"}, "format=h5 must be one of saved_model, onnx, litert"),
        ({"quantize": "int8"}, "quantize=int8 needs format=onnx or litert"),
        ({"head": "squad"}, "head=squad needs a model with the head that run_squad.py trains"),
        ({"head": "regression"}, "head=regression needs a model with the head that a r"),
        ({"batch_size": "2"}, "batch_size must be a whole number (int); received '2' (str)"),
        ({"format": 1}, "format must be a string; received 1 (int)"),
    ):
        told = refusal(bert_tf.export_model, model, tmp_path / "out", **options)
        assert told.startswith(message)
    for other, ending in (
        (None, "None"),
        ("output/serving", "'output/serving' (str)"),
        (3, "3 (int)"),
    ):
        assert refusal(bert_tf.export_model, other, tmp_path) == (
            f"model must be a model that bert_tf.load returned; received {ending}"
        )
        if not isinstance(other, str):
            told = refusal(bert_tf.export_model, model, other)
            assert told == f"output must be a path; received {ending}"
    for untrained in (model.for_classification(["x", "y"]), model.for_tagging()):
        told = refusal(bert_tf.export_model, untrained, tmp_path / "out")
        assert "export_model needs a trained model; call fit first" in told
    assert exporting.held_folder(model.for_classification()).labels == ("a", "b", "c")


@pytest.mark.slow
def test_the_exported_model_has_the_weights_in_memory(model, tmp_path):
    bert_tf.export_model(model, tmp_path / "out")
    served = tf.saved_model.load(tmp_path / "out").signatures["serving_default"]
    outputs = served(tf.constant(["the cat sat"]))
    expected = [*model.classify("the cat sat").probabilities.values()]
    np.testing.assert_allclose(outputs["probabilities"][0], expected, atol=1e-5)
    assert expected[1] > 0.9


WORDS = "the man went to a store and bought milk".split()
COLUMNS = {"text_a_column": "first", "label_column": "what"}


def table(folder, labels, ending="csv"):
    """Writes a table of pairs of texts; returns them."""
    rng = np.random.default_rng(len(labels))
    pairs = [tuple(" ".join(rng.choice(WORDS, n)) for n in rng.integers(1, 9, 2)) for _ in labels]
    rows = [("first", "other", "what"), *((*x, str(y)) for x, y in zip(pairs, labels, strict=True))]
    sign = {"csv": ",", "tsv": "\t"}[ending]
    (folder / f"dev.{ending}").write_text("".join(sign.join(row) + "\n" for row in rows))
    return pairs


def exported(head, tmp_path, caplog, **options):
    """Exports a model with a head; returns the measures that are logged, and both models."""
    source = write_head(tmp_path / "model", head, num_layers=1)
    output = str(tmp_path / "exported")
    options = {"format": "onnx", "data_dir": str(tmp_path), **COLUMNS, **options}
    with caplog.at_level("INFO", logger="absl"):
        export(ExportSettings(input=source, output=output, **options))
    line = r"(Acc\w+|Pearson|Spearman).* of (\d+) examples: (\S+) before the export, (\S+) after"
    found = re.findall(line, caplog.text)
    assert {int(count) for _, count, *_ in found} == {17}
    measures = {name: tuple(map(float, values)) for name, _, *values in found}
    return measures, bert_tf.load(source), bert_tf.load(output)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("options", [{}, {"quantize": "int8", "text_b_column": "other"}])
def test_what_is_said_of_a_table_s_classes(tmp_path, caplog, options):
    labels = np.random.default_rng(3).choice(LABELS["classification"], 17)
    pairs = table(tmp_path, labels)
    texts = pairs if "text_b_column" in options else [first for first, _ in pairs]
    measures, *models = exported("classification", tmp_path, caplog, **options)
    answers = [[x.label for x in model.classify(texts)] for model in models]
    expected = tuple(round(float(np.mean(np.array(x) == labels)), 4) for x in answers)
    assert measures == {"Accuracy": expected}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("head", ["regression", "encoder"])
def test_what_is_said_of_numbers_and_cosines(tmp_path, caplog, head):
    labels = np.random.default_rng(5).normal(size=17).round(3)
    pairs = table(tmp_path, labels, "tsv")
    options = {"text_b_column": "other", "quantize": "int8"}
    measures, *models = exported(head, tmp_path, caplog, **options)
    for model, i in zip(models, (0, 1), strict=True):
        if head == "encoder":
            found = model.similarity(*map(list, zip(*pairs, strict=True)))
        else:
            found = model.classify(pairs)
        expected = {"Pearson": stats.pearsonr(labels, found)[0]}
        expected["Spearman"] = stats.spearmanr(labels, found)[0]
        for name, value in expected.items():
            assert measures[name][i] == pytest.approx(value, abs=1e-4)


WRONG = [
    ("tagging", {}, "is for classes, numbers and sentence vectors, not for --head=tagging"),
    ("encoder", {}, "--data_dir needs --text_b_column for sentence vectors"),
    ("classification", {"label_column": "why"}, "--label_column=why: .* has no such column"),
    ("classification", {"text_a_column": None}, "--data_dir=.* needs --text_a_column"),
    ("classification", {"format": "litert"}, "needs --format=onnx"),
    ("classification", {"seq_length": 8}, "--data_dir=.* excludes --seq_length"),
    ("regression", {}, "label 'maybe' must be a number"),
]


@pytest.mark.usefixtures("eager")
def test_what_no_export_can_measure(tmp_path, caplog):
    table(tmp_path, ["maybe"] * 3)
    for head, options, message in WRONG:
        assert re.search(message, refusal(exported, head, tmp_path, caplog, **options))
    assert not (tmp_path / "exported").exists()
