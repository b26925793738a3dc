"""`Kind`: what `fit` and `evaluate` need to know of a task."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.tasks.registry import TASKS
from bert_tf.tasks.task import ExampleSet, FineTuningTask


class Kind:
    """A task that a model in memory can be trained for: the base class of all kinds.

    Attributes:
        name: the task's in `registry.TASKS`.
        heads: the heads of a trained model of this kind; see `Pretrained.heads`.
        inputs, targets: the arguments of `fit`, for messages.
        labels: the classes in the order of the logits; None if they are not known yet, or if the
            task has none.
    """

    name: ClassVar[str]
    heads: ClassVar[tuple[str, ...]]
    inputs: ClassVar[str] = "texts"
    targets: ClassVar[str] = "labels"
    labels: tuple[str, ...] | None = None

    @property
    def settings_class(self) -> type[FineTuningSettings]:
        """The settings of the task's program."""
        return TASKS[self.name].load().settings_classes[0]

    def example_set(self, purpose: str, x: Any, y: Any, place: str = "") -> ExampleSet:
        """Returns the set of the examples for a purpose; to train, it also learns the classes.

        Args:
            x, y: see `Pretrained.fit`.
            place: the argument that has the two, for messages; "" if they are arguments.

        Raises:
            UserError: the examples are malformed; the message names the first such example.
        """
        raise NotImplementedError

    def predict(self, model: Any, x: Any) -> NDArray[np.float64]:
        """Returns the outputs of a trained model, a `Pretrained`; see `Pretrained.predict`."""
        raise NotImplementedError

    def task(self, settings: FineTuningSettings) -> FineTuningTask:
        """Returns the task of a run; its examples come from `example_set`."""
        raise NotImplementedError
