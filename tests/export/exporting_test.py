"""Tests of exported models: each head in each format against what the programs compute.

    python -m tests.export.exporting_test

prints the table of differences in docs/measurements/speed.md anew.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf

import bert_tf
from benchmarks.serving import in_openvino
from bert_tf.export import running
from bert_tf.export.exporting import export
from bert_tf.export.onnx_graph import OPSET
from bert_tf.export.readme import EXAMPLE
from bert_tf.export.settings import FORMATS, HEADS, ExportSettings
from bert_tf.export.signatures import ENCODED, input_specs
from bert_tf.files import checkpoints
from bert_tf.pretrained.build import INPUTS
from bert_tf.pretrained.folder import ModelFolder, read_folder
from tests.support.byte_pair_files import word_merges, write_vocabulary
from tests.support.exported_heads import LABELS, program_outputs, write_head
from tests.support.model_folders import CONFIG, VOCAB
from tests.support.numpy_bert import assert_near

ROOT = Path(__file__).resolve().parents[2]
OPENVINO = "openvino"  # runs a SavedModel
RUNTIMES = (*FORMATS, OPENVINO)
BOUNDS = {"saved_model": 1e-6, "onnx": 1e-5, "litert": 1e-5, OPENVINO: 1e-5}
ENCODER_FIRST = pytest.mark.parametrize(
    "head", [pytest.param(x, marks=[] if x == "encoder" else pytest.mark.slow) for x in HEADS]
)
BESIDE = {"README.md", "bert_config.json", "export.json", "tokenizer_config.json", "vocab.txt"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder with a model for each head, by the head."""
    root = tmp_path_factory.mktemp("models")
    return {head: write_head(root / head, head, layers_of(head)) for head in HEADS}


def layers_of(head: str) -> int:
    return 2 if head == "encoder" else 1


@pytest.fixture(scope="module")
def exported(folders, tmp_path_factory):
    """Exports a head in a format, once for all tests; returns the folder."""
    root = tmp_path_factory.mktemp("exports")
    return functools.cache(
        lambda head, kind: do_export(folders[head], root / head / kind, format=kind)
    )


def do_export(source: str, output: Path, **options) -> Path:
    export(ExportSettings(input=source, output=str(output), input_kind="ids", **options))
    return output


def open_in(runtime: str, output: Path) -> running.Runner:
    if runtime == OPENVINO:
        return open_in_openvino(output)
    return running.open_exported(str(output), runtime, "serving_default")


def open_in_openvino(output: Path, precision: str = "f32", file: str = "") -> running.Runner:
    """OpenVINO's outputs have names of TensorFlow's, too."""
    pytest.importorskip("openvino")
    run = in_openvino(output / file, precision, 2)
    described = json.loads((output / "export.json").read_text())["signatures"]["serving_default"]
    return lambda inputs: {name: run(inputs)[name] for name in described["outputs"]}


def test_the_readme_says_how_pairs_are_packed_and_names_a_file_once(exported):
    text = Path(exported("classification", "saved_model"), "README.md").read_text()
    assert "a text as `[CLS] A [SEP]`, and two texts as `[CLS] A [SEP] B [SEP]`; padded" in text
    assert text.count("`tokenizer_config.json`") == 1


