"""`FastTokenizer`: the same ids as `tokenization.FullTokenizer`, many times faster.

The text is cleaned and split at white space, and the ids of each part are cached.
"""

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers

from bert_tf import tokenization
from bert_tf.text.base_tokenizer import Encoded, Piece, Tokenizer, pieces_with_offsets, tokens_by_id
from bert_tf.text.tokenizer_settings import DEFAULTS, WORD_PIECES, TokenizerSettings

# The cache takes about 60 MB when full. Natural text repeats words so often that clearing the cache
# now and then costs less than tracking which entries were used last.
_MAX_CACHED = 1 << 18
_MAX_CACHED_LENGTH = 100

# Every character that cleaning changes is either not printable by Python's definition (Unicode's
# categories C and Z, except the space), or in this range: ideographs and U+FFFD.
_FROM_FIRST_IDEOGRAPH = re.compile(f"[^\0-{chr(min(tokenization.CJK_RANGES)[0] - 1)}]")


class _CharacterTable(dict[int, str]):
    """Code point -> replacement, for str.translate; entries are computed on first use."""

    def __init__(self, replacement: Callable[[str], str]):
        super().__init__()
        self._replacement = replacement

    def __missing__(self, code_point: int) -> str:
        replacement = self[code_point] = self._replacement(chr(code_point))
        return replacement


class _IdsOfToken(dict[str, Sequence[int]]):
    """Text without white space -> its ids; entries are computed on first use."""

    def __init__(self, reference: tokenization.FullTokenizer):
        super().__init__()
        self._vocab = reference.vocab
        self._wordpiece = reference.wordpiece_tokenizer
        self._basic = reference.basic_tokenizer
        self._split_table = _CharacterTable(self._split)

    def _split(self, char: str) -> str:
        if self._basic.strip_accents and unicodedata.category(char) == "Mn":
            return ""
        return f" {char} " if tokenization._is_punctuation(char) else char

    def __missing__(self, token: str) -> tuple[int, ...]:
        # Lower-casing depends on neighbours (the sigma at a word's end), so a table cannot do it.
        text = self._basic.lower(token) if self._basic.do_lower_case else token
        if self._basic.strip_accents:
            text = unicodedata.normalize("NFD", text)
        pieces = self._wordpiece.tokenize(text.translate(self._split_table))
        ids = tuple([self._vocab[piece] for piece in pieces])
        if len(token) <= _MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED:
                self.clear()
            self[token] = ids
        return ids


class FastTokenizer(Tokenizer):
    """Converts texts to exactly the ids of `FullTokenizer`, and finds added tokens.

    `reference` is the `FullTokenizer` with the same ids for texts without added tokens.
    """

    def __init__(
        self,
        vocab_file: str | Mapping[str, int],
        do_lower_case: bool = True,
        required_tokens: Sequence[str] = (),
        settings: TokenizerSettings = DEFAULTS,
    ):
        """Reads the vocabulary; same arguments and errors as `FullTokenizer`."""
        reference = tokenization.FullTokenizer(
            vocab_file, do_lower_case, required_tokens, settings.longest_word, **settings.switches
        )
        self.reference = reference
        self.settings = settings.with_ids(reference.vocab, str(vocab_file))
        self.vocab = {**reference.vocab, **self.settings.added_vocabulary}
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.unknown_id = self.vocab.get(tokenization.UNKNOWN_TOKEN)
        self.do_lower_case = reference.basic_tokenizer.do_lower_case
        self._clean_table = _CharacterTable(reference.basic_tokenizer.clean)
        self._ids_of_token = _IdsOfToken(reference)

    def _encode(self, texts: Sequence[str]) -> Encoded:
        ids: list[int] = []
        lengths = []
        for text in texts:
            if not text.isprintable() or _FROM_FIRST_IDEOGRAPH.search(text):
                text = text.translate(self._clean_table)
            before = len(ids)
            ids.extend(
                itertools.chain.from_iterable(map(self._ids_of_token.__getitem__, text.split()))
            )
            lengths.append(len(ids) - before)
        return np.array(ids, np.int32), lengths

    def with_casing(self, do_lower_case: bool) -> "FastTokenizer":
        """Returns a tokenizer with the same vocabulary and this casing."""
        return FastTokenizer(self.reference.vocab, do_lower_case, settings=self.settings)

    def after_lowering(self) -> "FastTokenizer":
        """Returns a tokenizer that first lower-cases each character of a text."""
        strip_accents = self._basic.strip_accents
        settings = dataclasses.replace(self.settings, strip_accents=strip_accents)
        return FastTokenizer(self.reference.vocab, True, settings=settings)

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """The `vocab.txt` with a line for each id, and the settings."""
        tokens = tokens_by_id(self.reference.inv_vocab)
        return {WORD_PIECES: "".join(f"{token}\n" for token in tokens), **self.settings.files()}

    @functools.cached_property
    def continuations(self) -> frozenset[int]:
        """Ids of tokens that continue a word."""
        vocab = self.reference.vocab
        return frozenset(i for token, i in vocab.items() if token.startswith("##"))

    @property
    def _basic(self) -> tokenization.BasicTokenizer:
        return self.reference.basic_tokenizer

    @property
    def _normalizer(self) -> Any:
        return tokenizers.normalizers.BertNormalizer(
            clean_text=self._basic.clean_text,
            handle_chinese_chars=self._basic.tokenize_chinese_chars,
            strip_accents=self._basic.strip_accents,
            lowercase=self.do_lower_case,
        )

    def _pieces(self, text: str) -> list[Piece]:
        return pieces_with_offsets(text, self.reference)

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Returns the word pieces, separated by single spaces."""
        return " ".join(self.inv_vocab[i] for i in token_ids)

    def words_of(self, token_ids: Sequence[int]) -> str:
        """Joins pieces as in the original's run_squad.py, where a piece may be just "##"."""
        text = self.text_of(token_ids).replace(" ##", "").replace("##", "")
        return " ".join(text.split())
