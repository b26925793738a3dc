"""The import direction of README's layout, held by parsing the sources; nothing is imported.

programs and tools -> tasks -> training, input_pipeline, heads, checkpoints -> the core, without
cycles. `violations` takes the root of any tree, so that the checker itself is tested on a bad one.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

CORE, ENGINE, TASK, PROGRAM = range(4)
LEVEL_NAMES = ("core", "engine", "task", "program or tool")
# A module of bert_tf that is not in this table fails: where it stands is a decision.
LEVELS = {
    "bert_tf": CORE,
    "bert_tf.configuration": CORE,
    "bert_tf.distribution": CORE,
    "bert_tf.fast_tokenization": CORE,
    "bert_tf.installation": CORE,
    "bert_tf.freezing": CORE,
    "bert_tf.interrupts": CORE,
    "bert_tf.layers": CORE,
    "bert_tf.length_buckets": CORE,
    "bert_tf.modeling": CORE,
    "bert_tf.optimization": CORE,
    "bert_tf.prepared_datasets": CORE,
    "bert_tf.progress": CORE,
    "bert_tf.records": CORE,
    "bert_tf.sequences": CORE,
    "bert_tf.storage": CORE,
    "bert_tf.tokenization": CORE,
    "bert_tf.whole_files": CORE,
    "bert_tf.best_checkpoint": ENGINE,
    "bert_tf.label_file": ENGINE,
    "bert_tf.checkpoints": ENGINE,
    "bert_tf.command_flags": ENGINE,
    "bert_tf.fine_tuning": ENGINE,
    "bert_tf.fine_tuning_settings": ENGINE,
    "bert_tf.heads": ENGINE,
    "bert_tf.heartbeat": ENGINE,
    "bert_tf.input_pipeline": ENGINE,
    "bert_tf.loops": ENGINE,
    "bert_tf.prediction": ENGINE,
    "bert_tf.reporting": ENGINE,
    "bert_tf.steps": ENGINE,
    "bert_tf.training": ENGINE,
    "bert_tf.training_settings": ENGINE,
    "bert_tf.whole_file_input": ENGINE,
}
DATA = {
    "bert_tf.fast_tokenization",
    "bert_tf.prepared_datasets",
    "bert_tf.records",
    "bert_tf.sequences",
    "bert_tf.tokenization",
}
MODELS = {"bert_tf.modeling", "bert_tf.configuration", "bert_tf.layers", "bert_tf.heads"}
# In a task's folder, TASK_MODELS hold the model; TASK_NEITHER are the schema, where both sides
# meet, and what joins the two for a program. Every other module is data code.
TASK_MODELS = {"model", "head", "loss", "metrics"}
TASK_NEITHER = {"__init__", "schema", "phases", "run"}

MAX_LINES = 450
MAX_PROGRAM_LINES = 150


def sources(root: Path) -> dict[str, Path]:
    """Returns the path of each module, by dotted name; tests and setup.py are no part of it."""
    paths = [*root.glob("*.py")]
    for folder in ("bert_tf", "tools", "tpu"):
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


def imported_names(module: str, path: Path) -> Iterator[tuple[str, str | None]]:
    """Yields (module, name) of each import statement at any depth; name None for `import x`."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
                # A package that holds the importer is there already; it is no choice of its.
                if found in modules and found != module and found not in ancestors(module):
                    graph[module].add(found)
    return graph


def level(module: str) -> int | None:
    """Returns the level of a module, None if a module of bert_tf has no place."""
    if module.split(".")[0] != "bert_tf":
        return PROGRAM
    if module.startswith("bert_tf.tasks"):
        return TASK
    return LEVELS.get(module)


def task_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["bert_tf", "tasks"] and len(parts) > 2 else None


def side(module: str, modules: dict[str, Path]) -> str | None:
    """Returns "data", "model" or None for what is neither."""
    if module in DATA:
        return "data"
    if module in MODELS:
        return "model"
    stem = modules[module].stem
    if task_of(module) is None or stem in TASK_NEITHER:
        return None
    return "model" if stem in TASK_MODELS else "data"


