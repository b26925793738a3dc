"""Tables of the symbols that tokenization makes of each character, from Python's Unicode data.

A character becomes a string of symbols. A symbol is an int: `SPACE`, `UNKNOWN` for a character that
occurs in no token, and from `FIRST_LETTER` on the characters of the vocabulary. Two more kinds only
occur where accents are stripped; there `text_inputs` puts marks in order:

*   `DROPPED`, a nonspacing mark of combining class 0. It separates runs of marks before it is
    removed.
*   -(symbol * CLASSES + class), a character of the vocabulary whose combining class is not 0 and
    that is not a nonspacing mark.

Making a table takes half a second, so the tables of the last vocabularies are kept.
"""

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from bert_tf import tokenization

SPACE, UNKNOWN, FIRST_LETTER = range(3)
DROPPED = -1
CLASSES = 256
# Classes of characters for str.lower's rule of the final sigma.
UNCASED, CASED, IGNORED = range(3)
CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2

_CODE_POINTS = 0x110000
BLOCK = 64
_UNASSIGNED = frozenset(("Cn", "Co", "Cs"))
_KEPT = 8


class CodePoints(NamedTuple):
    """A table with an int for each code point, as blocks; equal blocks are stored once.

    The entry of code point p is blocks[block_starts[p // BLOCK] + p % BLOCK].
    """

    block_starts: np.ndarray
    blocks: np.ndarray


@dataclasses.dataclass(frozen=True)
class Rules:
    """A tokenizer as a cache key: tokenizers with the same switches are equal."""

    basic: tokenization.BasicTokenizer = dataclasses.field(compare=False)
    switches: tuple[Any, ...]

    @classmethod
    def of(cls, basic: tokenization.BasicTokenizer) -> "Rules":
        switches = vars(basic) | {"dropped": frozenset(basic.dropped)}
        return cls(basic, tuple(switches.items()))


def letters_of(tokens: Iterable[str]) -> dict[str, int]:
    """Returns the symbol of each character of the tokens, in the order of code points."""
    return {char: i for i, char in enumerate(sorted(set("".join(tokens))), FIRST_LETTER)}


@functools.lru_cache(_KEPT)
def symbol_strings(
    characters: tuple[str, ...], rules: Rules
) -> tuple[CodePoints, np.ndarray, np.ndarray]:
    """Returns each code point's string of symbols; `characters` are the keys of `letters_of`.

    Punctuation and ideographs get a space on either side, control characters become "".

    Returns:
        string_of: the number of the string of each code point.
        string_starts: int [strings + 1]; the symbols of string i are symbols[string_starts[i] :
            string_starts[i + 1]].
        symbols: int [all symbols].
    """
    basic, letters = rules.basic, letters_of(characters)
    numbers = {(UNKNOWN,): 0}  # string -> its number
    string_of = np.zeros(_CODE_POINTS, np.int64)
    for point in _points_with_rules(basic, letters):
        char = chr(point)
        if char not in letters and _is_plain(char):
            if not (basic.tokenize_chinese_chars and basic._is_chinese_char(point)):
                continue
            string = SPACE, UNKNOWN, SPACE
        else:
            string = tuple(_spell(char, letters, basic))
        string_of[point] = numbers.setdefault(string, len(numbers))
    string_starts = np.cumsum([0, *map(len, numbers)])
    return _two_stages(string_of), string_starts, narrow(np.array([*itertools.chain(*numbers)]))


def _points_with_rules(
    basic: tokenization.BasicTokenizer, letters: Iterable[str] = ()
) -> list[int]:
    """Returns the code points that do not always become (UNKNOWN,)."""
    return sorted(_points_without(_UNASSIGNED - basic.dropped).union(map(ord, letters)))


@functools.lru_cache(1)
def _points_without(categories: frozenset[str]) -> frozenset[int]:
    """Returns the code points of ideographs, and of all categories except these."""
    found = {x for x in range(_CODE_POINTS) if unicodedata.category(chr(x)) not in categories}
    return frozenset(found.union(*(range(a, b + 1) for a, b in tokenization.CJK_RANGES)))


def _is_plain(char: str) -> bool:
    """Returns whether a character is a letter without case or accents, as four in five are."""
    return unicodedata.category(char) == "Lo" and unicodedata.is_normalized("NFD", char)


def _spell(char: str, letters: dict[str, int], basic: tokenization.BasicTokenizer) -> Iterable[int]:
    text = basic.clean(char)
    text = basic.lower(text) if basic.do_lower_case else text
    for part in unicodedata.normalize("NFD", text) if basic.strip_accents else text:
        combining = unicodedata.combining(part) if basic.strip_accents else 0
        symbol = letters.get(part, UNKNOWN)
        if part.isspace():  # where str.split splits
            yield SPACE
        elif basic.strip_accents and unicodedata.category(part) == "Mn":
            # Marks of other classes neither separate runs nor affect the order of the rest.
            yield from [] if combining else [DROPPED]
        elif combining and symbol != UNKNOWN:
            yield -(symbol * CLASSES + combining)
        elif tokenization._is_punctuation(part):
            yield from (SPACE, symbol, SPACE)
        else:
            yield symbol


@functools.lru_cache(_KEPT)
def case_classes(rules: Rules) -> CodePoints:
    """Returns UNCASED, CASED or IGNORED for each code point.

    str.lower turns a capital sigma into a final sigma if the nearest character before it that is
    not IGNORED is CASED and the nearest one after it is not. Python does not expose these classes,
    so they are derived from the results of str.lower. Characters that cleaning removes are IGNORED.
    """
    basic, classes = rules.basic, np.full(_CODE_POINTS, UNCASED)
    for point in _points_with_rules(basic):
        char = chr(point)
        if _ends_word(char):
            classes[point] = CASED
        elif _ends_word("a" + char) or not (_is_plain(char) or basic.clean(char)):
            classes[point] = IGNORED
    return _two_stages(classes)


def _ends_word(start: str) -> bool:
    return f"{start}{chr(CAPITAL_SIGMA)}".lower().endswith(chr(FINAL_SIGMA))


def _two_stages(table: np.ndarray) -> CodePoints:
    starts: dict[bytes, int] = {}  # block -> where it starts
    blocks = table.reshape(-1, BLOCK)
    block_starts = [starts.setdefault(row.tobytes(), len(starts) * BLOCK) for row in blocks]
    found = np.frombuffer(b"".join(starts), table.dtype)
    return CodePoints(narrow(np.array(block_starts)), narrow(found))


def narrow(array: np.ndarray) -> np.ndarray:
    """Converts integers to the first of int16, uint16, int32 and int64 that can hold them all."""
    for dtype in (np.int16, np.uint16, np.int32):
        limits = np.iinfo(dtype)
        if array.size == 0 or limits.min <= array.min() and array.max() <= limits.max:
            return array.astype(dtype)
    return array.astype(np.int64)
