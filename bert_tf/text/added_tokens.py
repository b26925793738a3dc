"""`AddedTokens`: finds tokens in a text before it is split into pieces.

The rules are Hugging Face's (`AddedVocabulary` of the package `tokenizers`). A byte-level BPE has
them from that package.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

_WORD = re.compile(r"\w")
_SPACES = re.compile(r"\s*")
_BETWEEN_TEXTS = "\0"  # a token with it would only be looked for in vain


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text as it is written, such as [MASK] or [E1].

    token_id: its id; None until it is looked up in the vocabulary.
    single_word: whether it is only found where no letter, digit or underscore touches it.
    lstrip, rstrip: whether the white space before or after it belongs to it.
    normalized: whether it is found in the text without accents and capitals, if the tokenizer
        drops these.
    """

    content: str
    token_id: int | None = None
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    @property
    def has_flags(self) -> bool:
        return self.single_word or self.lstrip or self.rstrip or self.normalized

    @property
    def options(self) -> dict[str, str | bool]:
        """The content and the flags, by their names in Hugging Face's files."""
        return {name: x for name, x in vars(self).items() if name != "token_id"}


class TokenSpan(NamedTuple):
    """The characters from `start` to `end` of a text; `token_id` is None for other text."""

    start: int
    end: int
    token_id: int | None


class CharacterTable(dict[int, str]):
    """Code point -> replacement, for str.translate; entries are computed on first use."""

    def __init__(self, replacement: Callable[[str], str]):
        super().__init__()
        self._replacement = replacement

    def __missing__(self, code_point: int) -> str:
        replacement = self[code_point] = self._replacement(chr(code_point))
        return replacement


class AddedTokens:
    """Finds tokens in texts: the leftmost first, of several the longest.

    Args:
        normalize: returns what one character of a text becomes before the text is split into words.
    """

    def __init__(self, tokens: Sequence[AddedToken], normalize: Callable[[str], str]):
        self._normalize = CharacterTable(normalize)
        normal = {x.content.translate(self._normalize): x for x in tokens if x.normalized}
        self._normal = _Finder(normal) if normal else None
        self._written = _Finder({x.content: x for x in tokens if not x.normalized})

    def occur_in(self, text: str) -> bool:
        """Returns whether a token is in a text, perhaps where another rule forbids it."""
        if self._written.occur_in(text):
            return True
        return bool(self._normal) and self._normal.occur_in(text.translate(self._normalize))

    def spans(self, text: str) -> Iterator[TokenSpan]:
        """Yields the tokens of a text, and what is between them, in order."""
        for span in self._written.spans(text):
            if span.token_id is None and self._normal:
                yield from self._normal_spans(self._normal, text, span)
            else:
                yield span

    def _normal_spans(self, finder: "_Finder", text: str, around: TokenSpan) -> Iterator[TokenSpan]:
        parts = [self._normalize[ord(char)] for char in text[around.start : around.end]]
        places = [around.start + i for i, part in enumerate(parts) for _ in part]
        done = around.start
        for start, end, token_id in finder.spans("".join(parts)):
            if token_id is not None:
                if done < places[start]:
                    yield TokenSpan(done, places[start], None)
                done = places[end - 1] + 1
                yield TokenSpan(places[start], done, token_id)
        if done < around.end:
            yield TokenSpan(done, around.end, None)

    def parts(self, text: str) -> list[str | int]:
        """Returns the ids of a text's tokens, and the texts between them, in order."""
        return [
            text[start:end] if token_id is None else token_id
            for start, end, token_id in self.spans(text)
        ]


class _Finder:
    """Finds tokens in a text, which is normalized if the tokens are.

    Args:
        tokens: token by what is looked for.
    """

    def __init__(self, tokens: dict[str, AddedToken]):
        self._tokens = {content: token for content, token in tokens.items() if content}
        self._first = {content[0] for content in self._tokens}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        # Without tokens the pattern never matches.
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def occur_in(self, text: str) -> bool:
        # To look for a single character is many times faster than to look for the pattern.
        return any(char in text for char in self._first) and bool(self._pattern.search(text))

    def spans(self, text: str) -> Iterator[TokenSpan]:
        done = 0
        for match in self._pattern.finditer(text):
            token = self._tokens[match[0]]
            start, end = match.span()
            touches = _WORD.match(text, end) or (start and _WORD.match(text, start - 1))
            if token.single_word and touches:
                continue
            if token.lstrip:
                while start > done and text[start - 1].isspace():
                    start -= 1
            if token.rstrip:
                end = _SPACES.match(text, end).end()
            if done < start:
                yield TokenSpan(done, start, None)
            yield TokenSpan(start, end, token.token_id)
            done = end
        if done < len(text):
            yield TokenSpan(done, len(text), None)


def encode_with_added(
    encode: Callable[[Sequence[str]], tuple[np.ndarray, Sequence[int] | np.ndarray]],
    texts: Sequence[str],
    added: AddedTokens,
) -> tuple[np.ndarray, Sequence[int] | np.ndarray]:
    """Returns (int32 ids of all texts, number of ids of each text), with the added tokens' ids.

    Args:
        encode: returns the same for texts without added tokens.
    """
    # Nearly all texts have none, and one look at all of them is faster than one at each.
    if not added.occur_in(_BETWEEN_TEXTS.join(texts)):
        return encode(texts)
    strings: list[str] = []
    tokens: list[int] = []
    rows: tuple[list[int], list[int]] = [], []  # the number of the text of each string and token
    before: list[int] = []  # number of strings before each token
    for row, text in enumerate(texts):
        for part in added.parts(text):
            if isinstance(part, str):
                strings.append(part)
                rows[0].append(row)
            else:
                tokens.append(part)
                rows[1].append(row)
                before.append(len(strings))
    ids, sizes = encode(strings)
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    counts = np.zeros(len(texts), np.int64)
    np.add.at(counts, rows[0], sizes)
    np.add.at(counts, rows[1], 1)
    return np.insert(ids, ends[before], tokens), counts
