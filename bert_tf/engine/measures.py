"""Measures of predictions: correlations, and rankings as trec_eval measures them."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


def pearson(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the Pearson correlation of float `[examples]`; 0 if it is undefined.

    An integer weight counts as that many repetitions of the example.
    """
    weights = np.ones(len(labels)) if weights is None else weights
    counted = weights > 0  # an example of weight 0 must not hide that the rest is constant
    labels, predictions, weights = labels[counted], predictions[counted], weights[counted]
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    covariances = np.cov(labels, predictions, aweights=weights, ddof=0)
    value = covariances[0, 1] / np.sqrt(covariances[0, 0] * covariances[1, 1])
    return float(np.nan_to_num(np.clip(value, -1.0, 1.0)))


def spearman(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the Spearman rank correlation; see `pearson`."""
    return pearson(ranks(labels, weights), ranks(predictions, weights), weights)


def ranks(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Returns ranks minus 1/2, with each value repeated `weights` times; ties share a rank."""
    _, equal = np.unique(values, return_inverse=True)
    totals = np.bincount(equal, weights)
    found = np.cumsum(totals) - totals / 2
    return np.where(np.isnan(values), np.nan, found[equal])


class Ranking(NamedTuple):
    """The candidates of one query, best first.

    gains: float [candidates], the relevance of each; 0 is not relevant.
    num_relevant: number of relevant candidates, including unranked ones.
    ideal: float [num_relevant], the gains of the best possible ranking, in descending order.
    """

    gains: np.ndarray
    num_relevant: int
    ideal: np.ndarray

    @classmethod
    def of_gains(cls, gains: np.ndarray, every_gain: np.ndarray) -> "Ranking":
        """Returns the ranking of `gains`, best first; `every_gain` includes unranked candidates."""
        relevant = np.sort(every_gain[every_gain > 0])[::-1]
        return cls(np.maximum(gains, 0.0), len(relevant), relevant)

    def recall(self, k: int) -> float:
        return np.count_nonzero(self.gains[:k]) / self.num_relevant

    def reciprocal_rank(self, k: int) -> float:
        """Returns 1 / the rank of the first relevant candidate; 0 if that rank is beyond k."""
        found = np.flatnonzero(self.gains[:k])
        return 1.0 / (found[0] + 1.0) if len(found) else 0.0

    def ndcg(self, k: int) -> float:
        """Returns the gains of the first k, discounted by log2(1 + rank), divided by the ideal."""
        return _discounted(self.gains[:k]) / _discounted(self.ideal[:k])

    def average_precision(self) -> float:
        """Returns the mean precision at the relevant candidates' ranks; 0 for unranked ones."""
        ranks = np.flatnonzero(self.gains) + 1.0
        return float(np.sum(np.arange(1, len(ranks) + 1) / ranks)) / self.num_relevant


def _discounted(gains: np.ndarray) -> float:
    return float(np.sum(gains / np.log2(np.arange(len(gains)) + 2.0)))


def mean_measures(rankings: Sequence[Ranking], recall_at: Sequence[int] = ()) -> dict[str, float]:
    """Returns mrr@10, ndcg@10, map and recall@K, as means over queries with relevant candidates."""
    counted = [ranking for ranking in rankings if ranking.num_relevant]
    each = {
        "mrr@10": [ranking.reciprocal_rank(10) for ranking in counted],
        "ndcg@10": [ranking.ndcg(10) for ranking in counted],
        "map": [ranking.average_precision() for ranking in counted],
    }
    each |= {f"recall@{n}": [ranking.recall(n) for ranking in counted] for n in recall_at}
    return {name: float(np.mean(values)) if values else 0.0 for name, values in each.items()}


def ranked_groups(
    groups: Sequence[Hashable], gains: np.ndarray, scores: np.ndarray
) -> list[Ranking]:
    """Returns the ranking of each group's rows by `scores`, float [rows], the highest first.

    Ties are broken against the model: the row with the lower gain, float [rows], comes first. So a
    model that gives every row the same score gains nothing from the order of the rows.
    """
    members: Mapping[Hashable, list[int]] = {group: [] for group in groups}
    for row, group in enumerate(groups):
        members[group].append(row)
    rankings = []
    for rows in members.values():
        order = np.lexsort((gains[rows], -scores[rows]))
        rankings.append(Ranking.of_gains(gains[rows][order], gains[rows]))
    return rankings
