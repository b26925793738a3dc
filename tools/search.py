"""Finds the nearest texts of an archive of vectors.

    python -m tools.search --vectors=means.npz --texts=texts.txt --lines=1,7
    python -m tools.search --vectors=means.npz --texts=texts.txt --input=FOLDER \
        --query="How do I bake bread?"

--vectors is what extract_features.py writes with --output_format=npz, --texts the file that it
read. Queries are lines of that file, by number from 1, or new texts: from --query, or else the
lines of the standard input. New texts need --input, the folder of the model that made the vectors,
as bert_tf.load takes it. The tool also computes the vector of the file's first text, and refuses a
model whose vector differs from the archive's.

For each query it prints the cosine, the number and the text of the nearest lines. The search is
exact: it compares the query with every vector.
"""

import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np
from absl import flags, logging

from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from bert_tf.tasks.extraction.data import split_line

from . import load_input
from .data.vector_archive import read_lines, read_vectors, to_unit_length

FLAGS = flags.FLAGS

_TOLERANCE = 0.999  # cosine at least, between the archive's first vector and the model's


def nearest(vectors: np.ndarray, query: np.ndarray, top_k: int) -> list[tuple[int, float]]:
    """Returns at most `top_k` rows of the nearest vectors and their cosines, the nearest first.

    The vectors, float32 [n, H], and the query, float32 [H], have unit length. Among equal cosines
    the first rows win.
    """
    cosines = vectors @ query
    top_k = min(top_k, len(cosines))
    # The smallest cosine of the result. Rows that tie with it are kept until after the sort.
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


def main() -> None:
    vectors = to_unit_length(read_vectors(FLAGS.vectors, FLAGS.array, FLAGS.layer))
    texts = read_lines(FLAGS.texts, "texts", len(vectors)) if FLAGS.texts else []
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
    flags.DEFINE_string("vectors", None, "The NumPy archive.", required=True)
    flags.DEFINE_string("texts", None, "The texts, one on each line, in the vectors' order.")
    flags.DEFINE_string("array", None, "The archive's array to use, if it has several.")
    flags.DEFINE_integer("layer", None, "The layer, if the archive has several.")
    flags.DEFINE_list("lines", [], "Search for texts like these lines, numbers from 1.")
    flags.DEFINE_multi_string("query", [], "A text to search for; repeat it for several.")
    flags.DEFINE_string("input", None, "The folder of the model, for new texts.")
    flags.DEFINE_integer("top_k", 10, "Number of lines to print for each query.", lower_bound=1)
    command_flags.run_program(main)
