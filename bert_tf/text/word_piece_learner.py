"""Learns word pieces from counted words: the algorithm of TensorFlow Text, with NumPy.

A piece is kept if it occurs often enough. "##" begins every piece but a word's first. The learner
splits all words four times: first before each character, then as WordPiece does with the pieces
kept so far. Each time, it counts what is left of each word where a piece of the split begins.

TensorFlow Text counts all strings that begin there. Then, the longest first, it subtracts each
string's count from the counts of the strings that it begins with. That leaves the same counts.
"""

import collections
from collections.abc import Mapping

import numpy as np

_LATER_ROUNDS = 3
_MAX_LENGTH = 50  # longer "words" are almost never words
# A limit for memory: a million words take 1.1 GB. Rarer words hardly change the result.
_MAX_WORDS = 1_000_000
_INSIDE = "##"


class WordPieceLearner:
    """Finds the pieces that occur often enough, for any threshold.

    Args:
        word_counts: number of occurrences of each word; "##" is in none of them.
        max_unique_chars: number of characters to keep, the most frequent ones. Words with other
            characters are ignored.

    Attributes:
        largest_count: of a word. With a higher threshold only characters are left.
    """

    def __init__(self, word_counts: Mapping[str, int], max_unique_chars: int):
        counts = _without_long_words(word_counts)
        self.largest_count = max(counts.values())
        words = _of_frequent_chars(counts, max_unique_chars)
        chars = sorted(set().union(*words))
        # Strings have numbers: 0 is the end of a word. Then come all characters, at the start of a
        # word and inside one, which are always pieces; then all words, and all that they end with.
        fixed = ["", *chars, *(_INSIDE + char for char in chars)]
        numbers = {string: number for number, string in enumerate(fixed)}
        rests = [0]  # what is left of its word at each character, and 0 after the last one
        for word in words:
            rests.append(numbers.setdefault(word, len(numbers)))
            for start in range(1, len(word)):
                rests.append(numbers.setdefault(_INSIDE + word[start:], len(numbers)))
            rests.append(0)
        self._strings = list(numbers)
        self._num_fixed = len(fixed)
        self._words = np.array([numbers[word] for word in words], np.int32)
        self._word_counts = np.array(list(words.values()), np.float64)
        self._rests = np.array(rests, np.int32)
        self._places = np.zeros(len(numbers), np.int32)  # an index in `_rests` of each string
        self._places[self._rests] = np.arange(len(rests), dtype=np.int32)
        sizes = [len(string) - len(_INSIDE) * string.startswith(_INSIDE) for string in numbers]
        self._sizes = np.array(sizes, np.int32)
        # The longest other string that each string begins with.
        parents = [_longest_beginning(string, numbers) for string in self._strings[len(fixed) :]]
        self._parents = np.array([*range(len(fixed)), *parents], np.int32)
        self._first_counts = self._count(np.minimum(self._sizes, 1))

    def pieces(self, threshold: int) -> dict[str, int]:
        """Returns counts: of pieces that occur at least `threshold` times, and of all characters.

        A rarer character has the count 1.
        """
        counts = self._first_counts
        for _ in range(_LATER_ROUNDS):
            kept = np.flatnonzero(counts >= threshold)
            longest = self._parents.copy()
            longest[kept] = kept
            while np.any(longest != (further := longest[longest])):
                longest = further
            counts = self._count(self._sizes[longest])
        pieces = dict.fromkeys(self._strings[1 : self._num_fixed], 1)
        for number in np.flatnonzero(counts >= threshold).tolist():
            pieces[self._strings[number]] = int(counts[number])
        return pieces

    def _count(self, sizes: np.ndarray) -> np.ndarray:
        """Returns the count of each string if the first piece of each has this size."""
        following = self._rests[self._places + sizes]
        counts = np.zeros(len(self._strings))
        rests, weights = self._words, self._word_counts
        while len(rests):
            counts += np.bincount(rests, weights, len(counts))
            rests = following[rests]
            rests, weights = rests[rests > 0], weights[rests > 0]
        return counts


def _without_long_words(word_counts: Mapping[str, int]) -> collections.Counter[str]:
    """Returns the counts of words. The characters of a long word count as words in its place."""
    counts = collections.Counter(word_counts)
    for word, count in word_counts.items():
        if len(word) > _MAX_LENGTH:
            del counts[word]
            for char in word:
                counts[char] += count
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


def _longest_beginning(string: str, numbers: Mapping[str, int]) -> int:
    """Returns the number of the longest string that this one begins with, less than all of it."""
    end = len(string) - 1
    while (number := numbers.get(string[:end])) is None:
        end -= 1
    return number
