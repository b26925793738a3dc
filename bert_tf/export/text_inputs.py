"""A model's input from raw text, in core TensorFlow operations.

The ids equal `tokenization.FullTokenizer`'s exactly. Only TensorFlow itself is needed, so a
SavedModel that takes text loads in TensorFlow Serving and through the C API. The tables are
constants of the graph, made from the Unicode data of the Python that creates the object.
"""

import re
from collections.abc import Sequence

import tensorflow as tf

from bert_tf import tokenization
from bert_tf.errors import UserError, quoted
from bert_tf.export import unicode_tables
from bert_tf.export.piece_trie import PieceTrie
from bert_tf.export.unicode_tables import BLOCK, CLASSES, DROPPED
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.tokenizer_settings import AddedToken
from bert_tf.tokenization import MASK_TOKEN, SEQUENCE_TOKENS

# Indices of [CLS], [SEP], padding and the first text's first id.
_CLS, _SEP, _PAD, _FIRST = range(4)


class TextInputs(tf.Module):
    """Makes `input_ids`, `input_mask` and `segment_ids` from texts, like `sequences.pack_pair`.

    Each is int32 [N, S], where S is the length of the longest example, at most `max_seq_length`.
    `input_mask` is 1 for a token and 0 for padding; `segment_ids` is 1 for the second text and its
    [SEP]. The vocabulary must have [CLS] and [SEP].
    """

    def __init__(self, tokenizer: FastTokenizer, max_seq_length: int):
        super().__init__()
        vocab = tokenizer.vocab
        self.to_ids = TextToIds(tokenizer)
        self.max_seq_length = max_seq_length
        self._special = (*(vocab[token] for token in SEQUENCE_TOKENS), 0)
        self._mask_id = vocab.get(MASK_TOKEN)
        self._hugging_face = tokenizer.layout.hugging_face

    def __call__(
        self, texts: tf.Tensor, second_texts: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the input for texts, string [N], or pairs, truncated like `truncate_longer`."""
        if second_texts is None:
            ids = self.to_ids(texts)
            return self._pack(ids, tf.cast(ids.row_lengths(), tf.int32))
        ids, lengths, second_lengths = self._ids_of_both(texts, second_texts)
        room = self.max_seq_length - 2 - self._is_pair(second_lengths)
        more = tf.cast(lengths > second_lengths, tf.int32) if self._hugging_face else 1
        kept = tf.minimum(lengths, tf.maximum((room + more) // 2, room - second_lengths))
        second_kept = tf.maximum((room + 1 - more) // 2, room - lengths)
        second_kept = tf.minimum(second_lengths, second_kept)
        return self._pack(ids, kept, second_kept)

    def question_and_context(
        self, questions: tf.Tensor, contexts: tf.Tensor, max_query_length: int
    ) -> dict[str, tf.Tensor]:
        """Returns the input for questions and contexts, string [N] each, truncated to fit."""
        ids, lengths, context_lengths = self._ids_of_both(questions, contexts)
        kept = tf.minimum(lengths, min(max_query_length, self.max_seq_length - 3))
        return self._pack(ids, kept, tf.minimum(context_lengths, self.max_seq_length - 3 - kept))

    def masked(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the input for texts, string [N], with masks written as [MASK].

        Also returns `masked_lm_positions`, int32 [N, P], the positions of the masks, padded with 0,
        and `masked_lm_weights`, float32 [N, P], 1 for a mask and 0 for padding. P is the largest
        number of masks in a text. Masks in the truncated part of a text are dropped.
        """
        if self._mask_id is None:
            raise UserError(f"The vocabulary has no {MASK_TOKEN}, so this model cannot fill one in")
        # Ignored bytes may be inside a [MASK], so they are removed first.
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        parts = tf.strings.split(texts, MASK_TOKEN)
        ids = self.to_ids(parts.values)
        # Adds a mask after each part; the mask after a text's last part is dropped below.
        ids = tf.concat([ids, tf.fill([ids.nrows(), 1], self._mask_id)], 1)
        ids = tf.RaggedTensor.from_row_splits(
            ids.values, tf.gather(ids.row_splits, parts.row_splits)
        )
        features = self._pack(ids, tf.cast(ids.row_lengths(), tf.int32) - 1)
        found = tf.where(features["input_ids"] == self._mask_id)
        positions = tf.RaggedTensor.from_value_rowids(
            tf.cast(found[:, 1], tf.int32), found[:, 0], parts.nrows()
        )
        return {
            **features,
            "masked_lm_positions": positions.to_tensor(),
            "masked_lm_weights": tf.ones_like(positions, tf.float32).to_tensor(),
        }

    def _ids_of_both(
        self, texts: tf.Tensor, second_texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Returns the ids of texts, then second texts, int32 [2N, None], and both lengths, [N]."""
        tf.debugging.assert_equal(
            tf.shape(texts),
            tf.shape(second_texts),
            "There must be as many first texts as second texts",
        )
        ids = self.to_ids(tf.concat([texts, second_texts], 0))
        lengths, second_lengths = tf.split(tf.cast(ids.row_lengths(), tf.int32), 2)
        return ids, lengths, second_lengths

    def _is_pair(self, second_lengths: tf.Tensor) -> tf.Tensor:
        """Returns `Layout.is_pair` for second texts of these lengths, as 1 and 0."""
        if self._hugging_face:
            return tf.ones_like(second_lengths)
        return tf.cast(second_lengths > 0, tf.int32)

    def _pack(
        self, ids: tf.RaggedTensor, kept: tf.Tensor, second_kept: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the input: [CLS] a [SEP] b [SEP], padded, like `sequences.pack_pair`."""
        # `ids`, int32 [N or 2N, None], are the ids of a, then the ids of b if there are second
        # texts. `kept` and `second_kept`, int32 [N], are the numbers of ids to keep.
        if second_kept is None:
            kept = tf.minimum(kept, self.max_seq_length - 2)
            is_pair = second_kept = tf.zeros_like(kept)
        else:
            is_pair = self._is_pair(second_kept)
        values = tf.concat([self._special, ids.values], 0)
        # Columns [N, 1], to compare with positions [S].
        starts = tf.cast(ids.row_starts(), tf.int32)[:, tf.newaxis] + _FIRST
        num_rows = tf.shape(kept)[0]
        start, second_start = starts[:num_rows], starts[-num_rows:]
        sep = kept[:, tf.newaxis] + 1
        end = sep + (second_kept + is_pair)[:, tf.newaxis]  # position of the last [SEP]
        # Without examples tf.reduce_max is negative.
        position = tf.range(tf.maximum(tf.reduce_max(end), 1) + 1)
        in_first = (position > 0) & (position < sep)
        in_second = (position > sep) & (position < end)
        special = tf.where(position == 0, _CLS, tf.where(position <= end, _SEP, _PAD))
        index = tf.where(in_first, start + position - 1, special)
        index = tf.where(in_second, second_start + position - sep - 1, index)
        return {
            "input_ids": tf.gather(values, index),
            "input_mask": tf.cast(position <= end, tf.int32),
            "segment_ids": tf.cast((position > sep) & (position <= end), tf.int32),
        }


class TextSymbols(tf.Module):
    """Splits texts like `tokenization.BasicTokenizer`; words are runs of symbols.

    For symbols and `letters` see `unicode_tables`. C: code points of all texts, K: symbols of all
    texts, N: texts.
    """

    def __init__(self, letters: dict[str, int], basic: tokenization.BasicTokenizer):
        super().__init__()
        rules = unicode_tables.Rules.of(basic)
        string_of, string_starts, symbols = unicode_tables.symbol_strings(tuple(letters), rules)
        self._string_of = CodePointTable(string_of)
        self._string_starts = tf.constant(string_starts, tf.int32)
        self._symbols = tf.constant(symbols)
        self._basic = basic
        self._has_final_sigma = basic.do_lower_case and not basic.hugging_face
        if self._has_final_sigma:
            self._case_of = CodePointTable(unicode_tables.case_classes(rules))

    def __call__(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the symbols, int32 [K], of texts, string [N], and row splits, int64 [N + 1].

        At least one `SPACE` separates words, and each text ends with a `SPACE`. The symbols of text
        i are symbols[row_splits[i] : row_splits[i + 1]]. Bytes that are not UTF-8 are ignored.
        """
        # The space at the end separates texts for the rules of final sigmas and of marks.
        decoded = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8", errors="ignore")
        points = decoded.values
        if self._has_final_sigma:
            has_sigma = tf.reduce_any(points == unicode_tables.CAPITAL_SIGMA)
            points = tf.cond(has_sigma, lambda: self._with_final_sigmas(points), lambda: points)
        string = self._string_of(points)
        spelled = tf.ragged.range(
            tf.gather(self._string_starts, string), tf.gather(self._string_starts, string + 1)
        )
        symbols = tf.cast(tf.gather(self._symbols, spelled.values), tf.int32)
        row_splits = tf.gather(spelled.row_splits, decoded.row_splits)
        if self._basic.strip_accents:
            symbols, row_splits = tf.cond(
                tf.reduce_any(symbols < 0),
                lambda: _with_ordered_marks(symbols, row_splits),
                lambda: (symbols, row_splits),
            )
        return symbols, row_splits

    def _with_final_sigmas(self, points: tf.Tensor) -> tf.Tensor:
        """Returns code points, int32 [C], with the final sigma where str.lower puts it."""
        case = self._case_of(points)
        kept = tf.where(case != unicode_tables.IGNORED)[:, 0]
        cased = tf.gather(case, kept) == unicode_tables.CASED
        follows_cased = tf.concat([[False], cased[:-1]], 0)
        precedes_cased = tf.concat([cased[1:], [False]], 0)
        is_sigma = tf.gather(points, kept) == unicode_tables.CAPITAL_SIGMA
        final = tf.boolean_mask(kept, is_sigma & follows_cased & ~precedes_cased)
        sigmas = tf.fill(tf.shape(final), unicode_tables.FINAL_SIGMA)
        return tf.tensor_scatter_nd_update(points, final[:, tf.newaxis], sigmas)


def _with_ordered_marks(symbols: tf.Tensor, row_splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # Runs of characters whose combining class is not 0 are sorted by class (Unicode Standard,
    # section 3.11). Characters that occur in no token need no order, since their word is unknown
    # anyway.
    is_mark = symbols < DROPPED
    mark_class = tf.where(is_mark, tf.math.floormod(-symbols, CLASSES), 0)
    symbols = tf.where(is_mark, tf.math.floordiv(-symbols, CLASSES), symbols)
    run = tf.cumsum(tf.cast(~is_mark, tf.int64))
    order = tf.argsort(run * CLASSES + tf.cast(mark_class, tf.int64), stable=True)
    symbols = tf.gather(symbols, order)
    kept = tf.where(symbols != DROPPED)[:, 0]
    return tf.gather(symbols, kept), tf.searchsorted(kept, row_splits, out_type=tf.int64)


class CodePointTable(tf.Module):
    """A table with an int for each code point, in the graph."""

    def __init__(self, table: unicode_tables.CodePoints):
        super().__init__()
        self._block_starts, self._blocks = map(tf.constant, table)

    def __call__(self, points: tf.Tensor) -> tf.Tensor:
        """Returns the entry of each code point, int32; `points` are int32 of any shape."""
        starts = tf.cast(tf.gather(self._block_starts, points // BLOCK), tf.int32)
        return tf.cast(tf.gather(self._blocks, starts + points % BLOCK), tf.int32)


_BORDER = "\0"
_SPACES = r"[\s\p{Z}]*"


class TextToIds(tf.Module):
    """Converts texts to ids in a graph."""

    def __init__(self, tokenizer: FastTokenizer):
        super().__init__()
        reference = tokenizer.reference
        vocab, wordpiece = reference.vocab, reference.wordpiece_tokenizer
        letters = unicode_tables.letters_of(vocab)
        self._added = tokenizer.settings.added_tokens
        self._pattern = _pattern(self._added)
        # TensorFlow keeps strings on the CPU, so tables on a GPU would be copied in each call.
        with tf.device("CPU:0"):
            self._symbols = TextSymbols(letters, reference.basic_tokenizer)
            longest = wordpiece.max_input_chars_per_word
            self._trie = PieceTrie(vocab, letters, vocab[wordpiece.unk_token], longest)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids, int32 [N, None], of texts, string [N], UTF-8; ignores other bytes."""
        with tf.device("CPU:0"):
            return self._with_added(texts) if self._added else self._trie(*self._symbols(texts))

    def _with_added(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts that may have added tokens."""
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
    """Returns the regular expression, in RE2's syntax, that finds added tokens."""
    for token in tokens:
        if token.single_word or token.normalized:
            raise UserError(
                f"The added token {quoted(token.content)} cannot be found in a graph, since it"
                f" matches {'whole words' if token.single_word else 'normalized text'} only. Export"
                " with --input_kind=ids, or change single_word and normalized of the token to false"
                " if the texts allow it"
            )
    longest_first = sorted(tokens, key=lambda token: len(token.content), reverse=True)
    return "|".join(
        _SPACES * token.lstrip + re.escape(token.content) + _SPACES * token.rstrip
        for token in longest_first
    )
