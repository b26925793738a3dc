"""What a task provides for fine-tuning; `fine_tuning.run_fine_tuning` does the rest."""

import collections
import dataclasses
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import Columns
from bert_tf.errors import UserError, quoted
from bert_tf.files.model_notes import TEXTS
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings
from bert_tf.runs.flags.setting_fields import Settings
from bert_tf.runs.flags.settings import FineTuningOptions
from bert_tf.runs.results.reports import Report
from bert_tf.runs.results.tables import Cell, KeptRows
from bert_tf.tasks.example_records import ExampleEncoder, write_records
from bert_tf.tasks.rows import Rows
from bert_tf.tasks.task_model import TaskModel
from bert_tf.text.base_tokenizer import Tokenizer


class Evaluated(NamedTuple):
    """The results of an evaluation by name; `found` has the data for its report and tables."""

    results: dict[str, float]
    found: Any = None


@dataclasses.dataclass(eq=False)
class ExampleSet:
    """Examples to train on, evaluate or predict; they are freed once their records are written."""

    name: str  # of the record file: the purpose, and `suffix`
    examples: Sequence[Any]
    suffix: str = ""  # appended to the names of the set's results; "" for the task's own set
    encoder: ExampleEncoder | None = None
    num_examples: int = 0  # number of examples written
    num_records: int = 0
    rows: KeptRows | None = None  # what tables show of the examples

    def write_records(self, path: str) -> None:
        self.num_examples = len(self.examples)
        name = f"{self.name}.tf_record"  # `path` may be a temporary name
        self.num_records = write_records(path, self.examples, self.encoder, name)
        self.examples = ()  # frees their memory


Chunks = Iterable[Columns]  # a model's predictions, in chunks of a set's records


@dataclasses.dataclass(frozen=True)
class Start:
    """The model that fine-tuning starts from."""

    config: BertConfig
    tokenizer: Tokenizer
    vocabulary: Mapping[str, str | bytes]  # file name -> content; see `write_model_files`
    # Assigns the weights; None to read `init_checkpoint`.
    initialize: Callable[[Mapping[str, tf.Variable]], None] | None = None
    folder: str | None = None  # the model's folder, if `init_checkpoint` does not name it


