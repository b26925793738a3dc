"""Learns word pieces from counted words: the algorithm of TensorFlow Text, with NumPy.

All words are split four times: first before each character, then as WordPiece does with the pieces
kept so far. At the start of each piece, the rest of the word is counted, and kept as a piece if it
occurs often enough. (TensorFlow Text counts all strings that begin there. Then, from the longest to
the shortest, it subtracts each count from the counts of the string's prefixes, which has the same
result.)
"""

import collections
from collections.abc import Mapping

import numpy as np

_LATER_ROUNDS = 3
_MAX_LENGTH = 50  # longer "words" are almost never words
# Limits memory: a million words take 1.1 GB. Rarer words hardly change the result.
_MAX_WORDS = 1_000_000


class WordPieceLearner:
    """Finds the pieces that occur often enough, for any threshold up to `largest_count`.

    No word contains "##". The characters of a long word are counted as words instead. Words with
    other characters than the most frequent `max_unique_chars` are ignored.
    """

    def __init__(self, word_counts: Mapping[str, int], max_unique_chars: int):
        counts = collections.Counter(word_counts)
        for word, count in word_counts.items():
            if len(word) > _MAX_LENGTH:
                del counts[word]
                for char in word:
                    counts[char] += count
        self.largest_count = max(counts.values())
        words = _of_frequent_chars(counts, max_unique_chars)
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
        """Returns the counts of frequent pieces, and of all characters, at least 1."""
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


def _of_frequent_chars(counts: collections.Counter[str], max_unique_chars: int) -> dict[str, int]:
    """Returns the words that consist of the most frequent characters, the most frequent first."""
    char_counts: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for char in word:
            char_counts[char] += count
    kept = set(sorted(char_counts, key=lambda char: (-char_counts[char], char))[:max_unique_chars])
    # `most_common` keeps the order of words that are equally frequent.
    return dict([x for x in counts.most_common() if kept.issuperset(x[0])][:_MAX_WORDS])
