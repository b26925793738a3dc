"""Tests of what `import bert_tf` gives: names, types, and no TensorFlow before it is needed.

Also of the programs in examples/, which use it.
"""

import ast
import inspect
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.files import checkpoints
from tests.support.exported_heads import write_head
from tests.support.refusals import refuses

ROOT = Path(__file__).resolve().parents[1]

# A type checker must report every line with a comment, in the comment's words, and no other line.
PROGRAM = """
from typing import Any, assert_type
import numpy as np
from numpy.typing import NDArray
import bert_tf
from bert_tf.pretrained.results import Answer, Classification, Entity, Evaluation, Filling
from bert_tf.pretrained.results import RankedPassage
from bert_tf.pretrained.results import TextAttention

model = bert_tf.load("folder")
assert_type(model, bert_tf.Pretrained)
assert_type(model.fill_mask("a"), list[list[Filling]])
assert_type(model.fill_mask(["a"], top_k=2), list[list[list[Filling]]])
assert_type(model.classify("a"), Classification | float)
assert_type(model.classify(("a", "b")), Classification | float)
assert_type(model.classify(["a", ("a", "b")]), list[Classification] | list[float])
assert_type(model.classify("a", ["x", "y"]), Classification)
assert_type(model.classify(["a"], labels=["x"], multi_label=True), list[Classification])
assert_type(model.rank("a", ["b"], top_k=1), list[RankedPassage])
assert_type(model.answer("a", "b"), Answer)
assert_type(model.answer("a", "b", top_k=2), list[Answer])
assert_type(model.answer(["a"], "b", method="transformers"), list[Answer])
assert_type(model.answer(["a"], ["b"], top_k=2), list[list[Answer]])
assert_type(model.tag("a"), list[Entity])
assert_type(model.for_classification(["a", "b"]), bert_tf.Pretrained)
assert_type(model.for_regression(), bert_tf.Pretrained)
assert_type(model.evaluate(["a"], ["b"]), Evaluation)
assert_type(model.for_classification(multi_label=True), bert_tf.Pretrained)
assert_type(bert_tf.BertClassifier("a").fit(["a"], ["b"]), bert_tf.BertClassifier)
assert_type(model.tag(["a"]), list[list[Entity]])
assert_type(model.encode("a"), NDArray[np.float32])
assert_type(model.similarity("a", ("b", "c")), float)
assert_type(model.similarity(["a"], ["b"]), NDArray[np.float32])
assert_type(model.attention(("a", "b")), TextAttention)
assert_type(model.config, bert_tf.BertConfig)
assert_type(bert_tf.load_weights(bert_tf.BertModel(model.config), "a"), list[str])
bert_tf.laod("folder")  # has no attribute "laod"
model.fill_mask(1)  # No overload variant
model.answer("a", "b", stride=1)  # No overload variant
bert_tf.load("folder", name=1)  # Unexpected keyword argument
"""


