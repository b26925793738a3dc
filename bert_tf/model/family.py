"""Reads the configuration of any model of the family, from BERT to RoBERTa."""

from typing import Any

from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.albert_configuration import AlbertConfig
from bert_tf.model.configuration import BertConfig, load_configuration
from bert_tf.model.distilbert_configuration import DistilBertConfig
from bert_tf.model.electra_configuration import HPARAMS, ElectraConfig
from bert_tf.model.roberta_configuration import RobertaConfig

# Names of a configuration in a model's folder: ours, and the name in ALBERT's released models.
CONFIG_FILES = ("bert_config.json", "albert_config.json")
CONFIGURATIONS = {
    "bert": BertConfig,
    "albert": AlbertConfig,
    "distilbert": DistilBertConfig,
    "electra": ElectraConfig,
    "roberta": RobertaConfig,
}
_ALBERT_KEYS = {"num_hidden_groups", "inner_group_num"}  # an `albert_config.json` has them


def config_from_dict(json_object: dict[str, Any]) -> BertConfig:
    """Returns the configuration of a dictionary, whose `model_type` says which model it describes.

    Without `model_type`, a dictionary with ALBERT's keys describes an ALBERT, one with ELECTRA's
    hyperparameters an ELECTRA, any other a BERT.

    Raises:
        UserError: `model_type` is unknown, or see `BertConfig.from_dict`.
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
    """Returns the configuration in a `bert_config.json` or an `albert_config.json`.

    Messages name `flag` (no dashes), which gave the path.

    Raises:
        UserError: the file is missing, is not JSON, or has a value out of range.
    """
    return load_configuration(json_file, config_from_dict, flag)
