"""Chooses new vocabulary entries from the word counts of a text, or learns a new vocabulary.

`choose_entries` adds the entries that save a text the most tokens. WordPiece takes the longest
piece that fits, so a new entry may also change the split of other words, to fewer tokens or to
more: savings are measured by splitting the words again. A word's split changes only if the new
split contains a new entry, or if the word becomes [UNK]. `WordPieceLearner` makes a new vocabulary.
"""

import bisect
import collections
import dataclasses
import heapq
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from bert_tf import tokenization
from bert_tf.progress import Progress
from bert_tf.text.tokenizer_settings import DEFAULTS, TokenizerSettings

_MAX_CHUNKS = 1_000_000
_ASCII_WORD = re.compile("[A-Za-z0-9]+|[^A-Za-z0-9]")


def count_words(
    lines: Iterable[Sequence[str]], do_lower_case: bool, settings: TokenizerSettings = DEFAULTS
) -> dict[str, int]:
    """Returns the number of occurrences of each word in batches of lines, sorted by word."""
    tokenizer = tokenization.BasicTokenizer(do_lower_case, **settings.switches)
    words: collections.Counter[str] = collections.Counter()
    # Chunks between white space repeat, so each is tokenized once. In printable text, whose only
    # white space is the space, this gives the same words as tokenizing the line.
    chunks: collections.Counter[str] = collections.Counter()

    def tokenize_chunks() -> None:
        for chunk, count in chunks.items():
            if chunk.isascii():  # takes a tenth of the tokenizer's time
                split = _ASCII_WORD.findall(chunk.lower() if do_lower_case else chunk)
            else:
                split = tokenizer.tokenize(chunk)
            for word in split:
                words[word] += count
        chunks.clear()

    for batch in lines:
        for line in batch:
            if line.isprintable():
                chunks.update(line.split())
            else:
                words.update(tokenizer.tokenize(line))
        if len(chunks) > _MAX_CHUNKS:
            tokenize_chunks()
    tokenize_chunks()
    return dict(sorted(words.items()))


_INSIDE = "##"  # begins every piece but a word's first


@dataclasses.dataclass(frozen=True)
class TokenCounts:
    """How a vocabulary splits the words of a text. A punctuation mark counts as a word."""

    words: int
    tokens: int
    split: int  # words that are split into two tokens or more
    unknown: int  # words that become [UNK]
    uses: Mapping[str, int]  # token -> number of times that it occurs


def count_tokens(word_counts: Mapping[str, int], vocab: Mapping[str, int]) -> TokenCounts:
    """Counts the tokens of a text; `word_counts`: word -> how often it occurs."""
    tokenizer = tokenization.WordpieceTokenizer(vocab)
    uses: collections.Counter[str] = collections.Counter()
    split = 0
    for word, count in word_counts.items():
        pieces = tokenizer.tokenize(word)
        for piece in pieces:
            uses[piece] += count
        split += count * (len(pieces) > 1)
    return TokenCounts(
        words=sum(word_counts.values()),
        tokens=sum(uses.values()),
        split=split,
        unknown=uses[tokenization.UNKNOWN_TOKEN],
        uses=uses,
    )


def choose_entries(
    word_counts: Mapping[str, int],
    vocab: Mapping[str, int],
    num_entries: int,
    min_count: int,
    whole_words: bool = False,
) -> dict[str, tuple[str, ...]]:
    """Returns up to `num_entries` new entries, and the pieces of `vocab` that each entry replaces.

    A candidate joins two or more neighbouring pieces of a word: "##card" and "##io" give
    "##cardio", and all pieces of a word give the word, the only candidate with `whole_words`. The
    word must occur at least `min_count` times.

    The choice is greedy: each step adds the candidate that saves the most tokens with the
    vocabulary so far; ties go to the first by code points. Candidates that save nothing, or turn a
    word into [UNK], are skipped. An entry that no word uses in the end, because longer entries
    replaced it, is removed.
    """
    text = _SplitText(word_counts, vocab)
    replaced, estimates = _candidates(word_counts, text, min_count, whole_words)
    heap = [(-saved, entry) for entry, saved in estimates.items()]
    heapq.heapify(heap)
    chosen: dict[str, tuple[str, ...]] = {}
    with Progress("choosing entries", "entries", num_entries) as work:
        while True:
            while heap and len(chosen) < num_entries:
                _, entry = heapq.heappop(heap)
                saved, lengths = text.effect(entry)
                if saved > 0 and heap and (-saved, entry) > heap[0]:
                    heapq.heappush(heap, (-saved, entry))  # a different one may save more
                elif saved > 0:
                    text.add(entry, lengths)
                    chosen[entry] = replaced[entry]
                    work.advance()
            uses = count_tokens(word_counts, text.vocab).uses
            idle = [entry for entry in chosen if entry not in uses]
            if not idle:
                return chosen
            for entry in idle:
                del chosen[entry], text.vocab[entry]