@pytest.mark.slow
def test_a_type_checker_knows_the_surface(tmp_path):
    """Users' programs are checked with the types of an installed package."""
    pytest.importorskip("mypy", reason="needs mypy, of the extra `ci`")
    program = PROGRAM + "".join(f"bert_tf.{name}\n" for name in bert_tf.__all__)
    path = tmp_path / "program.py"
    path.write_text(program)
    options = ["--strict", "--cache-dir", str(tmp_path), "--config-file", ""]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = dict(re.findall(r"^\S+program.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE))
    lines = program.splitlines()
    expected = {i: line.split("  # ")[1] for i, line in enumerate(lines, 1) if "  # " in line}
    assert {*map(int, found)} == {*expected}, done.stdout + done.stderr
    for number, text in expected.items():
        assert text in found[str(number)]


def test_the_names_are_there_and_listed_and_no_others():
    """A type checker sees the names that exist."""
    assert dir(bert_tf) == bert_tf.__all__
    source = (ROOT / "bert_tf" / "__init__.py").read_text(encoding="utf-8")
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    [block] = [node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {
        (alias.asname, f"{node.module}.{alias.name}")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    there = {(name, f"bert_tf.{module}.{name}") for name, module in bert_tf._HOMES.items()}
    assert seen == there
    for name in bert_tf.__all__:
        assert getattr(bert_tf, name) is not None
    message = "module 'bert_tf' has no attribute 'laod'"
    refuses(message, getattr, bert_tf, "laod", kind=AttributeError)


def test_the_reference_has_every_name_and_mypy_checks_its_modules():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    described = re.findall(r"^::: bert_tf\.(\w+)$", page, re.MULTILINE)
    assert sorted([*described, "__version__"]) == bert_tf.__all__
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    homes = {inspect.getsourcefile(getattr(bert_tf, name)) for name in bert_tf._HOMES}
    assert homes <= {str(ROOT / path) for path in checked}


def test_every_name_of_the_reference_has_an_example_that_runs():
    """And every public method of a loaded model and of the estimators, but scikit-learn's own."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    blocks = [
        re.findall(r"^```python\n(.*?)^```$", x.read_text("utf-8"), re.M | re.S) for x in pages
    ]
    code = "\n".join(block for page in blocks for block in page)
    names = {name for name in bert_tf.__all__ if name not in ("__version__", "Pretrained")}
    names |= {name for name in vars(bert_tf.BertClassifier) if name[0] != "_"}
    names |= {name for cls in bert_tf.Pretrained.__mro__ for name in vars(cls) if name[0] != "_"}
    names |= {"BertOutput", "GridSearchCV", "clone", "cross_val_score", "score", "get_params"}
    unused = {"set_fit_request", "set_score_request"}
    assert [name for name in names - unused if not re.search(rf"\b{name}\b", code)] == []


def test_tensorflow_waits_until_it_is_needed():
    code = "import bert_tf, sys; dir(bert_tf); sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_load_weights_of_a_model(tmp_path, warnings):
    sizes = {"hidden_size": 4, "num_attention_heads": 2, "intermediate_size": 5}
    config = bert_tf.BertConfig(vocab_size=7, num_hidden_layers=1, **sizes)
    saved, model = bert_tf.BertModel(config), bert_tf.BertModel(config)
    weights = {variable.path: variable.numpy() + 1 for variable in saved.variables}
    lacking = weights.pop("bert/pooler/dense/bias")
    checkpoints.write(f"{tmp_path}/bert_model.ckpt", {**weights, "output_bias": np.float32([1])})
    assert bert_tf.load_weights(model, str(tmp_path)) == [*weights]
    for variable in model.variables:
        expected = weights.get(variable.path, lacking - 1)
        np.testing.assert_array_equal(variable.numpy(), expected)
    assert warnings == [
        f"Not in {tmp_path}, so left at their initial values: \n  bert/pooler/dense/bias",
        f"Only in {tmp_path}, so not used: \n  output_bias",
    ]
    config.vocab_size = 8
    albert = bert_tf.AlbertConfig(vocab_size=7, embedding_size=4, **sizes)
    for other, message in (
        (config, f"^{tmp_path} does not fit the configuration; check it \\(vocab_size is"),
        (albert, "kind of model that the model's configuration describes"),
    ):
        refuses(message, bert_tf.load_weights, bert_tf.BertModel(other), str(tmp_path))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_an_example_learns(path, tmp_path, monkeypatch, capsys):
    """On a small model."""
    output = tmp_path / "model.keras"
    main = runpy.run_path(str(path))["main"]
    monkeypatch.setitem(main.__globals__, "EPOCHS", 2)
    # The first rows of what the example reads.
    folder = "flags/quickstart/numbers"
    (tmp_path / folder).mkdir(parents=True)
    for name, count in (("train.csv", 241), ("dev.csv", 41)):
        rows = (ROOT / folder / name).read_text().splitlines(keepends=True)
        (tmp_path / folder / name).write_text("".join(rows[:count]))
    monkeypatch.chdir(tmp_path)
    main(write_head(tmp_path / "model", "masked_lm", num_layers=1), str(output))
    losses = [float(x) for x in re.findall(r" - loss: ([\d.e-]+)", capsys.readouterr().out)]
    assert len(losses) == 2 and losses[1] < losses[0]
    assert output.exists()