def reachable(module: str, graph: dict[str, set[str]]) -> set[str]:
    """Returns everything that importing a module loads, the packages above it included."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo += graph[current] | {name for name in ancestors(current) if name in graph}
    return seen - {module}


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Returns one line for each group of modules that import each other."""

    def closure(module: str) -> set[str]:
        seen: set[str] = set()
        todo = list(graph[module])
        while todo:
            current = todo.pop()
            if current not in seen:
                seen.add(current)
                todo += graph[current]
        return seen

    reach = {module: closure(module) for module in graph}
    groups = {
        frozenset(other for other in graph if other in reach[module] and module in reach[other])
        for module in graph
        if module in reach[module]
    }
    return sorted(f"cycle: {', '.join(sorted(group))}" for group in groups)


def direction_violations(modules: dict[str, Path], graph: dict[str, set[str]]) -> list[str]:
    found = []
    for module in sorted(modules):
        here = level(module)
        if here is None:
            found.append(f"{module}: no place in LEVELS of tests/imports_test.py")
            continue
        for target in sorted(graph[module]):
            there = level(target)
            if there is not None and there > here:
                names = f"{LEVEL_NAMES[here]} imports {LEVEL_NAMES[there]}"
                found.append(f"{module} imports {target}: {names}")
            if target == "bert_tf.command_flags" and here != PROGRAM:
                found.append(f"{module} imports {target}: only programs and tools may")
            if task_of(module) and task_of(target) and task_of(module) != task_of(target):
                found.append(f"{module} imports {target}: one task imports another")
            sides = (side(module, modules), side(target, modules))
            if sides == ("model", "data"):
                found.append(f"{module} imports {target}: model code imports data code")
        if side(module, modules) == "data":
            for target in sorted(reachable(module, graph)):
                if side(target, modules) == "model":
                    found.append(f"{module} reaches {target}: data code imports model code")
    return found


def flag_violations(modules: dict[str, Path]) -> list[str]:
    return [
        f"{module}: absl.flags belongs in programs, tools and bert_tf/command_flags.py"
        for module, path in sorted(modules.items())
        if level(module) != PROGRAM and module != "bert_tf.command_flags"
        if any(
            f"{source}.{name}".startswith("absl.flags")
            for source, name in imported_names(module, path)
        )
    ]


