"""Runs the programs' fine-tuning on a model and examples in memory."""

import contextlib
import dataclasses
import difflib
import json
import numbers
import os
import re
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import LogRecord
from typing import Any, get_args, get_type_hints

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.bounds import as_float
from bert_tf.errors import UserError, listed
from bert_tf.files.whole_files import read_text
from bert_tf.hugging_face.vector_settings import VectorSettings
from bert_tf.model_folder.writer import write_vocabulary
from bert_tf.pretrained.arguments import (
    NUMBER,
    STRING,
    SWITCH,
    WHOLE_NUMBER,
    check_type,
    received,
)
from bert_tf.pretrained.folder import ModelFolder, heads_of
from bert_tf.pretrained.kinds.base import Kind
from bert_tf.pretrained.kinds.rows import plain
from bert_tf.pretrained.results import Evaluation
from bert_tf.runs.flags.setting_fields import flags_of
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.runs.training.watch import CallbackWatch, plain_names
from bert_tf.tasks.fine_tuning import run_fine_tuning
from bert_tf.tasks.in_memory import InMemory
from bert_tf.tasks.task import ExampleSet
from bert_tf.text.tokenizers import vocabulary_in

# Keras's names; also batch_size, that of the purpose.
_ALIASES = {
    "epochs": "num_train_epochs",
    "seed": "random_seed",
    "validation_split": "dev_fraction",
}
_USUAL = ("epochs", "batch_size", "learning_rate", "max_seq_length", "seed")  # for a message
# What a model, its examples and the call decide.
_DECIDED = frozenset(
    "vocab_file do_lower_case init_checkpoint do_train do_eval do_predict data_dir train_file"
    " eval_file predict_file labels text_a_column text_b_column label_column negative_column"
    " weight_column group_column has_header delimiter label_scale tag_scheme".split()
)
# A flag's dashes; or the command of a program, which keeps them.
_FLAG = re.compile(r"((?:tools\.\w+|\w\.py)(?: --\S+)+)|(?<![\w-])--(?=[a-z])")
# The place of a question in a file like SQuAD's, with a paragraph for each question.
_QUESTION = re.compile(r": data\[0\]\.paragraphs\[(\d+)\]\.qas\[0\]( \(id '\d+'\))?")
_TYPES = {bool: SWITCH, int: WHOLE_NUMBER, float: NUMBER, str: STRING}


@dataclasses.dataclass(frozen=True)
class Start:
    """The model that a run starts from.

    read: returns a weight by its name.
    keeps_head: whether the weights of the head are the task's.
    """

    folder: ModelFolder
    read: Callable[[str], np.ndarray]
    keeps_head: bool

    def __call__(self, variables: Mapping[str, tf.Variable]) -> None:
        """Sets the variables that the model has."""
        missing = []
        for name, variable in variables.items():
            of_bert = name.startswith(f"{self.folder.config.scope}/")
            if name in self.folder.shapes and (of_bert or self.keeps_head):
                variable.assign(self.read(name))
            elif of_bert:
                missing.append(name)
        if missing:
            logging.warning(
                "Not in %s, so left at their initial values: %s", self.folder.path, listed(missing)
            )


def make_settings(
    kind: Kind,
    folder: ModelFolder,
    output_dir: str,
    settings: FineTuningSettings | None,
    given: Mapping[str, Any],
    **decided: Any,
) -> FineTuningSettings:
    """Returns the settings of a run.

    Args:
        output_dir: the folder of a run without one.
        settings: an object of the program's settings; None for their defaults.
        given: settings by name, or by Keras's name; they override those of `settings`.
        **decided: settings that the caller decides.

    Raises:
        UserError: a name is unknown or not the caller's to set, or a value is wrong.
    """
    cls = kind.settings_class
    if settings is not None and not isinstance(settings, cls):
        raise UserError(f"settings must be a {cls.__name__}; received a {type(settings).__name__}")
    if given.get("folds", getattr(settings, "folds", 0)):
        raise UserError("folds must be left out: in Python use scikit-learn's cross_validate")
    names = [field.name for field in flags_of(cls) if field.name not in _DECIDED]
    size = next(x for x in ("train", "eval", "predict") if decided.get(f"do_{x}"))
    aliases = {"batch_size": f"{size}_batch_size", **_ALIASES}
    hints, values = get_type_hints(cls), {}
    for name, value in given.items():
        field = aliases.get(name, name)
        if field not in names:
            if field in _DECIDED:
                raise UserError(f"{name} must be left out: the model and the examples decide it")
            known = difflib.get_close_matches(name, [*names, *aliases], 3) or _USUAL
            raise UserError(f"{name} must be a setting of {cls.__name__}, such as {listed(known)}")
        if value is not None:
            if field in values:
                both = [other for other in given if aliases.get(other, other) == field]
                raise UserError(f"{' and '.join(both)} name the same setting; give one of them")
            values[field] = typed(name, value, hints[field])
    values = {**kind.of_weights(folder.shapes), **values}
    values |= {"vocab_file": folder.path, "do_lower_case": folder.tokenizer.do_lower_case}
    values |= {"init_checkpoint": None, "do_train": False, **kind.decided(), **decided}
    there = {field.name for field in dataclasses.fields(cls)}
    values = {name: value for name, value in values.items() if name in there}
    options = {**(vars(settings) if settings else {}), **values}
    kind.check_options(options)
    if options.get("teacher_checkpoint"):  # compares its vocabulary with a file
        place = f"{output_dir}_vocabulary"
        os.makedirs(place)
        write_vocabulary(place, folder.tokenizer.files, folder.tokenizer.do_lower_case)
        values["vocab_file"] = vocabulary_in(place)
    if settings is not None:
        made = dataclasses.replace(settings, **values)
    else:
        length = min(cls.__dataclass_fields__["max_seq_length"].default, folder.max_seq_length)
        made = cls(**{"output_dir": output_dir, "max_seq_length": length, **values})
    kind.check(made)
    return made


