"""The floors of docs/layout.md, held by parsing the sources; nothing is imported.

A folder or module of bert_tf imports only what stands below it. `violations` takes the root of any
tree, so that the checker can be tested on bad trees.
"""

import ast
import functools
import graphlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# The folders and top modules of bert_tf, from the ground up. One that is not here fails: where it
# stands is a decision. Programs and tools stand above all of them.
FLOORS = (
    "errors start bounds strict_json seeds optimizer_defaults progress files tokenization text"
    " datasets model modeling optimization model_folder engine runs tasks pretrained"
    " export __main__"
).split()
# What never imports what, although it stands below.
NEVER = {
    "engine": {"model", "modeling", "text", "tokenization", "datasets"},
    "model": {"files", "text", "tokenization", "datasets"},
    "modeling": {"files", "text", "tokenization", "datasets"},
}
MODELS = {"model", "modeling"}
DATA = {"datasets", "files", "text", "tokenization"}
# In a task's folder, TASK_MODELS hold the model; TASK_NEITHER are the schema, where both sides
# meet, the settings, and what joins the two for a program. Every other module is data code.
TASK_MODELS = set("model heads electra distillation".split())
TASK_NEITHER = {
    *"__init__ schema settings decision task files teacher run run_distillation".split(),
    *("dynamic_masking", "electra_settings"),  # pipeline and model mask and unmask alike
}

SURFACE = "bert_tf"  # imports what it shows only when it is used: for users, never for the library

# The modules that know flags.
FLAG_MODULES = {
    "bert_tf.runs.flags.command_flags",
    "bert_tf.runs.flags.command_line",
    "bert_tf.tasks.program",
}
MAX_LINES = 450
MAX_TOP_MODULES = 10
MAX_PROGRAM_LINES = 150


