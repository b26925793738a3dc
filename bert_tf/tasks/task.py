"""What a task provides for fine-tuning; `fine_tuning.run_fine_tuning` does the rest."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from bert_tf.engine.prediction import Columns, join
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.setting_fields import Settings
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.tasks.example_records import ExampleEncoder, write_records
from bert_tf.tasks.task_model import TaskModel
from bert_tf.text.tokenizers import Tokenizer


@dataclasses.dataclass(eq=False)
class ExampleSet:
    """Examples that a run trains on, evaluates or predicts.

    Attributes:
        name: of its record file: "train", "eval" or "predict", and `suffix`.
        examples: what the task's encoder takes. They are dropped when their records are written; a
            task that needs more of a set keeps it in fields of a subclass.
        suffix: what the names of its results end in; "" for the task's own set.
        encoder: turns the examples into records.
        num_examples, num_records: how many examples were written, as how many records.
    """

    name: str
    examples: Sequence[Any]
    suffix: str = ""
    encoder: ExampleEncoder | None = None
    num_examples: int = 0
    num_records: int = 0

    def write_records(self, path: str) -> None:
        """Writes the records to a file; see `example_records.write_records`."""
        self.num_examples = len(self.examples)
        self.num_records = write_records(path, self.examples, self.encoder)
        self.examples = ()  # frees their memory


class PredictionColumns:
    """The predictions of a model for the records of a set; they are made as they are read.

    Args:
        chunks: columns of some records at a time; see `bert_tf.engine.prediction.Predictor`.
        global_step: returns the number of training steps behind the weights.
    """

    def __init__(self, chunks: Iterator[Columns], global_step: Callable[[], int]):
        self._chunks = chunks
        self._global_step = global_step

    def __iter__(self) -> Iterator[Columns]:
        return self._chunks

    def join(self, *names: str) -> Columns:
        """Returns columns for all records; the others take no memory."""
        return join({name: chunk[name] for name in names} for chunk in self)

    @property
    def global_step(self) -> int:
        """Number of training steps behind the weights."""
        return self._global_step()


class FineTuningTask:
    """A task and the settings of one run: the base class of all tasks that are fine-tuned.

    A purpose is "train", "eval" or "predict".

    Attributes:
        settings_classes: the settings that its program makes flags of; the first is the class of
            `settings`, and `from_settings` takes one of each.
        best_metric: the result of an evaluation by which the best checkpoint is chosen; higher is
            better.
        batch_flags: the flag of the batch size for each purpose.
        prediction_heading: the log line before the final predictions.
        settings: the flags of the run.
    """

    settings_classes: ClassVar[tuple[type[Settings], ...]]
    best_metric: str
    batch_flags: ClassVar[Mapping[str, str]] = {
        "train": "train_batch_size",
        "eval": "eval_batch_size",
        "predict": "predict_batch_size",
    }
    prediction_heading = "***** Running prediction*****"

    def __init__(self, settings: FineTuningSettings):
        self.settings = settings

    @classmethod
    def from_settings(cls, *settings: Settings) -> "FineTuningTask":
        """Returns the task of a run.

        Args:
            *settings: an instance of each of `settings_classes`.

        Raises:
            UserError: they contradict each other.
        """
        return cls(*settings)

    # --- before training --------------------------------------------------------------------------

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Raises UserError if settings do not fit each other, the model or the devices."""

    def read(self, purpose: str) -> Sequence[Any]:
        """Returns the examples for a purpose.

        Raises:
            UserError: a file is missing or malformed; the message says where.
        """
        raise NotImplementedError

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        """Returns the sets of examples for a purpose: one, unless this is overridden.

        The same set may serve two purposes. Errors are those of `read`.
        """
        return [ExampleSet(purpose, self.read(purpose))]

    def labels(self, sets: Mapping[str, Sequence[ExampleSet]]) -> Sequence[str] | None:
        """Returns the classes in the order of the logits, for `labels.txt` beside the checkpoints.

        () for regression. None if the model has no labels to remember.

        Args:
            sets: the sets of the run by their purpose.

        Raises:
            UserError: the classes are not known, or do not fit the examples or the trained model.
        """
        return None

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: Sequence[str] | None
    ) -> ExampleEncoder:
        """Returns what turns the examples of a set into records.

        Raises:
            UserError: --max_seq_length is too small.
        """
        raise NotImplementedError

    def build(self, config: BertConfig, labels: Sequence[str] | None, **options) -> TaskModel:
        """Returns a new model with initial weights, its variables named as in a checkpoint.

        Args:
            labels: see `labels`.
            **options: see `BertModel`.
        """
        raise NotImplementedError

    def teaching(
        self,
        config: BertConfig,
        tokenizer: Tokenizer,
        labels: Sequence[str] | None,
        strategy: tf.distribute.Strategy,
    ) -> dict[str, Callable]:
        """Returns `objective` and `initialize` of `Trainer` for a run with a teacher; else {}.

        Raises:
            UserError: the teacher does not fit the student, or cannot be read.
        """
        return {}

    def epoch_size(self, num_examples: int, num_records: int) -> int:
        """Returns the number of training examples as epochs count them: here the records.

        Raises:
            UserError: there is nothing to train on.
        """
        return num_records

    # --- with a model -----------------------------------------------------------------------------

    def evaluate(self, example_set: ExampleSet, predictions: PredictionColumns) -> dict[str, float]:
        """Returns the results of an evaluation of a set for the purpose "eval"."""
        raise NotImplementedError

    def write_predictions(
        self, example_set: ExampleSet, predictions: PredictionColumns
    ) -> dict[str, float] | None:
        """Writes the predictions for a set for the purpose "predict".

        Returns:
            The results to write to `eval_results.txt`; None unless the predictions are what this
            task evaluates.

        Raises:
            OSError: a file cannot be written.
        """
        raise NotImplementedError

    def path(self, name: str) -> str:
        """Returns the path of a file in --output_dir."""
        return os.path.join(self.settings.output_dir, name)
