"""What a task provides for fine-tuning; `fine_tuning.run_fine_tuning` does the rest."""

import collections
import dataclasses
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import Columns, join
from bert_tf.errors import UserError, quoted
from bert_tf.files.model_input import TEXTS
from bert_tf.hugging_face.vector_settings import VectorSettings
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.setting_fields import Settings
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.runs.results.kept_rows import Cell, KeptRows
from bert_tf.tasks.example_records import ExampleEncoder, write_records
from bert_tf.tasks.folds import FoldKey
from bert_tf.tasks.task_model import TaskModel
from bert_tf.text.tokenizers import Tokenizer


@dataclasses.dataclass(eq=False)
class ExampleSet:
    """Examples that a run trains on, evaluates or predicts.

    They are dropped once their records are written; what tables of predictions show of them is in
    `rows`. A task that needs more keeps it in fields of a subclass.
    """

    name: str  # of the record file: the purpose, and `suffix`
    examples: Sequence[Any]
    suffix: str = ""  # appended to the names of the set's results; "" for the task's own set
    encoder: ExampleEncoder | None = None
    num_examples: int = 0  # number of examples written
    num_records: int = 0
    rows: KeptRows | None = None
    answers: Any = None  # of the last evaluation, in the task's own form, for `write_review`

    def write_records(self, path: str) -> None:
        """Writes the records; see `example_records.write_records`."""
        self.num_examples = len(self.examples)
        name = f"{self.name}.tf_record"  # while a run goes on, `path` may be another
        self.num_records = write_records(path, self.examples, self.encoder, name)
        self.examples = ()  # frees their memory


class PredictionColumns:
    """A model's predictions for the records of a set, computed as they are read.

    Args:
        chunks: columns of some records at a time; see `bert_tf.engine.prediction.Predictor`.
        global_step: returns the `global_step` of the weights.
    """

    def __init__(self, chunks: Iterator[Columns], global_step: Callable[[], int]):
        self._chunks = chunks
        self._global_step = global_step

    def __iter__(self) -> Iterator[Columns]:
        return self._chunks

    def join(self, *names: str) -> Columns:
        """Returns the named columns for all records; the others take no memory."""
        return join({name: chunk[name] for name in names} for chunk in self)

    @property
    def global_step(self) -> int:
        """Number of steps that the weights were trained for."""
        return self._global_step()


def check_differ(targets: Iterable[Any], refuses: bool = False) -> None:
    """Warns if the targets of all training examples are equal; with `refuses` an error."""
    counts = collections.Counter(targets)
    if len(counts) != 1:
        return
    ((target, count),) = counts.items()
    if refuses:
        raise UserError(
            f"The training examples must have at least two different labels; all {count} have"
            f" {quoted(target)}, so there is nothing to learn. Check the file and --label_column"
        )
    logging.warning(
        "All %d training examples have the label %s, so the model learns to give just that",
        *(count, quoted(target)),
    )


