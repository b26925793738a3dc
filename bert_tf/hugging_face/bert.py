"""BERT in Hugging Face's format: the names of its weights, and its `config.json`.

Each kind of model has a module with the same constants and functions; `FAMILY` in `config.py` maps
`model_type` to the module.
"""

from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf.errors import quoted
from bert_tf.hugging_face.weights import Weight, dense, layer_norm, output
from bert_tf.model.configuration import BertConfig

CONFIG = BertConfig
CLASS_NAME = "Bert"  # BertForMaskedLM
VOCABULARY = "vocab.txt"
KEYS = {*CONFIG.known_keys(), "layer_norm_eps"}  # the keys of config.json that are used
# Settings of a kind of pooler that none of the models has.
HARMLESS_KEYS = {
    f"pooler_{name}"
    for name in ("fc_size", "num_attention_heads", "num_fc_layers", "size_per_head", "type")
}
PREFIX = "bert."  # begins the names of encoder and pooler if the model has a head
# Copy -> original: tensors that a checkpoint of this library stores only once.
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def to_ours(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the values of a `bert_config.json`; `hidden_act` is still Hugging Face's name.

    Args:
        config: the content of a `config.json`.
        path: path of the `config.json`, for messages.
    """
    warn_of_epsilon(config, path)
    known = {key: config[key] for key in CONFIG.known_keys() if key in config}
    known.setdefault("hidden_act", "gelu")
    known.setdefault("type_vocab_size", 2)  # Hugging Face's default; BertConfig's is 16.
    return known


def warn_of_epsilon(config: Mapping[str, Any], path: str) -> None:
    """Warns if `layer_norm_eps` in a `config.json` differs from the epsilon of BERT and ALBERT."""
    if config.get("layer_norm_eps", 1e-12) != 1e-12:
        logging.warning(
            "%s: layer_norm_eps is %s; bert_tf always uses 1e-12, so outputs will differ a little",
            path,
            quoted(config["layer_norm_eps"]),
        )


def to_theirs(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a `config.json`; `hidden_act` is Hugging Face's name already."""
    return {
        **config,
        "layer_norm_eps": 1e-12,
        "model_type": "bert",
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
    }


def parts(config: BertConfig, task: str) -> dict[str, list[Weight]]:
    """Returns the weights of each part of a model; a model may lack any part but the encoder.

    Args:
        task: the end of the architecture's name, such as "ForMultipleChoice"; "" if unknown.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    encoder = embeddings(config)
    for i in range(config.num_hidden_layers):
        name, other = f"bert/encoder/layer_{i}", f"encoder.layer.{i}"
        for k in ("query", "key", "value"):
            encoder += dense(
                f"{name}/attention/self/{k}", f"{other}.attention.self.{k}", hidden, hidden
            )
        encoder += dense(
            f"{name}/attention/output/dense", f"{other}.attention.output.dense", hidden, hidden
        )
        encoder += layer_norm(
            f"{name}/attention/output/LayerNorm", f"{other}.attention.output.LayerNorm", hidden
        )
        encoder += dense(f"{name}/intermediate/dense", f"{other}.intermediate.dense", hidden, inner)
        encoder += dense(f"{name}/output/dense", f"{other}.output.dense", inner, hidden)
        encoder += layer_norm(f"{name}/output/LayerNorm", f"{other}.output.LayerNorm", hidden)
    transform = "cls/predictions/transform", "cls.predictions.transform"
    return {
        "encoder": encoder,
        "pooler": dense("bert/pooler/dense", "pooler.dense", hidden, hidden),
        "masked-LM head": [
            *dense(f"{transform[0]}/dense", f"{transform[1]}.dense", hidden, hidden),
            *layer_norm(f"{transform[0]}/LayerNorm", f"{transform[1]}.LayerNorm", hidden),
            Weight("cls/predictions/output_bias", (config.vocab_size,), "cls.predictions.bias"),
        ],
        "next-sentence head": output("cls/seq_relationship/", "cls.seq_relationship", 2, hidden),
        **fine_tuning_heads(hidden, task),
    }


def embeddings(config: BertConfig) -> list[Weight]:
    """Returns the weights of the embeddings, whose names are the same in all kinds of models."""
    width = config.embedding_width
    sizes = {
        "word": config.vocab_size,
        "position": config.max_position_embeddings,
        "token_type": config.type_vocab_size,
    }
    tables = [
        Weight(f"bert/embeddings/{k}_embeddings", (n, width), f"embeddings.{k}_embeddings.weight")
        for k, n in sizes.items()
    ]
    return tables + layer_norm("bert/embeddings/LayerNorm", "embeddings.LayerNorm", width)


def fine_tuning_heads(hidden: int, task: str) -> dict[str, list[Weight]]:
    """Returns the weights of the fine-tuning heads, the same names in all kinds of models."""
    classifier = ("multiple-choice head", 1) if task == "ForMultipleChoice" else ("classifier", -1)
    return {
        classifier[0]: output("", "classifier", classifier[1], hidden),
        "SQuAD head": output("cls/squad/", "qa_outputs", 2, hidden),
    }
