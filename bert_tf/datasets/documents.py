"""Documents for pre-training: splits text into sentences, and stores tokenized documents."""

import copy
import hashlib
import random
import re
from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from absl import logging

# Matches a run of punctuation only from its start; otherwise the time would be quadratic.
_SENTENCE_END = re.compile(
    r"""
    (?:
        (?<! [!?…] ) [!?…]++ | (?<! \. ) \.\.++ |
        # A full stop, but not after an initial (J. K. Rowling, the U.S. Army) or a title.
        (?<! \b[^\W\d_] ) (?<! \b(?:Mr|Ms|Dr|St|vs) ) (?<! \b(?:Mrs|Gen|Col) ) (?<! \bProf ) \.
    )
    ["'”’»)\]]* \s+
    | [。！？]+ [”’」』）]*
    """,
    re.VERBOSE,
)

_BYTES_TO_COUNT = 1 << 20

# Batches of stripped lines, each a sentence; an empty line ends a document.
Lines = Iterable[list[str]]
# Texts -> (int32 ids, int64 row splits), such as `FastTokenizer.encode`.
Encode = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]
# A line -> the same line cleaned; a line that is empty when cleaned ends a document.
Clean = Callable[[str], str]
# Called with the number of documents without a sentence, and the number of all documents.
EmptyReport = Callable[[int, int], None]


class Document:
    """A document: sentence i has the tokens [edge(i), edge(i + 1))."""

    __slots__ = ("_documents", "_first_edge", "_first_token", "_taken", "num_sentences")

    def __init__(self, documents: "Documents", index: int):
        self._documents = documents
        self._first_edge = documents.first_edges[index]
        self._first_token = documents.first_tokens[index]
        self._taken = documents.taken
        self.num_sentences = documents.first_edges[index + 1] - self._first_edge - 1

    def edge(self, sentence: int) -> int:
        """Returns the number of tokens before `sentence`; edge(num_sentences) is the total."""
        return self._documents.edges[self._first_edge + sentence]

    def ids(self, start: int, end: int) -> list[int]:
        """Returns the ids of the document's tokens [start, end), and marks them as used."""
        start, end = start + self._first_token, end + self._first_token
        self._taken.append(start)
        self._taken.append(end)
        tokens = slice(start, end)
        low = self._documents.low[tokens].tolist()
        if self._documents.high is None:
            return low
        return [a | b << 16 for a, b in zip(low, self._documents.high[tokens], strict=True)]


