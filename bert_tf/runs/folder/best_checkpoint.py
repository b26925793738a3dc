"""The best checkpoint of a run by a metric, and early stopping."""

import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError, as_given, quoted
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.checkpoints import BEST_FOLDER
from bert_tf.files.model_notes import write_labels
from bert_tf.runs.folder import reporting
from bert_tf.text.casing import read_casing, write_casing


class BestCheckpoint:
    """The checkpoint with a run's best evaluation, in the folder `best` of its output directory.

    The folder holds the checkpoint, `labels.txt` if there are classes, and `eval_results.txt`,
    which is written last. A resumed run compares its evaluations with that file.

    Args:
        metric: the result to compare; higher is better.
        patience: end training after so many evaluations without an improvement; 0 for never.
        every_steps: steps from one evaluation to the next.
    """

    def __init__(
        self,
        output_dir: str,
        metric: str,
        patience: int,
        every_steps: int,
        labels: Sequence[str] | None = None,
    ):
        self.folder = os.path.join(output_dir, BEST_FOLDER)
        self._results = os.path.join(self.folder, "eval_results.txt")
        self._metric = metric
        self._steps = patience * every_steps
        self._labels = labels

    def prefix(self) -> str | None:
        return CheckpointDirectory(self.folder, 1).latest()

    def check(self) -> None:
        """Raises UserError if evaluations cannot be compared with the best so far."""
        self._best_results()

    def _best_results(self) -> dict[str, float]:
        if not self.prefix() or not tf.io.gfile.exists(self._results):
            return {}
        try:
            best = reporting.read_results(self._results)
            found = f"it has {as_given(', '.join(best)) or 'nothing'}"
        except UserError as error:
            best, found = {}, quoted(str(error))
        if self._metric in best and best.get("global_step", math.nan).is_integer():
            return best
        raise UserError(
            f"{self._results}: the file must have lines `name = number`, as --keep_best writes"
            f" them, with global_step, a whole number, and {self._metric}, which chooses the best"
            f" checkpoint; {found}. Take another --output_dir, or delete {self.folder}"
        )

    def update(
        self, results: Mapping[str, float | int], step: int, values: Mapping[str, tf.Tensor]
    ) -> bool:
        """Keeps the checkpoint if it is the best so far; returns whether to continue training."""
        best = self._best_results()
        score = np.float32(results[self._metric])
        if not best or score > np.float32(best[self._metric]):
            tf.io.gfile.makedirs(self.folder)
            write_labels(self.folder, self._labels)
            write_casing(self.folder, read_casing(os.path.dirname(self.folder)))  # the run's
            CheckpointDirectory(self.folder, 1).save(values, step)
            reporting.write_results(self._results, {**results, "global_step": step})
            logging.info("%s = %s is the best so far; kept in %s", self._metric, score, self.folder)
            return True
        since = step - int(best["global_step"])
        if not self._steps or since < self._steps:
            return True
        message = "Training ends early: %s has not been better than %s for %d steps"
        logging.info(message, self._metric, best[self._metric], since)
        return False
