"""Reads lines of text, single texts or pairs, and writes the outputs for each line.

Each writer is a context manager that yields a function to call for each line in order. Files are
written atomically; memory does not grow with the number of lines.
"""

import contextlib
import dataclasses
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bert_tf.errors import UserError, check_regular
from bert_tf.files import records, storage
from bert_tf.files.whole_files import UnfinishedFile, decode_utf8
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.example_records import PairEncoder, Record, encode
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.sequences import unpadded_tokens


@dataclasses.dataclass(frozen=True)
class Example:
    """The model's input for a line of text, or for a window of it."""

    linex_index: int  # number of the line, from 0
    tokens: list[str]  # the word pieces, with [CLS] and [SEP]
    features: dict[str, list[int]]  # from `bert_tf.text.sequences.pack_pair`


def read_lines(input_file: str) -> Iterator[str]:
    """Yields the lines of a text file, stripped of white space and of a byte-order mark."""
    place = f"--input_file={input_file}"
    try:
        with tf.io.gfile.GFile(input_file, "rb") as reader:
            for number, line in enumerate(iter(reader.readline, b""), 1):
                yield decode_utf8(line, place, number).strip()
    except tf.errors.OpError as error:
        reason = storage.cause(input_file, error)
        raise UserError(f"{place} cannot be read: {reason}") from error


def count_lines(input_file: str) -> int:
    """Returns the number of lines; reads them all, so that errors come before the computation."""
    check_regular(input_file, f"--input_file={input_file}")
    count = sum(1 for _ in read_lines(input_file))
    if not count and tf.io.gfile.isdir(input_file):  # reading a folder's lines raises no error
        contents = storage.contents(input_file)
        raise UserError(f"--input_file={input_file} must be a file, not a folder; {contents}")
    if not count:
        raise UserError(
            f"--input_file={input_file}: the file is empty; it must have a text, or two texts"
            " separated by ' ||| ', on each line"
        )
    return count


def split_line(line: str) -> tuple[str, str]:
    """Splits a line at its last ` ||| ` into two texts, or (line, "") (original: read_examples)."""
    first, separator, second = line.rpartition(" ||| ")
    return (first, second) if separator else (line, "")


class LineEncoder(PairEncoder):
    """Turns a line, (its number from 0, text), into one record or, with a stride, several."""

    unit = "lines"

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, stride: int | None, place: str):
        super().__init__(tokenizer, max_seq_length, records.model_inputs([max_seq_length]))
        self.stride = stride
        self._place = place

    def texts(self, example: tuple[int, str]) -> list[str]:
        first, second = split_line(example[1])
        return [first, second] if second else [first]

    def records(self, example: tuple[int, str], ids: list[list[int]]) -> list[Record]:
        return self.inputs(ids, f"{self._place}, line {example[0] + 1}")

    def about_cut(self, longest: int) -> str:
        return "; with --long_text=mean, mean_vector and pooled_vector use the whole line"

    def describe(self, example: tuple[int, str], record: Mapping[str, list]) -> Iterator[str]:
        yield f"unique_id: {example[0]}"
        yield from super().describe(example, record)
        for name, values in record.items():
            name = "input_type_ids" if name == "segment_ids" else name
            yield f"{name}: {' '.join(map(str, values))}"


def read_examples(
    input_file: str, tokenizer: Tokenizer, max_seq_length: int, stride: int | None = None
) -> Iterator[Example]:
    """Yields an example for each record of a line (original: convert_examples_to_features).

    For `stride` see `LineEncoder`. After the last line, a warning tells how many lines were cut.
    """
    encoder = LineEncoder(tokenizer, max_seq_length, stride, f"--input_file={input_file}")
    for (index, _), own in encode(enumerate(read_lines(input_file)), encoder):
        for features in own:
            yield Example(index, unpadded_tokens(features, tokenizer.inv_vocab), features)


# Arguments: number of the line, its tokens, its outputs by name (float32; `settings.SHAPES`).
Write = Callable[[int, Sequence[str], Mapping[str, np.ndarray]], None]


def _output_file(path: str, needs_regular: bool = False) -> UnfinishedFile:
    return UnfinishedFile(path, f"--output_file={path}", needs_regular=needs_regular)


@contextlib.contextmanager
def write_json(path: str, layers: Sequence[int]) -> Iterator[Write]:
    """Yields a function that writes a line of JSON: the original's fields and the other outputs."""

    def by_layer(values: Sequence) -> list[dict]:
        return [{"index": i, "values": v} for i, v in zip(layers, values, strict=True)]

    with _output_file(path) as file:

        def write(linex_index, tokens, outputs):
            features: list[dict] = [{"token": token} for token in tokens]
            line = {"linex_index": linex_index, "features": features}
            for name, values in outputs.items():
                if name == "attention_probs":  # [t, t, L, N] -> [L, N, t, t], the model's order
                    values = values.transpose(2, 3, 0, 1)
                # The original: round(float(x), 6).
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
        token_splits: int64 [lines + 1]. Line i is tokens[token_splits[i] : token_splits[i + 1]],
            and the same rows of `token_vectors`.
        token_vectors, mean_vector, pooled_vector: float32; the first axis is tokens or lines.
        attention_probs: float32 [t*t of all lines, L, N]; the first axis is pairs of tokens.

    `longest_token` is the length of the longest token in the vocabulary, in characters.
    """
    arrays = ("tokens", *outputs)
    dtypes = {"tokens": np.dtype(f"<U{longest_token}")}
    tails: dict[str, tuple[int, ...]] = {"tokens": ()}
    rows = dict.fromkeys(arrays, 0)
    token_splits = [0]
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(_output_file(path, needs_regular=True))
        # A zip archive is written one array after the other, so each array first gets its own file.
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
