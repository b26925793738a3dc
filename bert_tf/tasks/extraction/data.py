"""Reads lines of text, single texts or pairs, and converts them to the model's input."""

import dataclasses
import itertools
from collections.abc import Iterator

from absl import logging

from bert_tf.errors import UserError, check_regular, percent
from bert_tf.files import storage
from bert_tf.files.encodings import decode_utf8
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer
from bert_tf.text.windows import split_pair

_LINES_PER_CALL = 1000  # lines in one call of the tokenizer
_LOGGED_EXAMPLES = 5  # original: convert_examples_to_features


@dataclasses.dataclass(frozen=True)
class Example:
    """The model's input for a line of text, or for a window of it."""

    linex_index: int  # number of the line, from 0
    tokens: list[str]  # its word pieces, with [CLS] and [SEP]
    features: dict[str, list[int]]  # from `sequences.pack_pair`


def read_lines(input_file: str) -> Iterator[str]:
    """Yields the lines of a text file, without white space at their ends or a byte-order mark.

    Raises:
        UserError: the file cannot be read, or is not UTF-8; the message names the line.
    """
    place = f"--input_file={input_file}"
    try:
        with tf.io.gfile.GFile(input_file, "rb") as reader:
            for number, line in enumerate(iter(reader.readline, b""), 1):
                yield decode_utf8(line, place, number).strip()
    except tf.errors.OpError as error:
        reason = storage.cause(input_file, error)
        raise UserError(f"{place} cannot be read: {reason}") from error


def count_lines(input_file: str) -> int:
    """Returns the number of lines; reads all, so that errors show before the computation."""
    check_regular(input_file, f"--input_file={input_file}")
    count = sum(1 for _ in read_lines(input_file))
    if not count and tf.io.gfile.isdir(input_file):  # reading lines of one raises no error
        contents = storage.contents(input_file)
        raise UserError(f"--input_file={input_file} must be a file, not a folder; {contents}")
    if not count:
        raise UserError(
            f"--input_file={input_file}: the file is empty; it must have a text, or two texts"
            " separated by ' ||| ', on each line"
        )
    return count


def split_line(line: str) -> tuple[str, str]:
    """Returns the two texts of a line, split at its last ` ||| `; else (line, "").

    Original: read_examples.
    """
    first, separator, second = line.rpartition(" ||| ")
    return (first, second) if separator else (line, "")


def read_examples(
    input_file: str, tokenizer: Tokenizer, max_seq_length: int, stride: int | None = None
) -> Iterator[Example]:
    """Yields an example for each line of a file (original: convert_examples_to_features).

    Lines that are too long are truncated; in a pair, the longer text, one token at a time. After
    the last line a warning gives their share. With a stride no line is truncated: there is an
    example for each of its windows, see `split_pair`.

    Raises:
        UserError: see `read_lines`, or a text leaves no room for the other one in its windows.
    """
    layout = tokenizer.layout
    lines = enumerate(read_lines(input_file))
    num_lines = num_cut = 0
    while batch := list(itertools.islice(lines, _LINES_PER_CALL)):
        texts = [text for _, line in batch for text in split_line(line)]
        ids, row_splits = tokenizer.encode(texts)
        rows = (ids[i:j].tolist() for i, j in itertools.pairwise(row_splits))
        for index, _ in batch:
            both = next(rows), next(rows)
            windows = [both]
            if stride is not None:
                place = f"--input_file={input_file}, line {index + 1}"
                windows = split_pair(*both, max_seq_length, stride, layout, place)
            elif sequences.packed_length(*both, layout) > max_seq_length:
                num_cut += 1
            for window in windows:
                features = sequences.truncate_and_pack(*window, max_seq_length, layout)
                tokens = sequences.unpadded_tokens(features, tokenizer.inv_vocab)
                example = Example(index, tokens, features)
                if index < _LOGGED_EXAMPLES:
                    _log_example(example)
                yield example
        num_lines += len(batch)
    if num_cut:
        logging.warning(
            "%d of %d lines (%s) are cut to fit --max_seq_length=%d; --long_text=mean makes"
            " mean_vector and pooled_vector of all of a line",
            num_cut,
            num_lines,
            percent(num_cut, num_lines),
            max_seq_length,
        )


def _log_example(example: Example) -> None:
    """Logs an example as in the original."""
    logging.debug("*** Example ***")
    logging.debug("unique_id: %s", example.linex_index)
    logging.debug("tokens: %s", " ".join(example.tokens))
    for name, values in example.features.items():
        name = "input_type_ids" if name == "segment_ids" else name
        logging.debug("%s: %s", name, " ".join(map(str, values)))
