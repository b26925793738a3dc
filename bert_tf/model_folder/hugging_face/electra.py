"""ELECTRA in Hugging Face's format: what differs from `bert.py`.

In this format discriminator and generator are separate models. A generator becomes a separate
checkpoint of an ELECTRA that was trained as a masked LM.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf.errors import UserError, quoted
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import ElectraConfig
from bert_tf.model_folder.hugging_face import bert

CONFIG = ElectraConfig
CLASS_NAME = "Electra"
TOKENIZERS = bert.TOKENIZERS
# Settings of a head for multiple choice, which is not converted.
HARMLESS_KEYS = {f"summary_{x}" for x in ("activation", "last_dropout", "type", "use_proj")}
PREFIX = "electra."
TIED = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}
DISCRIMINATOR = "discriminator_predictions/"
_GENERATOR, _PREDICTIONS = "generator/", "generator_predictions/"
_read = bert.reader_of(  # the defaults are ELECTRA-Small's
    CONFIG,
    vocab_size=30522,
    embedding_size=128,
    hidden_size=256,
    num_attention_heads=4,
    intermediate_size=1024,
    hidden_act="gelu",
)
_write = bert.writer_of(model_type="electra")


def to_ours(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    known = _read(config, path)
    if str(known["hidden_act"]).lower() in ("gelu_new", "gelu_pytorch_tanh"):
        raise UserError(
            f"{path}: hidden_act is {quoted(known['hidden_act'])}; the GELU of an ELECTRA must"
            " be the exact form, gelu. Choose a different model"
        )
    return known


def check_task(task: str, path: str) -> None:
    """Raises UserError if an ELECTRA for this task cannot be converted in either direction."""
    if task in ("ForSequenceClassification", "ForMultipleChoice"):
        raise UserError(
            f"{path} cannot be converted: {CLASS_NAME}{task} has a hidden layer before its outputs,"
            " which google-research/electra's classifiers do not have. Of the fine-tuned models"
            " only taggers and run_squad's with BERT's head can be converted"
        )


def check_activation(config: BertConfig, path: str) -> None:
    """Raises UserError if the two libraries' masked-LM heads would have different outputs."""
    if config.hidden_act != "gelu_erf":
        raise UserError(
            f"{path} cannot be converted: a masked-LM head in Hugging Face's format always has"
            " GELU, but google-research/electra's has the activation of the layers, hidden_act,"
            f" which is {quoted(config.hidden_act)}"
        )


def to_theirs(config: Mapping[str, Any]) -> dict[str, Any]:
    width = config["embedding_size"] or config["hidden_size"]
    return _write(config) | {"embedding_size": width}


def parts(config: ElectraConfig, task: str) -> dict[str, list[bert.Weight]]:
    hidden, width = config.hidden_size, config.embedding_width
    encoder = bert.embeddings(config)
    if width != hidden:
        encoder += bert.dense("electra/embeddings_project", "embeddings_project", width, hidden)
    encoder += bert.layers(config)
    found, name = DISCRIMINATOR.rstrip("/"), _PREDICTIONS.rstrip("/")
    return {
        "encoder": encoder,
        "discriminator's head": [
            *bert.dense(f"{found}/dense", f"{found}.dense", hidden, hidden),
            *bert.dense(f"{found}/dense_1", f"{found}.dense_prediction", hidden, 1),
        ],
        "masked-LM head": [
            *bert.dense(f"{name}/dense", f"{name}.dense", hidden, width),
            *bert.layer_norm(f"{name}/LayerNorm", f"{name}.LayerNorm", width),
            bert.Weight(f"{name}/output_bias", (config.vocab_size,), "generator_lm_head.bias"),
        ],
        **bert.fine_tuning_heads(hidden, task),
    }


def one_model(
    variables: Mapping[str, np.ndarray], config: ElectraConfig, generator: bool, path: str
) -> tuple[dict[str, np.ndarray], ElectraConfig]:
    """Returns one of the two models in the checkpoint at `path`, and its configuration.

    A tied generator is the whole checkpoint without the discriminator's head. A checkpoint of one
    model is returned as it is.
    """
    layers = f"{_GENERATOR}encoder/layer_"
    own = {name for name in variables if name.startswith(layers)}
    if not generator:
        if not any(name.startswith(DISCRIMINATOR) for name in variables):
            return dict(variables), config
        kept = {k: v for k, v in variables.items() if not k.startswith((_GENERATOR, _PREDICTIONS))}
        if len(kept) < len(variables):
            logging.info(
                "%s: the discriminator is written; --output_format=electra_generator writes the"
                " generator",
                path,
            )
        return kept, config
    if not own and any(name.startswith(_PREDICTIONS) for name in variables):
        return {k: v for k, v in variables.items() if not k.startswith(DISCRIMINATOR)}, config
    if not own:
        raise UserError(
            f"{path} has no generator beside its discriminator, which --output_format="
            "electra_generator needs; use --output_format=safetensors"
        )
    inner = variables[f"{layers}0/intermediate/dense/kernel"].shape
    sizes = config.to_dict() | {
        "embedding_size": variables[f"{_PREDICTIONS}dense/kernel"].shape[1],
        "hidden_size": inner[0],
        "intermediate_size": inner[1],
        "num_attention_heads": max(1, inner[0] // 64),
        "num_hidden_layers": len({name.removeprefix(layers).split("/")[0] for name in own}),
    }
    shared = {
        k: v for k, v in variables.items() if k.startswith(("electra/embeddings/", _PREDICTIONS))
    }
    renamed = {
        f"electra/{name.removeprefix(_GENERATOR)}": value
        for name, value in variables.items()
        if name.startswith(_GENERATOR)
    }
    return shared | renamed, ElectraConfig.from_dict(sizes)  # type: ignore[return-value]
