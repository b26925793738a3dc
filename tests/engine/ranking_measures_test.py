"""Tests of bert_tf.engine.measures, against plain loops and figures worked out by hand."""

import math

import numpy as np
import pytest

from bert_tf.engine.measures import Ranking, mean_measures, ranked_groups


def ranking(*gains, left_out=()):
    gains = np.array(gains, float)
    return Ranking.of_gains(gains, np.array([*gains, *left_out], float))


def test_figures_worked_out_by_hand():
    found = ranking(0, 1, 0, 2, left_out=[1])
    assert found.reciprocal_rank(10) == 1 / 2 and found.reciprocal_rank(1) == 0
    assert found.recall(1) == 0 and found.recall(2) == 1 / 3 and found.recall(100) == 2 / 3
    assert found.average_precision() == pytest.approx((1 / 2 + 2 / 4) / 3)
    ideal = 2 + 1 / math.log2(3) + 1 / math.log2(4)
    assert found.ndcg(10) == pytest.approx((1 / math.log2(3) + 2 / math.log2(5)) / ideal)
    assert found.ndcg(2) == pytest.approx((1 / math.log2(3)) / (2 + 1 / math.log2(3)))
    assert ranking(3, 2, 1, 0, -1).ndcg(10) == 1  # a gain below 0 is as good as 0
    # Without a query all measures are 0.
    assert mean_measures([ranking(0)], recall_at=[3]) == {
        "mrr@10": 0.0, "ndcg@10": 0.0, "map": 0.0, "recall@3": 0.0
    }  # fmt: skip
    # Rows of a group need not stand together.
    groups = ["b", "a", "b", "a", "b"]
    gains, scores = np.array([0.0, 1, 1, 0, 2]), np.array([0.9, 0.1, 0.5, 0.7, 0.4])
    b, a = ranked_groups(groups, gains, scores)
    assert b.gains.tolist() == [0, 1, 2] and a.gains.tolist() == [0, 1]
    assert (b.num_relevant, a.num_relevant) == (2, 1)


def loops(gains, every, k):
    """Returns MRR, nDCG, MAP and recall of one query."""
    relevant = sorted((g for g in every if g > 0), reverse=True)
    first = next((1 / i for i, g in enumerate(gains[:k], 1) if g > 0), 0.0)
    dcg = sum(max(g, 0) / math.log2(i + 1) for i, g in enumerate(gains[:k], 1))
    best = sum(g / math.log2(i + 1) for i, g in enumerate(relevant[:k], 1))
    hits, precision = 0, 0.0
    for i, g in enumerate(gains, 1):
        if g > 0:
            hits += 1
            precision += hits / i
    recall = sum(g > 0 for g in gains[:k]) / len(relevant)
    return first, dcg / best, precision / len(relevant), recall


@pytest.mark.parametrize("seed", range(4))
def test_means_over_queries_are_those_of_plain_loops(seed):
    rng = np.random.default_rng(seed)
    rankings, expected = [ranking(0, 0)], []  # a query without anything relevant does not count
    for _ in range(9):
        gains, rest = rng.integers(-1, 3, 15), [1, 2]
        rankings.append(ranking(*gains, left_out=rest))
        expected.append(loops(list(gains), [*gains, *rest], 10))
    found = mean_measures(rankings, recall_at=[10])
    assert list(found) == ["mrr@10", "ndcg@10", "map", "recall@10"]
    np.testing.assert_allclose(list(found.values()), np.mean(expected, axis=0), rtol=1e-12)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_equal_scores_gain_nothing_by_their_order(order):
    gains, scores = np.array([1.0, 0.0, 0.0])[order], np.full(3, 0.25)
    (found,) = ranked_groups([7, 7, 7], gains, scores)
    assert found.gains.tolist() == [0, 0, 1]
