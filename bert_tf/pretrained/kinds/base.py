"""`Kind`: what `fit`, `evaluate` and `predict` need to know of a task."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from bert_tf.errors import UserError
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.tasks.registry import TASKS
from bert_tf.tasks.task import ExampleSet, FineTuningTask


class Kind:
    """A task that a model in memory can be trained for: the base class of all kinds.

    Attributes:
        name: the task's in `registry.TASKS`.
        heads: the heads of a trained model of this kind; see `Pretrained.heads`. () if it is the
            model without a head.
        inputs, targets: what x and y of `fit` are, for messages.
        ranks: in a row of a `tf.data.Dataset`, that of the first tensor of x, and of y.
        multi_label: whether an example can have several labels.
        evaluation: the purpose for which the program scores a model.
        predict_options: names of the options of `predict`; None if the program predicts, so that
            they are its settings.
        labels: the classes in the order of the logits; None if they are not known yet, or if the
            task has none.
    """

    name: ClassVar[str]
    heads: ClassVar[tuple[str, ...]]
    inputs: ClassVar[str] = "texts"
    targets: ClassVar[str] = "labels"
    ranks: ClassVar[tuple[int, int]] = (0, 0)
    evaluation: ClassVar[str] = "eval"
    multi_label: ClassVar[bool] = False
    predict_options: ClassVar[frozenset[str] | None] = None
    labels: tuple[str, ...] | None = None

    @property
    def settings_class(self) -> type[FineTuningSettings]:
        """The settings of the task's program."""
        return TASKS[self.name].settings_classes()[0]

    def names(self, purpose: str) -> tuple[str, str]:
        """Returns what x and y are called in messages."""
        if purpose == "validation":
            return "validation_data[0]", "validation_data[1]"
        return self.inputs, self.targets

    def set_name(self, purpose: str) -> str:
        """Returns the name of the set: the program's purpose."""
        return {"validation": "eval", "eval": self.evaluation}.get(purpose, purpose)

    def example_set(self, purpose: str, x: Any, y: Any, weights: Any = None) -> ExampleSet:
        """Returns the set of the examples for a purpose; to train, it also learns the classes.

        Args:
            purpose: "train", "validation", "eval" or "predict".
            x, y: see `Pretrained.fit`; y is None to predict.
            weights: the weight of each example; None for 1.

        Raises:
            UserError: the examples are malformed; the message names the first such example.
        """
        raise NotImplementedError

    def no_weights(self, weights: Any) -> None:
        """Raises UserError if there are weights, in a task whose examples all count the same."""
        if weights is not None:
            raise UserError(
                "sample_weight is for classification, regression and tagging; leave it out"
            )

    def decided(self) -> dict[str, Any]:
        """Returns the settings that the examples decide."""
        return {}

    def of_weights(self, names: Collection[str]) -> Mapping[str, Any]:
        """Returns the settings that the model's head decides, by the names of its weights."""
        return {}

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises UserError if settings by name, which may lack defaults, do not fit the examples.

        Called before the settings are made, whose own messages name columns of a table.
        """

    def check(self, settings: FineTuningSettings) -> None:
        """Raises UserError if the settings do not fit the examples."""

    def task(self, settings: FineTuningSettings) -> FineTuningTask:
        """Returns the task of a run; its examples come from `example_set`."""
        return TASKS[self.name].load().from_settings(settings)

    def predict(self, model: Any, x: Any, options: dict[str, Any]) -> Any:
        """Returns the outputs of a trained model, a `Pretrained`, if `predict_options` are given.

        For the outputs see `Pretrained.predict`.
        """
        raise NotImplementedError

    def read_predictions(self, settings: FineTuningSettings) -> Any:
        """Returns the outputs that the program wrote into `output_dir`."""
        raise NotImplementedError