def sources(root: Path) -> dict[str, Path]:
    """Returns the path of each module, by dotted name, except tests and setup.py."""
    paths = [*root.glob("*.py")]
    for folder in ("bert_tf", "benchmarks", "tools", "tpu"):
        paths += (root / folder).rglob("*.py")
    names = {}
    for path in sorted(paths):
        if path != root / "setup.py":
            parts = path.relative_to(root).with_suffix("").parts
            names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def ancestors(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_names(module: str, path: Path) -> Iterator[tuple[str, str | None]]:
    """Yields (module, name) of each import statement at any depth; name None for `import x`."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in parsed(path).body if module == SURFACE else ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((source, alias.name) for alias in node.names)


def import_graph(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Returns the project's modules that each module imports."""
    graph = {}
    for module, path in modules.items():
        graph[module] = set()
        for source, name in imported_names(module, path):
            target = f"{source}.{name}" if f"{source}.{name}" in modules else source
            for found in (target, *ancestors(target)):
                # The importer's own packages are loaded already.
                if found in modules and found != module and found not in ancestors(module):
                    graph[module].add(found)
    return graph


def floor_of(module: str) -> str | None:
    """Returns the folder or top module of bert_tf that a module is in; None outside of bert_tf."""
    parts = module.split(".")
    if parts[0] != "bert_tf":
        return None
    return parts[1] if len(parts) > 1 else "start"  # all that the package itself imports


def task_of(module: str) -> str | None:
    """Returns the folder of a task that a module is in; None for what all tasks share."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["bert_tf", "tasks"] and len(parts) > 3 else None


def side(module: str, modules: dict[str, Path]) -> str | None:
    """Returns "data", "model" or None for what is neither."""
    if floor_of(module) in DATA:
        return "data"
    if floor_of(module) in MODELS:
        return "model"
    stem = modules[module].stem
    if task_of(module) is None or stem in TASK_NEITHER:
        return None
    return "model" if stem in TASK_MODELS else "data"


def reachable(module: str, imports: Callable[[str], set[str]]) -> set[str]:
    """Returns the modules that a module imports, directly or through other modules."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        found = imports(todo.pop()) - seen
        seen |= found
        todo += found
    return seen


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Returns a line for the first modules found that import each other."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [f"cycle: {', '.join(sorted({*error.args[1]}))}"]
    return []


def broken_rules(module: str, target: str, modules: dict[str, Path]) -> Iterator[str]:
    """Yields the rules that an import of `target` by a module breaks."""
    here, there = floor_of(module), floor_of(target)
    if here is not None and there is None:
        yield "the library imports no program or tool"
    elif here is not None and there in FLOORS:
        if FLOORS.index(there) > FLOORS.index(here):
            yield f"{there} stands above {here}"
        elif there in NEVER.get(here, ()):
            yield f"{here} never imports {there}"
    if here is not None and target in FLAG_MODULES and module not in FLAG_MODULES:
        yield "only programs and tools may"
    if task_of(module) and task_of(target) not in (None, task_of(module)):
        yield "one task imports another"
    if (side(module, modules), side(target, modules)) == ("model", "data"):
        yield "model code imports data code"


def direction_violations(modules: dict[str, Path], graph: dict[str, set[str]]) -> list[str]:
    def loaded(module: str) -> set[str]:  # by an import: the packages above it, too
        return graph[module] | {name for name in ancestors(module) if name in graph}

    found = []
    for module in sorted(modules):
        here = floor_of(module)
        if here is not None and here not in FLOORS:
            found.append(f"{module}: {here} has no place in FLOORS of tests/imports_test.py")
            continue
        for target in sorted(graph[module]):
            rules = broken_rules(module, target, modules)
            found += [f"{module} imports {target}: {rule}" for rule in rules]
        if side(module, modules) == "data":
            for target in sorted(reachable(module, loaded) - {module}):
                if side(target, modules) == "model":
                    found.append(f"{module} reaches {target}: data code imports model code")
    return found


def flag_violations(modules: dict[str, Path]) -> list[str]:
    return [
        f"{module}: absl.flags belongs in programs, tools and {' and '.join(sorted(FLAG_MODULES))}"
        for module, path in sorted(modules.items())
        if floor_of(module) and module not in FLAG_MODULES
        if any(f"{x}.{name}".startswith("absl.flags") for x, name in imported_names(module, path))
    ]


def task_name_violations(modules: dict[str, Path]) -> list[str]:
    """Returns where a module below the tasks compares or looks up the name of one."""
    tasks = {task_of(module) for module in modules} - {None}
    return [
        f"{module} line {node.lineno}: names the task {node.value!r}"
        for module, path in sorted(modules.items())
        if floor_of(module) in FLOORS[: FLOORS.index("tasks")]
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and node.value in tasks
    ]


def name_violations(modules: dict[str, Path]) -> list[str]:
    """Returns the public classes of the library that share a name."""
    homes: dict[str, list[str]] = {}
    for module, path in sorted(modules.items()):
        if floor_of(module):
            for node in parsed(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(module)
    return [
        f"class {name} is defined in {' and '.join(found)}"
        for name, found in sorted(homes.items())
        if len(found) > 1
    ]


def file_violations(root: Path, modules: dict[str, Path]) -> list[str]:
    found = []
    for path in [*modules.values(), *sorted((root / "tests").rglob("*.py"))]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        limit = MAX_PROGRAM_LINES if path.parent == root else MAX_LINES
        if lines > limit:
            found.append(f"{path.relative_to(root)}: {lines} lines, more than {limit}")
        if path.stem == "utils" or path.stem.endswith("_v2"):
            found.append(f"{path.relative_to(root)}: a name that says nothing")
    top = len([path for path in root.glob("bert_tf/*.py") if path.stem != "__main__"])
    if top > MAX_TOP_MODULES:
        found.append(f"bert_tf has {top} modules at its top, more than {MAX_TOP_MODULES}")
    for path in sorted((root / "flags").rglob("*.py")):
        found.append(f"{path.relative_to(root)}: recipes hold no Python")
    return found


def violations(root: Path) -> list[str]:
    """Returns a line for each breach of the rules in the tree at `root`."""
    modules = sources(root)
    graph = import_graph(modules)
    return [
        *direction_violations(modules, graph),
        *cycles(graph),
        *flag_violations(modules),
        *task_name_violations(modules),
        *name_violations(modules),
        *file_violations(root, modules),
    ]


def test_project_keeps_the_rules():
    assert sources(ROOT).keys() >= {"bert_tf.modeling", "bert_tf.tokenization", "run_pretraining"}
    assert violations(ROOT) == []


CLEAN = {
    "run_a.py": "from absl import flags\nfrom bert_tf.runs.flags import command_flags\n"
    "from bert_tf.tasks.a import data, model\n",
    "bert_tf/__init__.py": "",
    "bert_tf/modeling.py": "from bert_tf.model import layers\n",
    "bert_tf/tokenization.py": "from bert_tf.files import records\n",
    "bert_tf/files/__init__.py": "",
    "bert_tf/files/records.py": "import os\n",
    "bert_tf/model/__init__.py": "",
    "bert_tf/model/layers.py": "from absl import logging\nclass Dense:\n    pass\n",
    "bert_tf/runs/__init__.py": "",
    "bert_tf/runs/flags/command_flags.py": "from absl import flags\n",
    "bert_tf/runs/training/trainer.py": "from bert_tf import modeling\nclass _Dense:\n    pass\n",
    "bert_tf/tasks/__init__.py": "",
    "bert_tf/tasks/a/__init__.py": "",
    "bert_tf/tasks/a/schema.py": "from bert_tf.files import records\n",
    "bert_tf/tasks/a/data.py": "from bert_tf import tokenization\nfrom . import schema\n",
    "bert_tf/tasks/a/model.py": "from bert_tf import modeling\n"
    "from bert_tf.tasks.a import schema\n",
    "tests/a_test.py": "from bert_tf.tasks.a import data, model\n",
}

# Files that make the clean tree a bad one, and the beginning of the line that reports them.
BAD = r"""
bert_tf/runs/training/trainer.py: from bert_tf.tasks.a import schema
    bert_tf.runs.training.trainer imports bert_tf.tasks.a.schema: tasks stands above runs
bert_tf/modeling.py: def f():\n    import bert_tf.runs.training.trainer
    bert_tf.modeling imports bert_tf.runs.training.trainer: runs stands above modeling
bert_tf/model/layers.py: from bert_tf.files.records import x
    bert_tf.model.layers imports bert_tf.files.records: model never imports files
bert_tf/tasks/a/data.py: import run_a
    bert_tf.tasks.a.data imports run_a: the library imports no program or tool
bert_tf/helpers.py:
    bert_tf.helpers: helpers has no place in FLOORS of tests/imports_test.py
bert_tf/tasks/b/model.py: from ..a.model import x
    bert_tf.tasks.b.model imports bert_tf.tasks.a.model: one task imports another
bert_tf/tasks/a/model.py: from bert_tf.tokenization import x
    bert_tf.tasks.a.model imports bert_tf.tokenization: model code imports data code
bert_tf/tasks/a/data.py: from bert_tf.modeling import BertConfig
    bert_tf.tasks.a.data reaches bert_tf.modeling: data code imports model code
bert_tf/tasks/a/__init__.py: from bert_tf.tasks.a import model
    bert_tf.tasks.a.data reaches bert_tf.tasks.a.model: data code imports model code
bert_tf/files/records.py: from bert_tf.files.storage import x
bert_tf/files/storage.py: from bert_tf.files import records
    cycle: bert_tf.files.records, bert_tf.files.storage
bert_tf/files/records.py: from absl.flags import FLAGS
    bert_tf.files.records: absl.flags belongs in programs, tools and bert_tf.runs.flags.c
bert_tf/tasks/a/data.py: from absl import app, flags
    bert_tf.tasks.a.data: absl.flags belongs in programs, tools and bert_tf.runs.flags.c
bert_tf/tasks/a/model.py: from bert_tf.runs.flags.command_flags import x
    bert_tf.tasks.a.model imports bert_tf.runs.flags.command_flags: only programs and tools
bert_tf/runs/training/trainer.py: def f(task):\n    return task == 'a'
    bert_tf.runs.training.trainer line 2: names the task 'a'
bert_tf/tasks/a/model.py: class Dense:\n    pass
    class Dense is defined in bert_tf.model.layers and bert_tf.tasks.a.model
bert_tf/tasks/a/utils.py:
    bert_tf/tasks/a/utils.py: a name that says noth
flags/a.py:
    flags/a.py: recipes hold no Python
"""
LONG = {"bert_tf/files/records.py": 450, "run_a.py": 150, "tests/a_test.py": 450}


def bad_trees() -> Iterator[tuple[dict[str, str], str]]:
    files = {}
    for line in BAD.strip().splitlines():
        if line.startswith(" "):
            yield files, line.strip()
            files = {}
        else:
            path, _, text = line.partition(":")
            files[path] = text.strip().replace(r"\n", "\n")
    for path, most in LONG.items():
        yield {path: "#\n" * (most + 1)}, f"{path}: {most + 1} lines, more than {most}"
    modules = {f"bert_tf/{name}.py": "" for name in "cdefghij"}
    yield modules, "bert_tf has 11 modules at its top, more than 10"


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_clean_tree_passes(tmp_path):
    write_tree(tmp_path, CLEAN)
    assert violations(tmp_path) == []


@pytest.mark.parametrize(("files", "message"), list(bad_trees()))
def test_bad_tree_is_found(tmp_path, files, message):
    write_tree(tmp_path, {**CLEAN, **files})
    assert [line for line in violations(tmp_path) if line.startswith(message)]
