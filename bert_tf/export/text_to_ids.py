"""`TextToIds`: text to word-piece ids in core TensorFlow operations.

The ids equal `tokenization.FullTokenizer`'s exactly. Only TensorFlow itself is needed, so a
SavedModel with it loads in TensorFlow Serving and through the C API. The tables are constants of
the graph, made from the Unicode data of the Python that creates the object.
"""

import re
from collections.abc import Sequence

import tensorflow as tf

from bert_tf import tokenization
from bert_tf.errors import UserError, quoted
from bert_tf.export import unicode_tables
from bert_tf.export.piece_trie import PieceTrie
from bert_tf.export.text_symbols import TextSymbols
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.fast_tokenization import FastTokenizer

_BORDER = "\0"
_SPACES = r"[\s\p{Z}]*"


class TextToIds(tf.Module):
    """Converts texts to ids in a graph. Making the tables takes about a second.

    Args:
        tokenizer: gives the same ids.

    Raises:
        UserError: the vocabulary has no [UNK], or an added token cannot be found in a graph.
    """

    def __init__(self, tokenizer: FastTokenizer):
        super().__init__()
        reference = tokenizer.reference
        vocab, wordpiece = reference.vocab, reference.wordpiece_tokenizer
        if tokenization.UNKNOWN_TOKEN not in vocab:
            raise UserError(
                f"The vocabulary lacks {tokenization.UNKNOWN_TOKEN}, which stands for words that it"
                f" cannot spell; it has {len(vocab)} tokens"
            )
        letters = unicode_tables.letters_of(vocab)
        self._added = tokenizer.settings.added_tokens
        self._pattern = _pattern(self._added)
        # TensorFlow keeps strings on the CPU, so each call would copy tables from a GPU.
        with tf.device("CPU:0"):
            self._symbols = TextSymbols(letters, reference.basic_tokenizer)
            longest = wordpiece.max_input_chars_per_word
            self._trie = PieceTrie(vocab, letters, vocab[wordpiece.unk_token], longest)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts, int32 [N, None].

        `texts` are string [N], UTF-8; bytes that are not UTF-8 are ignored.
        """
        with tf.device("CPU:0"):
            return self._with_added(texts) if self._added else self._trie(*self._symbols(texts))

    def _with_added(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts, with the ids of the added tokens in them."""
        # Ignored bytes may be inside a token, so they are removed first.
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        texts = tf.strings.regex_replace(texts, _BORDER, "")
        marked = tf.strings.regex_replace(texts, self._pattern, rf"{_BORDER}\0{_BORDER}")
        parts = tf.strings.split(marked, _BORDER)  # text, token, text, ..., token, text
        number = tf.ragged.range(parts.row_lengths()).values
        is_token = number % 2 == 1
        between = tf.where(is_token, "", parts.values)
        stripped = tf.strings.regex_replace(parts.values, rf"^{_SPACES}|{_SPACES}$", "")
        ids = self._trie(*self._symbols(between))
        own = tf.zeros(tf.shape(number), tf.int32)
        for token in self._added:
            same = is_token & ((stripped == token.content) | (parts.values == token.content))
            own = tf.where(same, token.token_id, own)
        tokens = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(own, is_token), tf.cast(is_token, tf.int64)
        )
        ids = tf.concat([ids, tokens], 1)
        return tf.RaggedTensor.from_row_splits(
            ids.values, tf.gather(ids.row_splits, parts.row_splits)
        )


def _pattern(tokens: Sequence[AddedToken]) -> str:
    """Returns the regular expression, in RE2's syntax, that finds added tokens.

    Raises:
        UserError: RE2 cannot find a token by its rules.
    """
    for token in tokens:
        if token.single_word or token.normalized:
            raise UserError(
                f"The added token {quoted(token.content)} cannot be found in a graph, since it is"
                f" {'a single word' if token.single_word else 'found in normalized text'}. Export"
                " with --input_kind=ids, or change single_word and normalized of the token to false"
                " if the texts allow it"
            )
    longest_first = sorted(tokens, key=lambda token: len(token.content), reverse=True)
    return "|".join(
        _SPACES * token.lstrip + re.escape(token.content) + _SPACES * token.rstrip
        for token in longest_first
    )
