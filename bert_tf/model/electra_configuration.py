"""The configuration of an ELECTRA: a `bert_config.json` whose `model_type` is "electra".

Also google-research/electra's hyperparameters, which name a size and what differs from it.
"""

import dataclasses
from typing import Any

from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.activations import Activation
from bert_tf.model.configuration import BertConfig, within

# The hyperparameters that identify a file as ELECTRA's.
HPARAMS = {"model_size", "model_hparam_overrides"}
# Hyperparameter `model_size` -> sizes (original: util/training_utils.py, configure_pretraining.py).
# Of `model_size`. A layer has a head for each 64 numbers of its hidden size.
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
        """Returns a configuration with the values of a dictionary; see `BertConfig.from_dict`.

        The dictionary may also be ELECTRA's hyperparameters.
        """
        if isinstance(json_object, dict) and not HPARAMS.isdisjoint(json_object):
            json_object = _of_hparams(json_object)
        return super().from_dict(json_object)

    def generator(
        self, generator_hidden_size: float, generator_layers: float, untied_embeddings: bool = False
    ) -> "ElectraConfig":
        """Returns the configuration of a generator (original: get_generator_config).

        Args:
            generator_hidden_size: the generator's hidden size as a share of this one.
            generator_layers: its number of layers as a share of this one.
            untied_embeddings: whether it has its own embeddings, as wide as its layers, instead of
                this model's.

        Raises:
            UserError: it would be wider than the model whose embeddings it shares, or its sizes are
                invalid.
        """
        hidden = round(self.hidden_size * generator_hidden_size)
        if hidden > self.hidden_size and not untied_embeddings:
            raise UserError(
                f"--generator_hidden_size={generator_hidden_size:g} makes a generator of hidden"
                f" size {hidden}; a generator that shares the discriminator's embeddings must be at"
                f" most as wide as it, {self.hidden_size}. Lower --generator_hidden_size to 1 or"
                " less, or give the generator its own embeddings with --untied_generator_embeddings"
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
                f" --generator_layers={generator_layers:g} make an invalid generator, which has a"
                f" head for each 64 numbers of its hidden size: {error}"
            ) from error

    def _num_parameters(self) -> int:
        width, hidden = self.embedding_width, self.hidden_size
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer = 4 * hidden + 2 * self.intermediate_size
        projection = hidden if width != hidden else 0
        return width * (rows + projection) + hidden * self.num_hidden_layers * layer


def _of_hparams(hparams: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a `bert_config.json` that hyperparameters of ELECTRA describe.

    What the user passes wins over the defaults of a size, `"embedding_size": null`, too.
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
    if isinstance(hidden, int):  # else it is refused later
        sizes = {
            "num_attention_heads": max(1, hidden // 64),
            "intermediate_size": 4 * hidden,
        } | sizes
    return sizes
