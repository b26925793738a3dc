"""How well a model ranks within groups, such as the passages of a query: MRR, nDCG and MAP."""

import collections
from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf.errors import UserError, quoted
from bert_tf.tasks.classification.examples import InputExample

METRICS = ("ndcg_at_10", "mrr_at_10", "map")
_DEPTH = 10  # how many of a group are looked at, of MRR and nDCG


def check_relevance(
    purpose: str, examples: Sequence[InputExample], labels: Sequence[str] | None
) -> None:
    """Raises UserError if none of the examples of a set is relevant, or a grade is negative."""
    gains = [x.label if labels is None else labels.index(x.label) for x in examples]
    if negative := [gain for gain in gains if gain < 0]:
        raise UserError(
            "With --group_column labels are grades of relevance, 0 for an irrelevant text and more"
            f" for relevant ones; the {purpose} set has {negative[0]:g}"
        )
    if not any(gains):
        relevant = f"label {quoted(labels[1])}" if labels else "label above 0"
        raise UserError(
            f"With --group_column a group of the {purpose} set must have a relevant text, with a"
            f" {relevant}; there is none in {len(gains)} examples"
        )


def evaluate(
    groups: Sequence[str], labels: np.ndarray, outputs: np.ndarray
) -> dict[str, float | int]:
    """Returns the means of `METRICS` over groups under their names in eval_results.txt.

    Groups without a relevant example are left out, as they have no right order.

    Args:
        groups: the group of each example.
        labels: int [examples], 1 if it is relevant; or float, its grade, in a regression.
        outputs: float [examples, 2], probabilities of the classes; or float [examples], numbers.
    """
    scores = outputs
    if outputs.ndim == 2:  # log odds: near 1, different probabilities round to the same number
        tiny = np.finfo(np.float32).tiny
        scores = np.log(np.maximum(outputs[:, 1], tiny)) - np.log(np.maximum(outputs[:, 0], tiny))
    members: dict[str, list[int]] = collections.defaultdict(list)
    for number, group in enumerate(groups):
        members[group].append(number)
    found = []
    for numbers in members.values():
        if labels[numbers].any():
            found.append(group_scores(labels[numbers].astype(np.float64), scores[numbers]))
    if len(found) < len(members):
        logging.warning(
            "%d of %d groups have no relevant example and are left out of %s",
            *(len(members) - len(found), len(members), ", ".join(METRICS)),
        )
    means = np.mean(found, axis=0) if found else np.zeros(len(METRICS))
    return {
        **{f"eval_{name}": float(mean) for name, mean in zip(METRICS, means, strict=True)},
        "eval_groups": len(found),
    }


def group_scores(gains: np.ndarray, scores: np.ndarray) -> tuple[float, float, float]:
    """Returns `METRICS` of one group with a relevant example, by scikit-learn.

    Equal scores: nDCG is the mean over their orders, MAP counts them as found together, and the
    reciprocal rank is that of the last of them. So a model that gives all the same score gets no
    credit for the order of the file.

    Args:
        gains: float [examples], 0 for an irrelevant example.
        scores: float [examples], the model's.
    """
    from sklearn import metrics

    relevant = gains > 0
    rank = int(np.sum(scores >= scores[relevant].max()))
    ndcg = metrics.ndcg_score([gains], [scores], k=_DEPTH) if len(gains) > 1 else 1.0
    precision = metrics.average_precision_score(relevant, scores)
    return float(ndcg), 1 / rank if rank <= _DEPTH else 0.0, float(precision)