def _candidates(
    word_counts: Mapping[str, int], text: "_SplitText", min_count: int, whole_words: bool
) -> tuple[dict[str, tuple[str, ...]], Mapping[str, int]]:
    # The estimate of saved tokens ignores effects on other words and effects of earlier choices.
    splits = [(count, text.split(word)) for word, count in word_counts.items()]
    replaced: dict[str, tuple[str, ...]] = {}
    for count, pieces in splits:
        if count >= min_count:
            for entry, parts in _joined(pieces):
                if not whole_words or len(parts) == len(pieces):
                    replaced[entry] = parts
    estimates: collections.Counter[str] = collections.Counter()
    for count, pieces in splits:
        for entry, parts in _joined(pieces):
            if entry in replaced:
                estimates[entry] += count * (len(parts) - 1)
    return replaced, estimates


def _joined(pieces: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields each run of two or more neighbouring pieces of a word: joined, and as a tuple."""
    for start in range(len(pieces) - 1):
        for end in range(start + 2, len(pieces) + 1):
            run = tuple(pieces[start:end])
            yield run[0] + "".join(piece.removeprefix(_INSIDE) for piece in run[1:]), run


class _SplitText:
    """The words of a text, and the number of tokens of each under `vocab`, which grows."""

    def __init__(self, word_counts: Mapping[str, int], vocab: Mapping[str, int]):
        self._words = list(word_counts)
        self._counts = list(word_counts.values())
        self.vocab = dict(vocab)
        tokenizer = tokenization.WordpieceTokenizer(self.vocab)
        self.split, self._unknown = tokenizer.tokenize, [tokenizer.unk_token]
        self._lengths = [len(self.split(word)) for word in self._words]
        # All words in one string, each after a line end: finding the words with an entry is fast.
        self._text = "".join(f"\n{word}" for word in self._words)
        self._starts = [0, *itertools.accumulate(1 + len(word) for word in self._words)]

    def effect(self, entry: str) -> tuple[int, dict[int, int]]:
        """Returns how many tokens an entry saves, and word number -> new length in tokens."""
        # (0, {}) if a word becomes [UNK], because the vocabulary lacks a piece for a character.
        saved, lengths = 0, {}
        self.vocab[entry] = -1
        for number in self._words_with(entry):
            pieces = self.split(self._words[number])
            if len(pieces) == self._lengths[number]:
                continue
            if pieces == self._unknown:
                saved, lengths = 0, {}
                break
            saved += self._counts[number] * (self._lengths[number] - len(pieces))
            lengths[number] = len(pieces)
        del self.vocab[entry]
        return saved, lengths

    def _words_with(self, entry: str) -> Iterator[int]:
        """Yields the numbers of the words that contain an entry: at the start, or inside for ##."""
        inside = entry.startswith(_INSIDE)
        sought = entry.removeprefix(_INSIDE) if inside else f"\n{entry}"
        found = self._text.find(sought)
        while found >= 0:
            number = bisect.bisect_right(self._starts, found) - 1
            if inside and found == self._starts[number] + 1:  # at the word's start
                found = self._text.find(sought, found + 1)
                continue
            yield number
            found = self._text.find(sought, self._starts[number + 1])

    def add(self, entry: str, lengths: Mapping[int, int]) -> None:
        """Adds an entry to the vocabulary, with the new lengths from `effect`."""
        self.vocab[entry] = -1
        for number, length in lengths.items():
            self._lengths[number] = length


_LATER_ROUNDS = 3
_MAX_LENGTH = 50  # longer "words" are almost never words
# Limits memory: a million words take 1.1 GB. Rarer words hardly change the result.
_MAX_WORDS = 1_000_000


class WordPieceLearner:
    """Learns word pieces from counted words: the algorithm of TensorFlow Text, with NumPy.

    It finds the pieces that occur often enough, for any threshold up to `largest_count`. All words
    are split four times: first before each character, then as WordPiece does with the pieces kept
    so far. At the start of each piece, the rest of the word is counted, and kept as a piece if it
    occurs often enough. (TensorFlow Text counts all strings that begin there. Then, from the
    longest to the shortest, it subtracts each count from the counts of the string's prefixes, which
    has the same result.)

    No word contains "##". The characters of a long word are counted as words instead. Words with
    characters other than the most frequent `max_unique_chars` are ignored.
    """

    def __init__(self, word_counts: Mapping[str, int], max_unique_chars: int):
        counts = collections.Counter(word_counts)
        for word, count in word_counts.items():
            if len(word) > _MAX_LENGTH:
                del counts[word]
                for char in word:
                    counts[char] += count
        self.largest_count = max(counts.values())
        # The words that consist of the most frequent characters, the most frequent word first;
        # `most_common` keeps the order of words that are equally frequent.
        char_counts: collections.Counter[str] = collections.Counter()
        for word, count in counts.items():
            for char in word:
                char_counts[char] += count
        by_count = sorted(char_counts, key=lambda char: (-char_counts[char], char))
        kept = set(by_count[:max_unique_chars])
        found = [x for x in counts.most_common() if kept.issuperset(x[0])]
        words = dict(found[:_MAX_WORDS])
        # Strings have numbers: 0 is the end of a word; then come all characters, at the start of a
        # word and inside one, which are always pieces; then all words and their suffixes.
        chars = sorted(set().union(*words))
        self._fixed = [*chars, *(f"##{char}" for char in chars)]
        numbers = {string: number for number, string in enumerate(["", *self._fixed])}
        rests = [0]  # the rest of the word at each character, and 0 after the last one
        for word in words:
            strings = (f"##{word[start:]}" if start else word for start in range(len(word)))
            rests += [numbers.setdefault(string, len(numbers)) for string in strings]
            rests.append(0)
        parents = [*range(1 + len(self._fixed))]  # the longest proper prefix of each string
        for string in [*numbers][len(parents) :]:
            end = len(string) - 1
            while string[:end] not in numbers:
                end -= 1
            parents.append(numbers[string[:end]])
        self._strings = [*numbers]
        self._parents = np.array(parents, np.int32)
        self._sizes = np.array([len(string.removeprefix("##")) for string in numbers], np.int32)
        self._rests = np.array(rests, np.int32)
        self._places = np.zeros(len(numbers), np.int32)  # an index in `_rests` of each string
        self._places[self._rests] = np.arange(len(rests), dtype=np.int32)
        self._words = np.array([numbers[word] for word in words], np.int32)
        self._word_counts = np.array([*words.values()], np.float64)
        self._first_counts = self._count(np.minimum(self._sizes, 1))

    def pieces(self, threshold: int) -> dict[str, int]:
        """Returns piece -> count for frequent pieces, and for every character (1 if it is rare)."""
        counts = self._first_counts
        for _ in range(_LATER_ROUNDS):
            kept = np.flatnonzero(counts >= threshold)
            longest = self._parents.copy()
            longest[kept] = kept
            while np.any(longest != (further := longest[longest])):
                longest = further
            counts = self._count(self._sizes[longest])
        kept = np.flatnonzero(counts >= threshold)
        found = {self._strings[number]: int(counts[number]) for number in kept}
        return {**dict.fromkeys(self._fixed, 1), **found}

    def _count(self, sizes: np.ndarray) -> np.ndarray:
        """Returns the count of each string, given the size of each string's first piece."""
        following = self._rests[self._places + sizes]
        counts = np.zeros(len(self._strings))
        rests, weights = self._words, self._word_counts
        while len(rests):
            counts += np.bincount(rests, weights, len(counts))
            rests = following[rests]
            rests, weights = rests[rests > 0], weights[rests > 0]
        return counts
