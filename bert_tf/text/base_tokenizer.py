"""`Tokenizer`: the interface of all tokenizers, whatever the kind of vocabulary."""

import abc
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf import tokenization
from bert_tf.errors import quoted
from bert_tf.text.offsets import Piece
from bert_tf.text.sequences import Layout


class Tokenizer(abc.ABC):
    """Converts texts to ids, and ids to texts.

    Attributes:
        vocab: token -> id.
        inv_vocab: id -> token.
        do_lower_case: whether text is lower-cased.
        unknown_id: id of the unknown token; None if the vocabulary lacks it.
        files: name of a vocabulary file in a model's folder -> its content.
        sequence_tokens, mask_token: [CLS] and [SEP], and [MASK], or the model's equivalents.
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
            row_splits: int64 `[len(texts) + 1]`; the ids of texts[i] are
                ids[row_splits[i] : row_splits[i + 1]].

        Raises:
            TypeError: `texts` is a single string.
        """
        if isinstance(texts, str):
            raise TypeError(f"texts must be a sequence of strings, not one string: {quoted(texts)}")
        ids, lengths = self._encode(texts)
        row_splits = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(lengths, out=row_splits[1:])
        return ids, row_splits

    @abc.abstractmethod
    def _encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray | list[int]]:
        """Returns (int32 ids of all texts, number of ids of each text)."""

    def encode_for_masking(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the same as `encode`, but with an id of `aliases` where it is needed.

        It is needed where the plain id would not tell whether the token continues a word.
        """
        return self.encode(texts)

    @functools.cached_property
    def layout(self) -> Layout:
        """The special tokens of a sequence; the vocabulary must have them."""
        return Layout(*(self.vocab[token] for token in self.sequence_tokens))

    def tokens(self) -> list[str]:
        """Returns the tokens by id; `[no token 7]` for an id that the vocabulary skips."""
        names = self.inv_vocab
        return [names.get(i, f"[no token {i}]") for i in range(max(names) + 1)]

    def with_casing(self, do_lower_case: bool) -> "Tokenizer":
        """Returns a tokenizer with the same vocabulary and this casing; here, `self`."""
        return self

    def simplified(self, text: str) -> str:
        """Returns a text without the characters that the tokenizer drops before it splits."""
        return text

    @abc.abstractmethod
    def pieces(self, text: str) -> list[Piece]:
        """Returns the pieces of a text with their offsets."""

    @abc.abstractmethod
    def text_of(self, token_ids: Sequence[int]) -> str:
        """Returns the text of a sequence of pieces."""

    def words_of(self, token_ids: Sequence[int]) -> str:
        """Returns the words and punctuation marks of the pieces, separated by single spaces."""
        basic = tokenization.BasicTokenizer(self.do_lower_case)
        return " ".join(basic.tokenize(self.text_of(token_ids)))
