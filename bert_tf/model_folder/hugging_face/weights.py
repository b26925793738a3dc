"""Names and shapes of weights in a checkpoint and in Hugging Face's format."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf.errors import UserError, first_of
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
        "of another shape": [
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
