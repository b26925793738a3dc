"""Weights of examples: by their class (--class_weights), and their own (--weight_column).

A weight says how much an example counts. Losses and metrics are divided by the sum of the weights.
"""

import collections
import copy
from collections.abc import Mapping, Sequence
from typing import Protocol

from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.tasks.classification.examples import InputExample, parse_weight

BALANCED = "balanced"


class Examples(Protocol):
    """The examples of a purpose, such as an `ExampleSet` has."""

    name: str
    examples: Sequence[InputExample]


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
        weights[label] = parse_weight(number, subject, "1 counts an example as it is")
    weights = {label: weights.get(label, 1.0) for label in labels}
    if not any(weights.values()):
        raise UserError(
            f"--class_weights must have a number above 0; got {quoted(','.join(given))}, with which"
            " no example counts"
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


def weight_of(example: InputExample) -> float | None:
    """Returns the weight of an example; a class of the user's own may lack the field."""
    return getattr(example, "weight", None)


def weigh(
    sets: Mapping[str, Sequence[Examples]],
    class_weights: Sequence[str] | None,
    labels: Sequence[str],
) -> None:
    """Gives all examples a weight if any has one, or if there are class weights.

    Those multiply the weights of training examples, not of examples to evaluate.

    Args:
        sets: sets of `InputExample` by purpose; their examples are replaced.
        class_weights: see `ClassifierSettings`.
        labels: the classes; () for regression.

    Raises:
        UserError: a weight is not valid, or all weights of a set are 0.
    """
    distinct = dict.fromkeys(x for several in sets.values() for x in several)
    have_own = any(weight_of(e) is not None for x in distinct for e in x.examples)
    if not have_own and not class_weights:
        return
    training = sets.get("train", ())
    for example_set in distinct:
        factors: Mapping[str, float] = {}
        if class_weights and example_set in training:
            factors = _class_weights(class_weights, labels, example_set)
        weighed = []
        for example in example_set.examples:
            own = 1.0 if weight_of(example) is None else example.weight
            subject = f"Example {quoted(example.guid)}: the weight"
            own = parse_weight(own, subject, "1 counts an example as it is")
            weighed.append(copy.copy(example))
            weighed[-1].weight = own * factors.get(example.label, 1.0) if factors else own
        if not any(example.weight for example in weighed):
            raise UserError(
                f"The weights of the examples to {example_set.name} must have a sum above 0; all"
                f" {len(weighed)} are 0. Change the weights, or --class_weights"
            )
        example_set.examples = weighed


def _class_weights(
    given: Sequence[str], labels: Sequence[str], training: Examples
) -> dict[str, float]:
    if list(given) == [BALANCED]:
        weights = balanced_weights([example.label for example in training.examples])
    else:
        weights = parse_class_weights(given, labels)
    logging.info("Class weights: %s", ", ".join(f"{k} {v:.5g}" for k, v in weights.items()))
    return weights


def check_class_settings(
    class_weights: Sequence[str] | None, label_smoothing: float, labels: Sequence[str] | None
) -> None:
    """Checks settings that need classes.

    Args:
        class_weights, label_smoothing: see `ClassifierSettings`.
        labels: the classes; None for regression.

    Raises:
        UserError: the task has no classes, or the class weights do not fit them.
    """
    given = {"class_weights": class_weights, "label_smoothing": label_smoothing}
    for name in [name for name in given if given[name] and labels is None]:
        raise UserError(
            f"--{name} is for classes, and this task predicts a number (--regression, or the"
            f" --task_name); leave --{name} out"
        )
    if class_weights and labels and list(class_weights) != [BALANCED]:
        parse_class_weights(class_weights, labels)
