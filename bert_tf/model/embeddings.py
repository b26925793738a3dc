"""The embedding layer of BERT: ids -> input of the encoder.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.model.inputs import checked_inputs, get_shape_list
from bert_tf.model.layers import LayerNorm, create_initializer, dropout
from bert_tf.model.saving import Savable, register


def positions_without_padding(input_ids: tf.Tensor, pad_id: int) -> tf.Tensor:
    """Returns RoBERTa's positions, int32 [B, S]: from `pad_id` + 1 on, and `pad_id` for padding.

    Padding does not advance the position, at either end of a row (Hugging Face's
    create_position_ids_from_input_ids, fairseq's make_positions). The largest position in a row of
    length S is `pad_id` + S. Records are padded with id 0 at the end, so no token moves.
    """
    is_token = tf.cast(input_ids != pad_id, tf.int32)
    return tf.cumsum(is_token, axis=1) * is_token + pad_id


@register
class Embeddings(Savable, keras.layers.Layer):
    """Sum of word, segment and position embeddings, normalized (the paper, figure 2).

    Original: embedding_lookup and embedding_postprocessor. With `gather_token_types` segment
    embeddings are looked up by a gather, not by a product with one-hot ids.
    """

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool,
        dtype,
        gather_token_types: bool = False,
    ):
        super().__init__(name="embeddings", dtype=dtype)
        self.config = config
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.gather_token_types = gather_token_types
        self.layer_norm = LayerNorm(config)

    def build(self, input_shape=None):
        config = self.config
        sizes = {
            "word_embeddings": config.vocab_size,
            "token_type_embeddings": config.type_vocab_size,
            "position_embeddings": config.max_position_embeddings,
        }
        for name, size in sizes.items():
            is_trained = config.has_token_types or name != "token_type_embeddings"
            table = self.add_weight(
                shape=(size, config.embedding_width),
                initializer=create_initializer(config.initializer_range) if is_trained else "zeros",
                trainable=is_trained,
                autocast=False,  # gather in float32, then cast
                name=name,
            )
            setattr(self, name, table)
        self.layer_norm.build((None, None, config.embedding_width))

    def _one_hot_lookup(self, ids: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """Returns rows of a float32 table as a product with one-hot ids, float [B*S, E]."""
        one_hot_ids = tf.one_hot(tf.reshape(ids, [-1]), table.shape[0], dtype=self.compute_dtype)
        return tf.matmul(one_hot_ids, tf.cast(table, self.compute_dtype))

    def call(self, input_ids, token_type_ids=None, position_ids=None, seed=None):
        """Returns the input of the encoder, float [B, S, E].

        Args:
            input_ids: int32 [B, S] word-piece ids.
            token_type_ids: int32 [B, S] segment ids; None is all zeros.
            position_ids: int32 [B, S], positions below S; None for 0 to S - 1 in every row, or
                `positions_without_padding` in RoBERTa.
            seed: int32 [2] dropout seed, or None for no dropout.
        """
        config = self.config
        names = "input_ids", "token_type_ids", "position_ids"
        given = zip(names, (input_ids, token_type_ids, position_ids), strict=True)
        checked = checked_inputs({name: x for name, x in given if x is not None}, config)
        input_ids, token_type_ids, position_ids = map(checked.get, names)
        batch_size, seq_length = get_shape_list(input_ids)
        if token_type_ids is None:
            token_type_ids = tf.zeros([batch_size, seq_length], tf.int32)
        longest = config.longest_sequence
        rule = (
            f"must be at most {config.length_rule} ({longest}) of the configuration; lower"
            " --max_seq_length or change --bert_config_file."
        )
        checks = []
        if not isinstance(seq_length, int):
            message = f"The sequence length {rule}"
            checks = [tf.debugging.assert_less_equal(seq_length, longest, message=message)]
        elif seq_length > longest:
            raise UserError(f"The sequence length ({seq_length}) {rule}")
        shape = [batch_size, seq_length, config.embedding_width]
        if self.use_one_hot_embeddings:
            words = self._one_hot_lookup(input_ids, self.word_embeddings.value)
        else:
            words = tf.gather(self.word_embeddings.value, tf.reshape(input_ids, [-1]))
        words = tf.reshape(words, shape)  # [B, S, E]
        type_table = self.token_type_embeddings.value
        if not config.has_token_types:
            types = type_table[0]  # [E]
        elif self.gather_token_types:
            types = tf.reshape(tf.gather(type_table, tf.reshape(token_type_ids, [-1])), shape)
        else:
            # One-hot even if words are gathered, as in the original: the table is tiny.
            types = tf.reshape(self._one_hot_lookup(token_type_ids, type_table), shape)  # [B, S, E]
        with tf.control_dependencies(checks):
            offset = config.position_offset
            if offset and position_ids is None:
                position_ids = positions_without_padding(input_ids, config.pad_token_id)
            elif offset:
                position_ids += offset
            positions = self._positions(position_ids, shape)
        embeddings = tf.cast(words, tf.float32) + tf.cast(types, tf.float32) + positions
        embeddings = self.layer_norm.cast_to(self.compute_dtype, embeddings)
        return dropout(embeddings, config.hidden_dropout_prob, seed)

    def _positions(self, position_ids: tf.Tensor | None, shape: list) -> tf.Tensor:
        """Returns the position embeddings, float32 [S, E], or [B, S, E] for given positions."""
        table = self.position_embeddings.value[: shape[1] + self.config.position_offset]
        if position_ids is None:
            return tf.cast(table, tf.float32)
        # A gather from the slice has a dense gradient, as without packing. In a sparse gradient,
        # clipping would count duplicate rows separately.
        if self.use_one_hot_embeddings:
            positions = self._one_hot_lookup(position_ids, table)
        else:
            positions = tf.gather(table, tf.reshape(position_ids, [-1]))
        return tf.cast(tf.reshape(positions, shape), tf.float32)
