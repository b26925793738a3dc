"""What a run tells of its metrics: log lines, TensorBoard, eval_results.txt."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.files.whole_files import write_whole

SUMMARY_STEPS = 100  # steps behind one point in TensorBoard, the Estimator's default


class Summaries:
    """Scalars for TensorBoard in a directory.

    Args:
        directory: where the event file goes; made when there is something to write. None writes
            nothing.
    """

    def __init__(self, directory: str | None):
        self._directory = directory
        self._writer: tf.summary.SummaryWriter | None = None

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Adds one point to each named curve."""
        if self._directory is None:
            return
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._directory)
        with self._writer.as_default(step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)

    def flush(self) -> None:
        """Writes out what has been added."""
        if self._writer is not None:
            self._writer.flush()


def means(
    rows: Mapping[str, np.ndarray | tuple[np.ndarray, np.ndarray]],
    start: int = 0,
    end: int | None = None,
) -> dict[str, float]:
    """Returns one number for each metric of several steps.

    Args:
        rows: for each metric the values of every step, or the weighted sums and the weights of
            every step. Without any weight the mean is 0, as tf.metrics has it.
        start: first step that counts.
        end: step after the last that counts; None for all.
    """
    result = {}
    for name, values in rows.items():
        if isinstance(values, tuple):
            total, weight = (np.sum(v[start:end], dtype=np.float64) for v in values)
            result[name] = float(total / weight) if weight else 0.0
        else:
            result[name] = float(np.mean(values[start:end], dtype=np.float64))
    return result


def mean_losses(losses: np.ndarray, batch_size: int) -> dict[str, float]:
    """Returns `eval_loss`, the mean over the examples, and the Estimator's `loss`.

    That is the mean over the batches, of which each counts alike, the last and smaller one, too.

    Args:
        losses: float [examples], in order.
        batch_size: of the evaluation.
    """
    losses = losses.astype(np.float64)
    batches = [losses[i : i + batch_size] for i in range(0, len(losses), batch_size)]
    return {
        "eval_loss": float(np.mean(losses)),
        "loss": float(np.mean([np.mean(batch) for batch in batches])),
    }


def describe(scalars: Mapping[str, float]) -> str:
    """Returns the scalars in one line."""
    return ", ".join(f"{name} = {value:.5g}" for name, value in sorted(scalars.items()))


def log_results(results: Mapping[str, float | int]) -> None:
    """Logs an evaluation as the original does."""
    logging.info("***** Eval results *****")
    for key in sorted(results):
        logging.info("  %s = %s", key, results[key])


def write_results(path: str, results: Mapping[str, float | int]) -> None:
    """Writes sorted lines `key = value`, the original's eval_results.txt.

    Raises:
        OSError: the file cannot be written.
    """
    lines = []
    for key in sorted(results):
        value = results[key]
        value = value if isinstance(value, int) else np.float32(value)
        lines.append(f"{key} = {value!s}\n")  # NumPy formats a float32 as a float64
    write_whole(path, "".join(lines))


def read_results(path: str) -> dict[str, float]:
    """Returns what `write_results` has written to a file; nothing if there is no file."""
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path, "r") as reader:
        pairs = [line.split(" = ") for line in reader.read().splitlines()]
    return {key: float(value) for key, value in pairs}


def write_probabilities(path: str, outputs: np.ndarray) -> None:
    """Writes the original's test_results.tsv: an example a line, its numbers with tabs between.

    Args:
        path: the file.
        outputs: float [examples, classes], or [examples].

    Raises:
        OSError: the file cannot be written.
    """
    logging.info("Writing predictions to: %s", path)
    lines = ["\t".join(map(str, row)) for row in outputs.reshape(len(outputs), -1)]
    write_whole(path, "".join(f"{line}\n" for line in lines))
