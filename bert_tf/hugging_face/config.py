"""Converts between Hugging Face's config.json and bert_config.json with labels.txt."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.label_file import check_label
from bert_tf.files.whole_files import read_json
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.tagging.conll import is_tag

# Names of activations -> ours. Others, such as relu, have one name.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
}


def read_config(path: str) -> dict[str, Any]:
    """Returns the content of a `config.json`.

    Raises:
        UserError: the file is missing or damaged, or the model is not a BERT of the published
            architecture.
    """
    config = read_json(path, path, "it must describe the model beside it")
    if not isinstance(config, dict):
        raise UserError(f"{path} must hold a dictionary; received {quoted(config)}")
    rules = {
        "model_type": ("bert", "bert"),
        "position_embedding_type": ("absolute", "absolute"),
        "is_decoder": (False, False),
        "add_cross_attention": (False, False),
    }
    for key, (needed, default) in rules.items():
        if config.get(key, default) != needed:
            raise UserError(
                f"{path}: google-research/bert has no model whose {key} is {quoted(config[key])};"
                f" it must be {needed!r}"
            )
    return config


def to_bert_config(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the `bert_config.json` of a `config.json`.

    Args:
        config: from `read_config`.
        path: its file, for messages.

    Raises:
        UserError: a value is missing or impossible.
    """
    if config.get("layer_norm_eps", 1e-12) != 1e-12:
        logging.warning(
            "%s: layer_norm_eps is %s; bert_tf always uses 1e-12, so outputs will differ a little",
            path,
            quoted(config["layer_norm_eps"]),
        )
    if not isinstance(config.get("hidden_act", "gelu"), str):
        raise UserError(f"{path}: hidden_act must be a text; it is {quoted(config['hidden_act'])}")
    known = {key: config[key] for key in BertConfig.__init__.__annotations__ if key in config}
    # Hugging Face's default; BertConfig's is 16.
    known.setdefault("type_vocab_size", 2)
    hidden_act = config.get("hidden_act", "gelu")
    known["hidden_act"] = _ACTIVATIONS.get(hidden_act, hidden_act)
    try:
        return BertConfig.from_dict(known).to_dict()
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def is_multiple_choice(config: Mapping[str, Any]) -> bool:
    """Returns whether the classifier is a multiple-choice head."""
    return config.get("architectures") == ["BertForMultipleChoice"]


def class_names(config: Mapping[str, Any], count: int, path: str) -> list[str] | None:
    """Returns the names of a classifier's classes in the order of the logits; None if unknown.

    They are unknown if `id2label` is missing or has Hugging Face's default names. [] for a single
    output: it is a number, not a class.

    Args:
        config: from `read_config`.
        count: number of outputs of the classifier.
        path: the file of `config`, for messages.

    Raises:
        UserError: `id2label` does not give `count` different names of one line each.
    """
    names = config.get("id2label")
    if names is None:
        return None
    keys = [str(i) for i in range(count)]
    if (
        not isinstance(names, dict)
        or names.keys() != set(keys)
        or not all(isinstance(name, str) and name.splitlines() == [name] for name in names.values())
        or len(set(names.values())) < count
    ):
        raise UserError(
            f"{path}: id2label must name each of the classifier's {count} outputs: the keys are"
            f" the numbers from 0 to {count - 1}, and the names are texts of one line, no two of"
            f" them the same; received {quoted(names)}. Correct it, or remove id2label from the"
            " file: the classes then have no names"
        )
    labels = [names[key] for key in keys]
    for label in labels:
        check_label(label, f"{path}: id2label")
    if count == 1:
        return []
    return None if labels == _default_names(count) else labels


def _default_names(count: int) -> list[str]:
    return [f"LABEL_{i}" for i in range(count)]


def to_config(
    bert_config: Mapping[str, Any],
    parts: Collection[str],
    labels: Sequence[str] | None,
    num_outputs: int,
) -> dict[str, Any]:
    """Returns the `config.json` of a model.

    Args:
        bert_config: its `bert_config.json`.
        parts: the names of its parts, of those in `weights.parts`.
        labels: the names of the classes; None if unknown. Those of a tagger are tags.
        num_outputs: number of outputs of the classifier; 0 if it has none.

    Raises:
        UserError: there are more or fewer names than outputs.
    """
    labels = labels or []
    if labels and num_outputs != len(labels):
        raise UserError(
            f"labels.txt must name each of the classifier's {num_outputs} outputs; it names"
            f" {len(labels)}: {listed(labels)}. Correct it, or remove it: the classes then have"
            " no names"
        )
    is_tagger = "O" in labels and all(map(is_tag, labels))
    architectures = {
        "SQuAD head": "BertForQuestionAnswering",
        "classifier": f"BertFor{'Token' if is_tagger else 'Sequence'}Classification",
        "multiple-choice head": "BertForMultipleChoice",
        "next-sentence head": "BertForPreTraining",
        "masked-LM head": "BertForMaskedLM",
        "encoder": "BertModel",
    }
    config = {
        **bert_config,
        "architectures": [next(a for part, a in architectures.items() if part in parts)],
        "layer_norm_eps": 1e-12,
        "model_type": "bert",
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
    }
    hidden_act = config.get("hidden_act", "gelu")
    config["hidden_act"] = {"gelu": "gelu_new", "gelu_erf": "gelu"}.get(hidden_act, hidden_act)
    if "classifier" in parts:
        labels = labels or _default_names(num_outputs)
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    return config
