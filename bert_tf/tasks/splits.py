"""Splits off a dev set (--dev_fraction), or makes the folds of a cross-validation (--folds)."""

import collections
import hashlib
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.errors import UserError, quoted
from bert_tf.tasks.task import ExampleSet, FineTuningTask, FoldKey


def divide(keys: Sequence[FoldKey], folds: int) -> list[list[int]]:
    """Returns the numbers of the examples of each fold, in order.

    scikit-learn's splitters divide the examples: StratifiedKFold by `_strata`, KFold in a
    regression, and their Group variants if there are groups or copies of a text. The examples are
    first sorted by digests of their texts, so that their order in the file does not matter.
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
            f"--folds={folds} must be at most {len(numbers)}, the number of {what}: each belongs"
            " to one fold. Give fewer folds"
        )
    held_places = _split([strata[i] for i in order], groups, folds)
    found = [sorted(order[i] for i in held) for held in held_places]
    _check_folds(keys, names, found)
    return found


def _strata(
    labels: Sequence[tuple[str, ...] | None], counts: Mapping[str, int], folds: int
) -> list[int]:
    # Examples of a stratum have the same labels. Strata with fewer examples than folds and the same
    # rarest label are merged. Strata with the same rarest label have consecutive numbers, because
    # the splitter balances neighbours together.
    sizes = collections.Counter(labels)
    rarity = {label: i for i, label in enumerate(sorted(counts, key=lambda x: (counts[x], x)))}
    found = []
    for several in labels:
        rarest = min((rarity[label] for label in several or ()), default=len(rarity))
        found.append((rarest, several or () if sizes[several] >= folds else ()))
    numbers = {stratum: i for i, stratum in enumerate(sorted(set(found)))}
    return [numbers[stratum] for stratum in found]


def _split(strata: list[int], groups: list[int], folds: int) -> list[np.ndarray]:
    from sklearn import model_selection as splitters  # imported here, because it takes seconds

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
                    f" {of_group if one else 'are in one fold'}. Add other examples of that class"
                )


def digest(text: str) -> bytes:
    """Returns a digest by which texts are divided; it ignores case."""
    return hashlib.sha256(text.lower().encode(errors="surrogatepass")).digest()


def read_sets(
    task: FineTuningTask, purposes: Sequence[str], given: Mapping[str, ExampleSet] | None = None
) -> dict[str, list[ExampleSet]]:
    """Returns the sets of examples for each purpose, from `given` or the task's files.

    --dev_fraction splits the training set in the same way in every run with the same data: a run
    that only trains also leaves the dev part out.
    """
    fraction = getattr(task.settings, "dev_fraction", 0.0)
    read = task.read_sets if given is None else lambda purpose: [given[purpose]]
    if not fraction or "train" not in purposes and "eval" not in purposes:
        return {purpose: _read(task, purpose, purposes, read) for purpose in purposes}
    dev_set = task.dev_set() if given is None else "validation_data" if "eval" in given else None
    if dev_set is not None:
        raise UserError(
            f"--dev_fraction={fraction} is for data without a dev set, but there is {dev_set}."
            " Leave --dev_fraction out to evaluate on that set, or move the set away"
        )
    (whole,) = read("train")
    keys = [task.key(example) for example in whole.examples]
    held = held_out(keys, fraction)
    if not held:
        raise UserError(
            f"--dev_fraction={fraction} must hold out at least one of the {len(keys)} training"
            " examples and leave one of each class; give more examples, or a dev set"
        )
    logging.info("--dev_fraction: %d of %d examples are the dev set", len(held), len(keys))
    parts = {"train": [i for i in range(len(keys)) if i not in held], "eval": sorted(held)}
    return {
        purpose: [task.subset(whole, purpose, parts[purpose])]
        if purpose in parts
        else read(purpose)
        for purpose in purposes
    }


def _read(
    task: FineTuningTask,
    purpose: str,
    purposes: Sequence[str],
    read: Callable[[str], list[ExampleSet]],
) -> list[ExampleSet]:
    try:
        return read(purpose)
    except UserError as error:
        can_split = purpose == "eval" and "train" in purposes
        if can_split and hasattr(task.settings, "dev_fraction") and task.dev_set() is None:
            remedy = ". Without one, --dev_fraction=0.1 holds out a part of the training examples"
            raise UserError(f"{error}{remedy}") from error
        raise


def held_out(keys: Sequence[tuple[Hashable, str]], fraction: float) -> set[int]:
    """Returns the numbers of the examples to hold out, about `fraction` of them.

    Each class has its share (rounded by largest remainder) and keeps at least one example for
    training. Digests of the texts decide within a class, so the order of the examples does not
    matter, and copies of a text stay together. `keys` are the class and the text of each example.
    """
    classes: dict[Hashable, list[tuple[bytes, int]]] = collections.defaultdict(list)
    for number, (label, text) in enumerate(keys):
        classes[label].append((digest(text), number))
    shares = {label: fraction * len(found) for label, found in classes.items()}
    counts = {label: int(share) for label, share in shares.items()}
    rest = max(1, round(fraction * len(keys))) - sum(counts.values())
    by_remainder = sorted(shares, key=lambda x: (counts[x] - shares[x], -len(classes[x]), str(x)))
    for label in by_remainder[: max(rest, 0)]:
        counts[label] += 1
    held: set[int] = set()
    for label, found in classes.items():
        found.sort()
        digests = [key for key, _ in found]
        count = counts[label]
        while 0 < count < len(found) and digests[count] == digests[count - 1]:
            count += 1
        if count == len(found):  # as many as possible without the last text and its copies
            count = digests.index(digests[-1])
        held.update(number for _, number in found[:count])
    return held
