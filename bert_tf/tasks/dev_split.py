"""Holds out a share of the training examples for evaluation (--dev_fraction)."""

import collections
from collections.abc import Hashable, Mapping, Sequence

from absl import logging

from bert_tf.errors import UserError
from bert_tf.tasks.folds import digest
from bert_tf.tasks.task import ExampleSet, FineTuningTask


def read_sets(
    task: FineTuningTask, purposes: Sequence[str], given: Mapping[str, ExampleSet] | None = None
) -> dict[str, list[ExampleSet]]:
    """Returns the sets of examples for each purpose.

    With --dev_fraction the training set is split: its dev share serves the evaluation, in every run
    with the same data. A run that only trains also leaves that share out.

    Args:
        given: the sets by purpose, if they are in memory; None if the task reads them.

    Raises:
        UserError: --dev_fraction is given, but there is a dev set, or too few examples; or see
            `FineTuningTask.read_sets`.
    """
    fraction = getattr(task.settings, "dev_fraction", 0.0)
    read = task.read_sets if given is None else lambda purpose: [given[purpose]]
    if not fraction or "train" not in purposes and "eval" not in purposes:
        return {purpose: read(purpose) for purpose in purposes}
    dev_set = task.dev_set() if given is None else "validation_data" if "eval" in given else None
    if dev_set is not None:
        raise UserError(
            f"--dev_fraction={fraction} is for data without a dev set, but there is {dev_set}."
            " Leave --dev_fraction out to evaluate on that, or move it away"
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


def held_out(keys: Sequence[tuple[Hashable, str]], fraction: float) -> set[int]:
    """Returns the numbers of the examples to hold out, about `fraction` of them.

    Each class has its share (the shares are rounded by their largest remainders), but at least one
    example of it is left. Digests of the texts decide within a class, so the order of the examples
    does not matter, and all copies of a text are on one side.

    Args:
        keys: the class of each example, and its text.
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
