"""Offsets of word pieces in their text.

The pieces do not tell them: the tokenizer drops, adds and replaces characters.
"""

import functools
from typing import NamedTuple

from bert_tf import tokenization


class Piece(NamedTuple):
    """A word piece, made from text[start:end].

    begins_word: whether it is the first piece of a word: a run of characters without white space
        or punctuation, or one punctuation mark.
    """

    token_id: int
    start: int
    end: int
    begins_word: bool


def without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns a span of a text without the white space at its ends; (start, start) if it is all."""
    end = start + len(text[start:end].rstrip())
    return end - len(text[start:end].lstrip()), end


def pieces_with_offsets(text: str, tokenizer: tokenization.FullTokenizer) -> list[Piece]:
    """Returns the word pieces of a text, the same as `tokenizer.tokenize`, with their offsets."""
    basic = tokenizer.basic_tokenizer
    sources = _sources(text, basic)
    pieces: list[Piece] = []
    position = 0  # in the text of all words, joined without spaces
    for word in basic.tokenize(text):
        places = sources[position : position + len(word)]
        position += len(word)
        found = tokenizer.wordpiece_tokenizer.tokenize(word)
        if found == [tokenizer.wordpiece_tokenizer.unk_token]:
            token_id = tokenizer.vocab[found[0]]
            pieces.append(Piece(token_id, min(places), max(places) + 1, True))
            continue
        start = 0
        for piece in found:
            end = start + len(piece) - (2 if start else 0)
            own = places[start:end]
            pieces.append(Piece(tokenizer.vocab[piece], min(own), max(own) + 1, start == 0))
            start = end
    return pieces


def _sources(text: str, basic: tokenization.BasicTokenizer) -> list[int]:
    """Returns the index in `text` of each character of its words, joined without spaces."""
    return [index for index, char in enumerate(text) for _ in range(_num_kept(char, basic))]


@functools.lru_cache(1 << 16)
def _num_kept(char: str, basic: tokenization.BasicTokenizer) -> int:
    """Returns how many characters of the words come from one character of the text.

    One at a time, characters give as many as whole words do, though not always the same ones: the
    sigma at a word's end, and the order of combining marks.
    """
    return len("".join(basic.tokenize(char)))
