"""The configuration of a BERT model, read from and written as `bert_config.json`."""

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any, ClassVar

from absl import logging

from bert_tf import strict_json
from bert_tf.bounds import Bounds
from bert_tf.errors import UserError, check_regular, given, listed, quoted
from bert_tf.model.activations import Activation, check_activation
from bert_tf.start import lazy_tensorflow as tf

_MOST_PARAMETERS = 10**11  # 400 GB in float32
_MOST_BYTES = 2**40  # of one activation of a batch, over all replicas
_HUGGING_FACE_KEYS = {"architectures", "transformers_version"}  # a `config.json` has them
_LONGEST_LIST = 300  # characters of listed problems in a message


# Value of `problem_type`: Hugging Face's name for a classifier with independent classes.
MULTI_LABEL = "multi_label_classification"
# Dropout rate of `heads.OutputLayer`, also a constant in the original's run_classifier.py.
OUTPUT_DROPOUT_PROB = 0.1


def within(default: Any = dataclasses.MISSING, optional: bool = False, **bounds: float) -> Any:
    """Returns a dataclass field with `Bounds`, which stay if a subclass changes the default.

    An `optional` field is keyword-only, and a file has its key only if the value differs from the
    default.
    """
    metadata = {"bounds": Bounds(**bounds), "optional": optional}
    return dataclasses.field(default=default, metadata=metadata, kw_only=optional)


