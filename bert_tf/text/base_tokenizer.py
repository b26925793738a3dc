"""`Tokenizer`: the interface of all tokenizers, for every kind of vocabulary."""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bert_tf import tokenization
from bert_tf.errors import quoted
from bert_tf.text.sequences import Layout
from bert_tf.text.tokenizer_settings import DEFAULTS, AddedToken, AddedTokens, TokenizerSettings


class Piece(NamedTuple):
    """A word piece, made from text[start:end]."""

    token_id: int
    start: int
    end: int
    # A word is a run of characters without white space or punctuation, or one punctuation mark.
    begins_word: bool


def without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """Strips white space from a span of a text; returns (start, start) if nothing remains."""
    end = start + len(text[start:end].rstrip())
    return end - len(text[start:end].lstrip()), end


def pieces_with_offsets(text: str, tokenizer: tokenization.FullTokenizer) -> list[Piece]:
    """Returns the word pieces of `tokenizer.tokenize`, with their offsets in the text."""
    basic = tokenizer.basic_tokenizer
    # For each character of the joined words, its index in the text.
    sources = [index for index, char in enumerate(text) for _ in range(_num_kept(char, basic))]
    pieces: list[Piece] = []
    position = 0  # in all words, joined without spaces
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


@functools.lru_cache(1 << 16)
def _num_kept(char: str, basic: tokenization.BasicTokenizer) -> int:
    # On its own a character becomes as many characters as in its word, though not always the same
    # ones: the sigma at a word's end and the order of combining marks depend on the neighbours.
    return len("".join(basic.tokenize(char)))


# int32 ids of all texts, and the number of ids of each text.
Encoded: TypeAlias = tuple[np.ndarray, Sequence[int] | np.ndarray]


