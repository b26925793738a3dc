"""Reads whole files: bytes, UTF-8, JSON; and writes files atomically.

Messages name a file by `place`, which includes the file's flag if it has one. Some end with `rule`,
which says what the file must be.

A failed write raises UserError if a retry does not help (no permission, no directory), OSError if a
retry may help (a full disk).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Self

from bert_tf import strict_json
from bert_tf.errors import UserError, as_given, check_regular, quoted
from bert_tf.files import storage
from bert_tf.files.paths import destination
from bert_tf.files.temporary_names import temporary_name
from bert_tf.start import lazy_tensorflow as tf

_POINTER = b"version https://git-lfs.github.com/spec/"


class UnfinishedFile:
    """A file that is written under a temporary name and renamed when it is complete.

    A context manager: if `finish` was not called by its end, the temporary file is removed, and an
    earlier file with the final name is unchanged. A method that fails to write raises UserError or
    OSError, as the module's description says.

    A link is followed: its target is replaced. A pipe or a device is written in place.

    `open_writer` opens the temporary file, such as `tf.io.TFRecordWriter`; None for plain bytes.
    `needs_regular` refuses pipes and devices, for a file that is not written from start to end.
    """

    def __init__(
        self,
        path: str,
        place: str | None = None,
        open_writer: Callable[[str], Any] | None = None,
        needs_regular: bool = False,
    ):
        place = place or path
        self._path, self._plain = destination(path, place)
        if tf.io.gfile.isdir(self._path):
            raise UserError(f"{place} must name a file, but it is a directory")
        if self._plain and needs_regular:
            raise UserError(f"{place} must name a regular file, but it is a pipe or a device")
        self._explained = functools.partial(storage.write_errors, path, place)
        folder = os.path.dirname(self._path)
        self.name = self._path if self._plain else temporary_name(folder)
        with self._explained():
            self._writer = (open_writer or _open)(self.name)
        self.flush()  # makes a bucket that refuses writes do so now, not after hours of work

    def write(self, data: bytes) -> int:
        try:
            self._writer.write(data)
        except tf.errors.OpError as error:  # a context manager would be slow for every record
            with self._explained():
                raise error
        return len(data)

    def flush(self) -> None:
        with self._explained():
            self._writer.flush()

    def close(self) -> None:
        """Closes the file; it can be read as `name` until the end of the block."""
        with self._explained():
            self._writer.close()

    def finish(self) -> None:
        """Closes the file and renames it to its final name."""
        self.close()
        if self._plain:
            return
        with self._explained():
            tf.io.gfile.rename(self.name, self._path, overwrite=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        with contextlib.suppress(tf.errors.OpError):
            self._writer.close()
        if self._plain:
            return
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(self.name)


def _open(name: str) -> tf.io.gfile.GFile:
    writer = tf.io.gfile.GFile(name, "wb")
    writer.write(b"")  # opens the file
    return writer


def write_whole(path: str, content: str | bytes, place: str | None = None) -> None:
    """Writes a file atomically, a str as UTF-8; after an error, an earlier file is unchanged."""
    with UnfinishedFile(path, place) as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.finish()


def write_json(path: str, value: Any, sort_keys: bool = False) -> None:
    """Writes a JSON file atomically, as `write_whole`."""
    write_whole(path, json.dumps(value, indent=2, sort_keys=sort_keys) + "\n")


def _content(path: str, size: int) -> bytes:
    # Python reads a local file in a third of TensorFlow's time. TensorFlow reads buckets, and its
    # error says what is wrong.
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as local:
        return local.read(size)
    with tf.io.gfile.GFile(path, "rb") as reader:
        content: bytes = reader.read(size)
    return content


def read_bytes(path: str, place: str, rule: str = "", size: int = -1) -> bytes:
    """Returns the content of a file, or its first `size` bytes."""
    check_regular(path, place)
    try:
        content = _content(path, size)
    except tf.errors.OpError as error:
        cause = storage.cause(path, error)
        reason = f" ({cause}); {rule}" if rule else f": {cause}"
        raise UserError(f"{place} cannot be read{reason}") from error
    if content.startswith(_POINTER):
        raise UserError(
            f"{place} is a Git LFS pointer instead of the file itself; run `git lfs pull` in"
            f" {os.path.dirname(path) or '.'}"
        )
    return content


def check_no_pointer(path: str, place: str) -> None:
    """Raises UserError if a file is a Git LFS pointer, or cannot be read."""
    read_bytes(path, place, size=len(_POINTER))


def read_text(path: str, place: str, rule: str = "") -> str:
    """Returns the text of a file without a byte-order mark; UserError if it is not UTF-8."""
    return decode_utf8(read_bytes(path, place, rule), place)


def read_json(path: str, place: str, rule: str) -> Any:
    """Returns the content of a JSON file; UserError if `strict_json.loads` refuses it."""
    text = read_text(path, place, rule)
    try:
        return strict_json.loads(text)
    except (ValueError, RecursionError) as error:  # the latter: nested too deeply
        raise UserError(f"{place} is not JSON ({error}); {rule}") from error


_SAMPLE_BYTES = 4096
_LARGEST_SHARE = 0.2  # of zeros in text


def decode_utf8(data: bytes, place: str, first_line: int = 1) -> str:
    """Decodes a file without its byte-order mark, or a part of it from line `first_line`."""
    sample = data[:_SAMPLE_BYTES]
    if first_line == 1 and sample.count(0) > _LARGEST_SHARE * len(sample):
        # English in UTF-16 without a byte-order mark would pass.
        raise UserError(
            f"{place} is not text in UTF-8: many bytes are 0, as in UTF-16; convert the file, e.g."
            " with `iconv -f UTF-16 -t UTF-8`"
        )
    try:
        return data.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first_line + error.object.count(b"\n", 0, error.start)
        raise UserError(
            f"{place}, line {line}, is not UTF-8 ({error.reason}); decompress the file, or convert"
            " it, e.g. with `iconv -f WINDOWS-1252 -t UTF-8`"
        ) from error


def drop_carriage_returns(text: str, place: str) -> str:
    """Returns the text of a file without carriage returns, as GFile.readline reads it."""
    check_line_ends(text, place)
    return text.replace("\r", "")


def check_line_ends(text: str, place: str) -> None:
    """Raises UserError if only carriage returns end the lines: they would be read as one line."""
    if "\n" not in text and "\r" in text.rstrip("\r"):
        raise UserError(
            f"{place} has lines that end in a carriage return only, as on old Macs; convert the"
            " file, e.g. with `tr '\\r' '\\n'`"
        )


class Needed(NamedTuple):
    """The only values that a key may have; messages name the first, the reason and a remedy."""

    values: tuple[Any, ...]
    reason: str = "no other value is supported. Choose a different model"


@dataclasses.dataclass(frozen=True)
class JsonKeys:
    """How the keys of a file are handled.

    used: keys that are read.
    needed: keys that may only have certain values; a file may lack them.
    harmless: keys that do not affect the output.
    """

    used: Collection[str]
    needed: Mapping[str, Needed] = dataclasses.field(default_factory=dict)
    harmless: Collection[str] = ()

    @property
    def known(self) -> set[str]:
        return {*self.used, *self.needed, *self.harmless}

    def check(self, content: Mapping[str, Any], path: str) -> None:
        for key, (values, reason) in self.needed.items():
            if key in content and content[key] not in values:
                raise UserError(
                    f"{path}: {key} must be {json.dumps(values[0])}, not {quoted(content[key])}:"
                    f" {reason}"
                )
        unknown = sorted(content.keys() - self.known)
        if unknown:
            raise UserError(
                f"{path}: {as_given(unknown[0])} is not known, so it may change what the model"
                f" answers; it is {quoted(content[unknown[0]])}. Choose a different model or, if it"
                " does not matter for this one, delete the key"
            )


def read_checked(
    path: str, keys: JsonKeys | None = None, kind: type[list] | type[dict] = dict
) -> Any:
    """Reads a JSON list or dictionary, checked by `keys`; empty if there is no such file."""
    if not tf.io.gfile.exists(path):
        return kind()
    content = read_json(path, path, "correct or delete it")
    if not isinstance(content, kind):
        kinds = {list: "a list", dict: "a dictionary"}  # not the content, which may be secret
        found = kinds.get(type(content)) or quoted(content)
        raise UserError(f"{path} must hold {kinds[kind]}; received {found}. Correct or delete it")
    for entry in content if kind is list else [content]:
        if keys and isinstance(entry, dict):
            keys.check(entry, path)
    return content
