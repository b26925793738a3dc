"""Reports of an evaluation: scores of each class, confusion matrix, calibration, temperature.

`str(report)` is `eval_report.txt`; `report.values` is `eval_report.json`. scikit-learn is imported
where it is used, because the import takes a second, and training does not need it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.engine.measures import pearson, spearman

CALIBRATION_BINS = 15  # as in "On Calibration of Modern Neural Networks", arXiv:1706.04599
# Bounds of a temperature: with few examples, or only correct ones, the best may be 0 or infinite.
TEMPERATURES = (0.05, 20.0)
_MOST_COLUMNS = 20  # with more classes, no confusion matrix is printed
_MOST_CONFUSIONS = 20  # lines printed instead, one for each pair of classes
_LONGEST_NAME = 40  # characters

_SCORES = ("precision", "recall", "f1")


@dataclasses.dataclass(frozen=True, repr=False)
class Report:
    """The report of an evaluation: a table if printed; `report["accuracy"]` is one value."""

    values: dict[str, Any]
    text: str

    def __repr__(self) -> str:
        return self.text

    def with_values(self, **values: float) -> "Report":
        """Returns the report with these numbers added at the end, one per line."""
        return Report(self.values | values, f"{self.text}\n{_value_lines(values)}")

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


class Evaluation(dict[str, float]):
    """The metrics of an evaluation by name, such as `evaluation["accuracy"]`.

    `print` shows a line for each metric, and the report.

    Attributes:
        report: the numbers of the report by name; for a classification `classes`, the scores of
            each class, and `confusion_matrix`. {} if the task does not make a report.
    """

    def __init__(
        self, metrics: Mapping[str, float], report: Mapping[str, Any] | None = None, text: str = ""
    ):
        super().__init__(metrics)
        self.report = dict(report or {})
        self._text = text

    def __repr__(self) -> str:
        lines = [f"{name}: {value:.4f}" for name, value in self.items()]
        return "\n".join([*lines, *(["", self._text] if self._text else [])])


def class_report(
    labels: Sequence[str],
    y_true: np.ndarray,
    probabilities: np.ndarray,
    threshold: float | np.ndarray = 0.5,
) -> Report:
    """Returns the report of a classification.

    Args:
        labels: names of the classes, in the order of the probabilities.
        y_true: the correct classes, int `[examples]`; if an example can have several labels,
            `[examples, labels]`, 1 for each label that it has.
        probabilities: float `[examples, classes]`; the highest is the prediction.
        threshold: with several labels, the least probability of a predicted label: one number, or
            one for each label.
    """
    if y_true.ndim == 2:
        return _label_report(labels, y_true, probabilities, threshold)
    from sklearn import metrics

    predicted = np.argmax(probabilities, axis=1)
    correct = predicted == y_true
    matrix = metrics.confusion_matrix(y_true, predicted, labels=range(len(labels)))
    scores, rows = _score_rows(labels, y_true, predicted, ("macro", "weighted"))
    values = {
        "examples": len(y_true),
        "accuracy": float(np.mean(correct)),
        "calibration_error": calibration_error(probabilities.max(axis=1), correct),
        **scores,
        "confusion_matrix": matrix.tolist(),
    }
    return Report(values, "\n\n".join([rows, _summary(values), _confusions(labels, matrix)]) + "\n")


def _label_report(
    labels: Sequence[str], y_true: np.ndarray, probabilities: np.ndarray, threshold: Any
) -> Report:
    from sklearn import metrics

    predicted = (probabilities >= threshold).astype(int)
    matrices = metrics.multilabel_confusion_matrix(y_true, predicted)
    scores, rows = _score_rows(labels, y_true, predicted, ("micro", "macro", "weighted", "samples"))
    for i, label in enumerate(labels):
        # Undefined for an unused label: scikit-learn would warn.
        found = y_true[:, i].any()
        average = metrics.average_precision_score(y_true[:, i], probabilities[:, i]) if found else 0
        (tn, fp), (fn, tp) = matrices[i].tolist()
        counts = {"true_positives": tp, "false_positives": fp, "false_negatives": fn}
        counts["true_negatives"] = tn
        scores["classes"][label] |= {"average_precision": float(average), **counts}
    values = {
        "examples": len(y_true),
        "accuracy": float(np.mean((predicted == y_true).all(axis=1))),
        "calibration_error": calibration_error(probabilities.ravel(), y_true.ravel()),
        **scores,
    }
    names = ("average_precision", "true_positives", "false_positives", "false_negatives")
    details = {name: [scores["classes"][name][key] for key in names] for name in labels}
    header = [name.replace("_", " ") for name in names]
    text = "\n\n".join([rows, _summary(values, "all labels right"), table(header, details)])
    return Report(values, f"{text}\n")


def _score_rows(
    labels: Sequence[str], y_true: np.ndarray, predicted: np.ndarray, averages: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """Returns the scores of `classes` and each average, by name, and a table of them."""
    from sklearn import metrics

    def scores(average: str | None) -> np.ndarray:
        found = metrics.precision_recall_fscore_support(
            y_true, predicted, labels=range(len(labels)), average=average, zero_division=0.0
        )
        return np.array(found[:3]).T

    support = y_true.sum(axis=0) if y_true.ndim == 2 else np.bincount(y_true, None, len(labels))
    classes = {
        label: {**dict(zip(_SCORES, row.tolist(), strict=True)), "support": int(count)}
        for label, row, count in zip(labels, scores(None), support, strict=True)
    }
    means = {name: dict(zip(_SCORES, scores(name).tolist(), strict=True)) for name in averages}
    lines: dict[str, list[Any]] = {label: list(row.values()) for label, row in classes.items()}
    rows = table([*_SCORES, "support"], lines)
    total = int(support.sum())
    mean_lines = {f"{name} average": [*row.values(), total] for name, row in means.items()}
    width = max(map(len, map(_shortened, lines)))
    rows += "\n\n" + table([*_SCORES, "support"], mean_lines, width)
    return {"classes": classes, **means}, rows


def _summary(values: Mapping[str, Any], what: str = "accuracy") -> str:
    return (
        f"{what}: {values['accuracy']:.4f} of {values['examples']} examples\n"
        f"calibration error: {values['calibration_error']:.4f} ({CALIBRATION_BINS} bins)"
    )


def _confusions(labels: Sequence[str], matrix: np.ndarray) -> str:
    if len(labels) <= _MOST_COLUMNS:
        rows = {label: row.tolist() for label, row in zip(labels, matrix, strict=True)}
        title = "confusion matrix: a row for each class, a column for each prediction"
        return f"{title}\n{table(list(labels), rows)}"
    wrong = matrix * (1 - np.eye(len(labels), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSIONS]
    pairs = np.stack(np.unravel_index(order, matrix.shape), axis=1)
    lines = [
        f"{labels[i]} predicted as {labels[j]}: {wrong[i, j]}" for i, j in pairs if wrong[i, j]
    ]
    return "\n".join(["most frequent confusions", *(lines or ["none"])])


def calibration_error(probabilities: np.ndarray, correct: np.ndarray) -> float:
    """Returns the expected calibration error, 0 for probabilities that are right on average.

    Predictions are put into 15 bins of equal width by their probability. In each bin, the mean
    probability is compared with the share of correct predictions; the result is the mean of the
    absolute differences, weighted by the bins' sizes (arXiv:1706.04599, equation 3).
    """
    bins = np.minimum((probabilities * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, probabilities.astype(np.float64) - correct, CALIBRATION_BINS)
    return float(np.abs(gaps).sum() / max(len(bins), 1))


def number_report(y_true: np.ndarray, predictions: np.ndarray) -> Report:
    """Returns the report of a regression; both arguments are float `[examples]`."""
    differences = predictions.astype(np.float64) - y_true
    values = {
        "examples": len(differences),
        "mean_absolute_error": float(np.mean(np.abs(differences))),
        "mean_squared_error": float(np.mean(differences**2)),
        "mean_difference": float(np.mean(differences)),
        "largest_difference": float(np.max(np.abs(differences))),
        "pearson": pearson(y_true, predictions),
        "spearman": spearman(y_true, predictions),
    }
    return Report(values, _value_lines(values))


def span_report(counts: Mapping[str, Sequence[int]], accuracy: float) -> Report:
    """Returns the report of entities; `counts` has type -> (correct, predicted, true) entities."""
    totals = np.sum([[0, 0, 0], *counts.values()], axis=0).tolist()
    types = {name: _span_scores(*row) for name, row in counts.items()}
    micro = _span_scores(*totals)
    values = {"accuracy": accuracy, "types": types, "micro": micro}
    rows = {name: list(row.values()) for name, row in (*types.items(), ("all types", micro))}
    text = f"{table([*_SCORES, 'support'], rows)}\n\naccuracy of the words: {accuracy:.4f}\n"
    return Report(values, text)


def _span_scores(right: int, predicted: int, relevant: int) -> dict[str, float | int]:
    precision = right / predicted if predicted else 0.0
    recall = right / relevant if relevant else 0.0
    f1 = 2 * right / (predicted + relevant) if right else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "support": relevant}


def mean_report(groups: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> Report:
    """Returns mean scores; `groups` has grouping -> group -> the scores of each example."""
    values: dict[str, Any] = {}
    parts = []
    for grouping, members in groups.items():
        means = {
            name: {key: float(np.mean([one[key] for one in scores])) for key in scores[0]}
            | {"examples": len(scores)}
            for name, scores in members.items()
            if scores
        }
        values[grouping] = means
        if means:
            header = list(next(iter(means.values())))
            rows = {name: list(row.values()) for name, row in means.items()}
            parts.append(f"{grouping.replace('_', ' ')}\n{table(header, rows)}")
    return Report(values, "\n\n".join(parts) + "\n")


def _value_lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{name.replace('_', ' ')}: {_cell(value)}\n" for name, value in values.items())


def table(header: Sequence[str], rows: Mapping[str, Sequence[Any]], least: int = 0) -> str:
    """Returns lines of aligned columns: the name of each row, and its values under `header`."""
    header = [_shortened(name) for name in header]
    cells = {name: [_cell(value) for value in row] for name, row in rows.items()}
    first = max([least, *(len(_shortened(name)) for name in cells)])
    widths = [
        max(len(name), *(len(row[i]) for row in cells.values())) for i, name in enumerate(header)
    ]
    lines = [("", header), *cells.items()]
    return "\n".join(
        "  ".join([_shortened(name).ljust(first), *map(str.rjust, row, widths)]).rstrip()
        for name, row in lines
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A temperature fitted on examples, and their calibration error without and with it.

    temperature: above 1 if the model was too certain.
    before, after: the calibration error at temperature 1 and at `temperature`.
    """

    temperature: float
    before: float
    after: float


