"""SECURITY.md's promise about the code: it cannot run what a file contains."""

import ast
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
