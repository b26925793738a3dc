"""BERT in Hugging Face's format: the names of its weights, and its `config.json`.

Each kind of model has a module with the same names; `FAMILY` in `config.py` lists them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bert_tf.files import object_graphs
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.weights import (
    Weight,
    dense,
    layer,
    layer_norm,
    masked_lm,
    output,
)

CONFIG = BertConfig
CLASS_NAME = "Bert"  # BertForMaskedLM
VOCABULARY = "vocab.txt"
TOKENIZERS = ("Bert", "DistilBert", "Electra", "XLMRoberta")  # classes, without "Tokenizer(Fast)"
HARMLESS_KEYS = {
    # Settings of a pooler that none of the supported models has.
    *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
    *("pooler_size_per_head", "pooler_type"),
    # Of other models and programs. BERT's embeddings are as wide as its layers.
    *("embedding_size", "emb_size", "vocab_type"),
}
PREFIX = "bert."  # prefix of encoder and pooler if the model has a head
LAYER = object_graphs.BERT.layer
_MODULES = LAYER.replace("/", ".")
# Copy -> original: tensors that a checkpoint of this library stores only once.
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def reader_of(
    kind: type[BertConfig], **defaults: Any
) -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    """Returns a function from a `config.json` and its path to a `bert_config.json`'s values."""
    # `hidden_act` keeps Hugging Face's name. `defaults` are Hugging Face's, where they differ.
    keys = kind.known_keys()
    return lambda config, _: defaults | {key: config[key] for key in keys if key in config}


def writer_of(**values: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Returns a function that makes a `config.json`; its argument has their `hidden_act`."""
    usual = {"layer_norm_eps": 1e-12, "pad_token_id": 0}
    return lambda config: usual | config | {"position_embedding_type": "absolute"} | values


to_ours = reader_of(CONFIG, hidden_act="gelu", type_vocab_size=2)
to_theirs = writer_of(model_type="bert")


def parts(config: BertConfig, task: str) -> dict[str, list[Weight]]:
    """Returns the weights of each part of a model; a model may lack any part except the encoder.

    `task` is the end of the architecture's name, such as "ForMultipleChoice"; "" if unknown.
    """
    hidden, transform = config.hidden_size, "cls.predictions.transform"
    return {
        "encoder": [*embeddings(config), *layers(config)],
        "pooler": dense("bert/pooler/dense", "pooler.dense", hidden, hidden),
        "masked-LM head": masked_lm(
            config, f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias"
        ),
        "next-sentence head": output("cls/seq_relationship/", "cls.seq_relationship", 2, hidden),
        **fine_tuning_heads(hidden, task),
    }


def embeddings(config: BertConfig) -> list[Weight]:
    """Returns the weights of the embeddings; all kinds of models use the same names."""
    width, scope = config.embedding_width, f"{config.scope}/embeddings"
    sizes = {
        "word": config.vocab_size,
        "position": config.max_position_embeddings,
        "token_type": config.type_vocab_size,
    }
    tables = [
        Weight(f"{scope}/{k}_embeddings", (n, width), f"embeddings.{k}_embeddings.weight")
        for k, n in sizes.items()
    ]
    return tables + layer_norm(f"{scope}/LayerNorm", "embeddings.LayerNorm", width)


def layers(config: BertConfig, others: str = "encoder", modules: str = _MODULES) -> list[Weight]:
    weights: list[Weight] = []
    for i, scope in enumerate(config.layer_scopes):
        weights += layer(scope.rstrip("/"), LAYER, f"{others}.layer.{i}", modules, config)
    return weights


def fine_tuning_heads(hidden: int, task: str) -> dict[str, list[Weight]]:
    """Returns the weights of the fine-tuning heads; all kinds of models use the same names."""
    classifier = ("multiple-choice head", 1) if task == "ForMultipleChoice" else ("classifier", -1)
    return {
        classifier[0]: output("", "classifier", classifier[1], hidden),
        "SQuAD head": output("cls/squad/", "qa_outputs", 2, hidden),
    }
