"""`TextInputs`: makes a model's input from raw text, in core TensorFlow operations."""

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.export.text_to_ids import TextToIds
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import MASK_TOKEN, SEQUENCE_TOKENS

# Indices of [CLS], [SEP], padding, and of the first of all texts' ids.
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
        """Returns the input for texts, string [N], or pairs, which `truncate_longer` truncates."""
        if second_texts is None:
            ids = self.to_ids(texts)
            return self._pack_one(ids, tf.cast(ids.row_lengths(), tf.int32))
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
        """Returns the input for texts, string [N], with masks, which are written as [MASK].

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
        features = self._pack_one(ids, tf.cast(ids.row_lengths(), tf.int32) - 1)
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
            tf.shape(texts), tf.shape(second_texts), "There must be as many texts as second texts"
        )
        ids = self.to_ids(tf.concat([texts, second_texts], 0))
        lengths, second_lengths = tf.split(tf.cast(ids.row_lengths(), tf.int32), 2)
        return ids, lengths, second_lengths

    def _is_pair(self, second_lengths: tf.Tensor) -> tf.Tensor:
        """Returns `Layout.is_pair` for second texts of these lengths, as 1 and 0."""
        if self._hugging_face:
            return tf.ones_like(second_lengths)
        return tf.cast(second_lengths > 0, tf.int32)

    def _pack_one(self, ids: tf.RaggedTensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the input for the first `lengths`, int32 [N], of ids, int32 [N, None]."""
        kept = tf.minimum(lengths, self.max_seq_length - 2)
        return self._pack(ids, kept, None)

    def _pack(
        self, ids: tf.RaggedTensor, kept: tf.Tensor, second_kept: tf.Tensor | None
    ) -> dict[str, tf.Tensor]:
        """Returns the input: [CLS] a [SEP] b [SEP], padded, like `sequences.pack_pair`."""
        # `ids`, int32 [N or 2N, None], are the ids of a, then the ids of b if there are second
        # texts. `kept` and `second_kept`, int32 [N], are the numbers of ids to keep.
        is_pair = tf.zeros_like(kept) if second_kept is None else self._is_pair(second_kept)
        second_kept = tf.zeros_like(kept) if second_kept is None else second_kept
        values = tf.concat([self._special, ids.values], 0)
        # Columns [N, 1], to compare with positions [S].
        starts = tf.cast(ids.row_starts(), tf.int32)[:, tf.newaxis] + _FIRST
        num_rows = tf.shape(kept)[0]
        start, second_start = starts[:num_rows], starts[-num_rows:]
        sep = kept[:, tf.newaxis] + 1
        end = sep + (second_kept + is_pair)[:, tf.newaxis]  # of the last [SEP]
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
