"""The BERT model under the original's names: BertConfig, BertModel.

Each layer is named as its scope in google-research/bert, so `variable.path` is the variable's name
in a released checkpoint (`bert/encoder/layer_0/attention/self/query/kernel`).

Dimension letters and dtypes in the docstrings and comments of models, layers and heads:

    B  batch size              V  vocabulary size
    S  sequence length         H  hidden size
    L  encoder layers          N  attention heads
    P  masked positions        D  size of an attention head, H / N
    K  maximum number of sequences in a packed row
    E  width of the embeddings: H, except in ALBERT

    float    the compute dtype: float32, or bfloat16 in a model with `dtype="bfloat16"`
    float32  float32 in either case

With `dtype="bfloat16"`, the matrix products and the activations between them are bfloat16.
Variables, LayerNorm, softmax, logits and losses stay float32.
"""

import copy
from typing import NamedTuple

import keras
import tensorflow as tf

from bert_tf.errors import UserError, quoted
from bert_tf.model.activations import gelu, get_activation
from bert_tf.model.albert import AlbertEncoder
from bert_tf.model.albert_configuration import AlbertConfig
from bert_tf.model.configuration import BertConfig
from bert_tf.model.distilbert_configuration import DistilBertConfig
from bert_tf.model.dropout import dropout, dropout_seed_of_call
from bert_tf.model.embeddings import Embeddings
from bert_tf.model.encoder import Encoder, attention_within_sequences
from bert_tf.model.layers import NamedDense, create_initializer, gather_indexes
from bert_tf.model.roberta_configuration import RobertaConfig
from bert_tf.model.saving import Savable, register
from bert_tf.model.shapes import get_shape_list
from bert_tf.seeds import fold_in

__all__ = [
    "AlbertConfig",
    "BertConfig",
    "BertModel",
    "BertOutput",
    "DistilBertConfig",
    "RobertaConfig",
    "create_initializer",
    "dropout",
    "gelu",
    "get_activation",
    "get_shape_list",
]


class BertOutput(NamedTuple):
    """Output tensors of a `BertModel`, with the getters of the original's model object.

    Attributes:
        embedding_output: float [B, S, E], the input of the encoder.
        all_encoder_layers: a tuple of L tensors, float [B, S, H], the outputs of the encoder layers
            (ALBERT: of every inner group).
        sequence_output: float [B, S, H], the output of the last encoder layer.
        pooled_output: float [B, H], the first token ([CLS]) after a dense tanh layer (DistilBERT:
            ReLU). For packed rows float [B*K, H], one vector per sequence.
        embedding_table: float32 [V, E], the word embeddings.
        attention_probs: a tuple of L tensors, float32 [B, N, S, S], before dropout: how much each
            position (third axis) attends to every position (last axis).
    """

    embedding_output: tf.Tensor
    all_encoder_layers: tuple[tf.Tensor, ...]
    sequence_output: tf.Tensor
    pooled_output: tf.Tensor
    embedding_table: tf.Tensor
    attention_probs: tuple[tf.Tensor, ...]

    def get_pooled_output(self) -> tf.Tensor:
        """Returns `pooled_output`."""
        return self.pooled_output

    def get_sequence_output(self) -> tf.Tensor:
        """Returns `sequence_output`."""
        return self.sequence_output

    def get_all_encoder_layers(self) -> tuple[tf.Tensor, ...]:
        """Returns `all_encoder_layers`."""
        return self.all_encoder_layers

    def get_embedding_output(self) -> tf.Tensor:
        """Returns `embedding_output`."""
        return self.embedding_output

    def get_embedding_table(self) -> tf.Tensor:
        """Returns `embedding_table`."""
        return self.embedding_table


