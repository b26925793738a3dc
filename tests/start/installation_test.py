"""Tests of bert_tf.start.installation with empty packages and their metadata.

Each case is a process that sees, beyond the standard library, only what is made here.
"""

import os
import subprocess
import sys
from pathlib import Path

import absl
import pytest

ROOT = Path(__file__).parents[2]
CHECK = "from bert_tf.start import installation; print('passed')"


@pytest.fixture
def site(tmp_path):
    """A folder of packages with absl and a TensorFlow whose import ends the process."""
    (tmp_path / "absl").symlink_to(Path(absl.__file__).parent)
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("import os\nos._exit(66)\n")
    return tmp_path


def install(site, **versions) -> None:
    """Writes pip's metadata of distributions; `_` stands for `-` in a name."""
    for name, version in versions.items():
        folder, project = site / f"{name}-{version}.dist-info", name.replace("_", "-")
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
        (folder / "METADATA").write_text(metadata)


def python(site, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs Python, which finds packages only in `site`."""
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{site}:{ROOT}", **environment},
        capture_output=True,
        text=True,
    )


def message(site, **environment: str) -> str:
    """Returns what the library's import writes when it is refused."""
    done = python(site, "-c", CHECK, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def passes(site, **environment: str) -> bool:
    done = python(site, "-c", CHECK, **environment)
    return (done.returncode, done.stdout, done.stderr) == (0, "passed\n", "")


@pytest.mark.parametrize(
    "versions",
    [
        {"tensorflow": "2.21.0"},
        {"tensorflow_cpu": "2.20.0"},
        {"tensorflow": "2.20.0", "tensorflow_cpu": "2.20.0"},
        {"tensorflow": "2.21.0", "libtpu": "0.0.51"},
        {"tensorflow_tpu": "2.20.0"},
        {"tensorflow_tpu": "2.20.0", "libtpu": "0.0.14"},
        {"tensorflow_tpu": "2.20.0", "libtpu": "0.0.31"},
        {"tensorflow_tpu": "2.19.1", "libtpu": "0.0.10"},
        {},  # TensorFlow is there, but not installed by pip
    ],
)
def test_what_can_work_passes_without_a_word(site, versions):
    install(site, **versions)
    assert passes(site)


def test_plain_tensorflow_beside_the_tpu_build(site):
    install(site, tensorflow="2.20.0", tensorflow_tpu="2.20.0", libtpu="0.0.51")
    assert message(site) == (
        "bert_tf: tensorflow-tpu must be the only TensorFlow, but pip also lists tensorflow: they"
        " write the same files, and one has overwritten the other (installing tensorflow-text"
        " without --no-deps does that). To repair it:\n"
        "    pip uninstall -y tensorflow tensorflow-tpu\n"
        "    pip install --no-deps tensorflow-tpu==2.20.0\n"
        "or, on a machine without TPUs, uninstall both and then:\n"
        '    pip install -e ".[cpu]"\n'
    )
    install(site, tensorflow_cpu="2.19.0")
    assert "but pip also lists tensorflow, tensorflow-cpu:" in message(site)
    assert "pip uninstall -y tensorflow tensorflow-cpu tensorflow-tpu\n" in message(site)


def test_builds_in_different_folders_overwrite_nothing(site):
    """An environment that also sees the system's packages: its own come first."""
    system = site / "system"
    system.mkdir()
    install(site, tensorflow_tpu="2.20.0", libtpu="0.0.31")
    install(system, tensorflow="2.20.0")
    assert passes(site, PYTHONPATH=f"{site}:{system}:{ROOT}")
    other = site / "other"
    (other / "tensorflow").mkdir(parents=True)
    (other / "tensorflow" / "__init__.py").write_text("")
    install(other, tensorflow="2.20.0", libtpu="0.0.51")
    assert passes(site, PYTHONPATH=f"{other}:{site}:{ROOT}")


@pytest.mark.parametrize("version", ["0.0.32", "0.0.32.1", "0.0.51", "0.1.0", "1.0"])
def test_a_libtpu_that_aborts_the_import(site, version):
    install(site, tensorflow_tpu="2.20.0", libtpu=version)
    assert message(site) == (
        f"bert_tf: tensorflow-tpu 2.20.0 needs libtpu below 0.0.32: with {version}, which"
        " is installed, importing TensorFlow would abort. To repair it:\n"
        '    pip install "libtpu>=0.0.14,<0.0.32"\n'
    )
    # With these variables TensorFlow does not load the installed one.
    assert passes(site, TPU_LOAD_LIBRARY="0")
    assert passes(site, TPU_LIBRARY_PATH="/lib/libtpu.so")


def test_a_tpu_build_without_files(site):
    install(site, tensorflow_tpu="2.20.0", libtpu="0.0.31")
    (site / "tensorflow" / "__init__.py").unlink()
    expected = (
        "bert_tf: The files of tensorflow-tpu are gone, though pip lists it: another TensorFlow was"
        " installed over it and then uninstalled. To repair it:\n"
        "    pip install --no-deps --force-reinstall tensorflow-tpu==2.20.0\n"
    )
    assert message(site) == expected
    (site / "tensorflow").rmdir()
    assert message(site) == expected


def test_no_tensorflow(site):
    (site / "tensorflow" / "__init__.py").unlink()
    (site / "tensorflow").rmdir()
    text = message(site)
    assert text.startswith("bert_tf: TensorFlow is not installed.")
    for extra in ("cpu", "gpu", "tpu"):
        assert f'    pip install -e ".[{extra}]"\n' in text


def test_the_refusal_can_be_caught(site):
    install(site, tensorflow="2.20.0", tensorflow_tpu="2.20.0")
    code = "try:\n    import bert_tf\nexcept ImportError as error:\n    print(error)\n1 / 0"
    done = python(site, "-c", code)
    assert done.stdout.startswith("tensorflow-tpu must be the only TensorFlow")
    assert "Traceback" in done.stderr and "ZeroDivisionError" in done.stderr


PROGRAMS = [[path.name] for path in sorted(ROOT.glob("*.py")) if path.name != "setup.py"]
PROGRAMS += [["-m", f"tools.{path.stem}"] for path in sorted(ROOT.glob("tools/[!_]*.py"))]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda words: words[-1])
def test_every_program_looks_before_it_imports_tensorflow(site, program):
    install(site, tensorflow_tpu="2.20.0", libtpu="0.0.51")
    done = python(site, *program, "--help")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("bert_tf: tensorflow-tpu 2.20.0 needs libtpu below 0.0.32")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda words: words[-1])
