"""The README as a new user follows it: every command is run, every Python block too."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Commands that .ci/run runs itself, in an environment that it has just made.
IN_CI = ("pip install", "python -m pytest")
# The other ways to install, of which CI takes one.
OTHER_INSTALLS = ('[cpu]"', '[tpu]"', "--no-deps")
# The paper's million steps on BERT-Base become a few on a tiny model: a later flag wins.
SHORTENED = {
    "--output_dir=output/base": "--phases=128:2:4:20,512:2:2:77"
    " --bert_config_file=flags/models/uncased_L-2_H-128_A-2/bert_config.json"
}


def blocks(language: str) -> list[str]:
    """Returns the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Returns the shell commands, each on one line, in order."""
    text = "".join(blocks("bash")).replace("\\\n", " ")
    text = text.replace(" && ", "\n")
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


@pytest.fixture
def checkout(tmp_path):
    """A folder that looks like a checkout and can be written to."""
    for name in ("bert_tf", "flags", "tools", "tpu", *(path.name for path in ROOT.glob("*.py"))):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def execute(command: str, folder: Path) -> str:
    """Returns the output of a shell command that must succeed, `python` being this one."""
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        interpreter.parent.mkdir()
        interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        interpreter.chmod(0o755)
    path = f"{interpreter.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}"
    return done.stdout


def test_what_ci_runs_is_what_the_readme_says():
    ci = (ROOT / ".ci" / "run").read_text().replace("'", '"').replace("--quiet ", "")
    for command in commands():
        if command.startswith(IN_CI) and not any(part in command for part in OTHER_INSTALLS):
            assert command in ci, f".ci/run does not run: {command}"


def test_every_program_and_tool_is_told_of():
    for path in [*ROOT.glob("*.py"), *(ROOT / "tools").glob("[a-z]*.py")]:
        if path.name != "setup.py":
            assert path.stem in README, f"the README does not tell of {path.name}"


@pytest.mark.slow
def test_commands_that_need_other_data_have_flags_that_exist(checkout):
    """They cannot be run here; their programs, flags and recipes are looked for."""
    text = "".join(blocks("console")).replace("\\\n", " ")
    helps: dict[str, str] = {}
    for line in re.findall(r"^\$ (python .*)", text, re.MULTILINE):
        line = re.sub(r"\s+", " ", line)
        program = re.match(r"python (?:-m tools\.\w+|\w+\.py)", line)
        if not program:
            continue
        name = program.group()
        if name not in helps:
            helps[name] = execute(f"{name} --helpfull || true", checkout)
        for flag in re.findall(r" --(\w+)", line):
            assert re.search(rf"^  --(\[no\])?{flag}:", helps[name], re.MULTILINE), (name, flag)
        for recipe in re.findall(r" --flagfile=(\S+)", line):
            assert (ROOT / recipe).is_file(), recipe
    assert len(helps) >= 7


def test_every_module_is_told_of():
    layout = README.partition("\n## Layout\n")[2].partition("\n## ")[0]
    for path in (ROOT / "bert_tf").glob("*.py"):
        told = re.search(rf"(?<!\w){re.escape(path.name)}", layout)
        assert told or path.name == "__init__.py", f"README's layout does not tell of {path.name}"


def test_the_python_blocks_run(checkout):
    for number, block in enumerate(blocks("python")):
        script = checkout / f"block_{number}.py"
        script.write_text(block)
        execute(f"python {script}", checkout)


@pytest.mark.slow
def test_every_command_runs(checkout):
    for command in commands():
        if command.startswith(IN_CI):
            continue
        for part, more in SHORTENED.items():
            if part in command:
                command += " " + more
        began = time.monotonic()
        output = execute(command, checkout)
        if command == "python -m tools.quickstart":
            seconds = time.monotonic() - began
            assert seconds < 300, f"the quickstart took {seconds:.0f} s"
            quickstart = checkout / "output" / "quickstart"
            results = dict(
                line.split(" = ")
                for line in (quickstart / "eval_results.txt").read_text().splitlines()
            )
            # Saying the commonest piece ("the") every time is right about once in ten.
            assert float(results["masked_lm_accuracy"]) > 0.25
            assert float(results["masked_lm_loss"]) < 4.5
            assert results["global_step"] == "1300"
            assert "Next:" in output
    assert os.listdir(checkout / "output" / "base")