@dataclasses.dataclass(eq=False)
class BertConfig:
    """Sizes and dropout rates of a `BertModel`: the keys of a `bert_config.json`.

    Original: modeling.BertConfig, with the same defaults. The upper bounds are far above the sizes
    of released models. Ids and indices must fit into int32, because TPUs compute with int32.

    Args:
        vocab_size: number of word pieces.
        hidden_size: width of the encoder and of the pooler.
        num_hidden_layers: number of encoder layers.
        num_attention_heads: number of heads of each attention layer; must divide `hidden_size`.
        intermediate_size: width of the feed-forward layer.
        hidden_act: activation of the feed-forward layer: "gelu" (the tanh form), "gelu_erf" (the
            exact form), "relu", "tanh", "linear" or a function.
        hidden_dropout_prob: dropout rate of the embeddings and of every residual branch; None or 0
            for no dropout.
        attention_probs_dropout_prob: dropout rate of the attention probabilities.
        max_position_embeddings: longest sequence, in tokens.
        type_vocab_size: number of segment (token type) ids; every released BERT has 2.
        initializer_range: standard deviation of the truncated normal initial weights.
        layer_norm_eps: epsilon of every LayerNorm.
        problem_type: "multi_label_classification" if a text can have several of the classifier's
            classes: the probability of each class is then the sigmoid of its logit. None for any
            other model.
        threshold: with this `problem_type`, a text has the classes with at least this probability.

    Raises:
        UserError: a value is out of range; the message lists such values.
    """

    NAME = "BERT"
    MODEL_TYPE = ""  # `model_type` in the file, if other keys do not identify the model
    pooler_activation = "tanh"
    scope = "bert"  # of the encoder's variables
    masked_lm_scope = "cls/predictions"

    vocab_size: int = within(at_least=1, at_most=2**31 - 1)  # int32 ids
    # GPT-3 has 12,288; at 2**17 a square kernel would take 64 GiB.
    hidden_size: int = within(768, at_least=1, at_most=2**16)
    # Building and compiling a layer takes about a tenth of a second.
    num_hidden_layers: int = within(12, at_least=1, at_most=1000)
    num_attention_heads: int = within(12, at_least=1, at_most=2**16)  # they divide hidden_size
    intermediate_size: int = within(3072, at_least=1, at_most=2**18)  # four times hidden_size
    hidden_act: str | Activation = "gelu"
    hidden_dropout_prob: float | None = within(0.1, at_least=0, below=1)
    attention_probs_dropout_prob: float | None = within(0.1, at_least=0, below=1)
    # The cost of attention grows with the square of the length.
    max_position_embeddings: int = within(512, at_least=1, at_most=2**20)
    type_vocab_size: int = within(16, at_least=1, at_most=2**16)  # segments are looked up one-hot
    # Above 10, products overflow float32 within a few layers.
    initializer_range: float = within(0.02, above=0, at_most=10)
    # The original's files lack these keys: its tf.contrib.layers.layer_norm has this epsilon, and
    # its classifier gives each text one class.
    layer_norm_eps: float = within(1e-12, optional=True, above=0, at_most=1)
    problem_type: str | None = dataclasses.field(
        default=None, metadata={"optional": True}, kw_only=True
    )
    threshold: float = within(0.5, optional=True, above=0, below=1)

    def __post_init__(self) -> None:
        self._unknown: dict[str, Any] = {}
        problems = self._problems()
        if problems:
            raise UserError(f"The BERT configuration is invalid: {_listed(problems)}")

    def _problems(self) -> list[str]:
        problems = []
        types: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(self)}
        for name, bounds in self._bounds().items():
            value = getattr(self, name)
            if value is None and isinstance(None, types[name]):
                continue  # no dropout, as in the original
            is_whole = types[name] in (int, int | None)
            is_number = isinstance(value, int if is_whole else int | float)
            if not is_number or isinstance(value, bool) or not bounds.hold(value):
                kind = "a whole number " if is_whole else ""
                note = bounds.float32_note(value)
                problems.append(f"{name} must be {kind}{bounds}{note}, not {quoted(value)}")
        if not problems and (parameters := self._num_parameters()) > _MOST_PARAMETERS:
            problems.append(
                f"its sizes make {parameters:,} parameters, but a model must have at most"
                f" {_MOST_PARAMETERS:,}"
            )
        if self.problem_type not in (None, MULTI_LABEL):
            problems.append(
                f'problem_type must be "{MULTI_LABEL}" or left out, not {quoted(self.problem_type)}'
            )
        try:
            check_activation(self.hidden_act)
        except UserError as error:
            problems.append(f"hidden_act: {error}")
        return problems

    def check_heads(self) -> None:
        """Raises UserError if the attention heads do not divide the hidden size.

        Like the original's, the constructor accepts such sizes; `BertModel` and `from_dict` do not.
        """
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"The BERT configuration is invalid: hidden_size ({self.hidden_size}) must be a"
                f" multiple of num_attention_heads ({self.num_attention_heads})"
            )

    @classmethod
    def _bounds(cls) -> dict[str, Bounds]:
        bounds: dict[str, Bounds] = {}
        for base in reversed(cls.__mro__):
            for name, field in getattr(base, "__dataclass_fields__", {}).items():
                bounds |= {name: field.metadata["bounds"]} if "bounds" in field.metadata else {}
        return bounds

    # Not keys of a `bert_config.json`. Other models of the family override them.

    has_next_sentence = True  # whether the model has a head for a pair of sentences
    has_pooler = True  # whether a dense layer follows the vector of [CLS]
    glorot_heads = False  # whether heads of fine-tuning start from Glorot's distribution
    warmup_scales_decay = False  # `PolynomialSchedule`'s `scales_decay` in fine-tuning
    drop_category_c = False  # when cleaning text; see `tokenization.BasicTokenizer`
    has_token_types = True  # whether the input distinguishes a second text from the first
    inner_group_num = 1  # number of consecutive layers that share an index
    position_offset = 0  # row of the position table for a sequence's first token
    pad_token_id: ClassVar[int | None] = None  # set if padding gets no position

    @property
    def is_multi_label(self) -> bool:
        """Whether the classes of a text classifier are independent of each other."""
        return self.problem_type == MULTI_LABEL

    @property
    def masked_lm_act(self) -> str | Activation:
        """Activation of the masked-LM head."""
        return self.hidden_act

    @property
    def longest_sequence(self) -> int:
        """Maximum number of tokens in a sequence."""
        return self.max_position_embeddings - self.position_offset

    @property
    def length_rule(self) -> str:
        """Where `longest_sequence` comes from, for messages."""
        offset = f" - {self.position_offset}" if self.position_offset else ""
        return f"max_position_embeddings{offset}"

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.hidden_size

    @property
    def layer_scopes(self) -> list[str]:
        """First parts of the variables' names for each encoder layer."""
        return [f"{self.scope}/encoder/layer_{i}/" for i in range(self.num_hidden_layers)]

    @property
    def num_layer_outputs(self) -> int:
        """Number of tensors in a model's `all_encoder_layers`."""
        return self.num_hidden_layers * self.inner_group_num

    def _num_parameters(self) -> int:
        """Returns the number of the model's weights, without biases and LayerNorm weights."""
        width, hidden = self.embedding_width, self.hidden_size
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        rows += hidden if width != hidden else 0  # of the projection to `hidden_size`
        layers = len(self.layer_scopes) * self.inner_group_num
        of_layers = layers * (4 * hidden + 2 * self.intermediate_size)
        return width * rows + hidden * (of_layers + (hidden if self.has_pooler else 0))

    def __getattr__(self, name: str) -> Any:
        # Unknown keys are read like attributes, but do not override methods or private names.
        unknown = self.__dict__.get("_unknown", {})
        if name.startswith("_") or name not in unknown:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return unknown[name]

    @classmethod
    def known_keys(cls) -> set[str]:
        """Returns the keys that a file of this class may have."""
        return {field.name for field in dataclasses.fields(cls)}

    @classmethod
    def from_dict(cls, json_object: dict[str, Any]) -> "BertConfig":
        """Returns a configuration with a dictionary's values, and defaults for missing keys.

        A warning lists unknown keys, except this class's `model_type`. They are kept for `to_dict`,
        and as attributes unless a method has that name.

        Raises:
            UserError: `vocab_size` is missing, a value is out of range, or the dictionary is
                Hugging Face's, whose values have different meanings.
        """
        if not isinstance(json_object, dict) or "vocab_size" not in json_object:
            raise UserError(
                "A BERT configuration is a dictionary that has at least the key vocab_size;"
                f" received {quoted(json_object)}"
            )
        if theirs := _HUGGING_FACE_KEYS.intersection(json_object):
            raise UserError(
                f"this is Hugging Face's config.json: it has {listed(sorted(theirs))};"
                " its values mean something else in a bert_config.json (`gelu` is a different"
                " function). Convert it with `python -m tools.convert_checkpoint`"
            )
        if cls.MODEL_TYPE:
            json_object = {k: v for k, v in json_object.items() if k != "model_type"}
        known = cls.known_keys()
        config = cls(**{key: value for key, value in json_object.items() if key in known})
        config.check_heads()
        config._unknown = {key: value for key, value in json_object.items() if key not in known}
        # `family.config_from_dict` reads `model_type`.
        own = ("model_type", cls.NAME.lower())
        ignored = sorted(key for key, value in config._unknown.items() if (key, value) != own)
        if ignored:
            logging.warning(
                "The BERT configuration has unknown keys, which are ignored: %s", quoted(ignored)
            )
        return config

    @classmethod
    def from_json_file(cls, json_file: str) -> "BertConfig":
        """Returns the configuration in a `bert_config.json`; `tf.io.gfile` reads it.

        Raises:
            UserError: the file is missing, is not JSON, or has a value out of range.
        """
        return load_configuration(json_file, cls.from_dict)

    def check_seq_length(self, max_seq_length: int, flag: str = "max_seq_length") -> None:
        """Checks that the model has position embeddings for sequences of `max_seq_length` tokens.

        Raises:
            UserError: the length, which `flag` (no dashes) sets, exceeds `longest_sequence`.
        """
        if max_seq_length > self.longest_sequence:
            raise UserError(
                f"The length {max_seq_length} of --{flag} must be at most {self.length_rule}"
                f" ({self.longest_sequence}) of --bert_config_file"
            )

    def check_batch_size(self, batch_size: int, max_seq_length: int, flag: str) -> None:
        """Checks that the vectors of a batch, float32 [B, S, H], take at most a tebibyte.

        `batch_size` is the number of sequences over all replicas, which `flag` (no dashes) sets.

        Raises:
            UserError: the vectors take more.
        """
        num_bytes = 4 * batch_size * max_seq_length * self.hidden_size
        if num_bytes > _MOST_BYTES:
            raise UserError(
                f"A batch must fit into memory: --{flag}={batch_size} sequences of length"
                f" {max_seq_length} and hidden_size {self.hidden_size} take"
                f" {num_bytes / 2**30:,.0f} GiB for each layer; lower --{flag}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns a copy of the configuration as a dictionary, unknown keys included."""
        values = copy.deepcopy(self.__dict__)
        for field in dataclasses.fields(self):
            if field.metadata.get("optional") and values[field.name] == field.default:
                del values[field.name]
        own = {"model_type": self.MODEL_TYPE} if self.MODEL_TYPE else {}
        return {**values.pop("_unknown"), **values, **own}

    def to_json_string(self) -> str:
        """Returns the configuration as the text of a `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def load_configuration(
    json_file: str,
    from_dict: Callable[[dict[str, Any]], BertConfig],
    flag: str = "bert_config_file",
) -> BertConfig:
    """Returns the configuration that `from_dict` makes of the JSON file that `flag` names."""
    check_regular(json_file, given(json_file, flag))
    try:
        with tf.io.gfile.GFile(json_file, "r") as reader:
            json_object = strict_json.loads(reader.read())
    except tf.errors.OpError as error:
        raise UserError(
            f"The BERT configuration {json_file} cannot be read ({error.message}); check --{flag}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"The BERT configuration {json_file} is not JSON ({error}); check --{flag}."
        ) from error
    try:
        return from_dict(json_object)
    except UserError as error:
        raise UserError(f"{json_file}: {error}; check --{flag}") from error


def _listed(problems: list[str]) -> str:
    """Returns the problems in one line; counts the rest if the line gets too long."""
    shown = problems[:1]
    for problem in problems[1:]:
        if len("; ".join([*shown, problem])) > _LONGEST_LIST:
            return f"{'; '.join(shown)}; and {len(problems) - len(shown)} more"
        shown.append(problem)
    return "; ".join(shown)
