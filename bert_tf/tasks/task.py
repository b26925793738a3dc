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
        name: the record file's name: "train", "eval" or "predict", and `suffix`.
        examples: in the form that the task's encoder takes. They are dropped once their records are
            written; a task that needs them later keeps what it needs in fields of a subclass.
        suffix: appended to the names of the set's results; "" for the task's own set.
        encoder: turns the examples into records.
        num_examples, num_records: the number of examples written, and of their records.
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
    """A model's predictions for the records of a set, computed as they are read.

    Args:
        chunks: columns of some records at a time; see `bert_tf.engine.prediction.Predictor`.
        global_step: returns the number of steps that the weights were trained for.
    """

    def __init__(self, chunks: Iterator[Columns], global_step: Callable[[], int]):
        self._chunks = chunks
        self._global_step = global_step

    def __iter__(self) -> Iterator[Columns]:
        return self._chunks

    def join(self, *names: str) -> Columns:
        """Returns the named columns for all records; other columns take no memory."""
        return join({name: chunk[name] for name in names} for chunk in self)

    @property
    def global_step(self) -> int:
        """Number of steps that the weights were trained for."""
        return self._global_step()


class FineTuningTask:
    """A task and the settings of one run: the base class of all tasks for fine-tuning.

    A purpose is "train", "eval" or "predict".

    Attributes:
        settings_classes: the settings classes that define the program's flags. The first is the
            class of `settings`; `from_settings` takes an instance of each.
        best_metric: the evaluation result that chooses the best checkpoint; higher is better.
        batch_flags: the flag of the batch size for each purpose.
        prediction_heading: the log line before the final predictions.
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
            UserError: the settings contradict each other.
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

        The same set may serve two purposes. Raises what `read` raises.
        """
        return [ExampleSet(purpose, self.read(purpose))]

    def labels(self, sets: Mapping[str, Sequence[ExampleSet]]) -> Sequence[str] | None:
        """Returns the classes in the order of the logits, for `labels.txt` beside the checkpoints.

        () for regression. None if the model has no labels to remember.

        Args:
            sets: the sets of the run by purpose.

        Raises:
            UserError: the classes are unknown, or do not fit the examples or the trained model.
        """
        return None

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: Sequence[str] | None
    ) -> ExampleEncoder:
        """Returns the encoder that turns a set's examples into records.

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
        """Returns `Trainer`'s `objective` and `initialize` for a run with a teacher; else {}.

        Raises:
            UserError: the teacher does not fit the student, or cannot be read.
        """
        return {}

    def epoch_size(self, num_examples: int, num_records: int) -> int:
        """Returns the number of examples in an epoch: of records, unless overridden.

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
            The results for `eval_results.txt` if the task evaluates its predictions; else None.

        Raises:
            OSError: a file cannot be written.
        """
        raise NotImplementedError

    def path(self, name: str) -> str:
        """Returns the path of a file in --output_dir."""
        return os.path.join(self.settings.output_dir, name)
