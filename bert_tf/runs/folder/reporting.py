"""Reports metrics: log lines, TensorBoard, eval_results.txt, test_results.tsv."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Iterator, Mapping

import numpy as np
from absl import logging

from bert_tf import strict_json
from bert_tf.errors import UserError, quoted
from bert_tf.files import storage
from bert_tf.files.whole_files import read_text, write_whole
from bert_tf.start import lazy_tensorflow as tf

COUNTS = ("global_step", "total", "eval_groups")  # results that are not metrics
SUMMARY_STEPS = 100  # steps per point in TensorBoard: the Estimator's default


class Metrics:
    """All scalars of a run in one file of JSON lines, a line for each step, in order.

    The file is rewritten as a whole, because an object in a bucket cannot grow.
    """

    def __init__(self, path: str):
        self._path = path
        self._lines: dict[int, str] = {}
        self._written = ""  # the file's content
        self._lock = threading.Lock()  # of the file, which the saving thread also writes

    def open(self, step: int) -> None:
        """Reads the lines of earlier starts up to a step; later steps are trained again."""
        if not tf.io.gfile.exists(self._path):
            return
        self._written = read_text(self._path, self._path)
        lines = self._written.splitlines()
        try:
            found = {int(strict_json.loads(line)["step"]): line for line in lines}
        except (KeyError, TypeError, ValueError) as error:
            rule = "is damaged; to begin a new file, rename this one"
            raise UserError(f"{self._path} {rule}") from error
        self._lines = {at: line for at, line in found.items() if at <= step}

    def add(self, scalars: Mapping[str, float], step: int, prefix: str) -> None:
        values = {f"{prefix}{name}": float(value) for name, value in scalars.items()}
        values = {name: value if math.isfinite(value) else None for name, value in values.items()}
        before = json.loads(self._lines.get(step, "{}"))
        self._lines[step] = json.dumps({"step": step, **before, **values})

    def write(self) -> None:
        """Writes the file if it has changed; any thread may call this."""
        with self._lock:
            content = "".join(f"{line}\n" for line in [*self._lines.values()])
            if content != self._written:
                write_whole(self._path, content)
                self._written = content


class Summaries:
    """Writes scalars for TensorBoard, if there is a directory; raises OSError if that fails."""

    def __init__(self, directory: str | None, metrics: Metrics | None = None, prefix: str = ""):
        self._directory = directory
        self._metrics, self._prefix = metrics, prefix
        self._writer: tf.summary.SummaryWriter | None = None

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        if self._directory is None or not scalars:
            return
        if self._metrics:
            self._metrics.add(scalars, step, self._prefix)
        with self._explained():
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self._directory)
            with self._writer.as_default(step):
                for name, value in scalars.items():
                    tf.summary.scalar(name, value)

    def flush(self) -> None:
        if self._writer is not None:
            with self._explained():
                self._writer.flush()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:  # the directory was writable at the start
            place = f"TensorBoard's file in {self._directory} (--output_dir)"
            raise OSError(storage.unwritable(place, str(self._directory), error)) from error


def mean_losses(
    losses: np.ndarray, batch_size: int, weights: np.ndarray | None = None
) -> dict[str, float]:
    """Returns `eval_loss`, the mean over the examples, and `loss`, the Estimator's loss.

    The Estimator takes the mean over the batches; the last batch counts as much as the others,
    although it may be smaller. `losses` and their `weights` are float [examples]; a batch whose
    weights are all 0 is ignored.
    """
    losses = losses.astype(np.float64)
    weights = np.ones(len(losses)) if weights is None else weights.astype(np.float64)
    parts = [slice(i, i + batch_size) for i in range(0, len(losses), batch_size)]
    counted = [part for part in parts if weights[part].any()]
    batches = [np.average(losses[part], weights=weights[part]) for part in counted]
    mean = np.average(losses, weights=weights)
    return {"eval_loss": float(mean), "loss": float(np.mean(batches))}


def describe(scalars: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:.5g}" for name, value in sorted(scalars.items()))


def duration(seconds: float) -> str:
    """Formats a time in its largest one or two units: 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def curves(results: Mapping[str, float]) -> dict[str, float]:
    """Renames an evaluation's results like training's, so that TensorBoard plots them together."""
    named = {name.removeprefix("eval_"): results[name] for name in results if name not in COUNTS}
    if "eval_loss" in results:
        named["loss"] = results["eval_loss"]  # over examples, like training's loss
    return named


def log_results(results: Mapping[str, float | int]) -> None:
    logging.info("***** Eval results *****")
    for key, value in sorted(results.items()):
        logging.info("  %s = %s", key, value)


def write_results(path: str, results: Mapping[str, float | int]) -> None:
    """Writes sorted lines `key = value`, the original's eval_results.txt."""
    lines = []
    for key, value in sorted(results.items()):
        value = value if isinstance(value, int) else np.float32(value)
        lines.append(f"{key} = {value!s}\n")  # without !s a float32 gets a float64's digits
    write_whole(path, "".join(lines))


def read_results(path: str) -> dict[str, float]:
    """Reads a file that `write_results` wrote; {} if it does not exist."""
    if not tf.io.gfile.exists(path):
        return {}
    text = read_text(path, path, "evaluate again")
    results = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        key, _, value = line.partition(" = ")
        try:
            results[key] = float(value)
        except ValueError as error:
            raise UserError(
                f"{path}, line {number}: must be `name = number`; it is {quoted(line)}. Evaluate"
                " again"
            ) from error
    return results


def write_probabilities(path: str, outputs: np.ndarray) -> None:
    """Writes the original's test_results.tsv; `outputs` are [examples, classes] or [examples]."""
    logging.info("Writing predictions to: %s", path)
    lines = ["\t".join(map(str, row)) for row in outputs.reshape(len(outputs), -1)]
    write_whole(path, "".join(f"{line}\n" for line in lines))
