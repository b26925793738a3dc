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
    def options(self) -> dict[str, str | bool]:
        """The content and the true flags, by their names in Hugging Face's files."""
        return {name: x for name, x in vars(self).items() if x and name != "token_id"}


class TokenSpan(NamedTuple):
    """The characters from `start` to `end` of a text; `token_id` is None if they are no token."""

    start: int
    end: int
    token_id: int | None


class AddedTokens:
    """Finds tokens in texts: the leftmost first, of several the longest.

    Args:
        normalize: returns what one character of a text becomes before the text is split into words.
    """

    def __init__(self, tokens: Sequence[AddedToken], normalize: Callable[[str], str]):
        self._normalize = normalize
        self._written = _Finder({x.content: x for x in tokens if not x.normalized})
        normal = [x for x in tokens if x.normalized]
        self._normal = _Finder({"".join(map(normalize, x.content)): x for x in normal})

    def spans(self, text: str) -> Iterator[TokenSpan]:
        """Yields the tokens of a text, and what is between them, in order."""
        for span in self._written.spans(text):
            if span.token_id is None and self._normal.pattern:
                yield from self._normal_spans(text, span)
            else:
                yield span

    def _normal_spans(self, text: str, around: TokenSpan) -> Iterator[TokenSpan]:
        parts = [self._normalize(char) for char in text[around.start : around.end]]
        places = [around.start + i for i, part in enumerate(parts) for _ in part]
        done = around.start
        for start, end, token_id in self._normal.spans("".join(parts)):
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
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, longest_first))) if tokens else None

    def spans(self, text: str) -> Iterator[TokenSpan]:
        done = 0
        for match in self.pattern.finditer(text) if self.pattern else ():
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
    rows = [added.parts(text) for text in texts]
    if rows == [[text] for text in texts]:
        return encode(texts)
    between, sizes = encode([part for row in rows for part in row if isinstance(part, str)])
    groups = iter(np.split(between, np.cumsum(sizes)[:-1]))
    ids: list[int] = []
    lengths = []
    for row in rows:
        before = len(ids)
        for part in row:
            ids += next(groups).tolist() if isinstance(part, str) else [part]
        lengths.append(len(ids) - before)
    return np.array(ids, np.int32), lengths
