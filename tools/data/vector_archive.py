"""Reads the vectors of texts from a NumPy archive, and the texts themselves from a file."""

import contextlib
import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from bert_tf.errors import UserError, check_regular, listed, quoted
from bert_tf.files import storage
from bert_tf.files.whole_files import read_text
from bert_tf.start import lazy_tensorflow as tf

_LAYERS, _ENDING = "layers", ".npy"
# The arrays of extract_features.py that have a vector for each text; the first one found is used.
_PREFERRED = ("mean_vector", "pooled_vector")


def read_vectors(path: str, array: str | None = None, layer: int | None = None) -> np.ndarray:
    """Returns the vectors of an archive such as extract_features.py writes, float32 [n, H].

    Args:
        path: the archive, the value of --vectors.
        array: the array's name; the array is float [n, H] or [n, L, H]. None for `mean_vector`,
            else `pooled_vector`, else the only float matrix.
        layer: which layer, by its number in the array `layers`; None if there is only one, or
            the array is [n, H].
    """
    check_regular(path, f"--vectors={path}")
    with _reading(path), tf.io.gfile.GFile(path, "rb") as file, _open_archive(file) as archive:
        names = [name.removesuffix(_ENDING) for name in archive.namelist()]
        name = array or _find_array(path, archive, names)
        if name not in names:
            raise UserError(
                f"--array must be an array of --vectors={path}: {listed(names)}; received"
                f" {quoted(name)}"
            )
        vectors = _read_array(archive, name)
        layers = _read_array(archive, _LAYERS).tolist() if _LAYERS in names else []
        layers = layers if isinstance(layers, list) else [layers]
    if vectors.ndim not in (2, 3) or vectors.dtype.kind != "f" or 0 in vectors.shape:
        raise UserError(
            f"--vectors={path}: {name} must be float vectors [texts, hidden size], or [texts,"
            f" layers, hidden size]; it is {vectors.dtype} {list(vectors.shape)}. Choose another"
            " with --array"
        )
    if vectors.ndim == 3:
        vectors = vectors[:, _layer_index(path, layers, vectors.shape[1], layer)]
    elif layer is not None:
        raise UserError(
            f"--layer={layer} needs an array of layers, [texts, layers, hidden size]; {path}:"
            f" {name} is {list(vectors.shape)}. Remove --layer, or choose another array with"
            " --array"
        )
    with np.errstate(over="ignore"):
        vectors = np.ascontiguousarray(vectors, np.float32)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        raise UserError(
            f"--vectors={path}: {name} must be finite; the vector of line {bad[0] + 1} is not."
            " Compute the vectors again"
        )
    return vectors


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turns what the parsers of a block raise into a UserError that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of a zip file and of arrays there are a dozen kinds
        reason = storage.cause(path, error) if isinstance(error, tf.errors.OpError) else str(error)
        raise UserError(
            f"--vectors={path} must be a NumPy archive, as extract_features.py --output_format=npz"
            f" writes it; reading it failed: {quoted(reason)}"
        ) from error


def _open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Returns the archive in a file; raises `ValueError` if the file is a single array."""
    is_array = file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX
    if is_array:
        raise ValueError("it is a single array, as np.save writes it; np.savez writes an archive")
    return zipfile.ZipFile(file)


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Returns an array of numbers; raises `ValueError`, or whatever the parsers raise, for others.

    The member is read whole, so that its checksum is verified and its header's sizes are checked
    before memory is allocated; np.load does neither.
    """
    content = io.BytesIO(archive.read(_member(archive, name)))
    shape, is_fortran, dtype = _read_header(content)
    data = content.read()
    if dtype.kind not in "bifu" or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(
            f"the array {quoted(name)} has {len(data)} bytes, its header says {list(shape)} {dtype}"
        )
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


def _member(archive: zipfile.ZipFile, name: str) -> str:
    return name + _ENDING if name + _ENDING in archive.namelist() else name


def _read_header(content: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Returns the shape of an array, whether its order is Fortran's, and its type."""
    if np.lib.format.read_magic(content) == (1, 0):
        return np.lib.format.read_array_header_1_0(content)
    return np.lib.format.read_array_header_2_0(content)


def _is_float_matrix(archive: zipfile.ZipFile, name: str) -> bool:
    try:
        with archive.open(_member(archive, name)) as content:
            shape, _, dtype = _read_header(content)
    except ValueError:  # not an array
        return False
    return dtype.kind == "f" and len(shape) == 2


def _find_array(path: str, archive: zipfile.ZipFile, names: Sequence[str]) -> str:
    """Returns the name of the array that has a vector for each text."""
    found = [name for name in _PREFERRED if name in names][:1]
    if not found:
        found = [name for name in names if _is_float_matrix(archive, name)]
    if len(found) != 1:
        raise UserError(
            f"--vectors={path} must have the array mean_vector or pooled_vector, or one float"
            f" matrix; it has {listed(names)}. Choose one with --array"
        )
    return found[0]


def _layer_index(path: str, layers: list[int], count: int, layer: int | None) -> int:
    """Returns the index of the chosen layer among the `count` layers of the array."""
    if layer is None and count == 1:
        return 0
    if len(layers) != count:
        raise UserError(
            f"--vectors={path}: the array layers must number the {count} layers of the vectors; it"
            f" has {listed(layers) or 'none'}"
        )
    if layer not in layers:
        raise UserError(
            f"--layer must be one of {path}: {listed(layers)}; received {quoted(layer)}"
        )
    return layers.index(layer)


def read_lines(path: str, flag: str, count: int) -> list[str]:
    """Returns the lines of the file of --`flag`, one for each of `count` vectors, stripped."""
    rule = "it must have one line for each vector, in the same order"
    text = read_text(path, f"--{flag}={path}", rule)
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    if len(lines) != count:
        raise UserError(f"--{flag}={path}: {rule}; it has {len(lines)} lines for {count} vectors")
    return lines


def to_unit_length(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors divided by their lengths, float32 [n, H]; a vector of zeros stays as it is.

    The dot product of two results is the cosine of the angle between the vectors.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths).astype(np.float32)
