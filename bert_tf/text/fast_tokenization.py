"""`FastTokenizer`: the same ids as `tokenization.FullTokenizer`, many times faster.

The text is cleaned and split at white space, and the ids of each part are cached. Large amounts of
printable ASCII, where the Unicode tables of tensorflow-text (ICU) agree with Python's, go to
tensorflow-text, which is up to twice as fast but takes most of a second to import and build.
"""

import dataclasses
import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from absl import logging

from bert_tf import tokenization
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text.base_tokenizer import Encoded, Piece, Tokenizer, pieces_with_offsets, tokens_by_id
from bert_tf.text.tokenizer_settings import DEFAULTS, WORD_PIECES, TokenizerSettings

# A call of tensorflow-text with fewer texts takes longer than the cache.
_MIN_BATCH = 100
# Characters of text after which tensorflow-text is loaded. Measured on English text: loading takes
# 0.7 s of CPU time, and saves 0.07 s per million characters.
_LOAD_AFTER = 10_000_000
# The cache takes about 60 MB when full. Natural text repeats words so often that clearing the cache
# now and then costs less than tracking which entries were used last.
_MAX_CACHED = 1 << 18
_MAX_CACHED_LENGTH = 100

# Every character that cleaning changes is either not printable by Python's definition (Unicode's
# categories C and Z, except the space), or in this range: ideographs and U+FFFD.
_FROM_FIRST_IDEOGRAPH = re.compile(f"[^\0-{chr(min(tokenization.CJK_RANGES)[0] - 1)}]")

# The tokens that a word of printable ASCII can consist of, once punctuation is split off.
# tensorflow-text gets only these tokens, so it need not support the rest of the vocabulary.
_ASCII_TOKEN = re.compile(r"(##)?[0-9A-Za-z]+|[!-~]")

_Encoder = Callable[[Sequence[str]], Encoded]


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
        self._num_characters = 0
        self._ascii_encoder: _Encoder | None = None
        self._is_loaded = False  # whether loading tensorflow-text was tried

    def _encode(self, texts: Sequence[str]) -> Encoded:
        is_ascii = np.fromiter(map(_is_printable_ascii, texts), np.bool_, len(texts))
        encode_ascii = None
        if np.count_nonzero(is_ascii) >= _MIN_BATCH:
            encode_ascii = self._load_ascii_encoder(texts)
        if encode_ascii is None:
            return self._encode_any(texts)
        if is_ascii.all():
            return encode_ascii(texts)
        lengths = np.empty(len(texts), np.int64)
        ascii_ids, lengths[is_ascii] = encode_ascii(list(itertools.compress(texts, is_ascii)))
        other_ids, lengths[~is_ascii] = self._encode_any(itertools.compress(texts, ~is_ascii))
        ids = np.empty(lengths.sum(), np.int32)
        from_ascii = np.repeat(is_ascii, lengths)
        ids[from_ascii] = ascii_ids
        ids[~from_ascii] = other_ids
        return ids, lengths

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

    def _load_ascii_encoder(self, texts: Sequence[str]) -> _Encoder | None:
        """Returns tensorflow-text's encoder; None if it is missing or not worth loading yet."""
        if not self._is_loaded:
            self._num_characters += sum(map(len, texts))
            if self._num_characters < _LOAD_AFTER or not sys.modules.get("tensorflow"):
                return None
            self._ascii_encoder = _make_ascii_encoder(self.reference)
            self._is_loaded = True
        return self._ascii_encoder

    def _encode_any(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
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
        return np.array(ids, np.int32), np.array(lengths, np.int64)


def _is_printable_ascii(text: str) -> bool:
    return text.isascii() and (text.isprintable() or text.replace("\t", " ").isprintable())


def _make_ascii_encoder(reference: tokenization.FullTokenizer) -> _Encoder | None:
    # None if tensorflow-text is missing or does not fit the TensorFlow build, with one warning, or
    # if the vocabulary has no token of printable ASCII.
    try:
        import tensorflow_text
    except (ImportError, tf.errors.NotFoundError) as error:  # the latter: built for another version
        logging.log_first_n(
            logging.WARNING,
            "Tokenizing without tensorflow-text (%s): the ids are the same, but it takes up to"
            # Without --no-deps pip would install plain tensorflow over a TPU build.
            ' twice as long. To install it: pip install --no-deps "tensorflow-text==%s.*"',
            1,
            error,
            ".".join(tf.version.VERSION.split(".")[:2]),
        )
        return None
    wordpiece = reference.wordpiece_tokenizer
    longest = len("##") + wordpiece.max_input_chars_per_word
    short = (token for token in reference.vocab if len(token) <= longest)
    tokens = list(filter(_ASCII_TOKEN.fullmatch, short))
    if not tokens:
        return None  # tensorflow-text needs at least one
    tokens.append(wordpiece.unk_token)
    ids_of_tokens = np.array([reference.vocab[token] for token in tokens], np.int32)
    # The tokenizer's model is a constant, which each call would copy back from a GPU.
    with tf.device("CPU:0"):
        tokenizer = tensorflow_text.FastBertTokenizer(
            tokens,
            max_bytes_per_word=wordpiece.max_input_chars_per_word,
            token_out_type=tf.int32,
            unknown_token=wordpiece.unk_token,
            lower_case_nfd_strip_accents=reference.basic_tokenizer.do_lower_case,
        )

    def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        with tf.device("CPU:0"):
            ragged = tokenizer.tokenize(tf.constant(texts, tf.string))
        return ids_of_tokens[ragged.values.numpy()], np.diff(ragged.row_splits.numpy())

    return encode