class FineTuningTask:
    """Base class of all tasks for fine-tuning: a task and the settings of one run.

    A purpose is "train", "eval" or "predict". Methods raise UserError if settings, files and model
    do not fit together, and OSError if a file cannot be written.
    """

    options: ClassVar[type[FineTuningOptions]]
    best_metric: str  # the result that chooses the best checkpoint; higher is better
    batch_flags: ClassVar[Mapping[str, str]] = {
        "eval": "eval_batch_size",
        "predict": "predict_batch_size",
    }
    prediction_heading = "***** Running prediction*****"  # logged before the final predictions
    vector_settings: VectorSettings | None = None  # of the vectors that the task trains

    def __init__(self, settings: FineTuningOptions):
        self.settings = settings

    @classmethod
    def of_rows(cls, options: FineTuningOptions, rows: Rows) -> Self:
        return cls(options)

    @staticmethod
    def defaults(weights: Collection[str]) -> Mapping[str, Any]:
        """Returns the options that follow from a model's head, given the names of its weights."""
        return {}

    # --- before training --------------------------------------------------------------------------

    def model_config(self, config: BertConfig) -> BertConfig:
        """Returns the configuration of the run's model; --bert_config_file's, unless overridden."""
        return config

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Raises UserError if settings do not fit each other, the model or the devices."""

    def key(self, example: Any) -> tuple[Hashable, str]:
        """Returns an example's class (None in tasks without classes) and all its text."""
        raise NotImplementedError

    def subset(self, whole: ExampleSet, purpose: str, numbers: Sequence[int]) -> ExampleSet:
        """Returns some examples of a set, by their numbers, as a set for a purpose."""
        return self.example_set(purpose, [whole.examples[i] for i in numbers])

    def example_set(self, purpose: str, examples: Any) -> ExampleSet:
        return ExampleSet(purpose, examples)

    def labels(self, sets: Mapping[str, Sequence[ExampleSet]]) -> Sequence[str] | None:
        """Returns the classes in the order of the logits; () for regression, None for no labels."""
        return None

    def prepare(self, sets: Mapping[str, Sequence[ExampleSet]], labels: Any) -> None:
        """Checks or changes the examples before encoding; `labels` are from the method `labels`."""

    def reads(self, examples: Sequence[Any]) -> str | None:
        """Returns the `reads` of the model's `ModelInput`, such as "pairs"."""
        return TEXTS

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: Sequence[str] | None
    ) -> ExampleEncoder:
        raise NotImplementedError

    def build(self, config: BertConfig, labels: Sequence[str] | None, **options) -> TaskModel:
        """Returns a new model with initial weights, its variables named as in a checkpoint."""
        raise NotImplementedError

    def teaching(
        self, start: Start, labels: Sequence[str] | None, strategy: tf.distribute.Strategy
    ) -> dict[str, Callable]:
        """Returns `Trainer`'s `objective` and `initialize` if the run has a teacher, else {}."""
        return {}

    def epoch_size(self, num_examples: int, num_records: int) -> int:
        """Returns the number of examples in an epoch; the number of records, unless overridden."""
        return num_records

    @staticmethod
    def check_differ(targets: Iterable[Any], refuses: bool = False) -> None:
        """Warns, or with `refuses` raises UserError, if all training targets are the same."""
        counts = collections.Counter(targets)
        if len(counts) != 1:
            return
        ((target, count),) = counts.items()
        if refuses:
            raise UserError(
                f"The training examples must have at least two different labels; all {count} have"
                f" {quoted(target)}, so there is nothing to learn"
            )
        logging.warning(
            "All %d training examples have the label %s, so the model learns to predict only that",
            *(count, quoted(target)),
        )

    # --- with a model -----------------------------------------------------------------------------

    def evaluate(self, example_set: ExampleSet, predictions: Chunks) -> Evaluated:
        raise NotImplementedError

    def report(self, example_set: ExampleSet, evaluated: Evaluated) -> Report | None:
        """Returns the report of an evaluation; None if the task makes no report."""
        return None

    def predict(self, example_set: ExampleSet, predictions: Chunks) -> Any:
        """Returns the outputs for a set, in the task's form."""
        raise NotImplementedError

    def calibrate(self, model: TaskModel, example_set: ExampleSet, predictions: Chunks) -> None:
        """Scales a trained model's logits on the dev set, for --temperature_scaling."""
        raise NotImplementedError


class FoldKey(NamedTuple):
    """The properties of an example that decide its fold."""

    labels: tuple[str, ...] | None  # the class, or all labels, sorted; None in a regression
    text: str  # copies of a text are in one fold
    group: str | None = None  # examples of a group are in one fold; None without groups


class TaskFiles(FineTuningTask):
    """A mixin that adds the files of a program to its task."""

    other_settings: Sequence[Settings] = ()  # of the program; they describe the examples

    @classmethod
    def from_settings(cls, *settings: Settings) -> "TaskFiles":
        """Returns the task of a run from an instance of each class of settings in the registry."""
        return cls(*settings)

    def read(self, purpose: str) -> Sequence[Any]:
        """Returns the examples for a purpose."""
        raise NotImplementedError

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        """Returns the sets of examples for a purpose; two purposes may share a set."""
        return [self.example_set(purpose, self.read(purpose))]

    def dev_set(self) -> str | None:
        """Returns the path or name of the examples to evaluate on; None without such examples."""
        raise NotImplementedError

    def fold_key(self, example: Any) -> FoldKey:
        """Returns the key that decides an example's fold, in tasks with the setting --folds."""
        raise NotImplementedError

    def row(self, example: Any, purpose: str, number: int) -> Mapping[str, Cell] | None:
        """Returns an example's row in tables: `id`, texts and `label`; None without tables."""
        return None

    def write_review(self, example_set: ExampleSet, evaluated: Evaluated) -> None:
        """Writes tables and a report of the evaluated examples."""

    def write_predictions(
        self, example_set: ExampleSet, outputs: Any, global_step: int
    ) -> dict[str, float] | None:
        """Writes the outputs of `predict`; returns scores for eval_results.txt, or None."""
        raise NotImplementedError

    def path(self, name: str) -> str:
        return os.path.join(self.settings.output_dir, name)
