"""Divides examples into the folds of a cross-validation (--folds), by scikit-learn's splitters."""

import collections
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError, quoted


class FoldKey(NamedTuple):
    """What decides the fold of an example.

    labels: the class, or all labels of the example, sorted; every fold gets its share of each. None
        in a regression.
    text: all text of the example. Copies of a text are in one fold.
    group: examples of one group are in one fold. None: there are no groups.
    """

    labels: tuple[str, ...] | None
    text: str
    group: str | None = None


def divide(keys: Sequence[FoldKey], folds: int) -> list[list[int]]:
    """Returns the numbers of the examples of each fold, in order.

    scikit-learn divides the examples, sorted by digests of their texts, so that their order in the
    file does not matter: StratifiedKFold by the strata of `_strata`, or KFold in a regression. If
    there are groups, StratifiedGroupKFold or GroupKFold. Without groups, copies of a text are a
    group.

    Raises:
        UserError: there are too few examples, examples of a class, or groups.
    """
    counts = collections.Counter(label for key in keys for label in key.labels or ())
    _check_counts(counts, len(keys), folds)
    strata = _strata([key.labels for key in keys], counts, folds)
    order = sorted(range(len(keys)), key=lambda i: (strata[i], digest(keys[i].text), i))
    have_groups = keys[0].group is not None
    names = [key.group if have_groups else key.text.lower() for key in keys]
    numbers: dict[Any, int] = {}
    groups = [numbers.setdefault(names[i], len(numbers)) for i in order]
    if len(numbers) < folds:
        what = "groups" if have_groups else "different texts"
        raise UserError(
            f"--folds={folds} must be at most {len(numbers)}, the number of {what}: examples of one"
            " are never in two folds. Give fewer folds"
        )
    held_places = _split([strata[i] for i in order], groups, folds)
    found = [sorted(order[i] for i in held) for held in held_places]
    _check_folds(keys, names, found)
    return found


def _strata(
    labels: Sequence[tuple[str, ...] | None], counts: Mapping[str, int], folds: int
) -> list[int]:
    """Returns the number of each example's stratum: the examples with the same labels.

    Of strata with fewer examples than folds, all with the same rarest label are one. Strata with
    the same rarest label have consecutive numbers: the splitter balances neighbours together.
    """
    sizes = collections.Counter(labels)
    rarity = {label: i for i, label in enumerate(sorted(counts, key=lambda x: (counts[x], x)))}
    found = []
    for several in labels:
        rarest = min((rarity[label] for label in several or ()), default=len(rarity))
        found.append((rarest, several or () if sizes[several] >= folds else ()))
    numbers = {stratum: i for i, stratum in enumerate(sorted(set(found)))}
    return [numbers[stratum] for stratum in found]


def _split(strata: list[int], groups: list[int], folds: int) -> list[np.ndarray]:
    """Returns the places of the examples of each fold."""
    from sklearn import model_selection as splitters  # here, because it takes seconds

    places = np.zeros([len(strata), 1])
    are_single = len(set(groups)) == len(groups)
    known_groups = None if are_single else groups
    if len(set(strata)) == 1:
        splitter = splitters.KFold(folds) if are_single else splitters.GroupKFold(folds)
    elif are_single:
        splitter = splitters.StratifiedKFold(folds)
    else:
        splitter = splitters.StratifiedGroupKFold(folds)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")  # a small stratum
        return [held for _, held in splitter.split(places, strata, known_groups)]


def _check_counts(counts: Mapping[str, int], examples: int, folds: int) -> None:
    label, count = min(counts.items(), key=lambda item: item[1], default=(None, examples))
    if folds > count:
        of = "examples" if label is None else f"examples of the rarest class, {quoted(label)}"
        raise UserError(
            f"--folds={folds} must be at most {count}, the number of {of}: every fold needs one to"
            " evaluate. Give fewer folds, or more examples"
        )


def _check_folds(
    keys: Sequence[FoldKey], groups: Sequence[str | None], folds: Sequence[Sequence[int]]
) -> None:
    members = collections.defaultdict(set)
    for i, key in enumerate(keys):
        for label in key.labels or ():
            members[label].add(i)
    for number, held in enumerate(folds, 1):
        if not held:
            raise UserError(
                f"Fold {number} of --folds={len(folds)} would have no examples, because the groups"
                " differ too much in size. Give fewer folds"
            )
        in_fold = set(held)
        for label, there in members.items():
            if there <= in_fold:
                of_group = "are in one group" if keys[0].group is not None else "have the same text"
                one = len({groups[i] for i in there}) == 1
                raise UserError(
                    f"--folds={len(folds)} must leave examples of every class to train on; all"
                    f" {len(there)} examples of {quoted(label)}"
                    f" {of_group if one else 'are in one fold'}. Add others of it"
                )


def digest(text: str) -> bytes:
    """Returns what decides which part a text goes to; equal for texts that differ only in case."""
    return hashlib.sha256(text.lower().encode(errors="surrogatepass")).digest()
