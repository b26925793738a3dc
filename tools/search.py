r"""Finds the nearest texts of an archive of vectors.

    python -m tools.search --vectors=means.npz --texts=texts.txt --lines=1,7
    python -m tools.search --vectors=means.npz --texts=texts.txt --input=FOLDER \
        --query="How do I bake bread?"

--vectors is an archive of extract_features.py with --output_format=npz, --texts the file that it
read. Queries are lines of that file, by number from 1, or new texts: from --query, or else the
lines of the standard input. New texts need --input, the folder of the model that made the vectors,
as bert_tf.load takes it. The tool also computes the vector of the file's first text, and refuses a
model whose vector differs from the archive's.

For each query it prints the cosine, the number and the text of the nearest lines. The search is
exact: it compares the query with every vector.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.search")

import contextlib
import statistics
import sys
import time
from collections.abc import Iterator, Mapping

import numpy as np
from absl import flags, logging

from bert_tf.errors import UserError, check_regular, listed, quoted
from bert_tf.files import storage
from bert_tf.files.whole_files import read_text
from bert_tf.runs.flags import command_flags
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.extraction.lines import split_line

from . import load_input

FLAGS = flags.FLAGS

# The arrays of extract_features.py that have a vector for each text; the first one found is used.
_PREFERRED = ("mean_vector", "pooled_vector")
_TOLERANCE = 0.999  # cosine at least, between the archive's first vector and the model's


def read_vectors(path: str, array: str | None = None, layer: int | None = None) -> np.ndarray:
    """Returns the vectors of an archive of extract_features.py, float32 [n, H].

    `array` is the name of a float array [n, H] or [n, L, H]; None for `mean_vector`, else
    `pooled_vector`, else the only float matrix. `layer` is a number in the array `layers`; None if
    there is only one, or the array is [n, H].
    """
    check_regular(path, f"--vectors={path}")
    with _reading(path), tf.io.gfile.GFile(path, "rb") as file, np.load(file) as archive:
        name = array or _find_array(path, archive)
        vectors = _read(archive, name)
        layers = np.ravel(_read(archive, "layers")).tolist() if "layers" in archive else []
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


def _read(archive: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    # NumPy stops reading at the array's end, before the zip file's checksum is checked, which comes
    # after the last byte.
    with archive.zip.open(f"{name}.npy") as member:
        array = np.lib.format.read_array(member)
        member.read()
    return array


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turns the errors of parsers into a UserError that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # zip files and arrays raise a dozen kinds
        reason = storage.cause(path, error) if isinstance(error, tf.errors.OpError) else str(error)
        raise UserError(
            f"--vectors={path} must be a NumPy archive, as extract_features.py --output_format=npz"
            f" writes it; reading it failed: {quoted(reason)}"
        ) from error


def _find_array(path: str, archive: Mapping[str, np.ndarray]) -> str:
    found = [name for name in _PREFERRED if name in archive][:1]
    if not found:
        arrays = {name: np.asarray(x) for name, x in archive.items()}
        found = [name for name, x in arrays.items() if x.dtype.kind == "f" and x.ndim == 2]
    if len(found) != 1:
        raise UserError(
            f"--vectors={path} must have the array mean_vector or pooled_vector, or one float"
            f" matrix; it has {listed(archive)}. Choose one with --array"
        )
    return found[0]


def _layer_index(path: str, layers: list[int], count: int, layer: int | None) -> int:
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
    """Returns vectors divided by their lengths, float32 [n, H]; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths).astype(np.float32)


def nearest(vectors: np.ndarray, query: np.ndarray, top_k: int) -> list[tuple[int, float]]:
    """Returns at most `top_k` rows of the nearest vectors and their cosines, the nearest first.

    Vectors, float32 [n, H], and query, float32 [H], have unit length. In a tie the first row wins.
    """
    cosines = vectors @ query
    top_k = min(top_k, len(cosines))
    # The smallest cosine of the result. Rows with equal cosines are kept until after the sort.
    least = np.partition(cosines, -top_k)[-top_k]
    rows = np.flatnonzero(cosines >= least)
    rows = rows[np.argsort(-cosines[rows], kind="stable")][:top_k]
    return [(int(row), float(cosines[row])) for row in rows]