class Documents:
    """All documents of a corpus, in flat arrays.

    A token takes 2 bytes (3 if the vocabulary has more than 65,536 entries) and a bit, a sentence
    4 bytes, a document 32. An `array` grows in place; a NumPy array would need a second copy.
    `num_without_tokens` documents, whose lines have no tokens, are left out.
    """

    def __init__(self, vocab_size: int):
        self.low = array("H")
        self.high = array("B") if vocab_size > 1 << 16 else None
        self.edges = array("I")
        # With one extra entry: where the next document will start.
        self.first_edges = array("Q", [0])
        self.first_tokens = array("Q", [0])
        self.taken = array("Q")
        self._used = bytearray()  # a bit for each token
        self._digests = array("Q")
        self._order = array("I")
        self.num_without_tokens = 0
        self._has_no_tokens = False  # whether lines without tokens precede the next document
        self._open = False
        self._digest = hashlib.sha256()  # of the open document
        self._start = 0  # the first token of the open document
        self._end = 0

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, position: int) -> Document:
        return Document(self, self._order[position])

    @property
    def num_tokens(self) -> int:
        return int(self._of_each(np.diff(self.first_tokens)).sum())

    @property
    def num_sentences(self) -> int:
        return int(self._of_each(np.diff(self.first_edges)).sum()) - len(self)

    @property
    def num_used(self) -> int:
        """The number of tokens that `Document.ids` has returned."""
        self.mark_used()
        starts = range(0, len(self._used), _BYTES_TO_COUNT)
        parts = (self._used[start : start + _BYTES_TO_COUNT] for start in starts)
        return sum(int.from_bytes(part, "little").bit_count() for part in parts)

    def count(self, token: int) -> int:
        total = 0
        for start in range(0, len(self.low), _BYTES_TO_COUNT):
            part = slice(start, start + _BYTES_TO_COUNT)
            found = np.frombuffer(self.low, np.uint16)[part] == token & 0xFFFF
            if self.high is not None:
                found &= np.frombuffer(self.high, np.uint8)[part] == token >> 16
            total += np.count_nonzero(found)
        return total

    @property
    def num_repeated(self) -> int:
        """The number of documents that duplicate an earlier one; see `document_digest`."""
        return count_repeated(self._of_each(np.array(self._digests)))

    def _of_each(self, values: np.ndarray) -> np.ndarray:
        return values[np.array(self._order)]

    def mark_used(self, least: int = 0) -> None:
        """Once `taken` has `least` numbers, marks the tokens in it as used and empties it."""
        if len(self.taken) < max(least, 2):
            return
        starts, ends = np.array(self.taken).reshape(-1, 2).T.astype(np.int64)
        del self.taken[:]  # not a new array: every `Document` refers to this one
        starts, ends = starts[starts < ends], ends[starts < ends]
        used = np.frombuffer(self._used, np.uint8)
        first, last = starts >> 3, ends - 1 >> 3
        begins, stops = 0xFF << (starts & 7) & 0xFF, 0xFF >> (7 - (ends - 1 & 7))
        single = first == last
        np.bitwise_or.at(used, first, np.where(single, begins & stops, begins).astype(np.uint8))
        np.bitwise_or.at(used, last, np.where(single, 0, stops).astype(np.uint8))
        between = np.maximum(last - first - 1, 0)  # whole bytes
        offsets = np.cumsum(between) - between
        used[np.repeat(first + 1 - offsets, between) + np.arange(between.sum())] = 0xFF

    def take_heldout(self, fraction: float) -> "Documents":
        """Removes and returns the documents whose digest `is_heldout`."""
        heldout = copy.copy(self)
        order, heldout._order = self._order, array("I")
        self._order = array("I")
        for number in order:
            mine = is_heldout(self._digests[number], fraction)
            (heldout if mine else self)._order.append(number)
        heldout._used, heldout.taken = bytearray(len(self._used)), array("Q")
        return heldout

    def add_lines(self, lines: Sequence[str], encode: Encode, clean: Clean = str) -> None:
        """Appends stripped sentences; an empty line ends the open document, if any.

        A line of, say, control characters, which is not empty but gives no tokens, is skipped
        (as in the original's `create_training_instances`).
        """
        ids, row_splits = encode(lines)
        self.low.frombytes(ids.astype(np.uint16).tobytes())
        if self.high is not None:
            self.high.frombytes((ids >> 16).astype(np.uint8).tobytes())
        end = self._end
        first = 0  # index of the open document's first line in this batch
        for number, (line, length) in enumerate(
            zip(lines, np.diff(row_splits).tolist(), strict=True)
        ):
            if length:
                if not self._open:
                    self._open, self._has_no_tokens = True, False
                    self._start = end
                    first = number
                    self.edges.append(0)
                end += length
                self.edges.append(end - self._start)
            elif clean(line):
                self._has_no_tokens = not self._open
            elif not self._open:
                self._count_without_tokens()
            else:
                self._digest.update(_normalized(lines[first:number]))
                self._close(end)
        if self._open:
            self._digest.update(_normalized(lines[first:]))
        self._end = end

    def finish(self) -> None:
        if self._open:
            self._close(self._end)
        self._count_without_tokens()
        self._used = bytearray(len(self.low) // 8 + 1)

    def _count_without_tokens(self) -> None:
        self.num_without_tokens += self._has_no_tokens
        self._has_no_tokens = False

    def _close(self, end: int) -> None:
        self._open = False
        self._digests.append(_number(self._digest))
        self._digest = hashlib.sha256()
        self._order.append(len(self._order))
        self.first_edges.append(len(self.edges))
        self.first_tokens.append(end)

    def shuffle(self, rng: random.Random) -> None:
        """Shuffles the documents, in the same way as `rng.shuffle` shuffles a list."""
        rng.shuffle(self._order)


def document_digest(lines: Sequence[str]) -> int:
    """Returns a 64-bit number that depends on a document's text, except case and white space.

    Among 100 million different texts, two have the same number with a probability of 0.0003.
    """
    return _number(hashlib.sha256(_normalized(lines)))


def is_heldout(digest: int, fraction: float) -> bool:
    """Returns whether to hold a document out: about `fraction` of all, always the same ones."""
    return digest < fraction * 2**64


def _number(digest: "hashlib._Hash") -> int:
    return int.from_bytes(digest.digest()[:8], "little")


def _normalized(lines: Sequence[str]) -> bytes:
    text = " ".join((*lines, "")).lower()
    if "  " in text or "\t" in text:
        text = " ".join((*text.split(), ""))
    return text.encode()


def count_repeated(digests: np.ndarray) -> int:
    return len(digests) - len(np.unique(digests))


def read_documents(lines: Lines, encode: Encode, vocab_size: int, clean: Clean = str) -> Documents:
    """Returns the tokenized documents of `lines` in order, without empty documents."""
    documents = Documents(vocab_size)
    for batch in lines:
        documents.add_lines(batch, encode, clean)
    documents.finish()
    return documents


def warn_of_empty_documents(num_empty: int, num_documents: int) -> None:
    """Warns if documents have no sentence; an `EmptyReport`."""
    if num_empty:
        logging.warning(
            "%d of %d documents have no sentence and are left out", num_empty, num_documents
        )


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of `text`, stripped, without empty sentences.

    A sentence ends at the end of a line; at an ideographic full stop, question mark or exclamation
    mark; and at . ! ? or an ellipsis, with closing quotes and brackets, if white space but no
    lower-case letter follows. Full stops after initials and common English titles do not count.

    tensorflow_text's StateBasedSentenceBreaker would split "3.5" and "Mr. Smith", and TPU machines
    lack it.
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
