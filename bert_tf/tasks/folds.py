"""Divides examples into the folds of a cross-validation (--folds), by scikit-learn's splitters."""

import collections
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError, quoted


class FoldKey(NamedTuple):
    """What decides the fold of an example.

    label: the class, of which every fold gets its share; None in a regression.
    text: all the example's text; copies of a text are in one fold.
    group: its examples are in one fold; None if there are no groups.
    """

    label: str | None
    text: str
    group: str | None = None


def divide(keys: Sequence[FoldKey], folds: int) -> list[list[int]]:
    """Returns the numbers of the examples of each fold, in order.

    The examples are taken in the order of digests of their texts, so their order in the file does
    not matter. In that order the folds are those of scikit-learn's StratifiedKFold, or KFold in a
    regression. With groups, or with copies of texts, which then are groups, they are those of
    StratifiedGroupKFold or GroupKFold.

    Raises:
        UserError: there are too few examples, examples of a class, or groups.
    """
    _check_counts(keys, folds)
    order = sorted(range(len(keys)), key=lambda i: (_digest(keys[i].text), i))
    have_groups = keys[0].group is not None
    names = [keys[i].group if have_groups else keys[i].text.lower() for i in order]
    numbers: dict[Any, int] = {}
    groups = [numbers.setdefault(name, len(numbers)) for name in names]
    if len(numbers) < folds:
        what = "groups" if have_groups else "different texts"
        raise UserError(
            f"--folds={folds} must be at most {len(numbers)}, the number of {what}: examples of one"
            " are never in two folds. Give fewer folds"
        )
    labels = [keys[i].label for i in order]
    found = [[order[i] for i in held] for held in _split(labels, groups, folds)]
    _check_folds([key.label for key in keys], found, have_groups)
    return [sorted(numbers) for numbers in found]


def _split(labels: list[str | None], groups: list[int], folds: int) -> list[np.ndarray]:
    """Returns the places of the examples of each fold."""
    from sklearn import model_selection as splitters  # here, because it takes seconds

    places = np.zeros([len(labels), 1])
    are_single = len(set(groups)) == len(groups)
    known_groups = None if are_single else groups
    if labels[0] is None:
        splitter = splitters.KFold(folds) if are_single else splitters.GroupKFold(folds)
    elif are_single:
        splitter = splitters.StratifiedKFold(folds)
    else:
        splitter = splitters.StratifiedGroupKFold(folds)
    return [held for _, held in splitter.split(places, labels, known_groups)]


def _check_counts(keys: Sequence[FoldKey], folds: int) -> None:
    counts = collections.Counter(key.label for key in keys)
    label, count = min(counts.items(), key=lambda item: item[1])
    if folds > count:
        of = "examples" if label is None else f"examples of the rarest class, {quoted(label)}"
        raise UserError(
            f"--folds={folds} must be at most {count}, the number of {of}: every fold needs one to"
            " evaluate. Give fewer folds, or more examples"
        )


def _check_folds(
    labels: Sequence[str | None], folds: Sequence[Sequence[int]], have_groups: bool
) -> None:
    counts = collections.Counter(labels)
    for number, held in enumerate(folds, 1):
        if not held:
            raise UserError(
                f"Fold {number} of --folds={len(folds)} would have no examples, because the groups"
                " differ too much in size. Give fewer folds"
            )
        there = collections.Counter(labels[i] for i in held)
        for label in there:
            if label is not None and there[label] == counts[label]:
                cause = "are in one group" if have_groups else "have the same text"
                raise UserError(
                    f"--folds={len(folds)} must leave examples of every class to train on; all"
                    f" {counts[label]} examples of {quoted(label)} {cause}. Add others of it"
                )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.lower().encode(errors="surrogatepass")).digest()
