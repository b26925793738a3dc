"""The configuration of an ALBERT model, an `albert_config.json`."""

import dataclasses

from bert_tf.model.activations import Activation
from bert_tf.model.configuration import BertConfig, within


@dataclasses.dataclass(eq=False)
class AlbertConfig(BertConfig):
    """Sizes and dropout rates of ALBERT: the keys of an `albert_config.json`.

    The defaults are ALBERT-xxlarge's (original: google-research/albert, modeling.AlbertConfig). All
    arguments except `vocab_size` are keyword-only.

    Args:
        embedding_size: width of the embeddings. If it differs from `hidden_size`, a dense layer
            projects them to `hidden_size`.
        num_hidden_groups: number of groups of weights. Layer i of L uses group i / L * groups;
            groups that no layer uses get no weights.
        inner_group_num: number of consecutive layers that make up a group.
    """

    NAME = "ALBERT"

    vocab_size: int
    _: dataclasses.KW_ONLY
    embedding_size: int = within(128, at_least=1, at_most=2**16)
    hidden_size: int = 4096
    num_hidden_layers: int = 12
    num_hidden_groups: int = within(1, at_least=1, at_most=1000)
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    inner_group_num: int = within(1, at_least=1, at_most=1000)
    hidden_act: str | Activation = "gelu"
    hidden_dropout_prob: float | None = 0.0
    attention_probs_dropout_prob: float | None = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, before they are projected to `hidden_size`."""
        return self.embedding_size

    @property
    def layer_groups(self) -> list[int]:
        """The index of each layer's group."""
        # In floating point, as in the original: of 22 layers and groups, layer 15 uses group 14.
        layers, groups = self.num_hidden_layers, self.num_hidden_groups
        return [int(i / layers * groups) for i in range(layers)]

    @property
    def used_groups(self) -> list[int]:
        """The indices of the groups that layers use, in order."""
        return sorted(set(self.layer_groups))

    @property
    def layer_scopes(self) -> list[str]:
        """First parts of the variables' names for each used group; layers share a group."""
        return [f"bert/encoder/transformer/group_{i}/" for i in self.used_groups]

    @property
    def num_layer_outputs(self) -> int:
        """Number of outputs in `all_encoder_layers`: one for each inner layer."""
        return self.num_hidden_layers * self.inner_group_num

    def _num_parameters(self) -> int:
        hidden = self.hidden_size
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size + hidden
        layer = 4 * hidden + 2 * self.intermediate_size
        groups = len(self.used_groups) * self.inner_group_num
        return self.embedding_size * rows + hidden * (groups * layer + hidden)
