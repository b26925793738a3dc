"""Weights of examples: by their class (--class_weights), and their own (--weight_column).

A weight says how much an example counts. Losses and metrics are divided by the sum of the weights.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Protocol

from bert_tf.errors import UserError, quoted
from bert_tf.tasks.class_weights import BALANCED, choose_weights, parse_class_weights, parse_weight
from bert_tf.tasks.classification.examples import InputExample


class Examples(Protocol):
    """The examples of a purpose, such as an `ExampleSet` has."""

    name: str
    examples: Sequence[InputExample]


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
        class_weights: see `ClassWeightSettings`.
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
            own_labels = [example.label for example in example_set.examples]
            factors = choose_weights(class_weights, labels, own_labels)
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