class Tokenizer(abc.ABC):
    """Converts texts to ids, and ids to texts.

    Attributes:
        vocab: token -> id.
        inv_vocab: id -> token.
        do_lower_case: whether text is lower-cased.
        unknown_id: id of the unknown token; None if the vocabulary lacks it.
        files: name of a vocabulary file in a model's folder -> its content.
        settings: the model's tokenizer settings, such as added tokens.
        sequence_tokens, mask_token: ([CLS], [SEP]) and [MASK], or the model's equivalents.
        continuations: ids of tokens that continue a word.
        aliases: extra id that only `encode_for_masking` returns -> the vocabulary's id.
        never_drawn: ids that masking never draws as a random replacement.
        carries_space: whether the space before a word is part of the word's first piece.
    """

    vocab: Mapping[str, int]
    inv_vocab: Mapping[int, str]
    do_lower_case: bool
    unknown_id: int | None
    files: Mapping[str, str | bytes]
    settings: TokenizerSettings = DEFAULTS
    continuations: frozenset[int]
    sequence_tokens: tuple[str, str] = tokenization.SEQUENCE_TOKENS
    mask_token: str = tokenization.MASK_TOKEN
    aliases: Mapping[int, int] = {}
    never_drawn: frozenset[int] = frozenset()  # the original draws from the whole vocabulary
    carries_space = False

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts in one array, and where each text's ids begin and end.

        Pass a few thousand texts per call, so that the overhead of a TensorFlow call is small.

        Returns:
            ids: int32 `[number of ids]`.
            row_splits: int64 `[len(texts) + 1]`; text i has ids[row_splits[i] : row_splits[i + 1]].

        Raises:
            TypeError: `texts` is a single string.
        """
        if isinstance(texts, str):
            raise TypeError(f"texts must be a sequence of strings, not one string: {quoted(texts)}")
        return _with_row_splits(self.added, self._encode, texts)

    def encode_for_masking(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Like `encode`, but with ids of `aliases`, which tell whether a token continues a word."""
        return _with_row_splits(self.added, self._encode_for_masking, texts)

    def encode_masks(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Like `encode`, but finds `mask_token` written in a text."""
        return _with_row_splits(self._added_and_mask, self._encode, texts)

    @functools.cached_property
    def _added_and_mask(self) -> AddedTokens:
        mask = AddedToken(self.mask_token, self.vocab[self.mask_token])
        tokens = self.settings.added_tokens
        if all(token.token_id != mask.token_id for token in tokens):
            tokens = (*tokens, mask)
        return AddedTokens(tokens, self._normalizer)

    @functools.cached_property
    def added(self) -> AddedTokens | None:
        """Finds added tokens in texts; None if there are none or `_encode` finds them."""
        tokens = self.settings.added_tokens
        return AddedTokens(tokens, self._normalizer) if tokens else None

    @abc.abstractmethod
    def _encode(self, texts: Sequence[str]) -> Encoded:
        """Returns (int32 ids of all texts, number of ids of each text), without added tokens."""

    # The normalizer of the package `tokenizers`, applied before a text is split.
    _normalizer: Any = None

    def _encode_for_masking(self, texts: Sequence[str]) -> Encoded:
        return self._encode(texts)

    _between = 1, 1  # number of separators between two texts, and the second text's segment

    @functools.cached_property
    def layout(self) -> Layout:
        """The special tokens of a sequence; the vocabulary must have them."""
        first, separator = (self.vocab[token] for token in self.sequence_tokens)
        return Layout(first, separator, *self._between, self.settings.hugging_face)

    def tokens(self) -> list[str]:
        """Returns the tokens in the order of ids; see `tokens_by_id`."""
        return tokens_by_id(self.inv_vocab)

    def with_casing(self, do_lower_case: bool) -> "Tokenizer":
        """Returns a tokenizer with this vocabulary and casing; `self` unless overridden."""
        return self

    @abc.abstractmethod
    def after_lowering(self) -> "Tokenizer":
        """Returns a tokenizer that first lower-cases each character, except in added tokens.

        Accents are kept if they were kept before.
        """

    def simplified(self, text: str) -> str:
        """Returns a text without the characters that the tokenizer drops."""
        return text

    def pieces(self, text: str) -> list[Piece]:
        """Returns the pieces of a text with their offsets."""
        if not self.added:
            return self._pieces(text)
        found = []
        for start, end, token_id in self.added.spans(text):
            if token_id is not None:
                found.append(Piece(token_id, *without_space(text, start, end), True))
                continue
            for piece in self._pieces(text[start:end]):
                found.append(piece._replace(start=start + piece.start, end=start + piece.end))
        return found

    @abc.abstractmethod
    def _pieces(self, text: str) -> list[Piece]:
        """Returns the pieces of a text with their offsets, without looking for added tokens."""

    @abc.abstractmethod
    def text_of(self, token_ids: Sequence[int]) -> str:
        """Converts token ids to text."""

    def words_of(self, token_ids: Sequence[int]) -> str:
        """Converts token ids to words and punctuation marks, separated by single spaces."""
        return " ".join(self._basic.tokenize(self.text_of(token_ids)))

    def split_words(self, text: str) -> list[str]:
        """Splits a text into normalized words and punctuation marks; added tokens stay whole."""
        if not self.added:
            return self._basic.tokenize(text)
        words: list[str] = []
        for part in self.added.parts(text):
            words += self._basic.tokenize(part) if isinstance(part, str) else [self.inv_vocab[part]]
        return words

    @functools.cached_property
    def _basic(self) -> tokenization.BasicTokenizer:
        return tokenization.BasicTokenizer(self.do_lower_case)


def _with_row_splits(
    added: AddedTokens | None, encode: Callable[[Sequence[str]], Encoded], texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    ids, lengths = added.encode(encode, texts) if added else encode(texts)
    row_splits = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(lengths, out=row_splits[1:])
    return ids, row_splits


def tokens_by_id(inv_vocab: Mapping[int, str]) -> list[str]:
    """Returns the tokens in the order of ids, with `[no token 7]` for an unused id."""
    return [inv_vocab.get(i, f"[no token {i}]") for i in range(max(inv_vocab) + 1)]
