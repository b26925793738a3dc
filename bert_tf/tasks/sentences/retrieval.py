"""Evaluates vectors by a retrieval set: whether a query's nearest texts are the relevant ones."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_tf.engine.ranking_measures import Ranking, mean_measures

RECALL_AT = (1, 10, 100)


def evaluate(
    queries: np.ndarray,
    texts: Iterable[np.ndarray],
    relevant: Sequence[Mapping[int, float]],
    sizes: Sequence[int] = (),
) -> dict[str, float]:
    """Returns `eval_NAME` for recall, MRR@10 and nDCG@10 by the cosines of queries and texts.

    Args:
        queries: float32 [queries, H], vectors of length 1.
        texts: float32 [..., H], the vectors of some texts at a time. Only the nearest texts of each
            query are held in memory.
        relevant: of each query, how relevant a text is by its number.
        sizes: also compare this number of the vectors' first elements, as `eval_NAME_SIZE`.
    """
    nearest = {size: _Nearest(len(relevant)) for size in (None, *sizes)}
    done = 0
    for vectors in texts:
        gains = np.zeros([len(queries), len(vectors)], np.float32)
        for query, of_query in enumerate(relevant):
            for text, gain in of_query.items():
                if done <= text < done + len(vectors):
                    gains[query, text - done] = gain
        done += len(vectors)
        for size, found in nearest.items():
            found.add(gains, _truncated(queries, size) @ _truncated(vectors, size).T)
    results = {}
    every_gain = [np.array([*of_query.values()]) for of_query in relevant]
    for size, found in nearest.items():
        rankings = map(Ranking.of_gains, found.gains, every_gain)
        measures = mean_measures([*rankings], recall_at=RECALL_AT)
        del measures["map"]  # is that of the whole ranking
        end = "" if size is None else f"_{size}"
        results |= {f"eval_{name}{end}": value for name, value in measures.items()}
    return results


def _truncated(vectors: np.ndarray, size: int | None) -> np.ndarray:
    if size is None:
        return vectors
    vectors = vectors[:, :size]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class _Nearest:
    """The gains and cosines of the texts that are nearest to each query, the nearest first."""

    def __init__(self, num_queries: int):
        self.gains = np.zeros([num_queries, 0], np.float32)
        self._cosines = np.zeros([num_queries, 0], np.float32)

    def add(self, gains: np.ndarray, cosines: np.ndarray) -> None:
        """Adds texts, float32 [queries, texts] each. For ties see `ranked_groups`."""
        gains = np.concatenate([self.gains, gains], axis=1)
        cosines = np.concatenate([self._cosines, cosines], axis=1)
        order = np.lexsort((gains, -cosines), axis=1)[:, : max(RECALL_AT)]
        self.gains = np.take_along_axis(gains, order, axis=1)
        self._cosines = np.take_along_axis(cosines, order, axis=1)
