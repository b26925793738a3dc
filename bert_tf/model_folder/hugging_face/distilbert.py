"""DistilBERT in Hugging Face's format: what differs from `bert.py`.

DistilBERT has no token types and no pooler. In this library's format, the token types are zeros and
the pooler is the dense layer of the classifier, `pre_classifier`; see `DistilBertConfig`.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.whole_files import Needed
from bert_tf.model.configuration import OUTPUT_DROPOUT_PROB, BertConfig
from bert_tf.model.family import DistilBertConfig
from bert_tf.model_folder.hugging_face import bert

CONFIG = DistilBertConfig
CLASS_NAME = "DistilBert"
PREFIX = "distilbert."
_OTHER_LAYER = """attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm
    ffn.lin1 ffn.lin2 output_layer_norm"""
TIED = {"vocab_projector.weight": "embeddings.word_embeddings.weight"}
# Our key -> Hugging Face's key and default.
_KEYS = {
    "vocab_size": ("vocab_size", 30522),
    "hidden_size": ("dim", 768),
    "num_hidden_layers": ("n_layers", 6),
    "num_attention_heads": ("n_heads", 12),
    "intermediate_size": ("hidden_dim", 3072),
    "hidden_act": ("activation", "gelu"),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "max_position_embeddings": ("max_position_embeddings", 512),
    "initializer_range": ("initializer_range", 0.02),
}
# BERT's names, which Hugging Face's library accepts instead.
_ALIASES = ("hidden_size", "num_hidden_layers", "num_attention_heads")
TOKENIZERS = bert.TOKENIZERS
KEYS = {*(theirs for theirs, _ in _KEYS.values()), *_ALIASES}
_EPSILON = 1e-12
NEEDED = {"layer_norm_eps": Needed((_EPSILON,), "DistilBERT has no other epsilon. Delete the key")}
HARMLESS_KEYS = {
    # Dropout rates of training, and how position embeddings are initialized: the file has trained
    # ones.
    *("qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds"),
    # DistilBERT has no token types, and its output embeddings are always tied.
    *("type_vocab_size", "tie_weights_"),
}
_TYPES = "bert/embeddings/token_type_embeddings"
_POSITIONS = "bert/embeddings/position_embeddings"
_NUM_TYPES = 2  # token types in every program's records
_POOLER = "bert/pooler/"
_NEXT_SENTENCE = "cls/seq_relationship/"
_WITH_PRE_CLASSIFIER = ("ForSequenceClassification", "ForMultipleChoice")


def to_ours(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    for ours in _ALIASES:
        theirs, _ = _KEYS[ours]
        if ours in config and config.get(theirs, config[ours]) != config[ours]:
            raise UserError(
                f"{path}: {theirs} and {ours} are two names of one size; they are"
                f" {quoted(config[theirs])} and {quoted(config[ours])}. Delete the wrong one"
            )
    values = {
        ours: config.get(theirs, config.get(ours, default) if ours in _ALIASES else default)
        for ours, (theirs, default) in _KEYS.items()
    }
    return {**values, "type_vocab_size": _NUM_TYPES}


def to_theirs(config: Mapping[str, Any]) -> dict[str, Any]:
    epsilon = config.get("layer_norm_eps", _EPSILON)
    if epsilon != _EPSILON:
        raise UserError(
            f"Hugging Face's DistilBERT always has the layer_norm_eps {_EPSILON}; this model's is"
            f" {epsilon}, so it cannot be written as a DistilBERT"
        )
    return {
        **{theirs: config[ours] for ours, (theirs, _) in _KEYS.items()},
        "model_type": "distilbert",
        "pad_token_id": 0,
        "qa_dropout": 0.0,
        "seq_classif_dropout": OUTPUT_DROPOUT_PROB,
        "sinusoidal_pos_embds": False,
        "tie_weights_": True,
    }


def with_their_keys(message: str) -> str:
    """Replaces our keys in an error message by the keys of `config.json`."""
    return re.sub(r"\w+", lambda word: _KEYS.get(word[0], word)[0], message)


def parts(config: DistilBertConfig, task: str) -> dict[str, list[bert.Weight]]:
    encoder = [weight for weight in bert.embeddings(config) if weight.name != _TYPES]
    encoder += bert.layers(config, "transformer", _OTHER_LAYER)
    hidden = config.hidden_size
    return {
        "encoder": encoder,
        "pre-classifier": bert.dense("bert/pooler/dense", "pre_classifier", hidden, hidden),
        "masked-LM head": bert.masked_lm(
            config, "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
        ),
        **bert.fine_tuning_heads(hidden, task),
    }


def token_types(config: DistilBertConfig) -> dict[str, np.ndarray]:
    """Returns zeros for the token types, which Hugging Face's format lacks."""
    return {_TYPES: np.zeros([config.type_vocab_size, config.hidden_size], np.float32)}


def without_places(
    variables: Mapping[str, np.ndarray], task: str, path: str
) -> tuple[dict[str, np.ndarray], str]:
    """Returns the variables that a DistilBERT can have, and the task of the remaining model.

    Token type 0, which single texts use, is added to every position embedding, so the sum stays the
    same. The next-sentence head is dropped, and so is the pooler if no other output depends on it.
    """
    omitted = (_NEXT_SENTENCE,) if task in _WITH_PRE_CLASSIFIER else (_NEXT_SENTENCE, _POOLER)
    kept = {name: v for name, v in variables.items() if not name.startswith(omitted)}
    if len(kept) < len(variables):
        left = sorted(set(variables).difference(kept))
        logging.warning("%s: omitted %s, which DistilBERT does not have", path, listed(left))
    types = kept.pop(_TYPES, None)
    if types is not None and _POSITIONS in kept and types.any():
        kept[_POSITIONS] = kept[_POSITIONS] + types[0]
        logging.warning(
            "%s: DistilBERT has no token types: token type 0 is added to the position embeddings,"
            " and a second text is read like the first",
            path,
        )
    return kept, "ForMaskedLM" if task == "ForPreTraining" else task


def config_of_bert(config: BertConfig, task: str, path: str) -> DistilBertConfig:
    """Converts the configuration of the BERT model at `path`."""
    if type(config) not in (BertConfig, DistilBertConfig):
        raise UserError(
            f"--output_format=distilbert needs a model with BERT's encoder; {path} has"
            f" {config.NAME}'s. Give --output_format=safetensors"
        )
    if task in _WITH_PRE_CLASSIFIER and config.pooler_activation != "relu":
        raise UserError(
            f"{path} cannot be written as a DistilBERT: its classifier depends on a pooler with"
            f" {config.pooler_activation}, where DistilBERT has ReLU. Give"
            " --output_format=safetensors, or fine-tune a model whose bert_config.json has"
            ' "model_type": "distilbert"'
        )
    values = config.to_dict()
    kept = (*_KEYS, "type_vocab_size", "layer_norm_eps", "problem_type")
    return DistilBertConfig.from_dict({k: values[k] for k in kept if k in values})
