"""The configuration of a BERT model, read from and written as `bert_config.json`."""

import copy
import json
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.model.activations import Activation, get_activation


class BertConfig:
    """Sizes and dropout rates of a `BertModel`: the keys of a `bert_config.json`.

    Original: modeling.BertConfig, with the same defaults.

    Args:
        vocab_size: number of word pieces.
        hidden_size: width of the encoder and of the pooler.
        num_hidden_layers: number of encoder layers.
        num_attention_heads: number of heads of each attention layer; must divide `hidden_size`.
        intermediate_size: width of the feed-forward layer.
        hidden_act: activation of the feed-forward layer: "gelu", "relu", "tanh", "linear" or a
            function.
        hidden_dropout_prob: dropout rate of the embeddings and of every residual branch; None
            for no dropout.
        attention_probs_dropout_prob: dropout rate of the attention probabilities; None for no
            dropout.
        max_position_embeddings: longest sequence, in tokens.
        type_vocab_size: number of segment (token type) ids; every released model has 2.
        initializer_range: standard deviation of the truncated normal initial weights.

    Raises:
        UserError: a value is out of range; the message lists all of these values.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        hidden_act: str | Activation = "gelu",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 16,
        initializer_range: float = 0.02,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.hidden_act = hidden_act
        self.intermediate_size = intermediate_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range
        self._validate()

    def _validate(self) -> None:
        problems = []
        for key in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                problems.append(f"{key} must be a whole number of at least 1, not {value!r}")
        for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, key)
            # None means no dropout in the original, too.
            if value is not None and not (_is_number(value) and 0.0 <= value < 1.0):
                problems.append(f"{key} must be at least 0 and below 1, not {value!r}")
        if not (_is_number(self.initializer_range) and self.initializer_range > 0.0):
            problems.append(f"initializer_range must be above 0, not {self.initializer_range!r}")
        if not problems and self.hidden_size % self.num_attention_heads:
            problems.append(
                f"hidden_size ({self.hidden_size}) must be a multiple of num_attention_heads"
                f" ({self.num_attention_heads})"
            )
        try:
            get_activation(self.hidden_act)
        except UserError as error:
            problems.append(f"hidden_act: {error}")
        if problems:
            raise UserError("The BERT configuration is invalid: " + "; ".join(problems))

    @classmethod
    def from_dict(cls, json_object: dict[str, Any]) -> "BertConfig":
        """Returns a configuration of a dictionary's values, and defaults for missing keys.

        Unknown keys are logged in a warning and kept as attributes.

        Raises:
            UserError: `vocab_size` is missing or a value is out of range.
        """
        if not isinstance(json_object, dict) or "vocab_size" not in json_object:
            raise UserError(
                "A BERT configuration is a dictionary that has at least the key vocab_size;"
                f" received {json_object!r}"
            )
        known = cls.__init__.__annotations__
        config = cls(**{key: value for key, value in json_object.items() if key in known})
        unknown = {key: value for key, value in json_object.items() if key not in known}
        if unknown:
            logging.warning(
                "The BERT configuration has unknown keys, which are ignored: %s",
                ", ".join(sorted(unknown)),
            )
            config.__dict__.update(unknown)
        return config

    @classmethod
    def from_json_file(cls, json_file: str) -> "BertConfig":
        """Returns the configuration in a `bert_config.json`.

        Args:
            json_file: a path that `tf.io.gfile` can read.

        Raises:
            UserError: the file is missing, is not JSON, or has a value out of range.
        """
        try:
            with tf.io.gfile.GFile(json_file, "r") as reader:
                json_object = json.loads(reader.read())
        except tf.errors.OpError as error:
            raise UserError(
                f"The BERT configuration {json_file} cannot be read ({error.message});"
                " check --bert_config_file."
            ) from error
        except ValueError as error:
            raise UserError(
                f"The BERT configuration {json_file} is not JSON ({error}); check"
                " --bert_config_file."
            ) from error
        try:
            return cls.from_dict(json_object)
        except UserError as error:
            raise UserError(f"{json_file}: {error}") from error

    def check_seq_length(self, max_seq_length: int, flag: str = "max_seq_length") -> None:
        """Checks that the model has position embeddings for sequences of this length.

        Args:
            max_seq_length: the length in tokens.
            flag: name of the flag that sets it, without dashes, for the message.

        Raises:
            UserError: the length exceeds `max_position_embeddings`.
        """
        if max_seq_length > self.max_position_embeddings:
            raise UserError(
                f"The length {max_seq_length} of --{flag} must be at most max_position_embeddings"
                f" ({self.max_position_embeddings}) of --bert_config_file"
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns a copy of the configuration as a dictionary, unknown keys included."""
        return copy.deepcopy(self.__dict__)

    def to_json_string(self) -> str:
        """Returns the configuration as the text of a `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
