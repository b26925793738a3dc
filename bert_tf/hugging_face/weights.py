"""Names and shapes of BERT's weights, in a checkpoint and in Hugging Face's format."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf.errors import UserError, quoted
from bert_tf.model.configuration import BertConfig


class Weight(NamedTuple):
    """One weight: its name and shape in a checkpoint, and its name in Hugging Face's format.

    A size of -1 stands for any size. If `transposed`, Hugging Face's tensor is the transpose.
    """

    name: str
    shape: tuple[int, ...]
    other_name: str
    transposed: bool = False


def _dense(name: str, other_name: str, inputs: int, outputs: int) -> list[Weight]:
    return [
        Weight(f"{name}/kernel", (inputs, outputs), f"{other_name}.weight", transposed=True),
        Weight(f"{name}/bias", (outputs,), f"{other_name}.bias"),
    ]


def _layer_norm(name: str, other_name: str, size: int) -> list[Weight]:
    return [
        Weight(f"{name}/LayerNorm/gamma", (size,), f"{other_name}.LayerNorm.weight"),
        Weight(f"{name}/LayerNorm/beta", (size,), f"{other_name}.LayerNorm.bias"),
    ]


def _output(name: str, other_name: str, outputs: int, inputs: int) -> list[Weight]:
    """Returns the weights of an output layer, which both formats store as [outputs, inputs]."""
    return [
        Weight(f"{name}output_weights", (outputs, inputs), f"{other_name}.weight"),
        Weight(f"{name}output_bias", (outputs,), f"{other_name}.bias"),
    ]


def parts(
    config: BertConfig, num_weights: int, path: str, multiple_choice: bool = False
) -> dict[str, list[Weight]]:
    """Returns the weights of each part of a model; a model may lack any part but the encoder.

    Args:
        config: of the model.
        num_weights: number of weights in the model's file.
        path: the file, for messages.
        multiple_choice: whether the classifier's weights are a multiple-choice head's. A checkpoint
            has no bias for that head.

    Raises:
        UserError: the configuration has more layers than the file has weights. Listing them might
            take all memory.
    """
    if config.num_hidden_layers > num_weights:
        raise UserError(
            f"{path} must hold the weights of the BERT model that its configuration describes:"
            f" num_hidden_layers is {quoted(config.num_hidden_layers)}, but there are only"
            f" {num_weights} weights"
        )
    hidden, inner = config.hidden_size, config.intermediate_size
    sizes = {
        "word": config.vocab_size,
        "position": config.max_position_embeddings,
        "token_type": config.type_vocab_size,
    }
    encoder = [
        Weight(f"bert/embeddings/{k}_embeddings", (n, hidden), f"embeddings.{k}_embeddings.weight")
        for k, n in sizes.items()
    ]
    encoder += _layer_norm("bert/embeddings", "embeddings", hidden)
    for i in range(config.num_hidden_layers):
        name, other = f"bert/encoder/layer_{i}", f"encoder.layer.{i}"
        for k in ("query", "key", "value"):
            encoder += _dense(
                f"{name}/attention/self/{k}", f"{other}.attention.self.{k}", hidden, hidden
            )
        encoder += _dense(
            f"{name}/attention/output/dense", f"{other}.attention.output.dense", hidden, hidden
        )
        encoder += _layer_norm(f"{name}/attention/output", f"{other}.attention.output", hidden)
        encoder += _dense(
            f"{name}/intermediate/dense", f"{other}.intermediate.dense", hidden, inner
        )
        encoder += _dense(f"{name}/output/dense", f"{other}.output.dense", inner, hidden)
        encoder += _layer_norm(f"{name}/output", f"{other}.output", hidden)
    classifier = ("multiple-choice head", 1) if multiple_choice else ("classifier", -1)
    transform = "cls/predictions/transform", "cls.predictions.transform"
    return {
        "encoder": encoder,
        "pooler": _dense("bert/pooler/dense", "pooler.dense", hidden, hidden),
        "masked-LM head": [
            *_dense(f"{transform[0]}/dense", f"{transform[1]}.dense", hidden, hidden),
            *_layer_norm(*transform, hidden),
            Weight("cls/predictions/output_bias", (config.vocab_size,), "cls.predictions.bias"),
        ],
        "next-sentence head": _output("cls/seq_relationship/", "cls.seq_relationship", 2, hidden),
        classifier[0]: _output("", "classifier", classifier[1], hidden),
        "SQuAD head": _output("cls/squad/", "qa_outputs", 2, hidden),
    }


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return quoted(names[0]) + more if names else "nothing"


def present_parts(
    known: Mapping[str, Sequence[Weight]], shapes: Mapping[str, Sequence[int]], key: str, path: str
) -> dict[str, Sequence[Weight]]:
    """Returns the parts that a file holds; checks that they are complete and all that it holds.

    Args:
        known: every part, from `parts`.
        shapes: the shapes in the file by name.
        key: "name" or "other_name", depending on the names in `shapes`.
        path: the file, for messages.

    Raises:
        UserError: weights are missing, unexpected or of another shape; the message names the first
            of each kind.
    """

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
    weights = [weight for part in present.values() for weight in part]
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
            + "; ".join(f"{title}: {_first(lines)}" for title, lines in problems.items())
        )
    absent = [part for part in known if part not in present]
    logging.info("%s has: %s", path, ", ".join(present))
    if "pooler" in absent:
        logging.warning(
            "%s has no pooler: a program that needs one gives it random initial values", path
        )
    return present
