"""Writes the review of an evaluation: all its examples, the errors among them, and a report."""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.files.whole_files import write_whole
from bert_tf.runs.results import tables
from bert_tf.runs.results.reports import Calibration, Report, class_report, number_report
from bert_tf.runs.results.tables import KeptRows

# What `tools.compare_runs` reads.
EVALUATED = "eval_predictions"


@dataclasses.dataclass(frozen=True)
class Decision:
    """How a text gets several labels: all of at least this probability, joined in a cell."""

    threshold: float
    separator: str

    def labels(self, names: Sequence[str], probabilities: np.ndarray) -> list[tuple[str, ...]]:
        """Returns each text's predicted labels; `probabilities` are float `[texts, labels]`."""
        found = probabilities >= self.threshold
        return [tuple(names[i] for i in np.flatnonzero(row)) for row in found]


def predicted_columns(
    labels: Sequence[str] | None, outputs: np.ndarray, decision: Decision | None = None
) -> dict[str, list[Any]]:
    """Returns the columns of predictions for a table.

    Args:
        labels: names of the classes; None for a regression.
        outputs: probabilities, float `[examples, classes]`; predicted numbers, float `[examples]`.
        decision: if an example can have several labels; each label then also has a column.
    """
    if labels is None:
        return {"prediction": list(outputs)}
    if decision is not None:
        found = [decision.separator.join(names) for names in decision.labels(labels, outputs)]
        columns = {f"probability {name}": list(outputs[:, i]) for i, name in enumerate(labels)}
        return {"prediction": found, **columns}
    best = np.argmax(outputs, axis=1)
    return {
        "prediction": [labels[i] for i in best],
        "probability": list(outputs[np.arange(len(best)), best]),
    }


def report_of(
    labels: Sequence[str] | None,
    label_ids: np.ndarray,
    outputs: np.ndarray,
    decision: Decision | None = None,
    calibration: Calibration | None = None,
) -> Report:
    """Returns the report of an evaluation of classes or numbers; see `write_review`."""
    if labels is None:
        report = number_report(label_ids, outputs)
    else:
        threshold = decision.threshold if decision else 0.5
        report = class_report(labels, label_ids, outputs, threshold)
    if calibration is None:
        return report
    return report.with_values(
        temperature=calibration.temperature, calibration_error_before=calibration.before
    )


def write_review(
    output_dir: str,
    suffix: str,
    rows: KeptRows,
    labels: Sequence[str] | None,
    label_ids: np.ndarray,
    outputs: np.ndarray,
    decision: Decision | None = None,
    calibration: Calibration | None = None,
) -> None:
    """Writes the review of an evaluation of classes or numbers; see `predicted_columns`.

    `eval_predictions.tsv` has all examples; `errors.tsv` the wrong ones, the most certain first, or
    for a regression the largest differences; `eval_report.txt` and `.json` the report.

    Args:
        suffix: end of the files' names.
        label_ids: the correct classes, int `[examples]`; numbers, float `[examples]`. With a
            `decision` 1 for each label that an example has, `[examples, labels]`; errors are then
            sorted by the worst label.
        calibration: if the model's logits were scaled on these examples.
    """
    found = predicted_columns(labels, outputs, decision)
    if labels is None:
        differences = outputs - label_ids
        found["difference"] = list(differences)
        wrong, certainty = differences != 0, np.abs(differences)
    elif decision is not None:
        wrong_labels = (outputs >= decision.threshold) != label_ids
        wrong = wrong_labels.any(axis=1)
        certainty = np.max(np.abs(outputs - label_ids) * wrong_labels, axis=1)
    else:
        wrong, certainty = np.argmax(outputs, axis=1) != label_ids, outputs.max(axis=1)
    order = surest_first(wrong, certainty)
    for name, numbers in ((EVALUATED, None), ("errors", order)):
        path = os.path.join(output_dir, f"{name}{suffix}.tsv")
        tables.write_predictions(path, rows, found, numbers)
    report = report_of(labels, label_ids, outputs, decision, calibration)
    write_report(output_dir, suffix, report)


def write_report(output_dir: str, suffix: str, report: Report, name: str = "eval_report") -> None:
    path = os.path.join(output_dir, f"{name}{suffix}")
    logging.info("Writing %s.txt", path)
    write_whole(f"{path}.txt", str(report))
    write_whole(f"{path}.json", json.dumps(report.values, indent=2, ensure_ascii=False) + "\n")


def surest_first(wrong: np.ndarray, certainty: np.ndarray) -> np.ndarray:
    """Returns the numbers of the wrong examples, bool `[examples]`, the most certain first."""
    numbers = np.flatnonzero(wrong)
    return numbers[np.argsort(-certainty[numbers], kind="stable")]
