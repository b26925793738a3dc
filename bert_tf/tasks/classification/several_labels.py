"""Several labels for each text: labels in a cell, the threshold, metrics.

scikit-learn is imported where it is used: that takes seconds, and training does not need it.
"""

from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf.datasets.tables import NumberedRow, column_numbers, place_of
from bert_tf.errors import UserError, listed, quoted

SEPARATOR = "|"
THRESHOLD = 0.5
METRICS = ("micro_f1", "macro_f1", "average_precision", "accuracy")
BEST_METRIC = "eval_micro_f1"
_OTHER_SEPARATORS = ",;|/"  # which users may have meant


def split_labels(cell: str, separator: str, place: str, remedy: str) -> list[str]:
    """Returns the labels in a cell, without white space around them; [] for an empty cell.

    Raises:
        UserError: a label is empty, or there twice. The message names `place` (file and line) and
            `remedy` (how to correct it).
    """
    names = [name.strip() for name in cell.split(separator)] if cell.strip() else []
    if "" in names:
        raise UserError(
            f"{place}: {quoted(cell)} has an empty label; --label_separator={separator} must stand"
            f" between two labels, and a cell without labels is empty. {_sentence(remedy)}"
        )
    if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise UserError(
            f"{place}: {quoted(cell)} has the label {quoted(twice)} twice. {_sentence(remedy)}"
        )
    return names


def parse_labels(
    cell: str, labels: Sequence[str], separator: str, place: str, remedy: str
) -> tuple[str, ...]:
    """Returns the labels in a cell, in the order of `labels`; errors: see `split_labels`.

    Raises:
        UserError: a label is not among `labels`.
    """
    names = split_labels(cell, separator, place, remedy)
    for name in names:
        if name not in labels:
            hint = _separator_in(name, labels)
            raise UserError(
                f"{place}: label {quoted(name)} must be one of {listed(labels)}; "
                + (f"give --label_separator='{hint}', or {remedy}" if hint else remedy)
            )
    return tuple(label for label in labels if label in names)


def _separator_in(name: str, labels: Sequence[str]) -> str | None:
    """Returns another separator that splits a name into known labels, if there is one."""
    for sign in _OTHER_SEPARATORS:
        parts = [part.strip() for part in name.split(sign)]
        if len(parts) > 1 and set(parts) <= set(labels):
            return sign
    return None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def join_columns(
    rows: Sequence[NumberedRow], path: str, labels: Sequence[str], separator: str
) -> list[NumberedRow]:
    """Returns the rows of a table with one more column at the end, which has all labels of a row.

    Args:
        rows: the rows of the file `path`, from `read_table`, with the header.
        path: for messages.
        labels: the columns that have 1 for a row with the label of that name, else 0.
        separator: to be put between the labels.

    Raises:
        UserError: there is no such column, or a cell has something else.
    """
    numbers = {
        label: column_numbers(rows, path, True, {"label_columns": label}, "--multi_label")
        for label in labels
    }
    joined = [(rows[0][0], [*rows[0][1], ""])]
    for i, row in rows[1:]:
        found = []
        for label, number in numbers.items() if row else ():
            cell = row[number["label_columns"]].strip()
            if cell not in ("0", "1"):
                raise UserError(
                    f"{place_of(path, i)}: the column {quoted(label)} of --label_columns must have"
                    f" 1 for a text with that label, else 0; it has {quoted(cell)}. Correct or"
                    " delete the line"
                )
            found += [label] if cell == "1" else []
        joined.append((i, [*row, separator.join(found)] if row else row))
    return joined


def as_labels(label: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the labels of an example: one name, several, or none."""
    if label is None:
        return ()
    return (label,) if isinstance(label, str) else tuple(label)


def best_threshold(
    label_ids: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the threshold with the highest micro F1, halfway to the next lower probability.

    Probabilities are rounded, so that texts which differ by an error of rounding are not divided.

    Args:
        label_ids: int `[texts, labels]`, 1 for each label that a text has.
        probabilities: float `[texts, labels]`.
        weights: float `[texts]`, how much each text counts; None for 1.
    """
    from sklearn import metrics

    if not label_ids.any():
        logging.warning(
            "No example to evaluate has a label, so the threshold cannot be found; it stays %s",
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


def evaluate(
    label_ids: np.ndarray,
    probabilities: np.ndarray,
    threshold: float,
    weights: np.ndarray | None = None,
) -> dict[str, float]:
    """Returns the metrics under their names in eval_results.txt.

    `eval_micro_f1` counts all labels of all texts alike; `eval_macro_f1` is the mean of the labels'
    F1 scores, 0 for a label that occurs in neither labels nor predictions;
    `eval_average_precision` is the mean over the labels that some text has, and needs no threshold;
    `eval_accuracy` is the share of texts with exactly their labels.

    Args: as of `best_threshold`, and `threshold`: the least probability of a predicted label.
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
