"""The BERT model under the original's names: BertConfig, BertModel.

Each layer is named as its scope in google-research/bert, so `variable.path` is the variable's name
in a released checkpoint (`bert/encoder/layer_0/attention/self/query/kernel`).

Dimension letters and dtypes in the docstrings and comments of models, layers and heads:

    B  batch size              V  vocabulary size
    S  sequence length         H  hidden size
    L  encoder layers          N  attention heads
    P  masked positions        D  size of an attention head, H / N
    K  maximum number of sequences in a packed row
    E  width of the embeddings: H, except in ALBERT and ELECTRA

    float    the compute dtype: float32, or bfloat16 in a model with `dtype="bfloat16"`
    float32  float32 in either case

With `dtype="bfloat16"`, the matrix products and the activations between them are bfloat16.
Variables, LayerNorm, softmax, logits and losses stay float32.
"""

import copy
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.bounds import inputs_were_checked
from bert_tf.errors import UserError, quoted
from bert_tf.model.activations import gelu, get_activation
from bert_tf.model.albert import AlbertEncoder
from bert_tf.model.configuration import BertConfig
from bert_tf.model.embeddings import Embeddings
from bert_tf.model.encoder import Encoder, attention_within_sequences
from bert_tf.model.family import AlbertConfig, DistilBertConfig, ElectraConfig, RobertaConfig
from bert_tf.model.inputs import checked_inputs, export_vectors, get_shape_list, named_inputs
from bert_tf.model.layers import (
    NamedDense,
    create_initializer,
    dropout,
    dropout_seed_of_call,
    dtype_policy,
    gather_indexes,
    make_dense,
)
from bert_tf.model.saving import Savable, register
from bert_tf.seeds import fold_in_range

