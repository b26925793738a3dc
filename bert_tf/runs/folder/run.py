"""The owner of a run: its directory, and everything that is written there."""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.engine import distribution, interrupts
from bert_tf.errors import UserError
from bert_tf.files import label_file, storage
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder import reporting
from bert_tf.runs.folder.background import Background
from bert_tf.runs.folder.best_checkpoint import BestCheckpoint
from bert_tf.runs.folder.goodput import Goodput, Record
from bert_tf.runs.folder.heartbeat import Heartbeat


class Run:
    """Owns an output directory from start to end; a context manager.

    It makes the directory, holds it for this run (heartbeat), holds interrupts where several
    processes run together, and reads and writes checkpoints, labels, results and summaries. With
    MultiWorkerMirroredStrategy every process has one; the chief's writes, all read, so that the
    directory must be one that all of them reach.

    Args:
        settings: the flags; `output_dir` is the directory.
        best: the best checkpoint, of a run whose evaluations choose one.
        labels: classes in the order of the logits, for `labels.txt`; () for regression. None if
            the task has no labels to keep.

    Raises:
        UserError: the directory cannot be written to.
        OSError: the same, perhaps for the moment.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        settings: TrainingSettings,
        best: BestCheckpoint | None = None,
        labels: Sequence[str] | None = None,
    ):
        self.strategy = strategy
        self.settings = settings
        self.output_dir = settings.output_dir
        self.best = best
        self.labels = labels
        self.chief = distribution.is_chief(strategy)
        self.goodput = Goodput(settings.output_dir)
        self.clock = self.goodput.clock
        self._barrier = distribution.make_barrier(strategy)
        storage.make_output_dir(self.output_dir)
        self.checkpoints = CheckpointDirectory(self.output_dir, settings.keep_checkpoint_max)
        folder = self.output_dir if self.chief else None
        self._training_summaries = reporting.Summaries(folder)
        self._evaluation_summaries = reporting.Summaries(folder and os.path.join(folder, "eval"))
        self._heartbeat: Heartbeat | None = None
        self._background = Background()
        self._stack = contextlib.ExitStack()
        self._saved_step: int | None = None
        self.evaluated_step: int | None = None

    def __enter__(self) -> "Run":
        """Takes the directory for this run.

        Raises:
            UserError: another run has it.
            OSError: the heartbeat cannot be read or written.
        """
        with contextlib.ExitStack() as stack:
            if distribution.several_processes(self.strategy):
                stack.enter_context(interrupts.hold())
            stack.callback(self._training_summaries.flush)
            stack.callback(self._evaluation_summaries.flush)
            if self.chief and self.settings.do_train:
                self._heartbeat = stack.enter_context(Heartbeat(self.output_dir))
                self.checkpoints.remove_left_behind()
                self.goodput.open(self._heartbeat.left_at)
                stack.callback(self.write_goodput, "ended")
            self._barrier(0)  # from here on the chief holds the directory
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception) -> bool | None:
        return self._stack.__exit__(*exception)

    def path(self, name: str) -> str:
        """Returns the path of a file in the directory."""
        return os.path.join(self.output_dir, name)

    def restore(self, variables: Mapping[str, tf.Variable]) -> str | None:
        """Returns the prefix of the newest whole checkpoint, having set all variables from it.

        None if there is no checkpoint.

        Raises:
            UserError: the checkpoint does not fit the variables, or the machines of the run see
                different checkpoints.
        """
        with self.clock.spent("restoring"):
            prefix = self.checkpoints.restore_latest(variables)
        if prefix:
            logging.info("Restored %s", prefix)
        step = int(variables["global_step"].numpy())
        self.goodput.restored(step, prefix)
        self._saved_step = step if prefix else None
        steps = self._barrier(step)
        if len(set(steps)) > 1:
            raise UserError(
                f"--output_dir={self.output_dir} must be one directory that all machines of the"
                " run reach: their newest checkpoints are of the steps"
                f" {', '.join(f'{step:.0f}' for step in steps)}"
            )
        return prefix

    def save(
        self,
        values: Mapping[str, tf.Tensor],
        step: int,
        save_places: Callable[[str], None],
        waited: float = 0.0,
    ) -> None:
        """Begins to save a checkpoint of a step, unless that step is saved already.

        A thread writes it while further steps are made, one save at a time: this waits for the one
        before, and `wait_for_save` for this one. Several processes write before they go on. They
        meet in between by a reduction over their devices, and reductions that two threads begin
        may come in another order on each machine, so that all of them wait for ever.

        Args:
            values: weights, optimizer slots and `global_step` by name, at the host: tensors, which
                later steps leave as they are.
            step: the step.
            save_places: writes this process's place in the input, as it was at that step, beside
                the prefix it is given.
            waited: seconds for which the steps have waited for these values, for the log.

        Raises:
            OSError: this or the last save cannot be written, or another run has taken the
                directory over.
            FloatingPointError: a value of this or of the last save is not finite; nothing of it
                is written.
        """
        self.wait_for_save()
        if step == self._saved_step:
            return
        self._training_summaries.write(self.goodput.curves(), step)
        record = self.goodput.record()  # of this step; the thread's own would be of a later one
        write = functools.partial(self._write, values, step, save_places, waited, record)
        if distribution.several_processes(self.strategy):
            write()
        else:
            self._background.start(write)

    def _write(
        self,
        values: Mapping[str, tf.Tensor],
        step: int,
        save_places: Callable[[str], None],
        waited: float,
        record: Record,
    ) -> None:
        """Writes a checkpoint, unless a value of it is not finite."""
        began = time.monotonic()
        with tf.device("CPU:0"):  # checked without a compilation
            for name, value in values.items():
                # The last update may have been the one that went wrong.
                if value.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(value)):
                    raise self.divergence(f"{name} is not finite", step - 1)
        self.check_directory()

        def save_all_places(prefix: str) -> None:
            self._barrier(step)  # files of an unfinished save of this step are gone
            save_places(prefix)
            self._barrier(step)  # the places of all processes are written

        if self.chief:
            logging.info("Saving checkpoints for %d into %s.", step, self.path("model.ckpt"))
            self.checkpoints.save(
                values,
                step,
                save_all_places,
                lambda prefix: self.goodput.write_save(step, prefix, record),
            )
        else:
            save_all_places(self.checkpoints.prefix(step))
        self._saved_step = step
        seconds = time.monotonic() - began
        logging.info("Saved step %d in %.1f s; the steps waited %.2f s", step, seconds, waited)

    def check(self) -> None:
        """Checks, between two loops, that no save has failed and that the directory is this run's.

        Does not wait, and reads nothing.

        Raises:
            OSError: see `save`.
            FloatingPointError: see `save`.
        """
        self._background.check()
        if self._heartbeat:
            self._heartbeat.check_beats()

    def check_directory(self) -> None:
        """Checks, before something is written, that the directory is still this run's.

        Raises:
            OSError: another run has taken it over.
        """
        if self._heartbeat:
            self._heartbeat.check()

    def wait_for_save(self) -> None:
        """Waits until the save in hand is written.

        Raises:
            OSError: see `save`.
            FloatingPointError: see `save`.
        """
        self._background.wait()

    def write_goodput(self, doing: str = "steps") -> None:
        """Brings `goodput.json` up to date, unless another run has taken the directory over.

        Args:
            doing: see `goodput.Record`.
        """
        if self._heartbeat:
            with contextlib.suppress(OSError):
                self._heartbeat.check()
                self.goodput.write(doing)

    def used_seconds(self) -> float:
        """Returns the time that the run has had its machines, over all starts: the chief's."""
        return self._barrier(self.goodput.record().used())[0]

    def is_saved(self, step: int) -> bool:
        """Returns whether the newest whole checkpoint is of this step."""
        return step == self._saved_step

    def divergence(self, what: str, step: int) -> FloatingPointError:
        """Returns the error that ends a run in which `what` went wrong at a step."""
        kept = self.checkpoints.latest()
        return FloatingPointError(
            f"{what} at step {step} (counted from 0); training stops, and the weights of this step"
            f" are not saved. The last checkpoint is {kept or 'not written yet'}. Lower"
            " --learning_rate, warm up for longer, or look at the input."
        )

    def write_labels(self) -> None:
        """Writes `labels.txt`, or removes that of another model."""
        if self.chief:
            label_file.write_labels(self.output_dir, self.labels)

    def write_training_summaries(self, scalars: Mapping[str, float], step: int) -> None:
        """Adds a point to TensorBoard's curves of training."""
        self._training_summaries.write(scalars, step)

    def report(self, results: Mapping[str, float], step: int) -> dict[str, float | int]:
        """Logs an evaluation and adds it to TensorBoard; returns it with `global_step`."""
        self.evaluated_step = step
        results = {**results, "global_step": step}
        reporting.log_results(results)
        self._evaluation_summaries.write(reporting.curves(results), step)
        self._evaluation_summaries.flush()
        return results

    def write_results(self, results: Mapping[str, float | int]) -> None:
        """Writes `eval_results.txt`, sorted lines `key = value`.

        Raises:
            OSError: the file cannot be written, or another run has taken the directory over.
        """
        self.check_directory()
        if self.chief:
            reporting.write_results(self.path("eval_results.txt"), results)

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """The time within is that of steps, and interrupts end loops of steps, and nothing else.

        At the end TensorBoard's curves are written out, and the save in hand is waited for.

        Raises:
            KeyboardInterrupt: at the end; there was an interrupt.
            OSError: see `save`.
            FloatingPointError: see `save`.
        """
        with interrupts.hold():
            self.clock.enter("steps")
            try:
                yield
            finally:
                with self.clock.spent("saving"):
                    self._training_summaries.flush()
                    self.wait_for_save()
                self.clock.enter("evaluating")  # whatever follows: predictions, an export