@register
class BertModel(Savable, keras.Model):
    """BERT without heads (https://arxiv.org/abs/1810.04805, section 3).

    The original's constructor builds its graph. This constructor creates the variables, and each
    call computes the outputs:

        bert = modeling.BertModel(config)
        model = bert(input_ids, input_mask, token_type_ids, training=is_training)
        pooled_output = model.get_pooled_output()

    The models of bert_tf/tasks pass their `**options` on to this constructor.

    Args:
        config: copied, as in the original. Its class decides whether this is a BERT, an ALBERT, a
            RoBERTa or a DistilBERT.
        use_one_hot_embeddings: whether to look up word embeddings by a product with one-hot ids,
            which is faster on TPUs, instead of a gather.
        recompute_activations: whether to compute each encoder layer again in the backward pass
            instead of keeping its intermediate results: less memory, about a third more time.
        dtype: "float32", or "bfloat16" for mixed precision (see the top of this module).
        name: the first part of every variable's path.

    Raises:
        UserError: `dtype` is neither of these.
    """

    built: bool

    def __init__(
        self,
        config: BertConfig,
        *,
        use_one_hot_embeddings: bool = False,
        recompute_activations: bool = False,
        dtype: str = "float32",
        name: str = "bert",
    ):
        policies = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
        if dtype not in policies:
            raise UserError(f"dtype must be float32 or bfloat16, not {quoted(dtype)}")
        policy = keras.DTypePolicy(policies[dtype])
        super().__init__(name=name, dtype=policy)
        self.config = copy.deepcopy(config)
        # As in each model's original: the kind of look-up changes the gradient's norm.
        gather_token_types = isinstance(config, AlbertConfig) and not use_one_hot_embeddings
        self.embeddings = Embeddings(
            self.config, use_one_hot_embeddings, policy, gather_token_types
        )
        if isinstance(self.config, AlbertConfig):
            self.encoder = AlbertEncoder(self.config, recompute_activations, policy)
        else:
            self.encoder = Encoder(self.config, recompute_activations, policy)
        self.pooler = NamedDense(
            self.config, config.hidden_size, config.pooler_activation, "pooler", policy
        )
        self.build()

    def build(self, input_shape: object = None) -> None:
        """Creates the variables. The constructor calls it."""
        if not self.built:
            for layer in (self.embeddings, self.encoder, self.pooler):
                layer.build()
            self.built = True

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        token_type_ids: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
        position_ids: tf.Tensor | None = None,
        cls_positions: tf.Tensor | None = None,
    ) -> BertOutput:
        """Returns every output of the model.

        A row holds one sequence. With `position_ids` and `cls_positions` rows are packed: each
        holds several sequences, and no sequence attends to another.

        Args:
            input_ids: int32 [B, S] word-piece ids.
            input_mask: int32 [B, S], 1 for tokens and 0 for padding; None is all ones. In packed
                rows the number of the token's sequence, from 1, and 0 for padding.
            token_type_ids: int32 [B, S] segment ids; None is all zeros.
            training: whether dropout is on.
            dropout_seed: int32 [2]; every dropout mask is a function of it. None draws one from
                TensorFlow's global generator.
            position_ids: int32 [B, S], the position of each token in its sequence, from 0; None
                for rows that are not packed. RoBERTa adds its `position_offset`.
            cls_positions: int32 [B, K], the position in the row where each sequence begins, 0 for
                unused entries; None for rows that are not packed.

        Raises:
            ValueError: `input_ids` does not have two dimensions.
            UserError: the sequence is longer than the configuration's `longest_sequence`.
            tf.errors.InvalidArgumentError: the same, if its length is not static.
        """
        input_shape = get_shape_list(input_ids, expected_rank=2, name="input_ids")
        if input_mask is None:
            input_mask = tf.ones(input_shape, tf.int32)
        if token_type_ids is None:
            token_type_ids = tf.zeros(input_shape, tf.int32)
        seed = dropout_seed_of_call(training, dropout_seed)
        seeds = fold_in(seed, 0), fold_in(seed, 1)
        if position_ids is not None:
            input_mask = attention_within_sequences(input_mask)
        embedding_output = self.embeddings(
            input_ids, token_type_ids, position_ids=position_ids, seed=seeds[0]
        )
        layers, attention_probs = self.encoder(embedding_output, input_mask, seed=seeds[1])
        if cls_positions is None:
            first_tokens = layers[-1][:, 0]
        else:
            first_tokens = gather_indexes(layers[-1], cls_positions)
        return BertOutput(
            embedding_output=embedding_output,
            all_encoder_layers=layers,
            sequence_output=layers[-1],
            pooled_output=self.pooler(first_tokens),
            embedding_table=tf.convert_to_tensor(self.embeddings.word_embeddings.value),
            attention_probs=attention_probs,
        )