def task_name_violations(modules: dict[str, Path]) -> list[str]:
    """Returns where the core or the engine compares or looks up the name of a task."""
    tasks = {task_of(module) for module in modules} - {None}
    return [
        f"{module} line {node.lineno}: names the task {node.value!r}"
        for module, path in sorted(modules.items())
        if level(module) not in (TASK, PROGRAM)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in tasks
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
    for path in sorted((root / "flags").rglob("*.py")):
        found.append(f"{path.relative_to(root)}: recipes hold no Python")
    return found


def violations(root: Path) -> list[str]:
    """Returns one line for each breach of the rules in the tree at `root`; [] is a clean one."""
    modules = sources(root)
    graph = import_graph(modules)
    return [
        *direction_violations(modules, graph),
        *cycles(graph),
        *flag_violations(modules),
        *task_name_violations(modules),
        *file_violations(root, modules),
    ]


def test_project_keeps_the_rules():
    assert sources(ROOT).keys() >= {"bert_tf.modeling", "bert_tf.tokenization", "run_pretraining"}
    assert violations(ROOT) == []


CLEAN = {
    "run_a.py": "from absl import flags\nfrom bert_tf import command_flags\n"
    "from bert_tf.tasks.a import data, model\n",
    "bert_tf/__init__.py": "",
    "bert_tf/command_flags.py": "from absl import flags\n",
    "bert_tf/modeling.py": "from absl import logging\n",
    "bert_tf/records.py": "import os\n",
    "bert_tf/tokenization.py": "",
    "bert_tf/training.py": "from bert_tf import checkpoints\n",
    "bert_tf/checkpoints.py": "from bert_tf import modeling\n",
    "bert_tf/tasks/__init__.py": "",
    "bert_tf/tasks/a/__init__.py": "",
    "bert_tf/tasks/a/schema.py": "from bert_tf import records\n",
    "bert_tf/tasks/a/data.py": "from bert_tf import tokenization\nfrom . import schema\n",
    "bert_tf/tasks/a/model.py": "from bert_tf import modeling\n"
    "from bert_tf.tasks.a import schema\n",
    "tests/a_test.py": "from bert_tf.tasks.a import data, model\n",
}

BAD = {
    "upwards": (
        {"bert_tf/training.py": "from bert_tf.tasks.a import schema\n"},
        "bert_tf.training imports bert_tf.tasks.a.schema: engine imports task",
    ),
    "upwards inside a function": (
        {"bert_tf/modeling.py": "def f():\n    import bert_tf.training\n"},
        "bert_tf.modeling imports bert_tf.training: core imports engine",
    ),
    "library imports a program": (
        {"bert_tf/tasks/a/data.py": "import run_a\n"},
        "bert_tf.tasks.a.data imports run_a: task imports program or tool",
    ),
    "no place": (
        {"bert_tf/helpers.py": ""},
        "bert_tf.helpers: no place in LEVELS of tests/imports_test.py",
    ),
    "another task": (
        {"bert_tf/tasks/b/model.py": "from ..a.model import x\n"},
        "bert_tf.tasks.b.model imports bert_tf.tasks.a.model: one task imports another",
    ),
    "model imports data": (
        {"bert_tf/tasks/a/model.py": "from bert_tf.tokenization import x\n"},
        "bert_tf.tasks.a.model imports bert_tf.tokenization: model code imports data code",
    ),
    "data imports model": (
        {"bert_tf/tasks/a/data.py": "from bert_tf.modeling import BertConfig\n"},
        "bert_tf.tasks.a.data reaches bert_tf.modeling: data code imports model code",
    ),
    "data reaches model": (
        {"bert_tf/tasks/a/__init__.py": "from bert_tf.tasks.a import model\n"},
        "bert_tf.tasks.a.data reaches bert_tf.tasks.a.model: data code imports model code",
    ),
    "cycle": (
        {"bert_tf/checkpoints.py": "from bert_tf.training import x\n"},
        "cycle: bert_tf.checkpoints, bert_tf.training",
    ),
    "flags": (
        {"bert_tf/records.py": "from absl.flags import FLAGS\n"},
        "bert_tf.records: absl.flags belongs in programs, tools and bert_tf/command_flags.py",
    ),
    "flags of a task": (
        {"bert_tf/tasks/a/data.py": "from absl import app, flags\n"},
        "bert_tf.tasks.a.data: absl.flags belongs in programs, tools and bert_tf/command_flags.py",
    ),
    "command_flags": (
        {"bert_tf/tasks/a/model.py": "from bert_tf.command_flags import x\n"},
        "bert_tf.tasks.a.model imports bert_tf.command_flags: only programs and tools may",
    ),
    "name of a task": (
        {"bert_tf/training.py": "def f(task):\n    return task == 'a'\n"},
        "bert_tf.training line 2: names the task 'a'",
    ),
    "long module": (
        {"bert_tf/records.py": "#\n" * 451},
        "bert_tf/records.py: 451 lines, more than 450",
    ),
    "long program": ({"run_a.py": "#\n" * 151}, "run_a.py: 151 lines, more than 150"),
    "long test": ({"tests/a_test.py": "#\n" * 451}, "tests/a_test.py: 451 lines, more than 450"),
    "utils": ({"bert_tf/tasks/a/utils.py": ""}, "bert_tf/tasks/a/utils.py: a name that says noth"),
    "recipe": ({"flags/a.py": ""}, "flags/a.py: recipes hold no Python"),
}


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_clean_tree_passes(tmp_path):
    write_tree(tmp_path, CLEAN)
    assert violations(tmp_path) == []


@pytest.mark.parametrize("case", BAD)
def test_bad_tree_is_found(tmp_path, case):
    files, message = BAD[case]
    write_tree(tmp_path, {**CLEAN, **files})
    assert [line for line in violations(tmp_path) if line.startswith(message)]
