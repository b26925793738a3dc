"""How well a model ranks within groups, such as the passages of a query: MRR, nDCG and MAP."""

from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf.engine.ranking_measures import mean_measures, ranked_groups
from bert_tf.errors import UserError, quoted
from bert_tf.tasks.classification.examples import InputExample


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
    """Returns the means over groups of MRR@10, nDCG@10 and average precision, `eval_NAME`.

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
    rankings = ranked_groups(groups, labels.astype(np.float64), scores)
    count = sum(ranking.num_relevant > 0 for ranking in rankings)
    if count < len(rankings):
        logging.warning(
            "%d of %d groups have no relevant example, and are left out of the means over groups",
            *(len(rankings) - count, len(rankings)),
        )
    means = mean_measures(rankings)
    return {**{f"eval_{name}": mean for name, mean in means.items()}, "eval_groups": count}
