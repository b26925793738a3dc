"""Trains a model through phases, whatever its task; its `Run` reads and writes files."""

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf
from absl import logging

from bert_tf import optimization
from bert_tf.engine import distribution
from bert_tf.engine.evaluator import StepMetrics
from bert_tf.engine.input_pipeline import TrainingInput
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.loops import TrainingLoop, update_function, xla_pays_on_cpu
from bert_tf.engine.steps import Objective, train_step
from bert_tf.errors import UserError
from bert_tf.files import checkpoints, whole_files
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.runs.flags.settings import ComputationSettings, TrainingSettings
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.phase_steps import PhaseSteps, traced, watched
from bert_tf.runs.training.plan import Phase, Plan
from bert_tf.runs.training.schedules import TimeBudget, note_schedule
from bert_tf.runs.training.watch import Watch
from bert_tf.seeds import reading_weights, seeded


def adam_options(
    settings: TrainingSettings, learning_rate_factors: Mapping[str, float] | None = None
) -> optimization.AdamOptions:
    """Returns the optimizer's options; see `AdamWeightDecayOptimizer`."""
    return optimization.AdamOptions(
        settings.optimizer,
        settings.weight_decay_rate,
        settings.beta_1,
        settings.beta_2,
        settings.epsilon,
        lamb_bias_correction=settings.lamb_bias_correction,
        learning_rate_factors=tuple((learning_rate_factors or {}).items()),
    )


def model_options(
    settings: ComputationSettings, strategy: tf.distribute.Strategy
) -> dict[str, bool | str]:
    """Returns the arguments of `BertModel` for the settings and the strategy's devices."""
    return device_options(settings, distribution.on_tpu(strategy))


def device_options(settings: ComputationSettings, on_tpu: bool) -> dict[str, bool | str]:
    one_hot = settings.use_one_hot_embeddings
    options: dict[str, bool | str] = {
        "use_one_hot_embeddings": on_tpu if one_hot is None else one_hot,
        "dtype": settings.dtype or ("bfloat16" if on_tpu else "float32"),
    }
    if isinstance(settings, TrainingSettings):
        options["recompute_activations"] = settings.recompute_activations
    return options


Variables = Mapping[str, tf.Variable]  # of a model, by name
_FEW_EXAMPLES = 8  # in a replica's batch; 32 if 8 TPU cores share the original's 256


