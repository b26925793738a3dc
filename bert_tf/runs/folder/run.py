"""Manages a run's output directory, and writes everything in it, including the best checkpoint."""

import contextlib
import functools
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine import distribution, interrupts
from bert_tf.errors import UserError, as_given, quoted
from bert_tf.files import model_notes, storage
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.checkpoints import BEST_FOLDER
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder import reporting
from bert_tf.runs.folder.flags_file import write_flags
from bert_tf.runs.folder.goodput import Goodput, Record
from bert_tf.runs.folder.heartbeat import FILE_NAME, Heartbeat, InUseError
from bert_tf.text.casing import read_casing, write_casing


class BestCheckpoint:
    """The checkpoint with a run's best evaluation, in the folder `best` of its output directory.

    The folder holds the checkpoint, `labels.txt` if there are classes, and `eval_results.txt`,
    which is written last. A resumed run compares its evaluations with that file, by `metric`, where
    higher is better. Training ends after `patience` evaluations, one every `every_steps`, without
    an improvement; 0 for never.
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
            f" checkpoint; {found}. Choose a different --output_dir, or delete {self.folder}"
        )

    def update(
        self, results: Mapping[str, float | int], step: int, values: Mapping[str, tf.Tensor]
    ) -> bool:
        """Keeps the checkpoint if it is the best so far; returns whether to continue training."""
        best = self._best_results()
        score = np.float32(results[self._metric])
        if not best or score > np.float32(best[self._metric]):
            tf.io.gfile.makedirs(self.folder)
            model_notes.write_labels(self.folder, self._labels)
            write_casing(self.folder, read_casing(os.path.dirname(self.folder)))  # the run's casing
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


class Run:
    """Owns an output directory from start to end; a context manager.

    It makes the directory, reserves it for this run (heartbeat), delays interrupts if several
    processes run together, and reads and writes checkpoints, labels, results and summaries. With
    MultiWorkerMirroredStrategy every process has a `Run`. The chief writes most files, the others
    only their input's position and their goodput. All of them read, so all machines must reach the
    same directory.

    Methods that write, or wait for a save, raise OSError if a file cannot be written or a different
    run has taken the directory over, and FloatingPointError if a value to save is not finite.

    `labels` are the classes in the order of the logits, for `labels.txt`; () for regression, None
    for a task without that file. `saves` is False for a temporary directory, without checkpoints.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        settings: TrainingSettings,
        best: BestCheckpoint | None = None,
        labels: Sequence[str] | None = None,
        saves: bool = True,
    ):
        self.strategy = strategy
        self.settings = settings
        self.output_dir = settings.output_dir
        self.best = best
        self.labels = labels
        self._saves = saves
        self.chief = distribution.is_chief(strategy)
        process = distribution.input_shard(strategy).index
        self.goodput = Goodput(settings.output_dir, process=process)
        self.clock = self.goodput.clock
        self.gather = distribution.make_barrier(strategy)
        storage.make_output_dir(self.output_dir)
        self.checkpoints = CheckpointDirectory(
            self.output_dir, settings.keep_checkpoint_max, settings.keep_checkpoint_every_steps
        )
        folder = self.output_dir if self.chief else None
        self._metrics = reporting.Metrics(self.path("metrics.jsonl"))
        told = self._metrics if settings.do_train else None
        self.training_summaries = reporting.Summaries(folder, told)
        evaluations = folder and os.path.join(folder, "eval")
        self._evaluation_summaries = reporting.Summaries(evaluations, told, "eval/")
        self._heartbeat: Heartbeat | None = None
        self._result_heartbeats: list[Heartbeat] = []
        self._results_are_taken = False
        self._pool = ThreadPoolExecutor(1, "background")
        self._saving: Future[None] | None = None
        self._stack = contextlib.ExitStack()
        self.saved_step: int | None = None
        self.evaluated_step: int | None = None

    def __enter__(self) -> "Run":
        with contextlib.ExitStack() as stack:
            if distribution.several_processes(self.strategy):
                stack.enter_context(interrupts.hold())
            stack.callback(self.training_summaries.flush)
            stack.callback(self._evaluation_summaries.flush)
            if self.chief and self.settings.do_train:
                self._heartbeat = stack.enter_context(Heartbeat(self.output_dir))
                self.checkpoints.remove_left_behind()
                self.goodput.open(self._heartbeat.left_at)
                stack.callback(self.write_goodput, "ended")
            if self.chief:
                self._reserve_results(stack)
            left_at = self._heartbeat.left_at if self._heartbeat else None
            left_at = self.gather(left_at or 0.0)[0]  # from here on the chief holds the directory
            if self.settings.do_train:
                self._check_shared()
                if not self.chief:
                    self.goodput.open(left_at or None)
                    stack.callback(self.write_goodput, "ended")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception) -> bool | None:
        return self._stack.__exit__(*exception)

    def _check_shared(self) -> None:
        seen = self.gather(float(tf.io.gfile.exists(self.path(FILE_NAME))))
        if 0 in seen:
            raise UserError(
                f"--output_dir={self.output_dir} must be one directory that all machines of the run"
                f" reach: process {seen.index(0)} does not see {FILE_NAME}, which process 0 wrote"
            )

    def _reserve_results(self, stack: contextlib.ExitStack) -> None:
        """Reserves the results that this program writes, or raises `InUseError`.

        A program that only evaluates leaves `eval_results.txt` to a run that trains and evaluates.
        """
        settings, trains = self.settings, self.settings.do_train
        evaluates = getattr(settings, "do_eval", False) or settings.evaluate_every_steps
        wanted = {"evaluating": evaluates, "predicting": getattr(settings, "do_predict", False)}
        for doing, name in (("evaluating", "eval"), ("predicting", "predict")):
            if not wanted[doing]:
                continue
            held = Heartbeat(
                self.output_dir, file_name=f"{name}.heartbeat", doing=doing, trains=trains
            )
            try:
                self._result_heartbeats.append(stack.enter_context(held))
            except InUseError as error:
                if trains or doing == "predicting" or not error.training:
                    raise
                self._results_are_taken = True

    def path(self, name: str) -> str:
        return os.path.join(self.output_dir, name)

    def restore(self, variables: Mapping[str, tf.Variable]) -> str | None:
        """Sets all variables from the newest complete checkpoint; returns its prefix or None."""
        with self.clock.spent("restoring"):
            prefix = self.checkpoints.restore_latest(variables)
        if prefix:
            logging.info("Restored %s", prefix)
        step = int(variables["global_step"].numpy())
        self.goodput.restored(step, prefix)
        self.saved_step = step if prefix else None
        if self._heartbeat:
            self._metrics.open(step if prefix else -1)
            write_flags(self.output_dir, self.strategy, self.settings, step)
        steps = self.gather(step)
        if len(set(steps)) > 1:
            raise UserError(
                f"--output_dir={self.output_dir} must be one directory that all machines of the"
                " run reach: their newest checkpoints are at the steps"
                f" {', '.join(f'{step:.0f}' for step in steps)}"
            )
        return prefix

    def check_same(self, what: str, *parts: str | bytes | np.ndarray) -> None:
        """Checks that all processes have the same `parts`; `what` names them in the plural."""
        if not distribution.several_processes(self.strategy):
            return
        found = hashlib.blake2b(digest_size=6)  # fits in a float64
        for part in parts:
            found.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part))
        digests = self.gather(float(int.from_bytes(found.digest(), "little")))
        if others := [i for i, digest in enumerate(digests) if digest != digests[0]]:
            raise UserError(
                f"All processes of a run must have the same {what}, but process"
                f" {', '.join(map(str, others))} and process 0 do not. Copy the files from the"
                " machine of process 0, or name files that all machines reach"
            )

    def save(
        self,
        values: Mapping[str, tf.Tensor],
        step: int,
        save_places: Callable[[str], None],
        waited: float = 0.0,
    ) -> None:
        """Starts to save a checkpoint of a step, unless that step is already saved.

        A thread writes the checkpoint while training continues, one save at a time: `save` waits
        for the previous save, and `wait_for_save` for this one. Several processes instead write
        before training continues. They synchronize by a reduction over their devices, and if two
        threads started reductions, their order could differ between machines: a deadlock.

        `values` are weights, optimizer slots and `global_step` by name, on the host; later steps do
        not change them. `save_places` writes this process's position in the input beside the prefix
        that it gets. `waited` is how many seconds training waited for `values`, for the log.
        """
        self.wait_for_save()
        if step == self.saved_step or not self._saves:
            return
        self.training_summaries.write(self.goodput.curves(), step)
        record = self.goodput.record()  # here, because the thread writes during later steps
        write = functools.partial(self._write, values, step, save_places, waited, record)
        if distribution.several_processes(self.strategy):
            write()
        else:
            self._saving = self._pool.submit(write)

    def _write(self, values, step, save_places, waited, record: Record) -> None:
        """Saves the values given to `save`; `record` is the goodput at that step."""
        began = time.monotonic()
        with tf.device("CPU:0"):  # the CPU needs no compilation
            for name, value in values.items():
                # The losses were checked, but the last update may have gone wrong.
                if value.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(value)):
                    raise self.divergence(f"{name} is not finite", step - 1)
        self.check_directory()

        def save_all_places(prefix: str) -> None:
            self.gather(step)  # waits until the chief has removed an unfinished save of this step
            save_places(prefix)
            self.gather(step)  # waits until all processes have written their places

        if self.chief:
            logging.info("Saving checkpoints for %d into %s.", step, self.path("model.ckpt"))
            self._metrics.write()
            self.checkpoints.save(
                values, step, save_all_places, lambda _: self.goodput.write_save(step, record)
            )
        else:
            save_all_places(self.checkpoints.prefix(step))
            self.goodput.write_save(step, record)
        self.saved_step = step
        seconds = time.monotonic() - began
        logging.info("Saved step %d in %.1f s; the steps waited %.2f s", step, seconds, waited)

    def check(self) -> None:
        """Checks, without waiting, that no save failed and that this run holds the directory."""
        if self._saving is not None and self._saving.done():
            self.wait_for_save()
        if self._heartbeat:
            self._heartbeat.check_beats()

    def check_directory(self) -> None:
        """Checks in the heartbeat files that this run holds the directory. Call before writing."""
        for heartbeat in filter(None, (self._heartbeat, *self._result_heartbeats)):
            heartbeat.check()

    def wait_for_save(self) -> None:
        """Waits for the current save, and raises its exception, once."""
        if self._saving is not None:
            wait([self._saving])  # after an interrupt here, the next call waits again
            saving, self._saving = self._saving, None
            saving.result()

    def write_goodput(self, doing: str = "steps") -> None:
        """Updates `goodput.json` and the metrics, unless this run has lost the directory."""
        with contextlib.suppress(OSError, UserError):  # this is also called after other errors
            if self._heartbeat:
                self._heartbeat.check()
            self.goodput.write(doing)
            self._metrics.write()

    def used_seconds(self) -> tuple[float, float]:
        """Returns the chief's seconds over all starts: in total, and for starting and compiling."""
        record = self.goodput.record()
        idle = sum(record.seconds[x] for x in ("start_up", "restoring", "compiling"))
        return self.gather(record.used())[0], self.gather(idle)[0]

    def divergence(self, what: str, step: int) -> FloatingPointError:
        """Returns the error that ends a diverged run; `what` says what happened at the step."""
        kept = self.checkpoints.latest()
        return FloatingPointError(
            f"{what} at step {step} (counted from 0); training stops, and the weights of this step"
            f" are not saved. The last checkpoint is {kept or 'not written yet'}. Lower"
            " --learning_rate, warm up for longer, or look at the input."
        )

    def write_labels(self) -> None:
        if self.chief:
            model_notes.write_labels(self.output_dir, self.labels)

    def report(self, results: Mapping[str, float], step: int) -> dict[str, float | int]:
        """Logs an evaluation and adds it to TensorBoard; returns it with `global_step`."""
        self.evaluated_step = step
        results = {**results, "global_step": step}
        reporting.log_results(results)
        self._evaluation_summaries.write(reporting.curves(results), step)
        self._evaluation_summaries.flush()
        return results

    @property
    def owns_results(self) -> bool:
        return self.chief and not self._results_are_taken

    def write_results(self, results: Mapping[str, float | int]) -> None:
        self.check_directory()
        if self._results_are_taken:
            logging.warning(
                "%s is not written: the run that trains in --output_dir also evaluates, and writes"
                " it. These results are only in this log",
                self.path("eval_results.txt"),
            )
        elif self.chief:
            reporting.write_results(self.path("eval_results.txt"), results)

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Counts the context's time as steps, and delays interrupts to the end of loops of steps.

        At the end it flushes TensorBoard's curves, waits for the current save, and raises
        KeyboardInterrupt if there was an interrupt.
        """
        with interrupts.hold():
            self.clock.enter("steps")
            try:
                yield
            finally:
                with self.clock.spent("saving"):
                    self.training_summaries.flush()
                    self.wait_for_save()
                self.clock.enter("evaluating")  # whatever follows: predictions, an export
