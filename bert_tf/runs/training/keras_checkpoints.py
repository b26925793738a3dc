"""A Keras callback that writes checkpoints in the original's format while `fit` runs."""

from collections import Counter
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import storage
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.optimization import AdamWeightDecayOptimizer


class CheckpointCallback(keras.callbacks.Callback):
    """Writes `model.ckpt-STEP` and the file `checkpoint` while `fit` runs, and resumes from them.

    A checkpoint has every weight under its `path`, the moments as `NAME/adam_m` and `NAME/adam_v`,
    and `global_step`. This project's programs and the original's can read it. The callback writes a
    checkpoint every `save_checkpoints_steps`, and at the end.

    If the optimizer has not made a step yet and the directory has checkpoints, `fit` resumes from
    the newest undamaged one. It starts with the epoch of that step and ends after as many steps as
    `fit` would have made in all; an interrupted epoch reads its data from the start. A model that
    has already made steps continues with its current weights.

    Args:
        output_dir: the directory; made if it does not exist.
        save_checkpoints_steps: number of steps between two checkpoints; at least 1.
        keep_checkpoint_max: number of checkpoints to keep; 0 keeps all.

    Raises:
        UserError: the directory cannot be written to, or `save_checkpoints_steps` is below 1.
    """

    def __init__(
        self, output_dir: str, save_checkpoints_steps: int = 1000, keep_checkpoint_max: int = 5
    ):
        super().__init__()
        if save_checkpoints_steps < 1:
            raise UserError(
                "save_checkpoints_steps must be at least 1, the number of steps between two"
                f" checkpoints; received {quoted(save_checkpoints_steps)}"
            )
        storage.make_output_dir(output_dir)
        self.save_checkpoints_steps = save_checkpoints_steps
        self._checkpoints = CheckpointDirectory(output_dir, keep_checkpoint_max)
        self._variables: dict[str, tf.Variable] = {}
        self._saved_step: int | None = None
        self._last_step: int | None = None

    @property
    def global_step(self) -> int:
        return int(self._variables["global_step"].numpy())

    def on_train_begin(self, logs: Any = None) -> None:
        """Restores the newest checkpoint, unless the optimizer has already made steps.

        Raises:
            UserError: the optimizer is not an `AdamWeightDecayOptimizer`, two weights have the
                same name, or no checkpoint fits.
        """
        optimizer = self.model.optimizer
        if not isinstance(optimizer, AdamWeightDecayOptimizer):
            raise UserError(
                "CheckpointCallback writes the moments of bert_tf.optimization."
                f"AdamWeightDecayOptimizer; compile the model with it, not with"
                f" {type(optimizer).__name__}"
            )
        optimizer.build(self.model.trainable_variables)
        counts = Counter(variable.path for variable in self.model.weights)
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            raise UserError(
                "In a checkpoint every weight must have its own name; the model has several of"
                f" {listed(twice)}. Give its layers names"
            )
        weights = {variable.path: variable.value for variable in self.model.weights}
        self._variables = {**weights, **optimizer.checkpoint_variables()}
        self._saved_step = self._last_step = None
        if self.global_step == 0 and self._checkpoints.restore_latest(self._variables):
            self._resume()

    def _resume(self) -> None:
        step = self._saved_step = self.global_step
        steps, epochs = self.params.get("steps"), self.params["epochs"]
        if not steps:
            logging.warning(
                "Training continues from step %d with epoch 1, because the number of batches is"
                " unknown. Pass steps_per_epoch, or initial_epoch",
                step,
            )
            return
        last = self._last_step = epochs * steps
        # Keras's BackupAndRestore does the same.
        self.model._initial_epoch = min(step // steps, epochs)
        logging.info("Training continues from step %d of %d", step, last)
        if step >= last:
            logging.warning(
                "Nothing to train: %s is already at step %d of %d. Raise epochs to continue, or"
                " choose another output_dir to start over",
                *(self._checkpoints.prefix(step), step, last),
            )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = self.global_step
        if self._last_step is not None and step >= self._last_step:
            self.model.stop_training = True
        every = self.save_checkpoints_steps
        if step // every > (step - self.model.steps_per_execution) // every:
            self._save()

    def on_train_end(self, logs: Any = None) -> None:
        self._save()
        self.model._initial_epoch = None  # the next `fit` counts its epochs from 0

    def _save(self) -> None:
        step = self.global_step
        if step == self._saved_step:
            return
        for name, variable in self._variables.items():
            if variable.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(variable)):
                raise FloatingPointError(
                    f"Training has diverged by step {step}: {name} is not finite, so this step is"
                    " not saved. Lower the learning rate, or raise the number of warm-up steps; the"
                    " next fit resumes from the previous checkpoint"
                )
        self._checkpoints.save(self._variables, step)
        self._saved_step = step