class FineTuningTask:
    """A task and the settings of one run: the base class of all tasks for fine-tuning.

    A purpose is "train", "eval" or "predict". Methods raise UserError where settings, files and
    model do not fit together, and OSError if a file cannot be written.

    Attributes:
        other_settings: instances of the other settings classes, in tasks with --folds.
        best_metric: the evaluation result that chooses the best checkpoint; higher is better.
        batch_flags: the flag of the batch size for each purpose except training.
        prediction_heading: the log line before the final predictions.
        vector_settings: how the vectors that the task trains are made; None if it trains none.
    """

    other_settings: Sequence[Settings] = ()
    best_metric: str
    batch_flags: ClassVar[Mapping[str, str]] = {
        "eval": "eval_batch_size",
        "predict": "predict_batch_size",
    }
    prediction_heading = "***** Running prediction*****"
    vector_settings: VectorSettings | None = None

    def __init__(self, settings: FineTuningSettings):
        self.settings = settings

    @classmethod
    def from_settings(cls, *settings: Settings) -> "FineTuningTask":
        """Returns the task of a run from an instance of each class of settings in the registry."""
        return cls(*settings)

    # --- before training --------------------------------------------------------------------------

    def model_config(self, config: BertConfig) -> BertConfig:
        """Returns the configuration of the run's model: --bert_config_file's unless overridden."""
        return config

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Raises UserError if settings do not fit each other, the model or the devices."""

    def read(self, purpose: str) -> Sequence[Any]:
        """Returns the examples for a purpose."""
        raise NotImplementedError

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        """Returns the sets of examples for a purpose: one, unless this is overridden.

        The same set may serve two purposes.
        """
        return [ExampleSet(purpose, self.read(purpose))]

    # For --dev_fraction, in tasks with that setting.

    def dev_set(self) -> str | None:
        """Returns the path or the name of the examples to evaluate on; None if there are none."""
        raise NotImplementedError

    def key(self, example: Any) -> tuple[Hashable, str]:
        """Returns an example's class, or None in tasks without classes, and all its text."""
        raise NotImplementedError

    def fold_key(self, example: Any) -> FoldKey:
        """Returns what decides the fold of an example, for --folds in tasks with that setting."""
        raise NotImplementedError

    def subset(self, whole: ExampleSet, purpose: str, numbers: Sequence[int]) -> ExampleSet:
        """Returns the set of some examples of another set, for a purpose."""
        return ExampleSet(purpose, [whole.examples[i] for i in numbers])

    def labels(self, sets: Mapping[str, Sequence[ExampleSet]]) -> Sequence[str] | None:
        """Returns the classes in the order of the logits, for `labels.txt` beside the checkpoints.

        () for regression. None if the model has no labels to remember.

        Args:
            sets: the sets of the run by purpose.
        """
        return None

    def prepare(self, sets: Mapping[str, Sequence[ExampleSet]], labels: Any) -> None:
        """Changes the examples of a run before they are encoded; nothing unless overridden.

        `sets` are the sets by purpose, and `labels` what the method of that name returned.
        """

    def reads(self, examples: Sequence[Any]) -> str | None:
        """Returns what the model reads; see `ModelInput`."""
        return TEXTS

    def row(self, example: Any, purpose: str, number: int) -> Mapping[str, Cell] | None:
        """Returns what tables of predictions show of an example.

        These are `id`, its texts, and `label` if it is known. None in tasks without such tables.
        `number` is the example's place in its set, from 0.
        """
        return None

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: Sequence[str] | None
    ) -> ExampleEncoder:
        """Returns the encoder that turns a set's examples into records."""
        raise NotImplementedError

    def build(self, config: BertConfig, labels: Sequence[str] | None, **options) -> TaskModel:
        """Returns a new model with initial weights, its variables named as in a checkpoint."""
        raise NotImplementedError

    def teaching(
        self,
        config: BertConfig,
        tokenizer: Tokenizer,
        labels: Sequence[str] | None,
        strategy: tf.distribute.Strategy,
    ) -> dict[str, Callable]:
        """Returns `Trainer`'s `objective` and `initialize` for a run with a teacher; else {}."""
        return {}

    def epoch_size(self, num_examples: int, num_records: int) -> int:
        """Returns the number of examples in an epoch: of records, unless overridden."""
        return num_records

    # --- with a model -----------------------------------------------------------------------------

    def evaluate(self, example_set: ExampleSet, predictions: PredictionColumns) -> dict[str, float]:
        """Returns the results of an evaluation of a set for the purpose "eval"."""
        raise NotImplementedError

    def calibrate(
        self, model: TaskModel, example_set: ExampleSet, predictions: PredictionColumns
    ) -> None:
        """Scales a trained model's logits on the dev set, for --temperature_scaling."""
        raise NotImplementedError

    def write_review(self, example_set: ExampleSet) -> None:
        """Writes what the final evaluation of a set found: tables of its examples, a report."""

    def write_predictions(
        self, example_set: ExampleSet, predictions: PredictionColumns
    ) -> dict[str, float] | None:
        """Writes the predictions for a set for the purpose "predict".

        Returns the results for `eval_results.txt` if the task evaluates its predictions; else None.
        """
        raise NotImplementedError

    def path(self, name: str) -> str:
        """Returns the path of a file in --output_dir."""
        return os.path.join(self.settings.output_dir, name)
