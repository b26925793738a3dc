"""BERT in Hugging Face's format: the names of its weights, and its `config.json`.

Each kind of model has a module with the same constants and functions; `FAMILY` in `config.py` maps
`model_type` to the module.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.files.whole_files import Needed
from bert_tf.hugging_face.weights import Weight, dense, layer, layer_norm, masked_lm, output
from bert_tf.model.configuration import BertConfig

CONFIG = BertConfig
CLASS_NAME = "Bert"  # BertForMaskedLM
VOCABULARY = "vocab.txt"
TOKENIZERS = ("Bert", "DistilBert", "Electra", "XLMRoberta")  # classes, without "Tokenizer(Fast)"
KEYS = CONFIG.known_keys()  # the keys of config.json that are used
NEEDED: dict[str, Needed] = {}
HARMLESS_KEYS = {
    # Settings of a pooler that none of the supported models has.
    *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
    *("pooler_size_per_head", "pooler_type"),
    # Of other models and programs. BERT's embeddings are as wide as its layers.
    *("embedding_size", "emb_size", "vocab_type"),
}
PREFIX = "bert."  # begins the names of encoder and pooler if the model has a head
# The modules of a layer, see `weights.layer`.
LAYER = """attention/self/query attention/self/key attention/self/value attention/output/dense
    attention/output/LayerNorm intermediate/dense output/dense output/LayerNorm"""
# Copy -> original: tensors that a checkpoint of this library stores only once.
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def to_ours(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the values of a `bert_config.json`; `hidden_act` is still Hugging Face's name.

    `config` is the content of the `config.json` at `path`.
    """
    known = {key: config[key] for key in CONFIG.known_keys() if key in config}
    known.setdefault("hidden_act", "gelu")
    known.setdefault("type_vocab_size", 2)  # Hugging Face's default; BertConfig's is 16.
    return known


def to_theirs(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a `config.json`; `hidden_act` is Hugging Face's name already."""
    return {
        "layer_norm_eps": 1e-12,
        **config,
        "model_type": "bert",
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
    }


def parts(config: BertConfig, task: str) -> dict[str, list[Weight]]:
    """Returns the weights of each part of a model; a model may lack any part but the encoder.

    Args:
        task: the end of the architecture's name, such as "ForMultipleChoice"; "" if unknown.
    """
    encoder = embeddings(config)
    theirs = LAYER.replace("/", ".")
    for i in range(config.num_hidden_layers):
        encoder += layer(f"bert/encoder/layer_{i}", LAYER, f"encoder.layer.{i}", theirs, config)
    hidden, transform = config.hidden_size, "cls.predictions.transform"
    return {
        "encoder": encoder,
        "pooler": dense("bert/pooler/dense", "pooler.dense", hidden, hidden),
        "masked-LM head": masked_lm(
            config, f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias"
        ),
        "next-sentence head": output("cls/seq_relationship/", "cls.seq_relationship", 2, hidden),
        **fine_tuning_heads(hidden, task),
    }


def embeddings(config: BertConfig) -> list[Weight]:
    """Returns the weights of the embeddings, whose names are the same in all kinds of models."""
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


def fine_tuning_heads(hidden: int, task: str) -> dict[str, list[Weight]]:
    """Returns the weights of the fine-tuning heads, the same names in all kinds of models."""
    classifier = ("multiple-choice head", 1) if task == "ForMultipleChoice" else ("classifier", -1)
    return {
        classifier[0]: output("", "classifier", classifier[1], hidden),
        "SQuAD head": output("cls/squad/", "qa_outputs", 2, hidden),
    }
