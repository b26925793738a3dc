"""Classification examples, and the base class of the processors that read them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.errors import UserError, listed, quoted


@dataclasses.dataclass(slots=True)
class InputExample:
    """A text, or a pair of texts, to classify.

    Attributes:
        guid: a name that is unique in the set of examples.
        text_a: the text, or the first one of the pair.
        text_b: the second text of the pair; None for a single text.
        label: the name of the class, or a number for regression. Predictions ignore the label of a
            test example, but it must be valid.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | float | None = None


class DataProcessor:
    """Reads the examples of a task, and knows its labels and metrics.

    Processors written for the original work unchanged: only `get_labels` and the
    `get_..._examples` of the sets in use are required.

    Attributes:
        labels: names of the classes in the order of the logits; None for regression.
        label_range: minimum and maximum of the labels of a regression; None for no bounds.
        metrics: names in `scores.METRICS`, which evaluation reports in addition to the loss.
        best_metric: the line of eval_results.txt that ranks checkpoints and runs; higher is better.
        submission_file: file name of the test predictions in a GLUE submission, which names classes
            as in `labels`; None for tasks that are not in GLUE.
        also: tasks with the same labels whose dev and test sets, where they exist, are evaluated
            and predicted as well. The names of their files and results end in `_KEY`.
        tfds_splits: TensorFlow Datasets splits for each set; the first that exists is read.
    """

    labels: Sequence[str] | None = None
    label_range: tuple[float, float] | None = None
    metrics: tuple[str, ...] = ("accuracy",)
    best_metric: str = "eval_accuracy"
    submission_file: str | None = None
    also: Mapping[str, "DataProcessor"] = {}
    tfds_splits: Mapping[str, tuple[str, ...]] = {
        "train": ("train",),
        "dev": ("validation",),
        "test": ("test",),
    }

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to train on."""
        return self.read("train", data_dir)

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to evaluate on."""
        return self.read("dev", data_dir)

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to predict."""
        return self.read("test", data_dir)

    def get_labels(self) -> list[str] | None:
        """Returns the names of the classes in the order of the logits; None for regression."""
        return None if self.labels is None else list(self.labels)

    def has(self, split: str, data_dir: str) -> bool:
        """Returns whether the task has the set `split`: "train", "dev" or "test"."""
        raise NotImplementedError

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        """Returns the examples of the set `split`: "train", "dev" or "test".

        Raises:
            UserError: the set is missing or malformed; the message says where.
        """
        raise NotImplementedError


def parse_label(text: str, processor: DataProcessor, place: str, remedy: str) -> str | float:
    """Returns the label that `text` stands for: a class, or a number for regression.

    Args:
        text: the label in the file.
        processor: the task, which has the valid labels.
        place: file and line, for messages.
        remedy: how to correct an invalid label, for messages.

    Raises:
        UserError: the label is not valid.
    """
    labels = processor.get_labels()
    if labels is not None:
        if text in labels:
            return text
        valid = f"one of {listed(labels)}"
    else:
        # Records hold float32.
        greatest = float(np.finfo(np.float32).max)
        low, high = processor.label_range or (-greatest, greatest)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if low <= value <= high:
            return value
        valid = f"a number from {low:g} to {high:g}" if processor.label_range else "a number"
    raise UserError(f"{place}: label {quoted(text)} must be {valid}; {remedy}")


def default_label(processor: DataProcessor) -> str | float:
    """Returns the placeholder label of test examples: the first label, as in the original."""
    labels = processor.get_labels()
    return labels[0] if labels else (processor.label_range or (0.0, 0.0))[0]
