"""Train through phases, save, resume, evaluate: the course of a run. It knows no task."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import optimization
from bert_tf.engine import distribution, input_pipeline, interrupts
from bert_tf.engine.loops import LoopInterrupted, StepLoop
from bert_tf.engine.prediction import Predictor
from bert_tf.engine.steps import Task, evaluation_step, train_step
from bert_tf.errors import UserError
from bert_tf.files import checkpoints, records
from bert_tf.progress import Progress
from bert_tf.runs import reporting
from bert_tf.runs.heartbeat import Heartbeat


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training on batches of one shape.

    num_steps: how many steps it lasts.
    batch_size: examples a step, over all replicas.
    files: TFRecord files.
    schema: what their records hold.
    limits: see `input_pipeline.TrainingInput`.
    """

    num_steps: int
    batch_size: int
    files: Sequence[str]
    schema: records.Schema
    limits: input_pipeline.Limits

    def open_input(self, seed: int, shard: distribution.InputShard) -> input_pipeline.TrainingInput:
        """Returns the batches that a host reads, from the beginning of the order of `seed`."""
        return input_pipeline.TrainingInput(
            self.files, self.schema, self.batch_size, self.limits, seed, shard
        )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation reads.

    batch_size: examples a step, over all replicas.
    files: TFRecord files.
    schema: what their records hold.
    limits: see `input_pipeline.TrainingInput`.
    max_steps: exactly so many batches are read, the files over and over if need be; 0 for every
        example once.
    """

    batch_size: int
    files: Sequence[str]
    schema: records.Schema
    limits: input_pipeline.Limits
    max_steps: int


class Trainer:
    """A model with its optimizer, and the loops over it.

    With MultiWorkerMirroredStrategy every process of the run has one. The chief's writes the
    checkpoints and results; all read them, so `output_dir` must be one that all can reach.

    Args:
        task: what is trained.
        strategy: where.
        output_dir: gets checkpoints, TensorBoard's files, `eval_results.txt`; it exists (see
            `checkpoints.make_output_dir`).
        learning_rate: of each step; None if the run does not train, and needs no slots.
        init_checkpoint: gives initial weights where `output_dir` has no checkpoint.
        random_seed: of initial weights, dropout and the order of the input.
        keep_checkpoint_max: how many checkpoints are kept; 0 for all.
        heartbeat: holds `output_dir` for this run, and was there before the newest checkpoint is
            looked for; None if nobody else can train there.
        frozen: whether the variable of a name keeps its value; it then has no optimizer slots.

    `predictor` makes predictions with the present weights.
    """

    def __init__(
        self,
        task: Task,
        strategy: tf.distribute.Strategy,
        output_dir: str,
        learning_rate: optimization.Schedule | None,
        init_checkpoint: str | None = None,
        random_seed: int = 12345,
        keep_checkpoint_max: int = 5,
        heartbeat: Heartbeat | None = None,
        frozen: Callable[[str], bool] = lambda name: False,
    ):
        self.task = task
        self.strategy = strategy
        self.output_dir = output_dir
        self._random_seed = random_seed
        self._shards = distribution.input_shards(strategy)
        self._chief = distribution.is_chief(strategy)
        self._barrier = distribution.make_barrier(strategy)
        self._heartbeat = heartbeat
        self._barrier(0)  # the chief has its heartbeat now
        self._checkpoints = checkpoints.CheckpointDirectory(output_dir, keep_checkpoint_max)
        keras.utils.set_random_seed(random_seed)
        with strategy.scope():
            self.model = task.build_model()
            for variable in self.model.variables:
                variable.trainable = variable.trainable and not frozen(variable.path)
            self.optimizer = optimization.create_optimizer(
                self.model.trainable_variables if learning_rate else [],
                learning_rate or (lambda step: 0.0),
            )
        weights = {variable.path: variable.value for variable in self.model.variables}
        self._variables = {**weights, **self.optimizer.variables}
        self._saved_step: int | None = None
        self._resumed_from = self._checkpoints.restore_latest(self._variables)
        if self._resumed_from:
            self._saved_step = self.global_step
            logging.info("Restored %s", self._resumed_from)
        elif init_checkpoint:
            checkpoints.initialize(weights, init_checkpoint)
        if self._barrier(self.global_step) != self.global_step:
            raise UserError(
                f"--output_dir={output_dir} must be one directory that all machines of the run"
                f" reach: on this one its newest checkpoint is of step {self.global_step}, on"
                " another of another step"
            )
        self._evaluation_summaries = self._make_summaries("eval")
        self._evaluated: tuple[tuple[int, Evaluation], dict] | None = None
        self.predictor = Predictor(task, self.model, strategy)
        self._evaluation_loop = StepLoop(
            strategy, lambda features, seed: evaluation_step(task, self.model, features)
        )

    def _make_summaries(self, folder: str = "") -> reporting.Summaries:
        return reporting.Summaries(os.path.join(self.output_dir, folder) if self._chief else None)

    @property
    def global_step(self) -> int:
        """Number of training steps behind the weights."""
        return int(self.optimizer.global_step.numpy())

    @interrupts.hold()  # they end loops, and nothing else
    def train(
        self,
        phases: Sequence[Phase],
        save_checkpoints_steps: int = 1000,
        iterations_per_loop: int = 1000,
        accumulation_steps: int = 1,
        gradient_reduction: str = "local_clip_sum",
        evaluate_every_steps: int = 0,
        evaluate: Callable[[], bool] | None = None,
    ) -> None:
        """Trains from the present step to the end of the last phase.

        Args:
            phases: in order; a step belongs to the phase that its number falls into.
            save_checkpoints_steps: a checkpoint is written at multiples of it, at the start of a
                new run, and at the end.
            iterations_per_loop: at most so many steps are made without coming back to Python.
            accumulation_steps: see `steps.train_step`.
            gradient_reduction: see `steps.reduce_gradients`.
            evaluate_every_steps: `evaluate` is called at multiples of it; 0 for never.
            evaluate: returns whether training is to go on.

        Raises:
            UserError: batch sizes do not fit the replicas, or the input is damaged.
            FloatingPointError: a loss or gradient is not finite; nothing of it is saved.
            OSError: a checkpoint cannot be written, or another run has taken the directory over.
        """
        for phase in phases:
            part = distribution.replica_batch_size(
                self.strategy, phase.batch_size, "train_batch_size"
            )
            if part % accumulation_steps:
                raise UserError(
                    f"--gradient_accumulation_steps ({accumulation_steps}) must divide the"
                    f" examples of one replica in a batch ({part})"
                )
        total = sum(phase.num_steps for phase in phases)
        if self.global_step >= total:
            logging.warning(
                "Nothing to train: %s is at step %d of %d already. Ask for more to go on"
                " (--num_train_steps or --num_train_epochs), or choose another --output_dir to"
                " start anew.",
                self._resumed_from or "the model",
                self.global_step,
                total,
            )
            return
        if self._resumed_from:
            logging.info("Resumed from %s", self._resumed_from)

        def replica_step(features, seed):
            return train_step(
                self.task,
                self.model,
                self.optimizer,
                features,
                seed,
                accumulation_steps,
                gradient_reduction,
            )

        summaries = self._make_summaries()
        intervals = [i for i in (save_checkpoints_steps, evaluate_every_steps) if i]

        def goes_on() -> bool:
            due = evaluate_every_steps and self.global_step % evaluate_every_steps == 0
            return not (evaluate and due and self.global_step) or evaluate()

        # The run that this one resumes may have been stopped before it evaluated.
        if self._resumed_from and not goes_on():
            return
        first = 0
        sources: list[input_pipeline.TrainingInput] = []
        try:
            for number, phase in enumerate(phases):
                last = first + phase.num_steps
                if self.global_step >= last:
                    first = last
                    continue
                logging.info(
                    "Phase %d of %d: steps %d to %d, batches of %d",
                    *(number + 1, len(phases), first, last, phase.batch_size),
                )
                sources = self._open_input(phase, first)
                loop = StepLoop(
                    self.strategy, replica_step, self._random_seed, buckets=sources[0].buckets
                )
                if self.global_step == 0 and not self._resumed_from:
                    self._save(sources)
                with Progress("Training", "steps", total, self.global_step) as progress:
                    compiled = False  # the first step of a phase is, and is not timed
                    while self.global_step < last:
                        step = self.global_step
                        ends = [last, step + (iterations_per_loop if compiled else 1)]
                        ends += [step + i - step % i for i in intervals]
                        self._run_loop(
                            loop, min(ends) - step, phase, sources, summaries, progress, compiled
                        )
                        compiled = True
                        step = self.global_step
                        if step % save_checkpoints_steps == 0 or step == total:
                            self._save(sources)
                        if not goes_on():
                            self._save(sources)
                            summaries.flush()
                            return
                first = last
        except KeyboardInterrupt:
            if sources:
                logging.warning("Interrupted at step %d; saving", self.global_step)
                self._save(sources)
            raise
        summaries.flush()

    def _open_input(self, phase: Phase, first_step: int) -> list[input_pipeline.TrainingInput]:
        """Returns the phase's input at the place of the present step, one for each shard."""
        step = self.global_step
        # A function of the step, so that an input that cannot be resumed is not begun alike.
        seed = (self._random_seed * 1_000_003 + step) % 2**31
        sources = [phase.open_input(seed, shard) for shard in self._shards]
        for source in sources:
            if step > first_step and not (
                self._resumed_from and source.restore(self._resumed_from)
            ):
                logging.warning("The input starts anew, in another order, at step %d", step)
        return sources

    def _run_loop(
        self,
        loop: StepLoop,
        num_steps: int,
        phase: Phase,
        sources: list[input_pipeline.TrainingInput],
        summaries: reporting.Summaries,
        progress: Progress,
        timed: bool,
    ) -> None:
        """Makes so many steps and reports them."""
        step = self.global_step
        began = time.monotonic()
        try:
            iterators = [source.iterator for source in sources]
            rows = loop.run(iterators, num_steps, progress.advance)
        except tf.errors.OpError as error:
            raise input_pipeline.explain(error, phase.files) from error
        except LoopInterrupted as interrupt:
            self._check_finite(interrupt.rows, step)
            raise
        seconds = time.monotonic() - began
        self._check_finite(rows, step)
        speed = {}
        if timed:
            speed["examples_per_second"] = num_steps * phase.batch_size / seconds
        else:
            logging.info("Traced, compiled and made the first step in %.1f s", seconds)
        for start in range(0, num_steps, reporting.SUMMARY_STEPS):
            end = min(start + reporting.SUMMARY_STEPS, num_steps)
            # A rate is that of its step; the rest is the mean over the steps.
            now = {"learning_rate": rows["learning_rate"][end - 1], **speed}
            summaries.write({**reporting.means(rows, start, end), **now}, step + end)
        logging.info(
            "step %d: %s",
            step + num_steps,
            reporting.describe({**reporting.means(rows), **now}),
        )

    def _check_finite(self, rows: Mapping, first_step: int) -> None:
        for name in ("loss", "gradient_norm"):
            bad = np.flatnonzero(~np.isfinite(rows[name]))
            if bad.size:
                self._stop_at(f"{name} is {rows[name][bad[0]]}", first_step + bad[0])

    def _stop_at(self, what: str, step: int) -> None:
        kept = self._checkpoints.latest()
        raise FloatingPointError(
            f"{what} at step {step} (counted from 0); training stops, and the weights of this step"
            f" are not saved. The last checkpoint is {kept or 'not written yet'}. Lower"
            " --learning_rate, warm up for longer, or look at the input."
        )

    def _save(self, sources: list[input_pipeline.TrainingInput]) -> None:
        began = time.monotonic()
        step = self.global_step
        if step == self._saved_step:
            return
        if self._heartbeat:
            self._heartbeat.check()
        values = self.values()
        with tf.device("CPU:0"):  # checked without a compilation
            for name, value in values.items():
                # The last update may have been the one that went wrong.
                if value.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(value)):
                    self._stop_at(f"{name} is not finite", step - 1)

        def save_places(prefix: str) -> None:
            self._barrier(step)  # what an unfinished save had left there is gone
            for source in sources:
                source.save(prefix)
            self._barrier(step)  # the places of all processes are there

        if self._chief:
            self._checkpoints.save(values, step, save_places)
            logging.info("Saved step %d in %.1f s", step, time.monotonic() - began)
        else:
            save_places(self._checkpoints.prefix(step))
        self._saved_step = step

    def restore(self, prefix: str) -> None:
        """Sets weights, slots and `global_step` from a checkpoint of this run."""
        checkpoints.restore(self._variables, prefix)

    def values(self) -> dict[str, tf.Tensor]:
        """Returns the weights, the optimizer's slots and `global_step` by name."""
        with tf.device("CPU:0"):  # where files are written
            return {name: v.read_value() for name, v in self._variables.items()}

    def evaluate(self, evaluation: Evaluation) -> dict[str, float | int]:
        """Returns the metrics, and writes them to `eval_results.txt` and for TensorBoard.

        `loss` is the mean of the batches' losses, each with the weight of its examples.

        Raises:
            UserError: the batch size does not fit the replicas, or the input is damaged.
        """
        if self._evaluated and self._evaluated[0] == (self.global_step, evaluation):
            return self._evaluated[1]  # at the end of training, by --evaluate_every_steps
        try:
            num_steps, num_examples = self._size(evaluation)
            logging.info(
                "Evaluating on %d examples, batches of %d", num_examples, evaluation.batch_size
            )
            iterators = self._evaluation_iterators(evaluation, num_examples)
            with Progress("Evaluating", "steps", num_steps) as progress:
                rows = self._evaluation_loop.run(iterators, num_steps, progress.advance)
        except tf.errors.OpError as error:
            raise input_pipeline.explain(error, evaluation.files) from error
        results = reporting.means(rows)
        self._evaluation_summaries.write(results, self.global_step)
        self._evaluation_summaries.flush()
        results["global_step"] = self.global_step
        reporting.log_results(results)
        if self._chief:
            reporting.write_results(os.path.join(self.output_dir, "eval_results.txt"), results)
        self._evaluated = ((self.global_step, evaluation), results)
        return results

    def _size(self, evaluation: Evaluation) -> tuple[int, int]:
        """Returns the number of batches and of examples."""
        batch_size = evaluation.batch_size
        distribution.replica_batch_size(self.strategy, batch_size, "eval_batch_size")
        if evaluation.max_steps:
            return evaluation.max_steps, evaluation.max_steps * batch_size
        num_examples = input_pipeline.count_records(evaluation.files)
        return -(-num_examples // batch_size), num_examples

    def _evaluation_iterators(self, evaluation: Evaluation, num_examples: int) -> list[Iterator]:
        iterators = []
        for shard in self._shards:
            with tf.device(shard.device):
                dataset = input_pipeline.evaluation_dataset(
                    evaluation.files,
                    evaluation.schema,
                    evaluation.batch_size,
                    evaluation.limits,
                    num_examples,
                    shard,
                )
                iterators.append(iter(dataset))
        return iterators
