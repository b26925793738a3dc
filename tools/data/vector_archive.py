"""Reads the vectors of texts from a NumPy archive, and the texts themselves from a file."""

import zipfile
from typing import BinaryIO

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.whole_files import read_text

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
    try:
        with tf.io.gfile.GFile(path, "rb") as file, _open_archive(file) as archive:
            name = array or _find_array(path, archive)
            if name not in archive:
                raise UserError(
                    f"--array must be an array of --vectors={path}: {listed(archive)}; received"
                    f" {quoted(name)}"
                )
            vectors = archive[name]
            layers = archive["layers"].tolist() if "layers" in archive else []
    except (tf.errors.OpError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"--vectors={path} must be a NumPy archive, as extract_features.py --output_format=npz"
            f" writes it; reading it failed: {quoted(str(error))}"
        ) from error
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
    vectors = np.ascontiguousarray(vectors, np.float32)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        raise UserError(
            f"--vectors={path}: {name} must be finite; the vector of line {bad[0] + 1} is not."
            " Compute the vectors again"
        )
    return vectors


def _open_archive(file: BinaryIO) -> np.lib.npyio.NpzFile:
    """Returns the archive in a file; raises `ValueError` if the file is a single array."""
    archive = np.load(file)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError("it is a single array, as np.save writes it; np.savez writes an archive")
    return archive


def _find_array(path: str, archive: np.lib.npyio.NpzFile) -> str:
    """Returns the name of the array that has a vector for each text."""
    found = [name for name in _PREFERRED if name in archive][:1]
    if not found:
        found = [name for name in archive if (x := archive[name]).dtype.kind == "f" and x.ndim == 2]
    if len(found) != 1:
        raise UserError(
            f"--vectors={path} must have the array mean_vector or pooled_vector, or one float"
            f" matrix; it has {listed(archive)}. Choose one with --array"
        )
    return found[0]


def _layer_index(path: str, layers: list[int], count: int, layer: int | None) -> int:
    """Returns the index of the chosen layer among the `count` layers of the array."""
    if layer is None and count == 1:
        return 0
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
