"""What the cases of all fuzzers share: seeds, what counts as a refusal, and damaged bytes."""

import importlib
import pkgutil
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from absl import logging

from bert_tf.errors import UserError
from tests import fuzz

Fuzzer = Callable[[random.Random, Path], None]
LONGEST_MESSAGE = 500


def fuzzers() -> dict[str, Fuzzer]:
    """Returns every `fuzz_NAME` function of the modules beside this one, by name."""
    found = {}
    for module_info in pkgutil.iter_modules(fuzz.__path__):
        if module_info.name.startswith("fuzz_"):
            module = importlib.import_module(f"tests.fuzz.{module_info.name}")
            found |= {name: f for name, f in vars(module).items() if name.startswith("fuzz_")}
    return found


def run_cases(
    name: str,
    fuzzer: Fuzzer,
    folder: Path,
    first_case: int = 0,
    num_cases: int | None = None,
    seconds: float = float("inf"),
) -> int:
    """Runs cases of a fuzzer, the same for the same name and numbers, and returns how many.

    Each case gets an empty folder in `folder`. No case begins after `seconds`. Raises
    AssertionError if a case fails; the message says how to run it again.
    """
    ends = time.monotonic() + seconds
    verbosity = logging.get_verbosity()
    case = first_case
    while (num_cases is None or case < first_case + num_cases) and time.monotonic() < ends:
        case_folder = folder / f"{name}-{case}"
        case_folder.mkdir()
        logging.set_verbosity(logging.ERROR)  # some inputs are warned of
        try:
            fuzzer(random.Random(f"{name} {case}"), case_folder)
        except BaseException as error:
            again = f"python -m tests.fuzz --only={name} --first_case={case} --num_cases=1"
            raise AssertionError(f"{again}: {type(error).__name__}: {error}") from error
        finally:
            logging.set_verbosity(verbosity)
        for path in sorted(case_folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        case_folder.rmdir()
        case += 1
    return case - first_case


def attempt(action: Callable[[], Any], *, naming: str = "") -> tuple[str | None, Any]:
    """Returns (None, result) if `action` accepts its input, (message, None) if it refuses it.

    Any exception but UserError (status 1) and OSError (status 74) passes through and fails the
    case, and so does a message that is empty, longer than a line of 500 characters, or lacks the
    text `naming`, such as the file's name.
    """
    try:
        return None, action()
    except (UserError, OSError) as error:
        message = str(error)
        assert message, f"{type(error).__name__} without a message"
        assert "\n" not in message, f"several lines: {message!r}"
        assert len(message) <= LONGEST_MESSAGE, f"{len(message)} characters: {message[:200]!r}..."
        assert naming in message, f"{naming!r} is not named: {message}"
        return message, None


def damage(random: random.Random, data: bytes) -> bytes:
    """Returns the data with a flipped bit, a cut end, an inserted, removed or doubled stretch."""
    at = random.randrange(len(data) + 1)
    length = random.randint(1, 12)
    match random.choice(["flip", "cut", "insert", "remove", "double"]):
        case "flip" if at < len(data):
            return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "insert":
            return data[:at] + random.randbytes(length) + data[at:]
        case "remove":
            return data[:at] + data[at + length :]
        case _:
            return data[:at] + data[max(0, at - length) :]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (container, key) of every value in nested lists and objects."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)
