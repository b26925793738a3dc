"""The time of every regular expression must grow with the text, not with its square."""

import ast
import itertools
import re
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUNCTIONS = {"compile", "search", "match", "fullmatch", "findall", "finditer", "split", "sub"}
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
                ) if method in FUNCTIONS:
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