class _TextQueries:
    """Computes the vectors of new texts with the model that made the archive's vectors."""

    def __init__(self, folder: str, vectors: np.ndarray, first_text: str):
        self._model = load_input(folder)
        vector = self.vector(first_text)
        width = vectors.shape[1]
        if len(vector) != width:
            raise UserError(
                f"--input={folder} must be the model that made the vectors of --vectors, which have"
                f" {width} numbers; the model's vectors have {len(vector)}"
            )
        cosine = float(vectors[0] @ vector)
        if cosine < _TOLERANCE:
            raise UserError(
                f"--input={folder} must be the model that made the vectors of --vectors, as means"
                " of the last layer (extract_features.py --layers=-1 --outputs=mean_vector). For"
                " the first text, the cosine of the archive's vector and the model's must be 1; it"
                f" is {cosine:.3f}"
            )

    def vector(self, text: str) -> np.ndarray:
        """Returns the vector of a text or of a pair, float32 [H], of unit length."""
        first, second = split_line(text)
        vectors = self._model.encode([(first, second) if second else first], pooling="mean")
        return to_unit_length(vectors)[0]


def _queries(vectors: np.ndarray, texts: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each query's text and its vector, float32 [H]."""
    if FLAGS.lines:
        if FLAGS.query or FLAGS.input:
            raise UserError(
                "--lines searches for texts of the archive, and --input and --query for new ones:"
                " leave out --lines, or the other two"
            )
        for line in FLAGS.lines:
            if not line.isdecimal() or not 1 <= int(line) <= len(vectors):
                raise UserError(
                    f"--lines must be line numbers from 1 to {len(vectors)}; received {line}"
                )
            row = int(line) - 1
            yield texts[row] if texts else f"line {line}", vectors[row]
        return
    if not FLAGS.input or not texts:
        raise UserError(
            "to search for new texts, give --input, the model that made the vectors, and --texts;"
            " or give --lines to search for texts like these lines"
        )
    model = _TextQueries(FLAGS.input, vectors, texts[0])
    for text in FLAGS.query or map(str.strip, sys.stdin):
        if text:
            yield text, model.vector(text)


def define_archive_flags() -> None:
    flags.DEFINE_string("vectors", None, "The NumPy archive.", required=True)
    flags.DEFINE_string("texts", None, "The texts, one on each line, in the vectors' order.")
    flags.DEFINE_string("array", None, "The archive's array to use, if it has several.")
    flags.DEFINE_integer("layer", None, "The layer, if the archive has several.")


def read_archive() -> tuple[np.ndarray, list[str]]:
    """Reads the archive that the flags name: unit vectors, float32 [n, H], and their texts."""
    vectors = to_unit_length(read_vectors(FLAGS.vectors, FLAGS.array, FLAGS.layer))
    return vectors, read_lines(FLAGS.texts, "texts", len(vectors)) if FLAGS.texts else []


def main() -> None:
    vectors, texts = read_archive()
    seconds = []
    for text, query in _queries(vectors, texts):
        began = time.perf_counter()
        found = nearest(vectors, query, FLAGS.top_k)
        seconds.append(time.perf_counter() - began)
        print(f"# {text}")
        for row, cosine in found:
            print(f"{cosine:.4f}\t{row + 1}\t{texts[row] if texts else ''}".rstrip(), flush=True)
    if seconds:
        logging.info(
            "%d x %d vectors: %.1f ms a search (median of %d), without the model's time",
            *(*vectors.shape, 1000 * statistics.median(seconds), len(seconds)),
        )


if __name__ == "__main__":
    define_archive_flags()
    flags.DEFINE_list("lines", [], "Search for texts like these lines, numbers from 1.")
    flags.DEFINE_multi_string("query", [], "A text to search for; repeat it for several.")
    flags.DEFINE_string("input", None, "The folder of the model, for new texts.")
    flags.DEFINE_integer("top_k", 10, "Number of lines to print for each query.", lower_bound=1)
    command_flags.run_program(main)
