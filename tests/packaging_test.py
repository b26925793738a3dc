"""The installed package, away from the checkout: programs, tools, recipes, model configurations."""

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import bert_tf
from bert_tf.__main__ import PROGRAMS as PROGRAMS_BY_NAME

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = sorted(path.name for path in ROOT.glob("*.py") if path.name != "setup.py")


def install(source: Path, target: Path, python: str) -> None:
    """Installs this project with pip, without its dependencies; copies it to `source` before."""
    for folder in ("bert_tf", "flags", "tools", "tpu"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in (*PROGRAMS, "pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--quiet"]
    subprocess.run(
        [python, "-m", "pip", "install", *options, f"--target={target}", source],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert not (source / "build").exists()  # the next installation would take old modules from it


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which pip has installed this project, without its dependencies."""
    target = tmp_path_factory.mktemp("site")
    install(tmp_path_factory.mktemp("source"), target, sys.executable)
    return target


def run(site: Path, folder: Path, *command: str) -> str:
    """Runs a command in `folder` with the installed package; returns its output."""
    path = os.pathsep.join([str(site / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_everything_is_installed(site):
    for folder in ("flags", "tools"):
        assert files(site / "bert_tf" / folder) == files(ROOT / folder)
    library = files(ROOT / "bert_tf")
    assert library.items() <= files(site / "bert_tf").items()
    assert sorted(path.name for path in (site / "bin").glob("*.py")) == PROGRAMS
    assert sorted(path.name for path in site.glob("*.py")) == PROGRAMS
    tables = sorted(path.name for path in (site / "bert_tf" / "tpu").iterdir())
    assert tables == ["accelerators.txt", "memory.txt"]
    metadata = importlib.metadata.Distribution.at(next(site.glob("bert_tf-*.dist-info"))).metadata
    assert metadata["Version"] == bert_tf.__version__
    assert metadata["Author"] and "google-research/bert" in metadata["Project-URL"]
    lines = metadata.get_all("Requires-Dist")
    names = {None: set(), "test": set(), "ci": set()}
    for line in lines:
        extra = re.search(r'extra == "(\w+)"', line)
        names.setdefault(extra and extra[1], set()).add(re.match(r"[\w-]+", line)[0])
    assert names[None] == {"absl-py", "numpy", "protobuf", "sentencepiece", "tokenizers", "tqdm"}
    builds = {"cpu", "gpu", "pjrt", "tpu", "compile"}
    assert {extra for extra, found in names.items() if "scikit-learn" in found} == builds
    extras = {*"beam convert export onnx openvino pictures roberta text wikipedia test ci".split()}
    assert builds | extras == {*metadata.get_all("Provides-Extra")}
    # The extra `ci` has what only .ci/run needs.
    assert {"pytest", "pandas"} <= names["test"] and not names["test"] & names["ci"]
    assert {"apache-beam", "ai-edge-litert", "openvino", "jax", "mypy"} <= names["ci"]


def test_programs_and_tools_are_listed_and_name_each_other_as_installed(site, tmp_path):
    text = run(site, tmp_path, sys.executable, "-m", "bert_tf")
    for path in [*ROOT.glob("*_*.py"), *ROOT.glob("tools/[!_]*.py")]:
        first, _, _ = ast.get_docstring(ast.parse(path.read_text())).partition("\n")
        assert re.search(rf"^  {path.stem} +{re.escape(first)}$", text, re.MULTILINE), path
    assert "\nTools: python -m bert_tf.tools.NAME --help\n" in text
    assert tuple(f"{name}.py" for name in PROGRAMS_BY_NAME) == tuple(PROGRAMS)
    code = (
        "from bert_tf.errors import UserError as E; print(E('run tools.export; bert_tf.tools.x'))"
    )
    printed = run(site, tmp_path, sys.executable, "-c", code)
    assert printed == "run bert_tf.tools.export; bert_tf.tools.x\n"
    for tool in ("goodput", "export"):
        text = run(site, tmp_path, sys.executable, "-m", f"bert_tf.tools.{tool}", "--help")
        assert f"python -m bert_tf.tools.{tool} " in text and " tools." not in text


def test_programs_start_from_an_environment_with_spaces_in_its_path(tmp_path):
    name = "a  b, c"
    (tmp_path / name).mkdir()
    (tmp_path / "source").mkdir()
    python = tmp_path / name / "python"
    python.symlink_to(sys.executable)
    site = tmp_path / name / "site"
    install(tmp_path / "source", site, str(python))
    first, second, *_ = (site / "bin" / "run_squad.py").read_text().splitlines()
    assert name in first + second
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    words = [site / "bin" / "run_squad.py", "--no_such_flag"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "no_such_flag" in done.stderr, done.stderr


def test_recipes_and_model_configurations_are_used_in_another_folder(site, tmp_path):
    shutil.copytree(site / "bert_tf" / "flags", tmp_path / "flags")  # as tools/copy_flags.py does
    # The recipe names another recipe and a model configuration, and the tool imports a program.
    output = run(
        site,
        tmp_path,
        *(sys.executable, "-m", "bert_tf.tools.estimate_cost", "--accelerator=v5e-8"),
        *("--flagfile=flags/pretraining/uncased_base.flags", "--input_file=x", "--output_dir=y"),
    )
    assert "steps  1,000,000: 900,000 of 256 sequences of length 128" in output


def test_tools_import_each_other_relatively():
    """Their package is `tools` in the checkout, and `bert_tf.tools` when installed."""
    for path in sorted((ROOT / "tools").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) (bert_tf\.)?tools\b", text, re.MULTILINE), path


def test_an_editable_installation_has_the_tools_and_programs(tmp_path):
    """.ci/run installs the checkout this way."""
    found = [
        distribution.read_text("direct_url.json")  # None for bert_tf.egg-info in the checkout
        for distribution in importlib.metadata.distributions(name="bert-tf")
    ]
    if ROOT.as_uri() not in [json.loads(text)["url"] for text in found if text]:
        pytest.skip("this checkout is not installed by pip install -e")
    code = "import importlib.util as u, sys; print(*(u.find_spec(x).origin for x in sys.argv[1:]))"
    names = ["bert_tf.errors", "bert_tf.tools.draw.pictures", "run_classifier"]
    origins = subprocess.check_output([sys.executable, "-c", code, *names], cwd=tmp_path, text=True)
    expected = ["bert_tf/errors.py", "tools/draw/pictures.py", "run_classifier.py"]
    assert origins.split() == [str(ROOT / name) for name in expected]


@pytest.mark.parametrize("name", ["setup.py", "bert_tf/__init__.py"])
def test_an_older_python_is_told_which_ones_work(name):
    """Python 3.8 parses the file, whose check comes before what a version lacks."""
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=(3, 8))
    check = next(i for i, node in enumerate(tree.body) if isinstance(node, ast.If))
    before = [node for node in tree.body[:check] if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {getattr(node, "module", None) or node.names[0].name for node in before}
    assert modules <= {*"importlib re sys tempfile pathlib setuptools typing".split()}
    tree.body = tree.body[check : check + 1]
    stand_in = types.SimpleNamespace(version_info=(3, 9, 18), version="3.9.18 (x)", exit=sys.exit)
    with pytest.raises(SystemExit) as ended:
        exec(compile(tree, name, "exec"), {"sys": stand_in})
    assert ended.value.code == "bert-tf needs Python 3.11 to 3.13; this is Python 3.9.18"
    stand_in.version_info = (3, 11, 0)
    exec(compile(tree, name, "exec"), {"sys": stand_in})
