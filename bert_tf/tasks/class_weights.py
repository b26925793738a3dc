"""Weights of classes (--class_weights) and of examples: numbers that say how much each counts."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf.bounds import Bounds, as_float
from bert_tf.datasets.tables import number_in
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.records import LARGEST_TARGET
from bert_tf.runs.flags.setting_fields import Group, Settings

BALANCED = "balanced"
_WEIGHTS = Bounds(at_least=0.0, at_most=LARGEST_TARGET)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassWeightSettings(Settings):
    """How much the classes count in training."""

    class_weights: Sequence[str] | None = Group.TRAINING.setting(
        None,
        help="Weights of the classes in training: `balanced` (examples / (classes * examples of the"
        " class), so that all classes count the same), a number for each class in the order of the"
        " labels, or LABEL:NUMBER for some of them; the others count 1.",
    )


def parse_weight(value: Any, subject: str, remedy: str) -> float:
    """Returns the weight that a text or number stands for.

    Raises:
        UserError: it is not a finite number of at least 0. The message begins with `subject` and
            ends with `remedy`.
    """
    try:
        number = number_in(value) if isinstance(value, str) else as_float(value)
        if _WEIGHTS.hold(number):
            return number
    except (TypeError, ValueError):
        pass
    raise UserError(f"{subject} must be a number {_WEIGHTS}; got {quoted(value)}. {remedy}")


def parse_class_weights(given: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """Returns the weight of each class from --class_weights, if that is not `balanced`.

    Args:
        given: a number for each of `labels`, in their order; or LABEL:NUMBER for some of them. The
            weight of any other class is 1.

    Raises:
        UserError: `given` is not so, or all weights are 0.
    """
    pairs = [entry.rpartition(":") for entry in given]
    if not any(colon for _, colon, _ in pairs) and len(pairs) == len(labels):
        pairs = [(label, ":", number) for label, (_, _, number) in zip(labels, pairs, strict=True)]
    if not pairs or not all(colon for _, colon, _ in pairs):
        raise UserError(
            f"--class_weights must be {BALANCED}, or a number for each of the {len(labels)} classes"
            f" in the order {listed(labels)}, or LABEL:NUMBER for some of them; got"
            f" {quoted(','.join(given))}"
        )
    weights: dict[str, float] = {}
    for label, _, number in pairs:
        if label not in labels:
            raise UserError(
                f"--class_weights has a weight for {quoted(label)}, which is not a class; the"
                f" classes are {listed(labels)}"
            )
        if label in weights:
            raise UserError(f"--class_weights has two weights for {quoted(label)}; delete one")
        subject = f"--class_weights: the weight of {quoted(label)}"
        weights[label] = parse_weight(number, subject, "1 leaves the class as it is")
    weights = {label: weights.get(label, 1.0) for label in labels}
    if not any(weights.values()):
        raise UserError(
            f"--class_weights must have a number above 0; got {quoted(','.join(given))}, with which"
            " nothing counts"
        )
    return weights


def balanced_weights(labels: Sequence[str]) -> dict[str, float]:
    """Returns n / (k * count) for each class: n examples, and k classes that occur.

    So each class counts the same in all, as with scikit-learn's `class_weight="balanced"`.

    Args:
        labels: the class of each example.
    """
    counts = collections.Counter(labels)
    return {label: len(labels) / (len(counts) * count) for label, count in counts.items()}


def choose_weights(
    given: Sequence[str], labels: Sequence[str], training: Sequence[str]
) -> dict[str, float]:
    """Returns the weights of the classes for --class_weights, and logs them.

    Args:
        given: see `ClassWeightSettings`.
        labels: the classes.
        training: the class of each training example.
    """
    if list(given) == [BALANCED]:
        weights = balanced_weights(training)
    else:
        weights = parse_class_weights(given, labels)
    if weights:
        logging.info("Class weights: %s", ", ".join(f"{k} {v:.5g}" for k, v in weights.items()))
    return weights
