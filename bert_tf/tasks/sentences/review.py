"""Tables of pairs of texts with their similarities."""

import os

import numpy as np

from bert_tf.runs.results import review, tables
from bert_tf.runs.results.kept_rows import KeptRows


def write_review(output_dir: str, rows: KeptRows, scores: np.ndarray, cosines: np.ndarray) -> None:
    """Writes eval_predictions.tsv, and the same with the worst pairs first as errors.tsv.

    Scores and cosines have different scales, so their ranks are compared, as the Spearman
    correlation does: `rank_difference` is 0.5 if the cosine puts a pair before half of the pairs
    that are more similar by their scores, and negative if it puts it too far behind.

    Args:
        scores: of the dev file, float `[pairs]`.
        cosines: float `[pairs]`.
    """
    from scipy import stats  # here, because that takes a second

    ranks = stats.rankdata(cosines) - stats.rankdata(scores)
    differences = (ranks / len(ranks)).astype(np.float32)
    found = {"prediction": list(cosines), "rank_difference": list(differences)}
    order = review.surest_first(differences != 0, np.abs(differences))
    for name, numbers in ((review.EVALUATED, None), ("errors", order)):
        tables.write_predictions(os.path.join(output_dir, f"{name}.tsv"), rows, found, numbers)
