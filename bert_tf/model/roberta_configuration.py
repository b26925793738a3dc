"""The configuration of a RoBERTa model: a `bert_config.json` whose `model_type` is "roberta"."""

import dataclasses

from bert_tf.model.activations import Activation
from bert_tf.model.configuration import BertConfig, within


@dataclasses.dataclass(eq=False)
class RobertaConfig(BertConfig):
    """Sizes and dropout rates of RoBERTa: BERT's, and two keys of Hugging Face's `config.json`.

    The defaults are roberta-base's. Tokens do not use the first `pad_token_id` + 1 rows of the
    position table, so the longest sequence is that much shorter than `max_position_embeddings`.

    Args:
        layer_norm_eps: epsilon of every LayerNorm.
        pad_token_id: id of padding, which has no position.
    """

    NAME = "RoBERTa"
    MODEL_TYPE = "roberta"
    # The masked-LM head uses this form, whatever `hidden_act` is.
    masked_lm_act = "gelu_erf"
    has_next_sentence = False

    hidden_act: str | Activation = "gelu_erf"
    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    layer_norm_eps: float = within(1e-5, above=0, at_most=1)
    pad_token_id: int = within(1, at_least=0, at_most=2**31 - 1)  # type: ignore[misc]

    @property
    def position_offset(self) -> int:
        """Row of the position table for a sequence's first token."""
        return self.pad_token_id + 1

    def _problems(self) -> list[str]:
        problems = super()._problems()
        if not problems and self.longest_sequence < 1:
            problems.append(
                f"max_position_embeddings ({self.max_position_embeddings}) must be above"
                f" pad_token_id + 1 ({self.position_offset})"
            )
        return problems
