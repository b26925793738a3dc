"""Writes the outputs for each line as JSON lines, a NumPy archive or TFRecords.

Each writer is a context manager that yields a function to call for each line in order. Files are
written atomically; memory does not grow with the number of lines. `layers` has the indices of the
extracted layers, as in --layers.

Writers raise UserError if the file cannot be written, and OSError if writing failed, for example
because the disk is full; a retry may then succeed.
"""

import contextlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bert_tf.files import records
from bert_tf.files.whole_files import UnfinishedFile
from bert_tf.start import lazy_tensorflow as tf

# Arguments: number of the line, its tokens, its outputs by name (float32; `schema.SHAPES`).
Write = Callable[[int, Sequence[str], Mapping[str, np.ndarray]], None]


def _output_file(path: str, needs_regular: bool = False) -> UnfinishedFile:
    return UnfinishedFile(path, f"--output_file={path}", needs_regular=needs_regular)


@contextlib.contextmanager
def write_json(path: str, layers: Sequence[int]) -> Iterator[Write]:
    """Yields a function that writes a line of JSON: the original's, with the other outputs."""

    def by_layer(values: Sequence) -> list[dict]:
        return [{"index": i, "values": v} for i, v in zip(layers, values, strict=True)]

    with _output_file(path) as file:

        def write(linex_index, tokens, outputs):
            features: list[dict] = [{"token": token} for token in tokens]
            line = {"linex_index": linex_index, "features": features}
            for name, values in outputs.items():
                if name == "attention_probs":  # [t, t, L, N] -> [L, N, t, t], the model's order
                    values = values.transpose(2, 3, 0, 1)
                # round(float(x), 6), the original's precision.
                values = np.round(values.astype(np.float64), 6).tolist()
                if name == "token_vectors":
                    for feature, vectors in zip(features, values, strict=True):
                        feature["layers"] = by_layer(vectors)
                else:
                    line[name] = values if name == "pooled_vector" else by_layer(values)
            file.write((json.dumps(line) + "\n").encode())

        yield write
        file.finish()


@contextlib.contextmanager
def write_tfrecord(path: str, layers: Sequence[int]) -> Iterator[Write]:
    """Yields a function that writes a tf.Example: `linex_index`, `layers`, `tokens`, outputs.

    Outputs are flat lists of floats. To parse `token_vectors`, use
    `tf.io.FixedLenSequenceFeature([L, H], tf.float32, allow_missing=True)`; for `attention_probs`,
    use the shape [L, N], which gives [t*t, L, N].
    """
    with records.write_files([path], "output_file") as write_record:

        def write(linex_index, tokens, outputs):
            example = tf.train.Example()
            feature = example.features.feature
            feature["linex_index"].int64_list.value.append(linex_index)
            feature["layers"].int64_list.value.extend(layers)
            feature["tokens"].bytes_list.value.extend(token.encode() for token in tokens)
            for name, value in outputs.items():
                feature[name].float_list.value.extend(value.ravel())
            write_record(example.SerializeToString(deterministic=True))

        yield write


@contextlib.contextmanager
def write_npz(
    path: str, layers: Sequence[int], outputs: Sequence[str], longest_token: int
) -> Iterator[Write]:
    """Yields a function that adds a line to a NumPy archive, which `numpy.load` reads.

    The archive has these arrays, in which all lines are concatenated:
        layers: int64 [L], indices of the layers.
        tokens: str [tokens of all lines].
        token_splits: int64 [lines + 1]. Line i has tokens token_splits[i] to
            token_splits[i + 1] - 1, and the same rows of `token_vectors`.
        token_vectors, mean_vector, pooled_vector: float32; the first axis is tokens or lines.
        attention_probs: float32 [t*t of all lines, L, N]; the first axis is pairs of tokens.

    Args:
        outputs: names of the outputs.
        longest_token: number of characters of the longest token in the vocabulary.
    """
    arrays = ("tokens", *outputs)
    dtypes = {"tokens": np.dtype(f"<U{longest_token}")}
    tails: dict[str, tuple[int, ...]] = {"tokens": ()}
    rows = dict.fromkeys(arrays, 0)
    token_splits = [0]
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(_output_file(path, needs_regular=True))
        # An archive stores the arrays one after the other, so each first goes to its own file.
        files = {name: stack.enter_context(_output_file(path)) for name in arrays}

        def write(linex_index, tokens, outputs):
            for name, value in {"tokens": np.array(tokens), **outputs}.items():
                if name in ("mean_vector", "pooled_vector"):  # one row for the line
                    value = value[np.newaxis]
                elif name == "attention_probs":  # [t, t, L, N] -> [t*t, L, N]
                    value = value.reshape(-1, *value.shape[2:])
                value = value.astype(dtypes.setdefault(name, np.dtype("<f4")))
                tails[name] = value.shape[1:]
                rows[name] += len(value)
                files[name].write(value.tobytes())
            token_splits.append(token_splits[-1] + len(tokens))

        yield write
        with zipfile.ZipFile(archive, "w") as zipped:
            for name, value in (("layers", layers), ("token_splits", token_splits)):
                with zipped.open(f"{name}.npy", "w") as entry:
                    np.lib.format.write_array(entry, np.asarray(value, np.int64))
            for name in arrays:
                files[name].close()
                header = {
                    "descr": np.lib.format.dtype_to_descr(dtypes[name]),
                    "fortran_order": False,
                    "shape": (rows[name], *tails[name]),
                }
                with zipped.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array_header_1_0(entry, header)
                    with tf.io.gfile.GFile(files[name].name, "rb") as reader:
                        while data := reader.read(1 << 20):
                            entry.write(data)
        archive.finish()
