"""`Tokenizer`: what every tokenizer here can do, whatever its vocabulary is made of."""

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
        unknown_id: id of what the vocabulary has no tokens for.
        files: the content of the vocabulary's files, by their names in a model's folder.
        sequence_tokens, mask_token: [CLS] and [SEP], and [MASK], or what the model has for them.
        continuations: ids of tokens that continue a word.
        aliases: what other ids of `encode_for_masking` stand for.
        never_drawn: ids that masking does not put in the place of a token at random.
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

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts in one array, and where each text's ids begin and end.

        A few thousand texts per call are best: the cost of a call of TensorFlow is then small.

        Args:
            texts: any strings.

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
        """Returns the same as `encode`, with ids of `aliases` where a word would not be seen.

        An id then says whether its token continues a word, see `continuations`.
        """
        return self.encode(texts)

    @functools.cached_property
    def layout(self) -> Layout:
        """How special tokens stand in a sequence; the vocabulary must have them."""
        return Layout(*(self.vocab[token] for token in self.sequence_tokens))

    def tokens(self) -> list[str]:
        """Returns the tokens by id; `[no token 7]` for an id that the vocabulary skips."""
        names = self.inv_vocab
        return [names.get(i, f"[no token {i}]") for i in range(max(names) + 1)]

    def with_casing(self, do_lower_case: bool) -> "Tokenizer":
        """Returns this tokenizer, or one with the same vocabulary, that lower-cases text or not."""
        return self

    def simplified(self, text: str) -> str:
        """Returns a text without the characters that are dropped before it is split."""
        return text

    @abc.abstractmethod
    def pieces(self, text: str) -> list[Piece]:
        """Returns the pieces of a text with their places."""

    @abc.abstractmethod
    def text_of(self, token_ids: Sequence[int]) -> str:
        """Returns the text of some pieces."""

    @abc.abstractmethod
    def words_of(self, token_ids: Sequence[int]) -> str:
        """Returns the words of some pieces and their marks, with a space between any two."""
