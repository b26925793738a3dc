"""BERT in Hugging Face's format: the names and shapes of its weights, and its `config.json`.

Each kind of model has a module that defines the same names; see `FAMILY` in `config.py`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.errors import UserError, first_of
from bert_tf.files import object_graphs
from bert_tf.model.configuration import BertConfig


class Weight(NamedTuple):
    """A weight's name and shape in a checkpoint, and its name in Hugging Face's format."""

    name: str
    shape: tuple[int, ...]  # -1 stands for any size
    other_name: str
    transposed: bool = False  # whether Hugging Face's tensor is the transpose


def dense(name: str, other_name: str, inputs: int, outputs: int) -> list[Weight]:
    return [
        Weight(f"{name}/kernel", (inputs, outputs), f"{other_name}.weight", transposed=True),
        Weight(f"{name}/bias", (outputs,), f"{other_name}.bias"),
    ]


def layer_norm(name: str, other_name: str, size: int) -> list[Weight]:
    return [
        Weight(f"{name}/gamma", (size,), f"{other_name}.weight"),
        Weight(f"{name}/beta", (size,), f"{other_name}.bias"),
    ]


def layer(
    name: str, modules: str, other_name: str, other_modules: str, config: BertConfig
) -> list[Weight]:
    """Returns the weights of an encoder layer.

    `modules` and `other_modules` are names with spaces between them: query, key, value, the
    attention's output and LayerNorm, the two feed-forward layers, LayerNorm.
    """
    names = (f"{name}/{module}" for module in modules.split())
    other_names = (f"{other_name}.{module}" for module in other_modules.split())
    pairs = zip(names, other_names, strict=True)
    query, key, value, attention, attention_norm, intermediate, outer, outer_norm = pairs
    hidden, inner = config.hidden_size, config.intermediate_size
    return [
        *dense(*query, hidden, hidden),
        *dense(*key, hidden, hidden),
        *dense(*value, hidden, hidden),
        *dense(*attention, hidden, hidden),
        *layer_norm(*attention_norm, hidden),
        *dense(*intermediate, hidden, inner),
        *dense(*outer, inner, hidden),
        *layer_norm(*outer_norm, hidden),
    ]


def masked_lm(config: BertConfig, dense_name: str, norm_name: str, bias_name: str) -> list[Weight]:
    transform, width = "cls/predictions/transform", config.embedding_width
    return [
        *dense(f"{transform}/dense", dense_name, config.hidden_size, width),
        *layer_norm(f"{transform}/LayerNorm", norm_name, width),
        Weight("cls/predictions/output_bias", (config.vocab_size,), bias_name),
    ]


def output(name: str, other_name: str, outputs: int, inputs: int) -> list[Weight]:
    """Returns the weights of an output layer, which both formats store as [outputs, inputs]."""
    return [
        Weight(f"{name}output_weights", (outputs, inputs), f"{other_name}.weight"),
        Weight(f"{name}output_bias", (outputs,), f"{other_name}.bias"),
    ]


CONFIG = BertConfig
CLASS_NAME = "Bert"  # BertForMaskedLM
TOKENIZERS = ("Bert", "DistilBert", "Electra", "XLMRoberta")  # classes, without "Tokenizer(Fast)"
HARMLESS_KEYS = {
    # Settings of a pooler that none of the supported models has.
    *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
    *("pooler_size_per_head", "pooler_type"),
    # Settings of other models and programs. BERT's embeddings are as wide as its layers.
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
    """Returns a function (`config.json`, its path) -> the values of a `bert_config.json`."""
    # `hidden_act` keeps Hugging Face's name. `defaults`: where Hugging Face's differ from ours.
    keys = kind.known_keys()
    return lambda config, _: defaults | {key: config[key] for key in keys if key in config}


def writer_of(**values: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Returns a function from our keys, with Hugging Face's `hidden_act`, to a `config.json`."""
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


def present_parts(
    known: Mapping[str, Sequence[Weight]], shapes: Mapping[str, Sequence[int]], key: str, path: str
) -> dict[str, Sequence[Weight]]:
    """Returns the parts that a file has; raises UserError for missing and unexpected weights."""
    # `key` is the field of `Weight` that has the names in `shapes`: "name" or "other_name".

    def expected(weight: Weight) -> list[int]:
        swap = weight.transposed and key == "other_name"
        return list(weight.shape[::-1] if swap else weight.shape)

    def fits(weight: Weight) -> bool:
        found = list(shapes[getattr(weight, key)])
        return len(found) == len(weight.shape) and all(
            size in (-1, n) for size, n in zip(expected(weight), found, strict=True)
        )

    present = {
        part: weights
        for part, weights in known.items()
        if part == "encoder" or any(getattr(weight, key) in shapes for weight in weights)
    }
    weights = [*itertools.chain.from_iterable(present.values())]
    names = {getattr(weight, key) for weight in weights}
    problems = {
        "Missing": sorted(names.difference(shapes)),
        "unexpected": sorted(set(shapes).difference(names)),
        "wrong shape": [
            f"{name}: {list(shapes[name])}, not {expected(weight)}"
            for weight in weights
            if (name := getattr(weight, key)) in shapes and not fits(weight)
        ],
    }
    if any(problems.values()):
        raise UserError(
            f"{path} must hold the weights of the BERT model that its configuration describes. "
            + "; ".join(f"{title}: {first_of(lines)}" for title, lines in problems.items())
        )
    logging.info("%s has: %s", path, ", ".join(present))
    if "pooler" in known and "pooler" not in present:
        logging.warning("%s has no pooler: a program that needs one initializes it at random", path)
    return present
