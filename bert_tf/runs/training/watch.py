"""Reports the steps of a training run to a progress bar and to Keras's callbacks."""

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.engine.evaluator import StepMetrics, means
from bert_tf.errors import UserError, quoted
from bert_tf.progress import Progress, hidden

_RATE = "sets the learning rate, which follows learning_rate and warmup_proportion here"
# Keras's callbacks that cannot work here, and why.
_UNFIT: Mapping[type[keras.callbacks.Callback], str] = {
    keras.callbacks.LearningRateScheduler: _RATE,
    keras.callbacks.ReduceLROnPlateau: _RATE,
    keras.callbacks.BackupAndRestore: "saves epochs, not steps; fit itself resumes in output_dir",
}


def verbosity(verbose: Any) -> int:
    """Returns Keras's `verbose` as a number: 1 or "auto" for a bar, 2 for lines, 0 for neither."""
    if not isinstance(verbose, int | str) or verbose not in (0, 1, 2, "auto"):
        raise UserError(f"verbose must be 0, 1, 2 or 'auto'; received {quoted(verbose)}")
    return 1 if verbose == "auto" else int(verbose)


def progress_of(verbose: Any) -> contextlib.AbstractContextManager[None]:
    """Returns a context that shows progress unless Keras's `verbose` is 0."""
    return hidden(verbosity(verbose) == 0)


def set_modes(callbacks: Any, metrics: Collection[str]) -> None:
    """Sets whether a metric that callbacks monitor should fall or rise: Keras may not know."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    for callback in callbacks if isinstance(callbacks, list | tuple) else [callbacks]:
        metric = str(getattr(callback, "monitor", "")).removeprefix("val_")
        if metric in metrics and getattr(callback, "mode", None) == "auto":
            callback.mode = "min" if metric.endswith("loss") else "max"


class Watch:
    """Shows a run's progress. `has_callbacks`: whether callbacks may end it or set weights."""

    has_callbacks = False

    def stops(self) -> tuple[int, ...]:
        """Returns the steps after which the devices' loop must end, in order."""
        return ()

    def progress(
        self, total: int | None, done: int
    ) -> "contextlib.AbstractContextManager[Progress | CallbackWatch]":
        """Returns an object whose `advance` counts steps; for the arguments see `Progress`."""
        return Progress("Training", "steps", total, done)

    def after(self, step: int, metrics: StepMetrics) -> bool:
        """Called after each loop of steps; returns False to stop."""
        return True

    def end(self) -> None:
        """Called after training, before the final weights are saved."""


class CallbackWatch(Watch):
    """Calls Keras's callbacks, as Keras does with `steps_per_execution`: once for each loop.

    Epoch n, counted from 1, ends after floor(n * examples / batch size) steps; the last epoch ends
    with the run. A batch that spans two epochs counts for the later one. An epoch with fewer
    examples than a batch, and thus without a step, is skipped. An epoch's logs are means over its
    steps. `history` is what Keras's `fit` returns.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback] = (), verbose: Any = 0):
        for callback in callbacks:
            if not isinstance(callback, keras.callbacks.Callback):
                raise UserError(
                    f"callbacks must be Keras callbacks; received {type(callback).__name__}"
                )
            for kind, reason in _UNFIT.items():
                if isinstance(callback, kind):
                    raise UserError(f"callbacks must not have {kind.__name__}: it {reason}")
        self.history = keras.callbacks.History()
        self._given = [*callbacks, self.history]
        self.has_callbacks = bool(callbacks)
        self._verbose = verbosity(verbose)
        self.model: keras.Model | None = None

    def begin(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer | None,
        step: int,
        num_steps: int,
        steps_of_epoch: float,
        evaluate: Callable[[], Mapping[str, float]] | None,
    ) -> None:
        """Prepares the callbacks for a run of `num_steps`, of which `step` were made before.

        Callbacks find `optimizer` as `model.optimizer` until the end. `steps_of_epoch` is the
        number of examples / batch size. The results of `evaluate` are added to the epoch's logs as
        `val_...`.
        """
        self.model, model.optimizer = model, optimizer
        self._evaluate = evaluate
        num_epochs = math.ceil(num_steps / steps_of_epoch)
        ends = {int(epoch * steps_of_epoch) for epoch in range(1, num_epochs + 1)}
        self._ends = sorted({end for end in ends if 0 < end < num_steps} | {num_steps})
        self._step = step
        self._metrics: list[StepMetrics] = []
        progress = bool(self._verbose)
        self._callbacks = keras.callbacks.CallbackList(self._given, False, progress, model)
        self._set_params()
        model.stop_training = False
        self._callbacks.on_train_begin()

    @property
    def _epoch(self) -> int:
        return sum(end <= self._step for end in self._ends)

    def _set_params(self) -> None:
        steps = [end for end in self._ends if end > self._step][:1]
        params = {"verbose": self._verbose, "epochs": len(self._ends)}
        self._callbacks.set_params({**params, "steps": sum(steps) - self._step})

    def _begin_epoch(self) -> None:
        self._first, self._metrics = self._step, []
        self._set_params()
        self._callbacks.on_epoch_begin(self._epoch)
        self._callbacks.on_train_batch_begin(0)

    def stops(self) -> tuple[int, ...]:
        return tuple(self._ends)

    def progress(
        self, total: int | None, done: int
    ) -> contextlib.AbstractContextManager["CallbackWatch"]:
        self._begin_epoch()
        return contextlib.nullcontext(self)

    def advance(self, count: int) -> None:
        """Does nothing: the callbacks are called at the end of a loop, with its metrics."""

    def after(self, step: int, metrics: StepMetrics) -> bool:
        epoch = self._epoch
        self._step = step
        self._metrics.append(metrics)
        logs = self._logs()
        self._callbacks.on_train_batch_end(step - self._first - 1, logs)
        if step in self._ends or self.model.stop_training:
            if self._evaluate:
                found = self._evaluate()
                logs |= {f"val_{name}": value for name, value in plain_names(found).items()}
            compared = logs.keys() - {"learning_rate", "gradient_norm", "skipped"}
            set_modes(self._given, {name.removeprefix("val_") for name in compared})
            self._callbacks.on_epoch_end(epoch, logs)
            if step < self._ends[-1] and not self.model.stop_training:
                self._begin_epoch()
        else:
            self._callbacks.on_train_batch_begin(step - self._first)
        return step < self._ends[-1] and not self.model.stop_training

    def _logs(self) -> dict[str, float]:
        """Returns the means over the epoch's steps so far; the learning rate is the last step's."""
        joined = {}
        for name, values in self._metrics[0].items():
            parts = [metrics[name] for metrics in self._metrics]
            if isinstance(values, tuple):
                joined[name] = tuple(map(np.concatenate, zip(*parts, strict=True)))
            else:
                joined[name] = np.concatenate(parts)
        last = {name: float(x[-1]) for name, x in joined.items() if name == "learning_rate"}
        return {**means(joined), **last}

    def end(self) -> None:
        self._callbacks.on_train_end()
        self.model.optimizer = None  # frees the moments, because the history keeps the model


def plain_names(results: Mapping[str, float]) -> dict[str, float]:
    """Removes `eval_` from results' names; `eval_loss` replaces the Estimator's `loss`."""
    named = {name.removeprefix("eval_"): value for name, value in results.items()}
    return {**named, **({"loss": results["eval_loss"]} if "eval_loss" in results else {})}