__all__ = [
    "AlbertConfig",
    "BertConfig",
    "BertModel",
    "BertOutput",
    "DistilBertConfig",
    "ElectraConfig",
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
        embedding_output: float [B, S, E], the input of the encoder (ELECTRA: projected, float
            [B, S, H]).
        all_encoder_layers: a tuple of L tensors, float [B, S, H], the outputs of the encoder layers
            (ALBERT: of every inner group).
        sequence_output: float [B, S, H], the output of the last encoder layer.
        pooled_output: float [B, H], the first token ([CLS]) after a dense tanh layer (DistilBERT:
            ReLU; ELECTRA: as it is). For packed rows float [B*K, H], one vector per sequence.
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

    A call takes the inputs in order, by keyword, in a list, or in a dictionary: `bert(features)`
    with `input_ids`, `input_mask` and `segment_ids`. It also understands their names in other
    libraries, such as `attention_mask` and `token_type_ids`.

    The models of bert_tf/tasks pass their `**options` on to this constructor.

    Args:
        config: copied, as in the original. Its class decides whether this is a BERT, an ALBERT, a
            RoBERTa, a DistilBERT or an ELECTRA.
        use_one_hot_embeddings: whether to look up word embeddings by a product with one-hot ids,
            which is faster on TPUs, instead of a gather.
        recompute_activations: whether to compute each encoder layer again in the backward pass
            instead of keeping its intermediate results: less memory, about a third more time. The
            attention probabilities that the model returns then have no gradient.
        dtype: "float32", or "bfloat16" for mixed precision (see the top of this module), which is
            Keras's "mixed_bfloat16"; also a `keras.DTypePolicy`. None is Keras's global policy.
        name: the first part of every variable's path; None for `config.scope`.
        embeddings: the embeddings of a different model, to share, as ELECTRA's generator does; None
            to create new ones.

    Raises:
        UserError: `config` is not a `BertConfig`, or `dtype` is not supported.
    """

    built: bool

    def __init__(
        self,
        config: BertConfig,
        *,
        use_one_hot_embeddings: bool = False,
        recompute_activations: bool = False,
        dtype: Any = None,
        name: str | None = None,
        embeddings: Embeddings | None = None,
    ):
        if not isinstance(config, BertConfig):
            raise UserError(
                f"config must be a BertConfig; received {quoted(config)}. BertConfig.from_dict"
                " makes one of a dictionary, and BertConfig.from_json_file of a file"
            )
        config.check_heads()
        policy = dtype_policy(dtype)
        super().__init__(name=name or config.scope, dtype=policy)
        self.config = copy.deepcopy(config)
        # Token types are looked up as in each original: the method changes the gradient's norm.
        gather_token_types = isinstance(config, AlbertConfig) and not use_one_hot_embeddings
        self.embeddings = embeddings or Embeddings(
            self.config, use_one_hot_embeddings, policy, gather_token_types
        )
        if isinstance(self.config, AlbertConfig):
            self.encoder = AlbertEncoder(self.config, recompute_activations, policy)
        else:
            self.encoder = Encoder(self.config, recompute_activations, policy)
        if config.has_pooler:
            self.pooler = NamedDense(
                self.config, config.hidden_size, config.pooler_activation, "pooler", policy
            )
        else:
            self.pooler = keras.layers.Identity(name="pooler", dtype=policy)
        self.build()

    def build(self, input_shape: object = None) -> None:
        """Creates the variables. The constructor calls it."""
        if not self.built:
            config = self.config
            for layer in (self.embeddings, self.encoder, self.pooler):
                if not layer.built:
                    layer.build()
            self.embeddings_project = None
            if isinstance(config, ElectraConfig) and config.embedding_width != config.hidden_size:
                self.embeddings_project = make_dense(
                    *(config.hidden_size, config.embedding_width, config, self.dtype_policy),
                    *("embeddings_project", None, True),
                )
            self.built = True

    def __call__(self, *args: Any, **kwargs: Any) -> BertOutput:
        """Returns the outputs of `call`, after checks of the inputs.

        Args:
            *args: the arguments of `call` in order; the first may also be a list of inputs, or a
                dictionary of features.
            **kwargs: arguments of `call` by name.

        Raises:
            UserError: `input_ids` is missing, an input is unknown or has the wrong shape, or a
                value is out of range. In a graph `tf.debugging.Assert` checks values and dynamic
                sizes, and fails with `tf.errors.InvalidArgumentError`; XLA drops this check.
        """
        inputs = named_inputs(self, args, kwargs)
        if "input_ids" not in inputs:
            raise UserError("A call of BertModel must have 'input_ids'")
        inputs = checked_inputs(inputs, self.config, wide_mask=True)
        input_ids = inputs.pop("input_ids")
        with inputs_were_checked():
            return super().__call__(input_ids, **inputs)

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
        holds several sequences, which do not attend to each other.

        Args:
            input_ids: int32 [B, S] word-piece ids.
            input_mask: int32 [B, S], 1 for tokens and 0 for padding; None is all ones. Or int32
                [B, S, S], 1 where the position on the second axis may attend to the position on the
                third. In packed rows [B, S], the number of the token's sequence, from 1, and 0 for
                padding.
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
        seeds = fold_in_range(seed, 2)
        if position_ids is not None:
            input_mask = attention_within_sequences(input_mask)
        embedding_output = self.embeddings(
            input_ids, token_type_ids, position_ids=position_ids, seed=seeds[0]
        )
        if self.embeddings_project is not None:
            width = self.config.embedding_width
            projected = self.embeddings_project(tf.reshape(embedding_output, [-1, width]))
            embedding_output = tf.reshape(projected, [*input_shape, self.config.hidden_size])
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

    def predict_step(self, data: Any) -> BertOutput:
        """Returns a batch's outputs without `embedding_table`, which has no batch axis."""
        output = super().predict_step(data)
        return output._replace(embedding_table=output.pooled_output[:, :0])

    def predict(self, *args: Any, **kwargs: Any) -> BertOutput:
        """Returns the outputs for all rows as arrays; see `keras.Model.predict`."""
        return self._with_table(super().predict(*args, **kwargs))

    def predict_on_batch(self, x: Any) -> BertOutput:
        """Returns the outputs for a batch as arrays; see `keras.Model.predict_on_batch`."""
        return self._with_table(super().predict_on_batch(x))

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Exports `sequence_output` and `pooled_output` for serving; see `keras.Model.export`.

        Inputs are `input_ids`, `input_mask` and `segment_ids`, int32 [B, S].
        """
        export_vectors(self, filepath, *args, **kwargs)

    def _with_table(self, output: BertOutput) -> BertOutput:
        return output._replace(embedding_table=self.embeddings.word_embeddings.numpy())
