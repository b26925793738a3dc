"""The words of a context, the places of their pieces, and the text of predicted pieces.

The original goes from characters to words between spaces, and from there to word pieces. In Chinese
or Thai such a word is a whole sentence, in which an answer may occur many times.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf import tokenization
from bert_tf.text.base_tokenizer import Piece, Tokenizer

# Words are separated by the original's is_whitespace; str.split also splits at other characters.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# Scripts without spaces between words, in addition to tokenization.CJK_RANGES.
_SCRIPTS = (
    (0x0E00, 0x0FFF),  # Thai, Lao, Tibetan
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19FF),  # Tai Le, New Tai Lue, Khmer symbols
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x3000, 0x312F),  # CJK punctuation, Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31BF),  # more Bopomofo
    (0x31F0, 0x31FF),  # more Katakana
    (0xA000, 0xA4CF),  # Yi
    (0xA980, 0xA9FF),  # Javanese, more Burmese
    (0xAA60, 0xAADF),  # more Burmese, Tai Viet
    (0xFF01, 0xFF9F),  # wide letters and punctuation, narrow Katakana
    (0x1AFF0, 0x1B16F),  # more kana
    (0x30000, 0x323AF),  # ideographs that tokenization.CJK_RANGES lacks
)
_IDEOGRAPHS = "".join(f"{chr(first)}-{chr(last)}" for first, last in tokenization.CJK_RANGES)
_UNSPACED = re.compile(
    f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in _SCRIPTS)}{_IDEOGRAPHS}]"
)
# The first bytes, in UTF-8, of all characters that _UNSPACED finds, and of some others.
_UNSPACED_BYTES = bytes([0xE0, 0xE1, *range(0xE3, 0x100)])
_OTHER_BYTES = bytes(set(range(0x100)).difference(_UNSPACED_BYTES))
_PARTS = re.compile(f"[{_IDEOGRAPHS}]|[^{_IDEOGRAPHS}]+")


def split_words(context: str) -> list[str]:
    """Returns the words of a context (original: `doc_tokens`)."""
    return _WORD.findall(context)


def word_spans(context: str) -> list[tuple[int, int]]:
    """Returns each word's first character in the context, and its last character + 1."""
    return [match.span() for match in _WORD.finditer(context)]


def is_unspaced(word: str) -> bool:
    """Returns whether a word is very long, or in a script without spaces: perhaps a sentence."""
    return len(word) > tokenization.MAX_INPUT_CHARS_PER_WORD or bool(_UNSPACED.search(word))


def is_spaced(text: str) -> bool:
    """Returns whether spaces separate all words of a text; see `is_unspaced`."""
    start, longest = 0, tokenization.MAX_INPUT_CHARS_PER_WORD
    # Fast for English: jumps to the last space within the longest possible word.
    while len(text) - start > longest:
        space = text.rfind(" ", start, start + longest + 1)
        if space < 0:  # a long word, or other white space
            return not any(map(is_unspaced, split_words(text)))
        start = space + 1
    if text.isascii() or not text.encode("utf-8", "surrogatepass").translate(None, _OTHER_BYTES):
        return True
    return not _UNSPACED.search(text)


class PiecePlaces(NamedTuple):
    """Where the pieces of a context are in its text."""

    unspaced: np.ndarray  # bool [words], see `is_unspaced`
    starts: np.ndarray  # int32 [tokens], each piece's first character
    ends: np.ndarray  # int32 [tokens], each piece's last character + 1


def place_pieces(
    text: str, words: Sequence[str], ids: np.ndarray, word_starts: np.ndarray, tokenizer: Tokenizer
) -> PiecePlaces | None:
    """Returns where the pieces of a context are; None if spaces separate all its words."""
    if is_spaced(text):
        return None
    starts: list[int] = []
    ends: list[int] = []
    known: dict[str, list[Piece]] = {}
    bounds = itertools.pairwise(word_starts)
    for word, (begin, stop), (i, j) in zip(words, word_spans(text), bounds, strict=True):
        shift = stop - len(word)  # begin, or the space before it
        places = _places(word, ids[i:j].tolist(), tokenizer, known)
        for first, last in zip(*places, strict=True):
            starts.append(max(begin, shift + first))
            ends.append(shift + last)
    for i, (end, limit) in enumerate(zip(ends, [*starts[1:], len(text)], strict=False)):
        if end < limit:
            # Marks that the tokenizer drops, such as an accent or a Thai vowel.
            while end < limit and unicodedata.category(text[end])[0] == "M":
                end += 1
            ends[i] = end
    unspaced = np.array([is_unspaced(word.removeprefix(" ")) for word in words])
    return PiecePlaces(unspaced, np.array(starts, np.int32), np.array(ends, np.int32))


def _places(
    word: str, ids: list[int], tokenizer: Tokenizer, known: dict[str, list[Piece]]
) -> tuple[list[int], list[int]]:
    # `known` caches the pieces of ideographs, which most vocabularies treat as words.
    # Separate lists, because a tuple for each piece would trigger Python's garbage collector.
    found: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    place = 0
    for part in _PARTS.findall(word):
        if part not in known:
            known[part] = tokenizer.pieces(part)
        for piece in known[part]:
            found.append(piece[0])
            starts.append(place + piece[1])
            ends.append(place + piece[2])
        place += len(part)
    if found != ids:  # the tokenizer does not split the word into these parts
        pieces = tokenizer.pieces(word)
        found, starts, ends = ([piece[i] for piece in pieces] for i in range(3))
    if found != ids:
        return [0] * len(ids), [len(word)] * len(ids)
    return starts, ends


_CACHED_WORDS = 1 << 16


class FinalText:
    """Finds a predicted text, which the tokenizer has normalized, in the original words.

    Example: the prediction "steve smith" in the words "Steve Smith's" gives "Steve Smith". If words
    and tokens have the same number of characters, not counting spaces, character i of the words
    matches character i of the tokens. If the numbers differ, as with decomposed accents, the answer
    is all of the words. (Original: get_final_text, which makes a tokenizer with the same casing.)
    """

    def __init__(self, split_words: Callable[[str], list[str]], verbose_logging: bool = False):
        self._verbose_logging = verbose_logging
        # Words can be cached, because their tokens do not depend on their neighbours.
        self._tokenize = functools.lru_cache(_CACHED_WORDS)(
            lambda word: " ".join(split_words(word))
        )

    def __call__(self, predicted_text: str, words: Sequence[str]) -> tuple[int, int]:
        """Returns the text's start and end in `" ".join(words)`; the whole range if not found."""
        original = " ".join(words)
        tokenized = " ".join(filter(None, map(self._tokenize, words)))
        start = tokenized.find(predicted_text)
        places = [i for i, char in enumerate(original) if char != " "]
        if start == -1:
            problem = "Unable to find text: '%s' in '%s'", predicted_text
        elif len(places) != len(tokenized) - tokenized.count(" "):
            problem = "Length not equal after stripping spaces: '%s' vs '%s'", tokenized
        elif not predicted_text:
            problem = "Nothing to align: '%s' in '%s'", predicted_text
        else:
            first = start - tokenized.count(" ", 0, start)
            last = first + len(predicted_text) - predicted_text.count(" ") - 1
            return places[first], places[last] + 1
        if self._verbose_logging:
            logging.info(*problem, original)
        return 0, len(original)
