"""Names and shapes of weights in a checkpoint and in Hugging Face's format."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf.errors import UserError, quoted


class Weight(NamedTuple):
    """One weight: its name and shape in a checkpoint, and its name in Hugging Face's format.

    A size of -1 stands for any size. If `transposed`, Hugging Face's tensor is the transpose.
    """

    name: str
    shape: tuple[int, ...]
    other_name: str
    transposed: bool = False


def dense(name: str, other_name: str, inputs: int, outputs: int) -> list[Weight]:
    """Returns the weights of a dense layer."""
    return [
        Weight(f"{name}/kernel", (inputs, outputs), f"{other_name}.weight", transposed=True),
        Weight(f"{name}/bias", (outputs,), f"{other_name}.bias"),
    ]


def layer_norm(name: str, other_name: str, size: int) -> list[Weight]:
    """Returns the scale and the shift of a LayerNorm."""
    return [
        Weight(f"{name}/gamma", (size,), f"{other_name}.weight"),
        Weight(f"{name}/beta", (size,), f"{other_name}.bias"),
    ]


def output(name: str, other_name: str, outputs: int, inputs: int) -> list[Weight]:
    """Returns the weights of an output layer, which both formats store as [outputs, inputs]."""
    return [
        Weight(f"{name}output_weights", (outputs, inputs), f"{other_name}.weight"),
        Weight(f"{name}output_bias", (outputs,), f"{other_name}.bias"),
    ]


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return quoted(names[0]) + more if names else "nothing"


def present_parts(
    known: Mapping[str, Sequence[Weight]], shapes: Mapping[str, Sequence[int]], key: str, path: str
) -> dict[str, Sequence[Weight]]:
    """Returns the parts that a file has; checks that they are complete and make up the whole file.

    Args:
        known: every part, from the function `parts` of the model's module.
        shapes: name in the file -> shape.
        key: the field of `Weight` that has the names in `shapes`: "name" or "other_name".
        path: the file, for messages.

    Raises:
        UserError: weights are missing, unexpected or of a different shape; the message names the
            first of each kind.
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
        logging.warning("%s has no pooler: a program that needs one initializes it at random", path)
    return present
