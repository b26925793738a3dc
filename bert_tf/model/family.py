"""The configurations of ALBERT, DistilBERT, ELECTRA and RoBERTa; `read_config` reads any of them.

ALBERT has an `albert_config.json`, the others a `bert_config.json` with a `model_type`. An ELECTRA
may instead have google-research/electra's hyperparameters: a model size and changes to it.
"""

import dataclasses
from typing import Any

from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.activations import Activation
from bert_tf.model.configuration import BertConfig, load_configuration, within


@dataclasses.dataclass(eq=False)
class AlbertConfig(BertConfig):
    """Sizes and dropout rates of ALBERT: the keys of an `albert_config.json`.

    The defaults are ALBERT-xxlarge's (original: google-research/albert, modeling.AlbertConfig). All
    arguments except `vocab_size` are keyword-only.

    Args:
        embedding_size: width of the embeddings. If it differs from `hidden_size`, a dense layer
            projects them to `hidden_size`.
        num_hidden_groups: number of groups of weights. Layer i of L uses group int(i / L * groups);
            unused groups do not get weights.
        inner_group_num: number of consecutive layers that make up a group.
        down_scale_factor: ignored, as in the original.
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
    down_scale_factor: int = dataclasses.field(default=1, metadata={"optional": True})

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, before they are projected to `hidden_size`."""
        return self.embedding_size

    @property
    def layer_groups(self) -> list[int]:
        """The index of each layer's group."""
        # In floating point, as in the original: with 22 layers and groups, layer 15 uses group 14.
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


class DistilBertConfig(BertConfig):
    """Sizes and dropout rates of a DistilBERT: a `BertConfig` whose pooler has ReLU.

    DistilBERT itself does not have a pooler. The dense layer of its classifier, `pre_classifier`,
    is stored as the pooler: it takes the same vector, with ReLU instead of tanh.

    It does not have token types either. Checkpoints keep the table for compatibility with BERT:
    zeros in a new model, never trained. Every token uses row 0, also in a second text, so weights
    taken from a BERT give the same outputs for single texts. For formats without token types, row 0
    is added to the position embeddings.
    """

    NAME = "DistilBERT"
    MODEL_TYPE = "distilbert"
    pooler_activation = "relu"
    has_token_types = False


# The hyperparameters that identify a file as ELECTRA's.
HPARAMS = {"model_size", "model_hparam_overrides"}
# Hyperparameter `model_size` -> sizes (original: util/training_utils.py, configure_pretraining.py).
# Each attention head is 64 wide.
_SIZES: dict[str, dict[str, int | None]] = {
    "small": {"embedding_size": 128, "hidden_size": 256, "num_hidden_layers": 12},
    "base": {"embedding_size": None, "hidden_size": 768, "num_hidden_layers": 12},
    "large": {"embedding_size": None, "hidden_size": 1024, "num_hidden_layers": 24},
}