def calibrate(
    label_ids: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> Calibration:
    """Returns the temperature with the least negative log-likelihood of the labels.

    `label_ids` are int `[examples]`, `probabilities` float `[examples, classes]`; `weights`, float
    `[examples]`, weight the examples in the likelihood.
    """
    from scipy import optimize  # here, because the import takes a second

    # Logits up to a constant for each example, which a softmax ignores.
    tiny = np.finfo(np.float32).tiny
    logits = np.log(np.maximum(probabilities.astype(np.float64), tiny))
    right = np.arange(len(label_ids)), label_ids

    def loss(log_temperature: float) -> float:
        likelihoods = _log_softmax(logits / np.exp(log_temperature))[right]
        return -float(np.average(likelihoods, weights=weights))

    low, high = np.log(TEMPERATURES)
    found = optimize.minimize_scalar(loss, bounds=(low, high), method="bounded")
    temperature = float(np.exp(found.x))
    if not TEMPERATURES[0] * 1.01 < temperature < TEMPERATURES[1] / 1.01:
        logging.warning(
            "--temperature_scaling: the temperature is at its bound, %.3g: the dev set has too few"
            " examples, or only correct or only wrong predictions. Do not trust the probabilities;"
            " take a larger dev set",
            temperature,
        )
    correct = np.argmax(logits, axis=1) == label_ids
    highest = (np.exp(_log_softmax(logits / t)).max(axis=1) for t in (1.0, temperature))
    errors = [calibration_error(x, correct) for x in highest]
    logging.info(
        "Temperature %.4g, from %d examples: calibration error %.4f, before %.4f; loss %.4f, before"
        " %.4f",
        *(temperature, len(label_ids), *errors[::-1], found.fun, loss(0.0)),
    )
    return Calibration(temperature, *errors)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