def test_every_program_says_so_outside_its_environment(tmp_path, program):
    """Where no package is installed at all."""
    done = python(tmp_path, *program, "--help")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bert_tf: TensorFlow is not installed. Choose the build")


NO_FOLDER = """
import os, sys, tempfile
os.environ.pop("TMPDIR", None)
create = os.open
def refuse(path, flags, *arguments):
    if flags & os.O_EXCL:
        raise OSError({number}, "refused", path)
    return create(path, flags, *arguments)
os.open = refuse
sys.argv = ["-c"]
from bert_tf.start import installation
"""


@pytest.mark.parametrize("number", [13, 28, 30])  # EACCES, ENOSPC, EROFS
def test_no_folder_for_temporary_files(site, number):
    done = python(site, "-c", NO_FOLDER.replace("{number}", str(number)))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "bert_tf: TensorFlow needs a folder for temporary files (No usable temporary directory"
        f" found in ['/tmp', '/var/tmp', '/usr/tmp', '{ROOT}']). Set TMPDIR to a folder that you"
        " can write to and that has space left:\n    export TMPDIR=/path/to/folder\n"
    )


def test_the_stand_in_tensorflow_is_what_an_import_meets(site):
    """Without this the tests above could not fail."""
    install(site, tensorflow_tpu="2.20.0", libtpu="0.0.31")
    assert python(site, "-c", "import bert_tf.seeds").returncode == 66
