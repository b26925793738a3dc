"""Lines of text, single or in pairs, to the model's input."""

import dataclasses
import itertools
import re
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.text import sequences
from bert_tf.text.fast_tokenization import FastTokenizer

_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
_LINES_PER_CALL = 1000  # what a call of the tokenizer is given
_LOGGED_EXAMPLES = 5  # the original's


@dataclasses.dataclass(frozen=True)
class Example:
    """A line: its number from 0, its tokens, and its features, each `max_seq_length` ints."""

    linex_index: int
    tokens: list[str]
    features: dict[str, list[int]]


def read_lines(input_file: str) -> Iterator[str]:
    """Yields the lines of a text file, without white space around them.

    Raises:
        UserError: the file cannot be read or is not UTF-8; the message has the line.
    """
    try:
        with tf.io.gfile.GFile(input_file, "rb") as reader:
            for number in itertools.count(1):
                line = reader.readline()
                if not line:
                    return
                try:
                    yield line.decode("utf-8").strip()
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"--input_file={input_file}: line {number} is not UTF-8 ({error.reason});"
                        " convert the file, e.g. with iconv"
                    ) from error
    except tf.errors.OpError as error:
        raise UserError(f"--input_file={input_file}: cannot be read: {error.message}") from error


def count_lines(input_file: str) -> int:
    """Returns the number of lines, having read them all: what is wrong with one shows at once.

    Raises:
        UserError: the file cannot be read, is not UTF-8, or is empty.
    """
    count = sum(1 for _ in read_lines(input_file))
    if not count:
        raise UserError(
            f"--input_file={input_file}: the file is empty; it must have a text, or a pair of texts"
            " with ' ||| ' between them, on each line"
        )
    return count


def split_line(line: str) -> tuple[str, str]:
    """Returns the two texts of a line, the second "" if there is one only.

    They are separated by ` ||| `, the last one in the line (original: read_examples).
    """
    match = _PAIR.match(line)
    return match.groups() if match else (line, "")


def read_examples(
    input_file: str, tokenizer: FastTokenizer, max_seq_length: int
) -> Iterator[Example]:
    """Yields the lines of a file as examples (original: convert_examples_to_features).

    A line that is too long is cut; of a pair the longer text is, one token at a time.
    """
    cls_id, sep_id = (tokenizer.vocab[token] for token in sequences.REQUIRED_TOKENS)
    lines = enumerate(read_lines(input_file))
    while batch := list(itertools.islice(lines, _LINES_PER_CALL)):
        texts = [text for _, line in batch for text in split_line(line)]
        ids, row_splits = tokenizer.encode(texts)
        edges = row_splits.tolist()
        for number, (index, _) in enumerate(batch):
            start_a, start_b, end_b = edges[2 * number : 2 * number + 3]
            ids_a, ids_b = ids[start_a:start_b].tolist(), ids[start_b:end_b].tolist()
            features = sequences.truncate_and_pack(ids_a, ids_b, max_seq_length, cls_id, sep_id)
            num_tokens = sum(features["input_mask"])
            tokens = [tokenizer.inv_vocab[i] for i in features["input_ids"][:num_tokens]]
            if index < _LOGGED_EXAMPLES:
                logging.debug("*** Example ***")
                logging.debug("unique_id: %s", index)
                logging.debug("tokens: %s", " ".join(tokens))
                logging.debug("input_ids: %s", " ".join(map(str, features["input_ids"])))
                logging.debug("input_mask: %s", " ".join(map(str, features["input_mask"])))
                logging.debug("input_type_ids: %s", " ".join(map(str, features["segment_ids"])))
            yield Example(index, tokens, features)
