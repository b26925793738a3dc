"""Metrics of an evaluation: for GLUE, for several labels, and for rankings within groups."""

from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from bert_tf.engine.measures import mean_measures, pearson, ranked_groups, spearman
from bert_tf.errors import UserError, quoted
from bert_tf.tasks.classification.examples import InputExample

THRESHOLD = 0.5  # if none can be found


def accuracy(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the share of correct predictions; labels and predictions are int `[examples]`."""
    return float(np.average(labels == predictions, weights=weights))


def f1(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Returns the F1 score of class 1 of two classes; arguments as for `accuracy`."""
    from sklearn import metrics

    score = metrics.f1_score(labels, predictions, zero_division=0.0, sample_weight=weights)
    return float(score)


def matthews_correlation(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the Matthews correlation coefficient; arguments as for `accuracy`."""
    from sklearn import metrics

    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0  # undefined; scikit-learn would warn
    return float(metrics.matthews_corrcoef(labels, predictions, sample_weight=weights))


# (labels, predictions, the examples' weights or None) -> the metric
Metric = Callable[[np.ndarray, np.ndarray, np.ndarray | None], float]
METRICS: dict[str, Metric] = {
    metric.__name__: metric for metric in (accuracy, f1, matthews_correlation, pearson, spearman)
}

# The GLUE score of a task with two metrics is their mean (https://gluebenchmark.com).
_AVERAGED = (("accuracy", "f1"), ("pearson", "spearman"))


def evaluate(
    metrics: Sequence[str],
    labels: np.ndarray,
    outputs: np.ndarray,
    weights: np.ndarray | None = None,
) -> dict[str, float]:
    """Returns metrics under their names in eval_results.txt, `eval_METRIC`; see `METRICS`.

    `eval_METRIC_and_METRIC` is the mean of two metrics that GLUE averages. An undefined metric,
    such as the correlation with a constant, is 0. `outputs` are logits or probabilities, float
    [examples, classes], or the predicted numbers, float [examples].
    """
    predictions = np.argmax(outputs, axis=-1) if outputs.ndim == 2 else outputs
    scores = {name: METRICS[name](labels, predictions, weights) for name in metrics}
    for pair in _AVERAGED:
        if set(pair) <= scores.keys():
            scores["_and_".join(pair)] = sum(scores[name] for name in pair) / 2
    return {f"eval_{name}": value for name, value in scores.items()}


def best_threshold(
    label_ids: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the threshold with the highest micro F1, halfway to the next lower probability.

    `label_ids` are int [texts, labels], 1 for each label that a text has. `probabilities`, float
    [texts, labels], are rounded first, so that rounding errors do not separate equal texts.
    """
    from sklearn import metrics

    if not label_ids.any():
        logging.warning(
            "No example to evaluate has a label, so the threshold cannot be found; %s is used",
            THRESHOLD,
        )
        return THRESHOLD
    each = None if weights is None else np.repeat(weights, label_ids.shape[1])
    rounded = probabilities.astype(np.float64).ravel().round(6)
    precision, recall, thresholds = metrics.precision_recall_curve(
        label_ids.ravel(), rounded, sample_weight=each
    )
    sums = np.maximum(precision + recall, np.finfo(np.float64).tiny)
    best = int(np.argmax((2 * precision * recall / sums)[: len(thresholds)]))
    lower = thresholds[best - 1] if best else 0.0
    middle = (thresholds[best] + lower) / 2
    return float(np.clip(middle, 1e-6, 1 - 1e-6))


def evaluate_labels(
    label_ids: np.ndarray,
    probabilities: np.ndarray,
    threshold: float,
    weights: np.ndarray | None = None,
) -> dict[str, float]:
    """Returns the metrics under their names in eval_results.txt; see `best_threshold`.

    `eval_micro_f1` counts all labels of all texts alike; `eval_macro_f1` is the mean of the labels'
    F1 scores, 0 for a label that occurs in neither labels nor predictions;
    `eval_average_precision` is the mean over the labels that some text has, and needs no threshold;
    `eval_accuracy` is the share of texts with exactly the correct labels.
    """
    from sklearn import metrics

    predicted = (probabilities >= threshold).astype(np.int64)
    there = label_ids.any(axis=0)
    precision = 0.0
    if there.any():
        precision = metrics.average_precision_score(
            label_ids[:, there], probabilities[:, there], sample_weight=weights
        )

    def f1(average: str) -> float:
        return metrics.f1_score(
            label_ids, predicted, average=average, zero_division=0.0, sample_weight=weights
        )

    right = (predicted == label_ids).all(axis=1)
    return {
        "eval_micro_f1": float(f1("micro")),
        "eval_macro_f1": float(f1("macro")),
        "eval_average_precision": float(precision),
        "eval_accuracy": float(np.average(right, weights=weights)),
    }


def check_relevance(
    purpose: str, examples: Sequence[InputExample], labels: Sequence[str] | None
) -> None:
    """Raises UserError if a set has no relevant example, or a negative grade."""
    gains = [x.label if labels is None else labels.index(x.label) for x in examples]
    if negative := [gain for gain in gains if gain < 0]:
        raise UserError(
            "With --group_column labels are grades of relevance, 0 for an irrelevant text and more"
            f" for relevant ones; the {purpose} set has {negative[0]:g}"
        )
    if not any(gains):
        relevant = f"label {quoted(labels[1])}" if labels else "label above 0"
        raise UserError(
            f"With --group_column at least one group of the {purpose} set must have a relevant"
            f" text, with a {relevant}; there is none in {len(gains)} examples"
        )


def evaluate_groups(
    groups: Sequence[str], labels: np.ndarray, outputs: np.ndarray
) -> dict[str, float | int]:
    """Returns the means over groups of MRR@10, nDCG@10 and average precision, `eval_NAME`.

    Groups without a relevant example are left out, because they have no correct order. `labels` are
    int [examples], 1 if relevant, and `outputs` float [examples, 2], probabilities of the classes;
    or both are float [examples]: grades and predicted numbers.
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
