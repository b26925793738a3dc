"""Weights of classes (--class_weights) and of examples (--weight_column): how much each counts.

Losses and metrics are divided by the sum of the weights.
"""

import collections
import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.bounds import Bounds, as_float
from bert_tf.datasets.tables import number_in
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.records import LARGEST_TARGET
from bert_tf.runs.flags.setting_fields import Group, Settings
from bert_tf.tasks.arguments import plain, received

BALANCED = "balanced"
Entry = str | tuple[str, Any]  # LABEL:NUMBER, or (label, number)
_WEIGHTS = Bounds(at_least=0.0, at_most=LARGEST_TARGET)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassWeightSettings(Settings):
    """The weights of classes in training."""

    class_weights: Sequence[str] | None = Group.TRAINING.setting(
        None,
        help="Weights of the classes in training: `balanced` (examples / (classes * examples of the"
        " class), so that all classes count the same), a number for each class in the order of the"
        " labels, or LABEL:NUMBER for some of them; the others have weight 1.",
    )


def parse_weight(value: Any, subject: str, remedy: str) -> float:
    """Parses a weight; the message of a UserError begins with `subject` and ends with `remedy`."""
    try:
        number = number_in(value) if isinstance(value, str) else as_float(value)
        if _WEIGHTS.hold(number):
            return number
    except (TypeError, ValueError):
        pass
    raise UserError(f"{subject} must be a number {_WEIGHTS}; got {quoted(value)}. {remedy}")


def parse_class_weights(given: Sequence[Entry], labels: Sequence[str]) -> dict[str, float]:
    """Parses --class_weights: numbers in the order of `labels`, or LABEL:NUMBER; default 1."""
    shown = ",".join(x if isinstance(x, str) else ":".join(map(str, x)) for x in given)
    pairs = [_pair(entry) for entry in given]
    if len(pairs) == len(labels) and all(label is None for label, _ in pairs):
        pairs = [(label, number) for label, (_, number) in zip(labels, pairs, strict=True)]
    names = [label for label, _ in pairs]
    if not pairs or not {*names} <= {*labels} or len({*names}) < len(names):
        raise UserError(
            f"--class_weights must be {BALANCED}, or a number for each of the {len(labels)} classes"
            f" in the order {listed(labels)}, or LABEL:NUMBER for some of them, each once; got"
            f" {quoted(shown)}"
        )
    weights = dict.fromkeys(labels, 1.0)
    for label, number in pairs:
        subject = f"--class_weights: the weight of {quoted(label)}"
        weights[str(label)] = parse_weight(number, subject, "A class of weight 1 counts as usual")
    return weights


def _pair(entry: Entry) -> tuple[str | None, Any]:
    if not isinstance(entry, str):
        return entry
    label, colon, number = entry.rpartition(":")
    return (label if colon else None), number


def entries_of(weights: Any, labels: Sequence[str] | None) -> Sequence[Entry]:
    """Converts Keras's or scikit-learn's class_weight, by names or numbers, to `class_weights`."""
    if isinstance(weights, str) and weights == BALANCED:
        return [BALANCED]
    if not isinstance(weights, Mapping):
        raise UserError(
            f"class_weight must be 'balanced' or a dictionary of weights; {received(weights)}."
            " For scikit-learn's compute_class_weight: dict(zip(classes, weights))"
        )
    labels = labels or ()
    # If classes are named 1 to 5, a number is the name of a class, as in y.
    numbers = {} if any(map(str.isdecimal, labels)) else dict(enumerate(labels))
    pairs = [(plain(key), weight) for key, weight in weights.items()]
    pairs = [(int(x) if isinstance(x, float) and x.is_integer() else x, w) for x, w in pairs]
    pairs = [(x if str(x) in labels else numbers.get(x, x), weight) for x, weight in pairs]
    return [(str(label), weight) for label, weight in pairs]


def balanced_weights(labels: Sequence[str]) -> dict[str, float]:
    """Returns n / (k * count) for n labels of k classes, like scikit-learn's "balanced"."""
    counts = collections.Counter(labels)
    return {label: len(labels) / (len(counts) * count) for label, count in counts.items()}


def choose_weights(
    given: Sequence[Entry], labels: Sequence[str], training: Sequence[str]
) -> dict[str, float]:
    """Returns the weight of each class from --class_weights, and logs the weights."""
    if list(given) == [BALANCED]:
        weights = balanced_weights(training)
    else:
        weights = parse_class_weights(given, labels)
    if weights:
        logging.info("Class weights: %s", ", ".join(f"{k} {v:.5g}" for k, v in weights.items()))
    return weights


def weight_of(example: Any) -> float | None:
    """Returns the weight of an example; a user's own example type may lack it."""
    return getattr(example, "weight", None)


def weigh(
    sets: Mapping[str, Sequence[Any]], class_weights: Sequence[str] | None, labels: Sequence[str]
) -> None:
    """Gives all examples a weight if any has one; class weights apply to training examples only."""
    distinct = dict.fromkeys(x for several in sets.values() for x in several)
    have_own = any(weight_of(e) is not None for x in distinct for e in x.examples)
    if not have_own and not class_weights:
        return
    training = sets.get("train", ())
    for example_set in distinct:
        factors: Mapping[str, float] = {}
        if class_weights and example_set in training:
            own_labels = [example.label for example in example_set.examples]
            factors = choose_weights(class_weights, labels, own_labels)
        weighed = []
        for example in example_set.examples:
            own = 1.0 if weight_of(example) is None else example.weight
            subject = f"Example {quoted(example.guid)}: the weight"
            own = parse_weight(own, subject, "An example of weight 1 counts as usual")
            weighed.append(copy.copy(example))
            weighed[-1].weight = own * factors.get(example.label, 1.0) if factors else own
        if not any(example.weight for example in weighed):
            raise UserError(
                f"The weights of the examples to {example_set.name} must have a sum above 0; all"
                f" {len(weighed)} are 0. Change the weights, or --class_weights"
            )
        example_set.examples = weighed


def check_class_settings(
    class_weights: Sequence[str] | None, label_smoothing: float, labels: Sequence[str] | None
) -> None:
    """Raises UserError for wrong class weights, or settings for classes if `labels` is None."""
    given = {"class_weights": class_weights, "label_smoothing": label_smoothing}
    for name in [name for name in given if given[name] and labels is None]:
        raise UserError(
            f"--{name} is for classes, and this task predicts a number (--regression, or the"
            f" --task_name); leave --{name} out"
        )
    if class_weights and labels and list(class_weights) != [BALANCED]:
        parse_class_weights(class_weights, labels)