def typed(name: str, value: Any, hint: Any) -> Any:
    """Returns a setting as Python's own type, which the field has; see `check_type`."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else plain(value)
    hints = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, list | tuple) and not {bool, int, float} & {*hints}:  # such as sizes
        value = [str(x) if isinstance(x, numbers.Real) else x for x in map(plain, value)]
        if str in hints and all(isinstance(x, str) for x in value):
            value = ",".join(value)
    for kind, accepted in _TYPES.items():
        if kind in hints:
            check_type(name, value, accepted)
            return as_float(value) if kind is float else kind(value)
    if isinstance(value, str):
        raise UserError(f"{name} must be a list of strings; {received(value)}")
    return value


def class_weights(value: Any, labels: Sequence[str] | None) -> Sequence[str]:
    """Returns the setting `class_weights` for Keras's class_weight, or scikit-learn's.

    Args:
        value: "balanced", or a dictionary of weights by the classes' names or numbers.
        labels: the classes.
    """
    if isinstance(value, str) and value == "balanced":
        return ["balanced"]
    if not isinstance(value, Mapping):
        raise UserError(
            f"class_weight must be 'balanced' or a dictionary of weights; {received(value)}. Of"
            " scikit-learn's compute_class_weight: dict(zip(classes, weights))"
        )
    labels = labels or ()
    # Among classes such as 1 to 5 a number is a name, as it is in y.
    numbers = {} if any(map(str.isdecimal, labels)) else dict(enumerate(labels))
    pairs = [(plain(key), weight) for key, weight in value.items()]
    pairs = [(int(x) if isinstance(x, float) and x.is_integer() else x, w) for x, w in pairs]
    pairs = [(x if str(x) in labels else numbers.get(x, x), weight) for x, weight in pairs]
    return [f"{label}:{weight}" for label, weight in pairs]


@contextlib.contextmanager
def as_arguments() -> Iterator[None]:
    """Errors and warnings about flags name arguments of `fit`: the same names without dashes."""

    def renamed(message: str) -> str:
        message = _QUESTION.sub(r"[\1]", message.replace("--do_eval", "validation_data"))
        return _FLAG.sub(r"\1", message)

    def rename(record: LogRecord) -> bool:
        record.msg, record.args = renamed(record.getMessage()), ()
        return True

    logger = logging.get_absl_logger()
    logger.addFilter(rename)
    try:
        yield
    except UserError as error:
        raise UserError(renamed(str(error))) from error
    finally:
        logger.removeFilter(rename)


@contextlib.contextmanager
def working_folder() -> Iterator[str]:
    """A folder for the files of one run."""
    with tempfile.TemporaryDirectory(prefix="bert_tf_") as folder:
        yield os.path.join(folder, "run")


def train(
    kind: Kind,
    settings: FineTuningSettings,
    start: Start,
    sets: Mapping[str, ExampleSet],
    strategy: tf.distribute.Strategy,
    watch: CallbackWatch,
    saves: bool,
) -> ModelFolder:
    """Trains a model, and returns it as a folder that is in memory."""
    folder = start.folder
    memory = InMemory(tokenizer=folder.tokenizer, start=start, sets=sets, watch=watch, saves=saves)
    task = kind.task(settings)
    run_fine_tuning(task, folder.config, strategy, memory)
    weights = {variable.path: variable.numpy() for variable in watch.model.variables}
    shapes = {name: list(value.shape) for name, value in weights.items()}
    labels = tuple(kind.labels or ())
    return dataclasses.replace(
        folder,
        config=memory.config,
        shapes=shapes,
        read=weights.__getitem__,
        heads=heads_of(shapes, labels, kind.heads == ("tagging",)),
        labels=labels,
        max_seq_length=settings.max_seq_length,
        source={},
        trained_on=memory.model_input,
        has_sigmoid=False,
        _warned=[],
        vectors=task.vector_settings or VectorSettings(),
    )


def predict(
    kind: Kind,
    settings: FineTuningSettings,
    start: Start,
    example_set: ExampleSet,
    strategy: tf.distribute.Strategy,
) -> dict[str, float]:
    """Runs the program on a set, to evaluate or predict as the settings say; returns results."""
    folder = start.folder
    memory = InMemory(tokenizer=folder.tokenizer, start=start, sets={example_set.name: example_set})
    return run_fine_tuning(kind.task(settings), folder.config, strategy, memory) or {}


def evaluation(settings: FineTuningSettings, results: Mapping[str, float]) -> Evaluation:
    """Returns the results of an evaluation, with the report that the program wrote."""
    found = {name: x for name, x in plain_names(results).items() if name != "global_step"}
    path = os.path.join(settings.output_dir, "eval_report")
    if not os.path.exists(f"{path}.json"):
        return Evaluation(found)
    text, values = (read_text(f"{path}.{x}", path, "try again") for x in ("txt", "json"))
    return Evaluation(found, json.loads(values), text)
