"""The ids of `tokenization.FullTokenizer`, in bulk and many times faster.

Two paths share the work, and which one a text takes never shows in its ids:

*   Texts of printable ASCII go through tensorflow-text in batches. There is nothing in them for
    Unicode tables to decide, and those of tensorflow-text (ICU) are not Python's.
*   Any other text is cleaned and cut at white space, and what stands between is looked up in a
    cache of ids. New entries are split by the reference's rules with one table lookup a character.

Without tensorflow-text, which does not come with every TensorFlow build, all texts take the second
path.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import tokenization

# With fewer texts than this, calling tensorflow-text takes longer than looking words up.
_MIN_BATCH = 100
# The cache takes about 60 MB when full. Natural text repeats itself so much that starting afresh
# now and then costs less than keeping track of what was used last.
_MAX_CACHED = 1 << 18
_MAX_CACHED_LENGTH = 100

# All characters that cleaning changes are either not printable, by Python's definition (Unicode's
# categories C and Z but for the space), or here: ideographs and U+FFFD.
_FROM_FIRST_IDEOGRAPH = re.compile(f"[{chr(min(tokenization.CJK_RANGES)[0])}-\U0010ffff]")

# The tokens that a word of printable ASCII can be pieced together from, once punctuation is split
# off. Whatever else is in a vocabulary, tensorflow-text need not understand.
_ASCII_TOKEN = re.compile(r"(##)?[0-9A-Za-z]+|[!-~]")


class _LazyTable(dict):
    """Code point -> replacement, for str.translate; entries are computed when first met."""

    def __init__(self, replacement: Callable[[str], str]):
        super().__init__()
        self._replacement = replacement

    def __missing__(self, code_point: int) -> str:
        replacement = self[code_point] = self._replacement(chr(code_point))
        return replacement


class _IdsOfToken(dict):
    """Text without white space in it -> its ids; entries are computed when first met."""

    def __init__(self, reference: tokenization.FullTokenizer):
        super().__init__()
        self._vocab = reference.vocab
        self._wordpiece = reference.wordpiece_tokenizer
        self._do_lower_case = reference.basic_tokenizer.do_lower_case
        self._split_table = _LazyTable(self._split)

    def _split(self, char: str) -> str:
        if self._do_lower_case and unicodedata.category(char) == "Mn":
            return ""
        return f" {char} " if tokenization._is_punctuation(char) else char

    def __missing__(self, token: str) -> tuple[int, ...]:
        # Lowercasing looks at neighbours (the sigma at a word's end), so it cannot be in the table.
        text = unicodedata.normalize("NFD", token.lower()) if self._do_lower_case else token
        pieces = self._wordpiece.tokenize(text.translate(self._split_table))
        ids = tuple([self._vocab[piece] for piece in pieces])
        if len(token) <= _MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED:
                self.clear()
            self[token] = ids
        return ids


class FastTokenizer:
    """Texts to ids, exactly those of `FullTokenizer`.

    Attributes:
        vocab: token -> id.
        inv_vocab: id -> token.
    """

    def __init__(
        self, vocab_file: str, do_lower_case: bool = True, required_tokens: Sequence[str] = ()
    ):
        """Reads the vocabulary; arguments and errors are those of `FullTokenizer`.

        Where tensorflow-text is missing or does not fit the TensorFlow build, says so once.
        """
        reference = tokenization.FullTokenizer(vocab_file, do_lower_case, required_tokens)
        self.vocab = reference.vocab
        self.inv_vocab = reference.inv_vocab
        basic = reference.basic_tokenizer
        self._clean_table = _LazyTable(basic.clean)
        self._ids_of_token = _IdsOfToken(reference)
        self._encode_ascii = _ascii_encoder(reference)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts, one after the other, and where each text's begin and end.

        Some thousand texts a call are best: then the cost of calling TensorFlow is spread thin.

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
            raise TypeError(f"texts must be a sequence of strings, not one string: {texts!r}")
        is_ascii = np.fromiter(map(_is_printable_ascii, texts), np.bool_, len(texts))
        if self._encode_ascii is None or np.count_nonzero(is_ascii) < _MIN_BATCH:
            ids, lengths = self._encode_any(texts)
        elif is_ascii.all():
            ids, lengths = self._encode_ascii(texts)
        else:
            lengths = np.empty(len(texts), np.int64)
            ascii_texts = list(itertools.compress(texts, is_ascii))
            other_texts = list(itertools.compress(texts, ~is_ascii))
            ascii_ids, lengths[is_ascii] = self._encode_ascii(ascii_texts)
            other_ids, lengths[~is_ascii] = self._encode_any(other_texts)
            ids = np.empty(lengths.sum(), np.int32)
            from_ascii = np.repeat(is_ascii, lengths)
            ids[from_ascii] = ascii_ids
            ids[~from_ascii] = other_ids
        row_splits = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(lengths, out=row_splits[1:])
        return ids, row_splits

    def _encode_any(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns (int32 ids, int64 number of ids of each text)."""
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


def _ascii_encoder(
    reference: tokenization.FullTokenizer,
) -> Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]] | None:
    """Returns a function from texts of printable ASCII to (int32 ids, int64 number of each).

    None if there is no tensorflow-text to do it, or no token for it to find.
    """
    try:
        import tensorflow_text
    except (ImportError, tf.errors.NotFoundError) as error:  # the latter: built for another version
        logging.log_first_n(
            logging.WARNING,
            "Tokenizing without tensorflow-text (%s): the ids are the same, but it takes up to"
            # Without --no-deps plain tensorflow would come with it, and overwrite a TPU build.
            ' twice as long. To install it: pip install --no-deps "tensorflow-text==%s.*"',
            1,
            error,
            ".".join(tf.__version__.split(".")[:2]),
        )
        return None
    wordpiece = reference.wordpiece_tokenizer
    longest = len("##") + wordpiece.max_input_chars_per_word
    tokens = [
        token
        for token in reference.vocab
        if len(token) <= longest and _ASCII_TOKEN.fullmatch(token)
    ]
    if not tokens:
        return None  # tensorflow-text refuses to be built, and all such words are unknown
    tokens.append(wordpiece.unk_token)
    ids_of_tokens = np.array([reference.vocab[token] for token in tokens], np.int32)
    # The model is a constant, which a GPU would otherwise hold and hand back on each call.
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
