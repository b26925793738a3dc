"""Documents for pre-training: reads text files, splits sentences, and holds tokenized documents."""

import random
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf import progress
from bert_tf.errors import UserError

_BYTES_PER_READ = 1 << 20

_SENTENCE_END = re.compile(
    r"""
    (?:
        [!?…]+ | \.\.+ |
        # A full stop, but not after an initial (J. K. Rowling, the U.S. Army) or a title.
        (?<! \b[^\W\d_] ) (?<! \b(?:Mr|Ms|Dr|St|vs) ) (?<! \b(?:Mrs|Gen|Col) ) (?<! \bProf ) \.
    )
    ["'”’»)\]]* \s+
    | [。！？]+ [”’」』）]*
    """,
    re.VERBOSE,
)

# Batches of stripped lines, each a sentence; an empty line ends a document.
Lines = Iterable[list[str]]
# Texts -> (int32 ids, int64 row splits), such as `FastTokenizer.encode`.
Encode = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]


class Document:
    """One document: sentences of token ids.

    Sentence i is the tokens from edge(i) to before edge(i + 1) of the document.
    """

    __slots__ = ("_documents", "_first_edge", "_first_token", "num_sentences")

    def __init__(self, documents: "Documents", index: int):
        self._documents = documents
        self._first_edge = documents.first_edges[index]
        self._first_token = documents.first_tokens[index]
        self.num_sentences = documents.first_edges[index + 1] - self._first_edge - 1

    def edge(self, sentence: int) -> int:
        """Returns the number of tokens before `sentence`; edge(num_sentences) is their total."""
        return self._documents.edges[self._first_edge + sentence]

    def ids(self, start: int, end: int) -> list[int]:
        """Returns the ids of the document's tokens from `start` to before `end`."""
        start += self._first_token
        end += self._first_token
        low = self._documents.low[start:end].tolist()
        if self._documents.high is None:
            return low
        high = self._documents.high[start:end]
        return [a | b << 16 for a, b in zip(low, high, strict=True)]


class Documents:
    """All documents of a corpus, in flat arrays.

    A token takes 2 bytes (3 if the vocabulary has more than 65,536 entries), a sentence 4, a
    document 24. An `array` grows in place by a sixteenth at a time: a list of arrays or a buffer
    that doubles would need a second copy.
    """

    def __init__(self, vocab_size: int):
        self.low = array("H")
        self.high = array("B") if vocab_size > 1 << 16 else None
        self.edges = array("I")
        # One entry more than there are documents: the start of the next one.
        self.first_edges = array("Q", [0])
        self.first_tokens = array("Q", [0])
        self._order = array("I")
        self._open = False
        self._start = 0  # the first token of the open document
        self._end = 0

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, position: int) -> Document:
        return Document(self, self._order[position])

    @property
    def num_tokens(self) -> int:
        """The number of tokens in all documents."""
        return len(self.low)

    def add_lines(self, lines: Sequence[str], encode: Encode) -> None:
        """Appends sentences; an empty line ends the open document, if there is one.

        Args:
            lines: stripped lines. A line that is not empty but has no tokens (control characters,
                say) is skipped and ends no document (`create_training_instances` in the original).
            encode: texts -> (int32 ids, int64 row splits).
        """
        ids, row_splits = encode(lines)
        self.low.frombytes(ids.astype(np.uint16).tobytes())
        if self.high is not None:
            self.high.frombytes((ids >> 16).astype(np.uint8).tobytes())
        end = self._end
        for line, length in zip(lines, np.diff(row_splits).tolist(), strict=True):
            if length:
                if not self._open:
                    self._open = True
                    self._start = end
                    self.edges.append(0)
                end += length
                self.edges.append(end - self._start)
            elif not line and self._open:
                self._close(end)
        self._end = end

    def finish(self) -> None:
        """Ends the last document."""
        if self._open:
            self._close(self._end)

    def _close(self, end: int) -> None:
        self._open = False
        self._order.append(len(self._order))
        self.first_edges.append(len(self.edges))
        self.first_tokens.append(end)

    def shuffle(self, rng: random.Random) -> None:
        """Shuffles the documents into the order that `rng.shuffle` gives a list of them."""
        rng.shuffle(self._order)


def read_documents(lines: Lines, encode: Encode, vocab_size: int) -> Documents:
    """Returns the tokenized documents of `lines` in their order, without empty ones.

    Args:
        lines: batches of lines, e.g. from `read_text`.
        encode: texts -> (int32 ids, int64 row splits), such as `FastTokenizer.encode`.
        vocab_size: the largest id plus one.
    """
    documents = Documents(vocab_size)
    for batch in lines:
        documents.add_lines(batch, encode)
    documents.finish()
    return documents


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of `text`, stripped, without empty ones.

    A sentence ends

    *   at the end of a line;
    *   at . ! ? or an ellipsis, with closing quotes and brackets, if white space follows. The full
        stop after an initial or one of a few English titles does not end a sentence, nor does a
        mark before a lower-case letter;
    *   at an ideographic full stop, question mark or exclamation mark.

    tensorflow_text's StateBasedSentenceBreaker splits "3.5" and "Mr. Smith", and TPU machines have
    no tensorflow_text.
    """
    sentences = []
    for line in text.splitlines():
        start = 0
        for match in _SENTENCE_END.finditer(line):
            following = line[match.end() : match.end() + 1]
            if match.group()[-1].isspace() and following.islower():
                continue
            sentences.append(line[start : match.end()].strip())
            start = match.end()
        sentences.append(line[start:].strip())
    return [sentence for sentence in sentences if sentence]


def read_text(files: Sequence[str], flag: str) -> Iterator[list[str]]:
    """Yields the stripped lines of text files, in batches of about a megabyte.

    The end of a file does not end a document: the next file continues it, as in the original.

    Args:
        files: UTF-8 text, one sentence a line, an empty line between documents.
        flag: the flag (no dashes) that named the files, for messages.

    Raises:
        UserError: a file cannot be read or is not UTF-8; the message names the file and line.
    """
    for _, lines in read_files(files, flag):
        yield lines


def read_files(files: Sequence[str], flag: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each file's name with its stripped lines, as `read_text` does."""
    total = sum(tf.io.gfile.stat(path).length for path in files)
    with progress.Progress("reading text", "bytes", total) as work:
        for path in files:
            line_number = 1
            try:
                for data in _read_whole_lines(path, work):
                    yield path, _decode(data, path, line_number, flag)
                    line_number += data.count(b"\n")
            except tf.errors.OpError as error:
                raise UserError(f"--{flag}: cannot read {path}: {error.message}") from error


def _read_whole_lines(path: str, work: progress.Progress) -> Iterator[bytes]:
    rest: list[bytes] = []
    with tf.io.gfile.GFile(path, "rb") as reader:
        while data := reader.read(_BYTES_PER_READ):
            work.advance(len(data))
            whole, newline, begun = data.rpartition(b"\n")
            if newline:
                yield b"".join([*rest, whole, newline])
                rest = []
            rest.append(begun)
    if any(rest):
        yield b"".join(rest)


def _decode(data: bytes, path: str, line_number: int, flag: str) -> list[str]:
    try:
        # GFile.readline, which the original calls, drops every carriage return, even mid-line.
        text = data.replace(b"\r", b"").decode("utf-8")
    except UnicodeDecodeError as error:
        line_number += error.object.count(b"\n", 0, error.start)
        raise UserError(
            f"--{flag}: {path}, line {line_number}, is not UTF-8 ({error.reason}); "
            "convert the file, e.g. with iconv"
        ) from error
    return [line.strip() for line in text.removesuffix("\n").split("\n")]
