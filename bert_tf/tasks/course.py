"""Fine-tunes, evaluates and predicts on examples in memory, for a loaded model's methods."""

import contextlib
import dataclasses
import difflib
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from logging import LogRecord
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError, listed
from bert_tf.files.model_notes import ModelInput
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.setting_fields import Settings, flags_of, names_of
from bert_tf.runs.flags.settings import FineTuningOptions
from bert_tf.runs.results.reports import Evaluation
from bert_tf.runs.training.watch import CallbackWatch, plain_names
from bert_tf.tasks.arguments import option_value
from bert_tf.tasks.fine_tuner import FineTuner, check_purposes
from bert_tf.tasks.registry import TASKS
from bert_tf.tasks.rows import Rows
from bert_tf.tasks.splits import read_sets
from bert_tf.tasks.task import FineTuningTask, Start

# Keras's names for settings. `_given` adds batch_size, which depends on the purpose.
_ALIASES = {"epochs": "num_train_epochs", "seed": "random_seed", "validation_split": "dev_fraction"}
# Setting -> its name in errors, where the two differ.
_ARGUMENTS = {setting: name for name, setting in _ALIASES.items()} | {
    **{f"{purpose}_batch_size": "batch_size" for purpose in ("train", "eval", "predict")},
    "do_eval": "validation_data",
}
_USUAL = ("epochs", "batch_size", "learning_rate", "max_seq_length", "seed")  # for messages
_PURPOSES = ("do_train", "do_eval", "do_predict")  # the method that was called decides them
# A flag to rename. Quoted texts and commands of programs also match, and keep their dashes.
_FLAG = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\]|\\.)*"|"""
    r"(?:tools\.\w+|\w\.py)(?: --\S+)+|(?<![\w/=,-])--(?P<name>\w+)"
)


class Trained(NamedTuple):
    """A trained model, with each weight by its name."""

    weights: dict[str, np.ndarray]
    config: BertConfig
    model_input: ModelInput


def fine_tune(
    task: FineTuningTask,
    start: Start,
    examples: Mapping[str, Any],
    place: str | None,
    strategy: tf.distribute.Strategy,
    watch: CallbackWatch,
) -> Trained:
    """Trains on examples["train"], evaluates on examples["eval"], and resumes from `place`."""
    with _opened(task, start, examples, strategy, place, watch) as tuner:
        tuner.train()
        weights = {variable.path: variable.numpy() for variable in watch.model.variables}
        return Trained(weights, tuner.start.config, tuner.model_input)


def evaluate(
    task: FineTuningTask, start: Start, examples: Any, strategy: tf.distribute.Strategy
) -> Evaluation:
    """Returns the metrics of a trained model, and the report."""
    with _opened(task, start, {"eval": examples}, strategy) as tuner:
        results = plain_names(tuner.evaluate())
        report = task.report(*tuner.evaluated[0])
        return Evaluation(results, report.values, report.text) if report else Evaluation(results)


def predict(
    task: FineTuningTask, start: Start, examples: Any, strategy: tf.distribute.Strategy
) -> Any:
    """Returns the outputs of a trained model, in the task's form."""
    with _opened(task, start, {"predict": examples}, strategy) as tuner:
        ((_, outputs),) = tuner.predict()
        return outputs