@dataclasses.dataclass(eq=False)
class ElectraConfig(BertConfig):
    """Sizes and dropout rates of ELECTRA's discriminator; the defaults are ELECTRA-Base's.

    All arguments except `vocab_size` are keyword-only.

    Args:
        embedding_size: width of the embeddings; None for `hidden_size`. If it differs from
            `hidden_size`, a dense layer projects them to `hidden_size`.
        hidden_act: as in ELECTRA's own files, "gelu" is the exact form, "gelu_erf".
    """

    NAME = "ELECTRA"
    MODEL_TYPE = "electra"
    scope = "electra"
    masked_lm_scope = "generator_predictions"
    has_next_sentence = False
    has_pooler = False
    glorot_heads = True
    warmup_scales_decay = True
    drop_category_c = True
    pooler_activation = "linear"  # the vector of [CLS] as it is

    vocab_size: int
    _: dataclasses.KW_ONLY
    embedding_size: int | None = within(None, at_least=1, at_most=2**16)
    hidden_act: str | Activation = "gelu_erf"
    type_vocab_size: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.hidden_act, str) and self.hidden_act.lower() == "gelu":
            self.hidden_act = "gelu_erf"
        super().__post_init__()

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, before they are projected to `hidden_size`."""
        return self.embedding_size or self.hidden_size

    @classmethod
    def from_dict(cls, json_object: dict[str, Any]) -> "BertConfig":
        """Returns the configuration in a dictionary, which may hold ELECTRA's hyperparameters.

        See `BertConfig.from_dict`.
        """
        if isinstance(json_object, dict) and not HPARAMS.isdisjoint(json_object):
            json_object = _of_hparams(json_object)
        return super().from_dict(json_object)

    def generator(
        self, generator_hidden_size: float, generator_layers: float, untied_embeddings: bool = False
    ) -> "ElectraConfig":
        """Returns the configuration of a generator (original: get_generator_config).

        Args:
            generator_hidden_size: the generator's hidden size, as a share of this model's.
            generator_layers: the generator's number of layers, as a share of this model's.
            untied_embeddings: whether the generator has its own embeddings, as wide as its layers,
                instead of this model's.

        Raises:
            UserError: the generator would be wider than the model whose embeddings it shares, or
                its sizes are invalid.
        """
        hidden = round(self.hidden_size * generator_hidden_size)
        if hidden > self.hidden_size and not untied_embeddings:
            raise UserError(
                f"--generator_hidden_size={generator_hidden_size:g} makes a generator of hidden"
                f" size {hidden}; a generator that shares the discriminator's embeddings must not"
                f" be wider than the discriminator, {self.hidden_size}. Lower"
                " --generator_hidden_size to 1 or less, or give the generator its own embeddings"
                " with --untied_generator_embeddings"
            )
        try:
            return dataclasses.replace(
                self,
                hidden_size=hidden,
                num_hidden_layers=round(self.num_hidden_layers * generator_layers),
                intermediate_size=4 * hidden,
                num_attention_heads=max(1, hidden // 64),
                embedding_size=None if untied_embeddings else self.embedding_width,
            )
        except UserError as error:
            raise UserError(
                f"--generator_hidden_size={generator_hidden_size:g} and"
                f" --generator_layers={generator_layers:g} make an invalid generator, which has one"
                f" attention head for every 64 units of its hidden size: {error}"
            ) from error


def _of_hparams(hparams: dict[str, Any]) -> dict[str, Any]:
    """Converts ELECTRA's hyperparameters to the values of a `bert_config.json`.

    The user's values, also `"embedding_size": null`, override the defaults of a model size.
    """
    size = hparams.get("model_size", "small")
    overrides = hparams.get("model_hparam_overrides", {})
    if not isinstance(size, str) or size not in _SIZES:
        raise UserError(f"model_size must be one of {listed(_SIZES)}; received {quoted(size)}")
    if not isinstance(overrides, dict):
        raise UserError(
            f"model_hparam_overrides must be a dictionary; received {quoted(overrides)}"
        )
    known = ElectraConfig.known_keys()
    if ignored := hparams.keys() - known - HPARAMS:
        logging.warning(
            "ELECTRA's hyperparameters: only the sizes are read, not %s; run_pretraining.py"
            " --objective=electra --help lists the flags of training",
            listed(sorted(ignored)),
        )
    given = {key: value for key, value in hparams.items() if key in known}
    sizes = {"vocab_size": 30522, **_SIZES[size], **given, **overrides}
    hidden = sizes["hidden_size"]
    if isinstance(hidden, int):  # other values are refused later
        sizes = {
            "num_attention_heads": max(1, hidden // 64),
            "intermediate_size": 4 * hidden,
        } | sizes
    return sizes


@dataclasses.dataclass(eq=False)
class RobertaConfig(BertConfig):
    """Sizes and dropout rates of RoBERTa: BERT's, and two keys of Hugging Face's `config.json`.

    The defaults are roberta-base's. Tokens do not use the first `pad_token_id` + 1 rows of the
    position table, so the longest sequence is that much shorter than `max_position_embeddings`.

    Args:
        layer_norm_eps: epsilon of every LayerNorm.
        pad_token_id: id of the padding token, which does not have a position.
    """

    NAME = "RoBERTa"
    MODEL_TYPE = "roberta"
    # The masked-LM head uses this form of GELU, whatever `hidden_act` is.
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


class XlmRobertaConfig(RobertaConfig):
    """A RoBERTa whose vocabulary is a SentencePiece model."""

    NAME, MODEL_TYPE = "XLM-RoBERTa", "xlm-roberta"


class CamembertConfig(RobertaConfig):
    """A French RoBERTa, whose vocabulary is a SentencePiece model."""

    NAME, MODEL_TYPE = "CamemBERT", "camembert"


# Names of the configuration file in a model's folder: ours, and the one in ALBERT's releases.
CONFIG_FILES = ("bert_config.json", "albert_config.json")
CONFIGURATIONS: dict[str, type[BertConfig]] = {
    "bert": BertConfig,
    "albert": AlbertConfig,
    "distilbert": DistilBertConfig,
    "electra": ElectraConfig,
    "roberta": RobertaConfig,
    "xlm-roberta": XlmRobertaConfig,
    "camembert": CamembertConfig,
}
_ALBERT_KEYS = {"num_hidden_groups", "inner_group_num"}  # an `albert_config.json` has them


def config_from_dict(json_object: dict[str, Any]) -> BertConfig:
    """Returns the configuration of the model that a dictionary's `model_type` names.

    Without `model_type`, a dictionary with ALBERT's keys describes an ALBERT, one with ELECTRA's
    hyperparameters an ELECTRA, any other a BERT.
    """
    keys = json_object if isinstance(json_object, dict) else {}
    default = "bert" if _ALBERT_KEYS.isdisjoint(keys) else "albert"
    default = default if HPARAMS.isdisjoint(keys) else "electra"
    model_type = keys.get("model_type", default)
    if not isinstance(model_type, str) or model_type not in CONFIGURATIONS:
        raise UserError(
            f"model_type must be one of {listed(sorted(CONFIGURATIONS))}; received"
            f" {quoted(model_type)}"
        )
    return CONFIGURATIONS[model_type].from_dict(json_object)


def read_config(json_file: str, flag: str = "bert_config_file") -> BertConfig:
    """Returns the configuration in a `bert_config.json` or an `albert_config.json`."""
    return load_configuration(json_file, config_from_dict, flag)
