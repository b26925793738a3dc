"""Checks, without importing TensorFlow, that it can be imported.

All builds of TensorFlow share one package folder, and pip silently lets one overwrite another. The
symptoms come late and far from the cause: for example, a TPU machine finds no TPU. With the wrong
version of libtpu the import even aborts the process, which Python cannot catch.
"""

import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile

_TPU_BUILD = "tensorflow-tpu"
# All builds that install into the same folder. Two builds other than tensorflow-tpu work side by
# side as long as both stay installed, so they are accepted.
_BUILDS = (
    *(_TPU_BUILD, "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm"),
    *("tf-nightly", "tf-nightly-cpu"),
)
# The first release that lacks functions which tensorflow-tpu 2.20 looks up when it is imported
# (found by trying 0.0.14 to 0.0.51). That wheel's own requirement, libtpu~=0.0.14, allows it.
_FIRST_BAD_LIBTPU = "0.0.32"
_NOT_INSTALLED = """\
TensorFlow is not installed. Choose the build for this machine, and run beside setup.py one of
    pip install -e ".[cpu]"
    pip install -e ".[gpu]"
    pip install -e ".[tpu]"\
"""


def check() -> None:
    """Checks by pip's package metadata that TensorFlow can be imported.

    Raises:
        ImportError: it cannot; the message has the commands that repair the installation. If
            nothing catches it, the program ends with this message, no traceback, and status 1.
    """
    if not (problem := _find_problem()):
        return
    error = ImportError(problem)
    show_others = sys.excepthook

    def show(kind, value, traceback) -> None:
        if value is error:
            print(f"bert_tf: {value}", file=sys.stderr)
        else:
            show_others(kind, value, traceback)

    sys.excepthook = show
    raise error


def _find_problem() -> str | None:
    """Returns what is wrong with the installation and how to repair it, or None."""
    listed = {name: found for name in _BUILDS if (found := _distribution(name))}
    package = importlib.util.find_spec("tensorflow")
    if package is None or package.origin is None:  # a folder without __init__.py has no origin
        if listed:
            name, found = next(iter(listed.items()))
            return (
                f"The files of {name} are gone, though pip lists it: another TensorFlow was"
                " installed over it and then uninstalled. To repair it:\n"
                f"    pip install --no-deps --force-reinstall {name}=={found.version}"
            )
        return _NOT_INSTALLED
    # Only builds in the folder that Python imports from count, not those of other environments.
    folder = os.path.realpath(os.path.dirname(os.path.dirname(package.origin)))
    builds = [
        name
        for name, found in listed.items()
        if os.path.realpath(str(found.locate_file(""))) == folder
    ]
    if _TPU_BUILD not in builds:
        return _temporary_folder_problem()
    tpu = listed[_TPU_BUILD].version
    others = [name for name in builds if name != _TPU_BUILD]
    if others:
        return (
            f"{_TPU_BUILD} must be the only TensorFlow, but pip also lists {', '.join(others)}:"
            " they write the same files, and one has overwritten the other (installing"
            " tensorflow-text without --no-deps does that). To repair it:\n"
            f"    pip uninstall -y {' '.join(others)} {_TPU_BUILD}\n"
            f"    pip install --no-deps {_TPU_BUILD}=={tpu}\n"
            "or, on a machine without TPUs, uninstall both and then:\n"
            '    pip install -e ".[cpu]"'
        )
    libtpu = _distribution("libtpu")
    # With either variable TensorFlow does not load the libtpu that pip installed.
    elsewhere = "TPU_LIBRARY_PATH" in os.environ or os.environ.get("TPU_LOAD_LIBRARY") == "0"
    if tpu.startswith("2.20.") and libtpu and not elsewhere:
        if _release(libtpu.version) >= _release(_FIRST_BAD_LIBTPU):
            return (
                f"{_TPU_BUILD} {tpu} needs libtpu below {_FIRST_BAD_LIBTPU}: with {libtpu.version},"
                " which is installed, importing TensorFlow would abort. To repair it:\n"
                f'    pip install "libtpu>=0.0.14,<{_FIRST_BAD_LIBTPU}"'
            )
    return _temporary_folder_problem()


def _temporary_folder_problem() -> str | None:
    """Returns a message if no folder for temporary files is writable; TensorFlow needs one."""
    try:
        tempfile.gettempdir()
    except OSError as error:
        return (
            f"TensorFlow needs a folder for temporary files ({error.strerror}). Set TMPDIR to a"
            " folder that you can write to and that has space left:\n"
            "    export TMPDIR=/path/to/folder"
        )
    return None


def _release(version: str) -> list[int]:
    """Returns the first three numbers of a version, e.g. [0, 0, 31] for 0.0.31.dev2+nightly."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _distribution(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