@contextlib.contextmanager
def _opened(
    task: FineTuningTask,
    start: Start,
    examples: Mapping[str, Any],
    strategy: tf.distribute.Strategy,
    place: str | None = None,
    watch: CallbackWatch | None = None,
) -> Iterator[FineTuner]:
    """Yields a `FineTuner` that has written its records, in `place` or in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bert_tf_") as folder:
        for name in () if place else ("profile_steps", "hang_minutes"):
            if getattr(task.settings, name):
                raise UserError(
                    f"--{name} needs --output_dir: without it the run's files are deleted"
                )
        output_dir = place or os.path.join(folder, "run")
        settings = task.settings = dataclasses.replace(task.settings, output_dir=output_dir)
        start = dataclasses.replace(start, config=task.model_config(start.config))
        task.check(start.config, strategy)
        purposes = {*examples, *(["eval"] if getattr(settings, "dev_fraction", 0.0) else [])}
        if settings.evaluate_every_steps and "eval" not in purposes:
            raise UserError(
                "--evaluate_every_steps needs validation_data or --dev_fraction; give one"
            )
        check_purposes(task, purposes, strategy)
        given = {purpose: task.example_set(purpose, x) for purpose, x in examples.items()}
        sets = read_sets(task, [x for x in ("train", "eval", "predict") if x in purposes], given)
        if "train" in sets:
            task.settings = _fitting_batch(
                settings, len(sets["train"][0].examples), strategy.num_replicas_in_sync
            )
        with FineTuner(task, start, strategy, sets, watch, bool(place)) as tuner:
            tuner.write_records()
            yield tuner


def _fitting_batch(
    settings: FineTuningOptions, num_examples: int, num_replicas: int
) -> FineTuningOptions:
    # The folds of a search can be smaller than a batch. The programs refuse such a batch size.
    batch = settings.train_batch_size
    parts = num_replicas * settings.gradient_accumulation_steps
    largest = num_examples - num_examples % parts
    if not 0 < largest < batch or num_examples / batch * settings.num_train_epochs >= 1:
        return settings
    logging.warning(
        "batch_size=%d is larger than the %d examples, so there would be no step; training in"
        " batches of %d",
        *(batch, num_examples, largest),
    )
    return dataclasses.replace(settings, train_batch_size=largest)


def make_task(
    rows: Rows,
    settings: FineTuningOptions | None,
    given: Mapping[str, Any],
    purpose: str,
    weights: Collection[str],
    longest: int,
    do_lower_case: bool,
) -> FineTuningTask:
    """Returns the task of examples in memory; the options `given` override `settings`."""
    registered = TASKS[rows.task]
    task = registered.task_class()
    cls = task.options
    if settings is not None and not isinstance(settings, cls):
        known = registered.settings_classes()[0].__name__
        raise UserError(f"settings must be a {known}; received a {type(settings).__name__}")
    for name, reason in rows.left_out.items():
        if given.get(name, getattr(settings, name, None)) not in (None, False, 0):
            raise UserError(f"{name} must be left out: {reason}")
    values = {**task.defaults(weights), **_given(cls, rows.task, given, purpose)}
    values |= {name: name == f"do_{purpose}" for name in _PURPOSES}
    there = {field.name for field in dataclasses.fields(cls)}
    values = {name: value for name, value in values.items() if name in there}
    values["do_lower_case"] = do_lower_case
    if settings is not None:
        made = dataclasses.replace(settings, init_checkpoint=None, vocab_file="", **values)
    else:
        length = min(cls.__dataclass_fields__["max_seq_length"].default, longest)
        made = cls(**{"max_seq_length": length, **values})
    rows.check(made)
    return task.of_rows(made, rows)


def _given(
    cls: type[FineTuningOptions], task: str, given: Mapping[str, Any], purpose: str
) -> dict[str, Any]:
    registered = TASKS[task]
    names = [field.name for field in flags_of(cls) if field.name not in _PURPOSES]
    others = {x.name for known in registered.settings_classes() for x in flags_of(known)}
    size = next(x for x in (f"{purpose}_batch_size", "predict_batch_size") if x in names)
    aliases = {"batch_size": size, **_ALIASES}
    hints, values = get_type_hints(cls), {}
    for name, value in given.items():
        field = aliases.get(name, name)
        if field not in names:
            if field in others:
                raise UserError(f"{name} must be left out: the model and the examples decide it")
            known = difflib.get_close_matches(name, [*names, *aliases], 3) or _USUAL
            program = registered.settings_classes()[0].__name__
            raise UserError(f"{name} must be a setting of {program}, such as {listed(known)}")
        if value is not None:
            if field in values:
                both = [other for other in given if aliases.get(other, other) == field]
                raise UserError(f"{' and '.join(both)} name the same setting; give one of them")
            values[field] = option_value(name, value, hints[field])
    return values


@contextlib.contextmanager
def as_arguments() -> Iterator[None]:
    """Makes errors and warnings name arguments: `labels` instead of --labels."""
    # Messages have the dashes because the name of a setting may be an English word. Only here do
    # we know that the user calls Python and not a program.

    def renamed(message: str) -> str:
        for task in TASKS.values():
            task.settings_classes()  # imports the settings
        names = {"folder", *names_of(Settings)}

        def argument(found: re.Match) -> str:
            name = found["name"] or ""
            known = {name, name.removeprefix("no")} & names
            return _ARGUMENTS.get(name, name) if known else found[0]

        return _FLAG.sub(argument, message)

    def rename(record: LogRecord) -> bool:
        record.msg, record.args = renamed(record.getMessage()), ()
        return True

    logger = logging.get_absl_logger()
    logger.addFilter(rename)
    try:
        yield
    except (UserError, FloatingPointError, OSError) as error:
        if len(error.args) == 1:
            error.args = (renamed(str(error)),)
        raise
    finally:
        logger.removeFilter(rename)
