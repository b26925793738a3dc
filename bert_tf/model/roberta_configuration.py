"""The configuration of a RoBERTa model: a `bert_config.json` whose `model_type` is "roberta"."""

from bert_tf.errors import quoted
from bert_tf.model.activations import Activation
from bert_tf.model.configuration import BertConfig, is_number


class RobertaConfig(BertConfig):
    """Sizes and dropout rates of RoBERTa: BERT's, and two keys of Hugging Face's `config.json`.

    The defaults are those of roberta-base.

    Args:
        vocab_size: number of pieces.
        hidden_size: width of the encoder and of the pooler.
        num_hidden_layers: number of encoder layers.
        num_attention_heads: number of heads of each attention layer; must divide `hidden_size`.
        intermediate_size: width of the feed-forward layer.
        hidden_act: see `BertConfig`.
        hidden_dropout_prob: see `BertConfig`.
        attention_probs_dropout_prob: see `BertConfig`.
        max_position_embeddings: rows of the table of positions. The first `pad_token_id` + 1 are no
            positions, so the longest sequence is shorter by as many.
        type_vocab_size: number of segment (token type) ids.
        initializer_range: standard deviation of the truncated normal initial weights.
        layer_norm_eps: epsilon of every LayerNorm.
        pad_token_id: id of padding, which has no position.

    Raises:
        UserError: a value is out of range; the message lists all of these values.
    """

    NAME = "RoBERTa"
    MODEL_TYPE = "roberta"
    # The head of masked LM takes this form whatever `hidden_act` is.
    masked_lm_act = "gelu_erf"
    has_next_sentence = False

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        hidden_act: str | Activation = "gelu_erf",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        max_position_embeddings: int = 514,
        type_vocab_size: int = 1,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-5,
        pad_token_id: int = 1,
    ):
        self.layer_norm_eps = layer_norm_eps
        self.pad_token_id = pad_token_id
        super().__init__(
            vocab_size,
            hidden_size,
            num_hidden_layers,
            num_attention_heads,
            intermediate_size,
            hidden_act,
            hidden_dropout_prob,
            attention_probs_dropout_prob,
            max_position_embeddings,
            type_vocab_size,
            initializer_range,
        )

    @property
    def position_offset(self) -> int:
        """The row of the table of positions that a sequence's first token has."""
        return self.pad_token_id + 1

    def _problems(self) -> list[str]:
        problems = super()._problems()
        epsilon, pad_id = self.layer_norm_eps, self.pad_token_id
        if not (is_number(epsilon) and 0.0 < epsilon <= 1.0):
            problems.append(f"layer_norm_eps must be above 0 and at most 1, not {quoted(epsilon)}")
        if not isinstance(pad_id, int) or isinstance(pad_id, bool) or pad_id < 0:
            problems.append(
                f"pad_token_id must be a whole number of at least 0, not {quoted(pad_id)}"
            )
        elif not problems and self.longest_sequence < 1:
            problems.append(
                f"max_position_embeddings ({self.max_position_embeddings}) must be above"
                f" pad_token_id + 1 ({pad_id + 1})"
            )
        return problems