def readme_code(folder: str | Path) -> str:
    text = Path(folder, "README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return code


def run_readme(hidden: Sequence[str], *folders: str | Path) -> list[str]:
    """Returns what each README.md's lines print, in a process that cannot import `hidden`."""
    code = f"import os, sys\nsys.modules.update(dict.fromkeys({list(hidden)}))\n"
    for folder in folders:
        code += f"os.chdir({str(folder)!r})\nexec({readme_code(folder)!r}, {{}})\nprint('END')\n"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=folders[0], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("END\n")[:-1]


def expected_of(head: str, folder: ModelFolder, given, runtime: str) -> dict[str, np.ndarray]:
    """Returns what an exported model computes; in ONNX also what `encode` after `load` needs."""
    expected = program_outputs(head, folder, given)
    if runtime == "onnx" and head != "encoder":
        rows = {name: given[name].reshape([-1, given[name].shape[-1]]) for name in INPUTS}
        encoded = program_outputs("encoder", folder, rows)
        expected |= {name: encoded[name] for name in ENCODED}
    return expected


def of_head(head: str, runtime: str):
    """Converters take seconds: the head with most operations stands for all in quick runs."""
    is_quick = runtime == "saved_model" or head == "masked_lm"
    return pytest.param(head, runtime, marks=[] if is_quick else pytest.mark.slow)


@pytest.mark.parametrize(
    ("head", "runtime"), [of_head(head, runtime) for head in HEADS for runtime in RUNTIMES]
)
def test_each_head_in_each_runtime(folders, exported, head, runtime):
    """As precisely as the page says, up to rounding, which differs between processors."""
    folder = read_folder(folders[head])
    inputs = running.sample_inputs(input_specs(head), CONFIG["vocab_size"], 32)
    assert len({*inputs["input_mask"].sum(-1).flatten()}) > 1 and inputs["input_mask"].min() == 0
    output_format = "saved_model" if runtime == OPENVINO else runtime
    output = exported(head, output_format)
    run = open_in(runtime, output)
    said = figures_of_the_page()[head][runtime]
    assert said <= BOUNDS[runtime]
    for given in (inputs, {name: value[:1, ..., :7] for name, value in inputs.items()}):
        expected, found = expected_of(head, folder, given, runtime), run(given)
        assert {n: x.shape for n, x in found.items()} == {n: x.shape for n, x in expected.items()}
        difference = running.largest_difference(expected, found)
        assert difference <= max(5 * said, BOUNDS[runtime] / 5)
    described = json.loads((output / "export.json").read_text())
    assert described["head"] == head and described["format"] == output_format
    assert described["labels"] == LABELS.get(head, [])
    described = described["signatures"]["serving_default"]
    assert {*described["inputs"]} == {*inputs} and {*described["outputs"]} == {*expected}
    assert {*os.listdir(output)} >= BESIDE
    assert (output / "labels.txt").exists() == bool(LABELS.get(head))
    assert (output / "vocab.txt").read_text().splitlines() == VOCAB
    assert json.loads((output / "tokenizer_config.json").read_text()) == {"do_lower_case": True}
    assert json.loads((output / "bert_config.json").read_text())["hidden_size"] == 12
    if output_format == "onnx":
        model = onnx.load(str(output / "model.onnx"))
        onnx.checker.check_model(model, full_check=True)
        assert {(x.domain, x.version) for x in model.opset_import} == {("", OPSET)}
        operations = [node.op_type for node in model.graph.node]
        layers = layers_of(head)
        assert operations.count("LayerNormalization") == 1 + 2 * layers + (head == "masked_lm")
        assert operations.count("Softmax") >= layers and "Einsum" not in operations
        found = open_in_openvino(output, file="model.onnx")(inputs)
        expected = expected_of(head, folder, inputs, "onnx")
        assert running.largest_difference(expected, found) <= 1e-5
        axes = [axis.dim_param for axis in model.graph.input[0].type.tensor_type.shape.dim]
        assert axes == ["batch", *["choices"][: len(axes) - 2], "length"]


@ENCODER_FIRST
def test_each_head_in_bfloat16(folders, exported, head, tmp_path):
    """Matrices take half the memory; inputs and outputs are float32's, with nearly its numbers."""
    output = do_export(folders[head], tmp_path / "half", dtype="bfloat16")
    half, whole = (
        json.loads((folder / "export.json").read_text())
        for folder in (output, exported(head, "saved_model"))
    )
    assert (half["dtype"], whole["dtype"]) == ("bfloat16", "float32")
    assert half["signatures"] == whole["signatures"]
    stored = tf.train.load_checkpoint(str(output / "variables" / "variables"))
    dtypes, shapes = stored.get_variable_to_dtype_map(), stored.get_variable_to_shape_map()
    matrices = [dtypes[name] for name, shape in shapes.items() if len(shape) == 2]
    assert len(matrices) >= 3 + 6 * layers_of(head)
    assert matrices.count(tf.bfloat16) >= len(matrices) - 1  # a head's
    inputs = running.sample_inputs(input_specs(head), CONFIG["vocab_size"], 32)
    found = running.open_exported(str(output), "saved_model", "serving_default")(inputs)
    expected = program_outputs(head, read_folder(folders[head]), inputs)
    assert {value.dtype for value in found.values()} == {np.dtype("float32")}
    assert 1e-4 < running.largest_difference(expected, found) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("output_format", FORMATS)
def test_the_lines_of_the_readme_run(folders, exported, output_format, tmp_path):
    hidden = ["bert_tf", "keras", "tensorflow_text"]
    hidden += ["tensorflow"] if output_format != "saved_model" else []
    places = [exported(head, output_format) for head in HEADS]
    assert max(len(readme_code(place).splitlines()) for place in places) <= 12
    if output_format == "litert":
        fixed = {"format": output_format, "batch_size": 2, "seq_length": 6}
        places += [do_export(folders[head], tmp_path / head, **fixed) for head in HEADS]
    printed = run_readme(hidden, *places)
    assert len(printed) == len(places) and all("[" in text for text in printed)


@pytest.mark.parametrize(
    "fixed", [{}, pytest.param({"batch_size": 2, "seq_length": 24}, marks=pytest.mark.slow)]
)
def test_the_lines_of_the_readme_mask_no_token_of_roberta(fixed, tmp_path, monkeypatch):
    """Its first token has the id 0, which other models have for padding."""
    source = write_head(tmp_path / "model", "encoder", num_layers=1)
    pieces = write_vocabulary(tmp_path / "model", word_merges(EXAMPLE.split()))
    size = len(json.loads(Path(pieces).read_text()))
    name = "bert/embeddings/word_embeddings"
    reader = checkpoints.CheckpointReader(source, flag=None)
    weights = {key: reader.read(key) for key in reader.shapes}
    weights[name] = np.random.default_rng(9).normal(size=[size, 12]).astype(np.float32)
    checkpoints.write(f"{source}/bert_model.ckpt", weights)
    config = {**CONFIG, "model_type": "roberta", "vocab_size": size, "hidden_act": "gelu_erf"}
    config["num_hidden_layers"] = 1
    (tmp_path / "model" / "bert_config.json").write_text(json.dumps(config))
    os.remove(tmp_path / "model" / "vocab.txt")
    do_export(source, tmp_path / "export", **fixed)
    monkeypatch.chdir(tmp_path / "export")
    variables = {}
    exec(readme_code("."), variables)
    model = bert_tf.load(source)
    features = bert_tf.TextFeatures(".")([EXAMPLE] * len(variables["ids"]))
    for name, value in features.items():
        np.testing.assert_array_equal(value, variables["inputs"][name])
    assert variables["ids"][0, 0] == model.tokenizer.vocab["<s>"] == 0
    expected = model.encode(EXAMPLE)
    for vector in variables["outputs"]["vectors"].numpy():
        assert_near(vector, expected, 1e-6)


def figures_of_the_page() -> dict[str, dict[str, float]]:
    """Returns the differences that docs/measurements/speed.md states, by head and runtime."""
    page = (ROOT / "docs" / "measurements" / "speed.md").read_text()
    pattern = r"^\| `(\w+)`" + len(RUNTIMES) * r" \| ([\d.e-]+)" + r" \|$"
    found = re.findall(pattern, page, re.MULTILINE)
    assert [head for head, *_ in found] == [*HEADS]
    return {head: dict(zip(RUNTIMES, map(float, row), strict=True)) for head, *row in found}


def print_table() -> None:
    print("| Head | SavedModel | ONNX | LiteRT | OpenVINO |\n|---|--:|--:|--:|--:|")
    for head in HEADS:
        figures = []
        for runtime in RUNTIMES:
            with tempfile.TemporaryDirectory() as place:
                source = write_head(Path(place) / "model", head)
                output_format = "saved_model" if runtime == OPENVINO else runtime
                output = do_export(source, Path(place) / "export", format=output_format)
                inputs = running.sample_inputs(input_specs(head), CONFIG["vocab_size"], 32)
                expected = expected_of(head, read_folder(source), inputs, runtime)
                found = open_in(runtime, output)(inputs)
                figures.append(f"{running.largest_difference(expected, found):.1e}")
        print(f"| `{head}` | {' | '.join(figures)} |")


if __name__ == "__main__":
    print_table()