class Trainer:
    """A model with its optimizer, at the newest checkpoint of its run or at its initial weights.

    Args:
        build: returns the model with its variables, which are named as in a checkpoint.
        run: the run, already entered.
        schedule: learning rate of each step; None if the run does not train, so that the optimizer
            does not need slots.
        frozen: says by name whether a variable keeps its value; it then does not get slots.
        budget: stops training when the time is up; `schedule` must be `budget.schedule`.
        objective: returns the objective to train; by default the model itself.
        initialize: sets further weights of the model at the start of a run that does not resume.
        learning_rate_factors: see `optimization.AdamWeightDecayOptimizer`.
        start: sets the initial weights of a run that does not resume; by default they are read from
            --init_checkpoint.
    """

    def __init__(
        self,
        build: Callable[[], keras.Model],
        run: Run,
        schedule: optimization.Schedule | None,
        frozen: Callable[[str], bool] = lambda name: False,
        budget: TimeBudget | None = None,
        objective: Callable[[keras.Model], Objective] = lambda model: model,
        initialize: Callable[[keras.Model], None] = lambda model: None,
        learning_rate_factors: Mapping[str, float] | None = None,
        start: Callable[[Variables], None] | None = None,
    ):
        self.run = run
        self.strategy = run.strategy
        self._budget = budget
        self._settings = settings = run.settings
        self._source: TrainingInput | None = None  # the current phase's
        trains = schedule is not None
        resumes = run.checkpoints.latest() is not None
        all_read = resumes or ((settings.init_checkpoint or start) and not trains)
        initial = reading_weights() if all_read else seeded(settings.random_seed)
        with self.strategy.scope(), initial:
            self.model = build()
            learned = [variable.path for variable in self.model.trainable_variables]
            for variable in self.model.variables:
                variable.trainable = variable.trainable and not frozen(variable.path)
            self.optimizer = optimization.create_optimizer(
                self.model.trainable_variables if trains else [],
                schedule or (lambda step: 0.0),
                adam_options(settings, learning_rate_factors),
            )
        self.objective = objective(self.model)
        weights = {variable.path: variable.value for variable in self.model.variables}
        self._variables = {**weights, **self.optimizer.checkpoint_variables()}
        self._schedule = schedule
        self._resumed_from = run.restore(self._variables)
        if self._resumed_from and settings.init_checkpoint:
            logging.info(
                "--init_checkpoint=%s is not read, because --output_dir has a checkpoint, %s",
                settings.init_checkpoint,
                self._resumed_from,
            )
        if not self._resumed_from:
            self._initialize(weights, start, [] if trains else learned)
            initialize(self.model)

    def _initialize(
        self, weights: Variables, start: Callable[[Variables], None] | None, needed: Sequence[str]
    ) -> None:
        init_checkpoint = self._settings.init_checkpoint
        if start:
            start(weights)
        elif init_checkpoint:
            reader = ModelFiles.of_flag(init_checkpoint).weights
            checkpoints.initialize(weights, init_checkpoint, reader=reader, needed=needed)
        elif needed:
            logging.warning(
                "The weights are untrained: --output_dir has no checkpoint, and there is no"
                " --init_checkpoint"
            )

    @property
    def global_step(self) -> int:
        return int(self.optimizer.global_step.numpy())

    def train(
        self,
        phases: Sequence[Phase],
        evaluate: Callable[[], bool] = lambda: True,
        watch: Watch | None = None,
    ) -> None:
        """Trains from the current step to the end of the last phase.

        A step belongs to the phase that its number falls into. `evaluate`, called every
        --evaluate_every_steps, returns whether to continue training. `watch` follows the steps. If
        callbacks ended the run earlier, it does not continue with callbacks, unless `phases` now
        have more steps.
        """
        self._check_batches(phases)
        watch = watch or Watch()
        plan = self._plan(phases, watch)
        # Marks the checkpoint of a run that its callbacks ended.
        mark = f".ended-of-{plan.total}" if watch.has_callbacks else ""
        if self._has_ended(plan.total, mark):
            return watch.end()
        if self._resumed_from:
            logging.info("Resumed from %s", self._resumed_from)
        legs, total = plan.legs(self.global_step), plan.total
        if self._budget:
            legs, total = self._budget.legs(legs, self.global_step), None
        self._log_input(phases)
        if self.run.chief and self._schedule:
            hours = self._budget.hours if self._budget else None
            note_schedule(self._settings.output_dir, self._schedule, self.global_step, hours)
        phase: int | None = None
        self._check_weights()
        with self.run.training(), contextlib.ExitStack() as trace:
            try:
                with watch.progress(total, self.global_step) as progress:
                    for leg in legs:
                        goes_on = True
                        if leg.phase != phase:
                            phase = leg.phase
                            steps = self._begin(phases, phase, total)
                        if leg.stop > self.global_step:
                            metrics = self._make(steps, leg.stop, progress.advance, trace)
                            self.run.check()
                            goes_on = self._tell(watch, leg.stop, metrics)
                        if leg.saves and goes_on:
                            self._save()
                        if leg.evaluates:
                            with self.run.clock.spent("evaluating"):
                                goes_on = evaluate() and goes_on
                        if not goes_on:
                            break
            except KeyboardInterrupt:
                logging.warning("Interrupted at step %d; saving", self.global_step)
                self._save()
                raise
            watch.end()
            self._save(mark)  # unless the last leg did

    def _plan(self, phases: Sequence[Phase], watch: Watch) -> Plan:
        """Returns the plan of a run; warns if it will not make the steps of --profile_steps."""
        settings, profiled = self._settings, self._settings.profiled
        total = sum(phase.num_steps for phase in phases)
        if profiled and not self.global_step <= profiled.start < total:
            logging.warning(
                "--profile_steps=%s: no trace will be written, because the remaining steps are %d"
                " to %d",
                *(settings.profile_steps, self.global_step, total - 1),
            )
        return Plan(
            tuple(phase.num_steps for phase in phases),
            settings.save_checkpoints_steps,
            settings.evaluate_every_steps,
            settings.iterations_per_loop,
            tuple(sorted({*watch.stops(), profiled.start, profiled.stop})),
        )

    def _make(
        self,
        steps: PhaseSteps,
        stop: int,
        advance: Callable[[int], None],
        trace: contextlib.ExitStack,
    ) -> StepMetrics:
        """Makes steps until `stop`; `trace` holds the trace of --profile_steps while it is open."""
        profiled = self._settings.profiled
        if profiled and self.global_step == profiled.start:
            trace.enter_context(traced(self.strategy, self._settings.output_dir))
        metrics = steps.make(self.global_step, stop, advance)
        if stop == profiled.stop:
            trace.close()
        return metrics

    def _check_weights(self) -> None:
        if distribution.several_processes(self.strategy):
            weights = (value.numpy() for value in self.values().values())
            self.run.check_same("weights (--init_checkpoint)", *weights)

    def _tell(self, watch: Watch, step: int, metrics: StepMetrics) -> bool:
        if watch.has_callbacks:  # they may read the weights
            self._fetch()
        return watch.after(step, metrics)

    def _has_ended(self, total: int, mark: str) -> bool:
        by_callbacks = mark and self._resumed_from and self.global_step < total
        if self.global_step < total and not (
            by_callbacks and tf.io.gfile.exists(f"{self._resumed_from}{mark}")
        ):
            return False
        logging.warning(
            "Nothing to train: %s is already at step %d of %d%s. Raise %s to continue%s, or choose"
            " another --output_dir to start over, with other data or flags.",
            self._resumed_from or "the model",
            self.global_step,
            total,
            ", where a callback ended the training" if by_callbacks else "",
            self._settings.amount_of_training,
            " or leave the callbacks out" if by_callbacks else "",
        )
        return True

    def _begin(self, phases: Sequence[Phase], number: int, total: int | None) -> PhaseSteps:
        phase, first = phases[number], sum(phase.num_steps for phase in phases[:number])
        logging.info(
            "Phase %d of %d: steps %d to %s, batches of %d",
            *(number + 1, len(phases), first),
            first + phase.num_steps if total else "the end of the time",
            phase.batch_size,
        )
        with self.run.clock.spent("restoring" if self.global_step > first else "start_up"):
            source = self._source = self._open_input(phase, first)
        self.run.check_same("records (--input_file)", source.content)
        loop = self._make_loop(source.buckets)
        return PhaseSteps(phase, loop, source, self.run, total)

    def _log_input(self, phases: Sequence[Phase]) -> None:
        for number, phase in enumerate(phases, 1):
            if text := phase.describe_input(timed=self._budget is not None):
                logging.info("Phase %d of %d: %s", number, len(phases), text)

    def _check_batches(self, phases: Sequence[Phase]) -> None:
        parts = self._settings.gradient_accumulation_steps
        for phase in phases:
            batch_size = phase.batch_size
            size = distribution.replica_batch_size(self.strategy, batch_size, "train_batch_size")
            if size % parts:
                raise UserError(
                    f"--gradient_accumulation_steps ({parts}) must divide the examples of one"
                    f" replica in a batch ({size}). Change it or the batch size"
                )
            replicas, settings = self.strategy.num_replicas_in_sync, self._settings
            own = settings.gradient_reduction == distribution.GRADIENT_REDUCTIONS[0]
            if own and replicas > 1 and size <= _FEW_EXAMPLES:
                logging.info(
                    "Each of %d replicas clips the gradient of its own %d examples, and the sum"
                    " grows with the number of replicas, as in the original. For a run that should"
                    " not depend on that number: --gradient_reduction=global_mean_clip",
                    *(replicas, size),
                )

    def _open_input(self, phase: Phase, first_step: int) -> TrainingInput:
        step = self.global_step
        # Depends on the step, so that an input that cannot be resumed takes a new order.
        seed = (self._settings.random_seed * 1_000_003 + step) % 2**31
        source = phase.open_input(seed, distribution.input_shard(self.strategy))
        # At the first step a saved position belongs to the previous phase.
        if step > first_step and not (self._resumed_from and source.restore(self._resumed_from)):
            logging.warning("The input starts over, in a different order, at step %d", step)
        return source

    def _make_loop(self, buckets: Buckets | None) -> TrainingLoop:
        replica_step = functools.partial(
            train_step,
            self.objective,
            self.optimizer,
            accumulation_steps=self._settings.gradient_accumulation_steps,
            gradient_reduction=self._settings.gradient_reduction,
            clip_norm=self._settings.clip_norm,
            skip_above_norm=self._settings.skip_steps_above_norm,
            update=update_function(self.strategy, self.model, self.optimizer),
        )
        seed, compiles = self._settings.random_seed, xla_pays_on_cpu(self.model)
        return TrainingLoop(self.strategy, replica_step, seed, buckets, compiles)

    def _save(self, mark: str = "") -> None:
        """Starts to save a checkpoint of this step, unless it is already saved.

        With `mark`, after callbacks that may have set the weights, it always saves, and writes an
        empty file whose name is the prefix and the mark.
        """
        with self.run.clock.spent("saving"):
            began = time.monotonic()
            self.run.wait_for_save()
            step = self.global_step
            if mark:
                self.run.saved_step = None
            if step == self.run.saved_step:
                return
            values = self.values()
            # An interrupt may come before the input is open.
            save_place = self._source.capture() if self._source else lambda prefix: None

            def save_input(prefix: str) -> None:
                save_place(prefix)
                if mark and self.run.chief:
                    whole_files.write_whole(f"{prefix}{mark}", "")

            seconds, process = time.monotonic() - began, distribution.input_shard(self.strategy)
            # A different process may hang while all processes save.
            with watched(int, self._settings.hang_minutes, process.index):
                self.run.save(values, step, save_input, seconds)

    def restore(self, prefix: str) -> None:
        """Sets weights, slots and `global_step` from a checkpoint of this run."""
        checkpoints.restore(self._variables, prefix)

    def values(self) -> dict[str, tf.Tensor]:
        """Returns the weights, the optimizer's slots and `global_step` by name, on the host.

        Later steps do not change these tensors. On a CPU reading copies nothing: an update that
        finds a variable's buffer in use writes to a new buffer.
        """
        self._fetch()
        with tf.device("CPU:0"):  # where files are written
            return {name: v.read_value() for name, v in self._variables.items()}

    def _fetch(self) -> None:
        if distribution.runs_by_pjrt(self.strategy):
            self.strategy.fetch(self._variables.values())
