"""Precision, recall and F1 of entities, as defined by the CoNLL shared tasks.

An entity is correct if its first word, last word and type are correct. The scores equal the output
of the shared tasks' script `conlleval`. Tags are IOB1 or IOB2; `entities` also reads other schemes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

# The letters before the types, for the start, inside and end of an entity, and for a single word.
_SCHEMES = ("BILU", "BIES", "BMES", "BMEW")  # BILOU, IOBES (BIOES), and two of Chinese corpora
_STARTS, _ENDS = frozenset("BUSW"), frozenset("LEUSW")


def scheme_tags(labels: Sequence[str]) -> list[str]:
    """Converts the classes of a tagger to tags that `entities` reads.

    Unless all classes except O are tags of one scheme, a class that does not begin with `B-` or
    `I-` is taken as an entity type and becomes `I-CLASS`.
    """
    prefixes = {label[:2] for label in labels if label != "O"}
    if any(prefixes <= {f"{letter}-" for letter in scheme} for scheme in _SCHEMES):
        return list(labels)
    return [x if x == "O" or x.startswith(("B-", "I-")) else f"I-{x}" for x in labels]


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Returns the entities of a sentence as (type, first word, last word + 1), in order.

    An entity begins at `B-TYPE`, or at an `I-TYPE` after `O`, another type or the start of the
    sentence. It continues while `I-` of the same type follows. In BILOU and IOBES, `U-` and `S-`
    are an entity of one word, and `L-` and `E-` continue an entity like `I-` and end it.
    """
    found = []
    first, open_type, ended = 0, None, False
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, entity_type = tag.partition("-")
        continues = entity_type == open_type and not ended and prefix not in _STARTS
        if open_type is not None and not continues:
            found.append((open_type, first, i))
        if not continues:
            first, open_type = i, None if prefix == "O" else entity_type
        ended = prefix in _ENDS
    return found


def bioes_tags(tags: Sequence[str]) -> list[str]:
    """Converts the tags of a sentence to BIOES: E- ends an entity, S- is an entity of one word."""
    found = ["O"] * len(tags)
    for entity_type, first, end in entities(tags):
        found[first:end] = [f"I-{entity_type}"] * (end - first)
        found[first], found[end - 1] = f"B-{entity_type}", f"E-{entity_type}"
        if end - first == 1:
            found[first] = f"S-{entity_type}"
    return found


def entity_metrics(
    gold: Iterable[Sequence[str]],
    predicted: Iterable[Sequence[str]],
    weights: Iterable[float] | None = None,
) -> dict[str, float]:
    """Returns `precision`, `recall` and `f1` of all entities and of each type, and `accuracy`.

    Names for a type end in `_TYPE`, for each type in the gold (correct) or predicted tags.
    `accuracy` is the share of words with the correct tag. All values are between 0 and 1, and 0 if
    the denominator is 0. `weights` says how much each sentence counts; None for 1.
    """
    counts, accuracy = entity_counts(gold, predicted, weights)
    results = {"accuracy": accuracy}
    totals = (sum(column) for column in zip((0, 0, 0), *counts.values(), strict=True))
    numbers = {"": tuple(totals)}
    numbers |= {f"_{entity_type}": counts[entity_type] for entity_type in counts}
    for suffix, (true_positives, positives, relevant) in numbers.items():
        precision, recall = _share(true_positives, positives), _share(true_positives, relevant)
        results[f"precision{suffix}"] = precision
        results[f"recall{suffix}"] = recall
        results[f"f1{suffix}"] = _share(2 * precision * recall, precision + recall)
    return results


def entity_counts(
    gold: Iterable[Sequence[str]],
    predicted: Iterable[Sequence[str]],
    weights: Iterable[float] | None = None,
) -> tuple[dict[str, tuple[float, float, float]], float]:
    """Returns each type's entity counts, and the share of words with the correct tag.

    Types are sorted; counts are (correct, predicted, true). For `weights` see `entity_metrics`.
    """
    right, in_gold, in_predicted = Counter(), Counter(), Counter()
    words = right_words = 0
    gold = list(gold)
    weights = [1] * len(gold) if weights is None else weights
    for gold_tags, predicted_tags, weight in zip(gold, predicted, weights, strict=True):
        wanted, found = set(entities(gold_tags)), set(entities(predicted_tags))
        for counts, spans in (right, wanted & found), (in_gold, wanted), (in_predicted, found):
            for entity_type, _, _ in spans:
                counts[entity_type] += weight
        words += weight * len(gold_tags)
        same = sum(a == b for a, b in zip(gold_tags, predicted_tags, strict=True))
        right_words += weight * same
    counts = {
        entity_type: tuple(n[entity_type] for n in (right, in_predicted, in_gold))
        for entity_type in sorted(in_gold | in_predicted)
    }
    return counts, _share(right_words, words)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
