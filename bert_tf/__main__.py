"""`python -m bert_tf` lists the programs and tools; pip's command `run_squad.py` starts here.

pip makes a command for each program. Unlike a plain script, it also starts in an environment whose
path has a space.
"""

import ast
import functools
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from bert_tf.errors import as_installed

PROGRAMS = (
    "create_pretraining_data extract_features run_classifier run_distillation run_multiple_choice"
    " run_pretraining run_sentence_similarity run_squad run_tagging"
).split()


def __getattr__(name: str) -> Callable[[], object]:
    if name not in PROGRAMS:
        raise AttributeError(name)
    return functools.partial(_run, name)


def _run(name: str) -> None:
    """Runs a program's module, not the command of the same name in the first folder of sys.path."""
    here = os.path.dirname(os.path.realpath(sys.argv[0]))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != here]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _print(names: Iterable[str]) -> None:
    for name in names:
        if found := importlib.util.find_spec(name):
            text = ast.get_docstring(ast.parse(Path(str(found.origin)).read_text("utf-8"))) or ""
            print(f"  {name.rpartition('.')[2]:30}{text.partition(chr(10))[0]}")


if __name__ == "__main__":
    package = as_installed("tools.x").removesuffix(".x")
    places = getattr(importlib.util.find_spec(package), "submodule_search_locations", ())
    tools = sorted(path.stem for place in places for path in Path(place).glob("[!_]*.py"))
    print("Programs: python -m NAME --help")
    _print(PROGRAMS)
    print(f"\nTools: python -m {package}.NAME --help")
    _print(f"{package}.{name}" for name in tools)
