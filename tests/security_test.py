"""SECURITY.md's promises: no file makes the code run what it contains, or search for hours."""

import ast
import itertools
import re
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = [
    path
    for folder, pattern in (("bert_tf", "**/*.py"), ("tools", "**/*.py"), (".", "*.py"))
    for path in sorted((ROOT / folder).glob(pattern))
    if path.name != "setup.py"
]
MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "torch"}
MODULES |= {"tarfile", "runpy", "code", "yaml"}
FUNCTIONS = {"eval", "exec", "compile", "__import__"}
METHODS = {"system", "popen", "unpack_archive", "extractall", "load_model", "import_meta_graph"}
METHODS |= {"model_from_json", "model_from_config", "deserialize_keras_object", "import_module"}
ALLOWED = {
    # They import modules whose names are written in the code.
    "tools/tpu/compiler.py: import_module",
    "tools/tpu/report.py: import_module",
    "bert_tf/export/running.py: import_module",
    "bert_tf/__init__.py: import_module",
    "bert_tf/__main__.py: runpy",
    "bert_tf/tasks/registry.py: import_module",
    # Keras calls it, in its safe mode, for a file that its `load_model` was given.
    "bert_tf/tasks/task_model.py: deserialize_keras_object",
    # Runs what the export has just written, before its folder appears.
    "bert_tf/export/running.py: saved_model.load",
}


def runs_code(tree: ast.AST) -> set[str]:
    """Returns the names in a module that can run, load or unpack code from a file."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").partition(".")[0]} & MODULES
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name):
                found |= {function.id} & (FUNCTIONS | METHODS)
            elif isinstance(function, ast.Attribute):
                found |= {function.attr} & METHODS
                if ast.unparse(function).endswith("saved_model.load"):
                    found.add("saved_model.load")
            found |= {
                f"{keyword.arg}={ast.unparse(keyword.value)}"
                for keyword in node.keywords
                if keyword.arg in ("shell", "allow_pickle")
                and ast.unparse(keyword.value) != "False"
            }
    return found


@pytest.mark.parametrize(
    "text, found",
    [
        ("import pickle", {"pickle"}),
        ("from torch.serialization import load", {"torch"}),
        ("eval(open('a').read())", {"eval"}),
        ("np.load('a', allow_pickle=flag)", {"allow_pickle=flag"}),
        ("subprocess.run(text, shell=True)", {"shell=True"}),
        ("os.system(text)", {"system"}),
        ("tf.saved_model.load('a')", {"saved_model.load"}),
        ("keras.models.load_model('a')", {"load_model"}),
        ("re.compile('a'); model.compile(); np.load('a', allow_pickle=False)", set()),
    ],
)
def test_the_search_can_find(text, found):
    assert runs_code(ast.parse(text)) == found


def test_no_code_is_run_from_a_file():
    assert len(CODE) > 100
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path in CODE
        for name in runs_code(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == ALLOWED


SEARCHES = {"compile", "search", "match", "fullmatch", "findall", "finditer", "split", "sub"}
# The time of every regular expression must grow with the text, not with its square.
REPEATS = 4000  # a square takes 12 ms or more, a line at most 2 ms
MOST_SECONDS = 0.005


def patterns():
    """Yields (place, method, pattern) of each constant pattern in the library and its tools."""
    for path in sorted([*ROOT.glob("bert_tf/**/*.py"), *ROOT.glob("tools/**/*.py")]):
        source = path.read_text()
        if "re." not in source:
            continue
        tree = ast.parse(source)
        names = {
            id(node.value): node.targets[0].id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("re"), attr=method),
                    args=[ast.Constant(str() as text), *others],
                ) if method in SEARCHES:
                    flags = {x.attr for x in others if isinstance(x, ast.Attribute)}
                    flags = sum(getattr(re, x) for x in flags if hasattr(re, x))
                    used = set(re.findall(rf"{names.get(id(node))}\.(\w+)\(", source))
                    if used and used <= {"match", "fullmatch"}:
                        method = "match"
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    yield place, method, re.compile(text, flags)


def slow_run(method: str, pattern: re.Pattern) -> str:
    """Returns a run of one or two characters in which a search takes too long; "" for none."""
    marks = sorted({char for char in pattern.pattern if not (char.isalnum() or char.isspace())})
    units = ["a", "A", "1", " ", "\n", *(char for char in marks if char not in "()?*|^$\\")]
    search = pattern.match if method in ("match", "fullmatch") else pattern.findall
    for first, unit in itertools.product(["", "\n", *units[5:]], units):
        run = first + unit * REPEATS + "\0"
        seconds = []
        while len(seconds) < 3 and (not seconds or min(seconds) > MOST_SECONDS):
            began = time.process_time()
            search(run)
            seconds.append(time.process_time() - began)
        if min(seconds) > MOST_SECONDS:
            return f"{min(seconds)} s: {first!r} + {unit!r} * {REPEATS}"
    return ""


def test_no_pattern_takes_the_square_of_a_run():
    found = list(patterns())
    assert len(found) > 40
    assert {place: run for place, *x in found if (run := slow_run(*x))} == {}


@pytest.mark.parametrize("text", [r"\.\.+\s", r"\s*\nx", r"\n *(.*)\n\[", r"(\w+)="])
def test_a_square_is_found(text):
    assert slow_run("search", re.compile(text))
