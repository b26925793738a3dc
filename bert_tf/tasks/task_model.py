"""The base class of a task's model, with its loss, metrics and predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError, listed
from bert_tf.model.configuration import BertConfig
from bert_tf.model.saving import Savable
from bert_tf.modeling import BertModel

OPTIONAL_INPUTS = ("input_mask", "segment_ids")


class TaskModel(Savable, keras.Model):
    """BERT with a task's head: a model and its objective (`bert_tf.engine.steps.Objective`) in one.

    A call takes the arguments of `call`, or all features in one dictionary, or inputs in a list.
    The inputs in OPTIONAL_INPUTS may be missing; all ids are then tokens of the first text. Without
    another input the call raises UserError. Unknown keys of a dictionary are ignored, so it may
    contain the labels.

    `fit` and `evaluate` compute `loss_and_metrics` if `compile` was given no loss.
    Labels are features, or the y of Keras's (x, y): an array for the first of `label_names`, a
    tuple in their order, or a dictionary. Keras's sample_weight, float [B], is the weight of each
    example in loss and metrics, and so is a feature `example_weight`.
    """

    required_inputs: tuple[str, ...] = ("input_ids",)  # arguments that `call` requires
    packing_inputs: tuple[str, ...] = ()  # further arguments that packed rows need
    label_names: tuple[str, ...] = ()  # labels that `loss_and_metrics` reads; () without training
    task_metrics: tuple[str, ...] = ()  # names of the metrics of `loss_and_metrics`

    def __init__(self, config: BertConfig, **options: Any):
        super().__init__(name="")  # a name would come first in the variables' paths
        self.bert = BertModel(config, **options)
        self.built = True

    def __call__(self, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs of `call`.

        Args:
            inputs: the first argument of `call`, or a dictionary of features by name, or a list of
                `input_ids`, `input_mask`, `segment_ids` and further arguments of `call`.
            *args, **kwargs: the other arguments of `call`.
        """
        if isinstance(inputs, Mapping | list | tuple):
            features = self._features(inputs)
            missing = [name for name in self.required_inputs if name not in features]
            if missing:
                raise UserError(
                    f"The features of {type(self).__name__} must have {listed(missing)}; received"
                    f" {listed(sorted(features)) or 'none'}"
                )
            inputs, *others = self._input_names()
            kwargs.update({name: features[name] for name in others if name in features})
            inputs = features[inputs]
        elif inputs is None:  # by name
            inputs = kwargs.pop("input_ids")
        return super().__call__(inputs, *args, **kwargs)

    def _input_names(self) -> tuple[str, ...]:
        first, *others = self.required_inputs
        return (first, *OPTIONAL_INPUTS, *others, *self.packing_inputs)

    def _features(self, x: Any, y: Any = None) -> dict[str, Any]:
        """Returns inputs and labels by name, as int32 or float32; drops values of other types."""
        names = self._input_names()
        features = {} if x is None else dict(_named(x, names))
        features.update({} if y is None else _named(y, self.label_names))
        typed = {name: _int32_or_float32(value) for name, value in features.items()}
        return {name: value for name, value in typed.items() if value is not None}

    # --- loss, metrics, predictions ---------------------------------------------------------------

    def normalizers(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the sums of weights, float32 [], that divide the losses of a batch.

        Args:
            features: a whole batch. `example_weight`, float32 [B], is the weight of each example;
                without it every example has weight 1.
        """
        raise NotImplementedError

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the loss of a batch, or of a part of it, and its metrics.

        Args:
            outputs: what the model returned for these features.
            features: the batch, or its part, by name, with labels and `example_weight`.
            normalizers: the `normalizers` of the whole batch.

        Returns:
            The loss, float32 [], and each metric as a pair of float32 []: a weighted sum and the
            sum of its weights.
        """
        raise NotImplementedError

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns predictions by name, tensors [B, ...]; `example_weight` is ignored.

        Args:
            outputs: what the model returned for these features, without dropout.
            features: the batch by name.
        """
        raise NotImplementedError

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        *,
        jit_compile: bool | str = "auto",
        **options: Any,
    ) -> None:
        """Prepares `fit` and `evaluate`.

        Args:
            optimizer: such as `bert_tf.optimization.AdamWeightDecayOptimizer`.
            loss: None for `loss_and_metrics`; for other losses and **options, see
                `keras.Model.compile`.
            jit_compile: whether XLA compiles the steps. "auto" is Keras's choice if there is a GPU
                or TPU, else False: on a CPU, XLA takes half a minute to compile a small model's
                step, for every shape of a batch, and the step does not get faster.
        """
        accelerated = any(tf.config.list_physical_devices(kind) for kind in ("GPU", "TPU"))
        if jit_compile == "auto" and not accelerated:
            jit_compile = False
        # Metrics are created here, under the strategy. __dict__ bypasses Keras's tracking, which
        # refuses new metrics in a built model.
        own_loss = loss is None and bool(self.label_names)
        means = {name: keras.metrics.Mean(name) for name in self.task_metrics}
        self.__dict__["_task_means"] = means if own_loss else None
        super().compile(optimizer, loss, jit_compile=jit_compile, **options)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles the model from `get_compile_config`; Keras calls it when it loads a model."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The metrics of `compile`, and the model's own."""
        return [*super().metrics, *(vars(self).get("_task_means") or {}).values()]

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> tf.Tensor:
        """Returns the loss of a batch, float32 [], and updates the model's own metrics with it.

        Args:
            x: the features: a dictionary, or inputs in a list, or `input_ids`.
            y: labels, if they are not among the features.
            y_pred: the outputs of the model for `x`.
            sample_weight: float [B], the weight of each example; None for 1.
        """
        means = vars(self).get("_task_means")
        if means is None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        features = self._features(x, y)
        if sample_weight is not None:  # Keras repeats it in the structure of y
            features["example_weight"] = tf.cast(tf.nest.flatten(sample_weight)[0], tf.float32)
        missing = [name for name in self.label_names if name not in features]
        if missing:
            raise UserError(
                f"The features or labels of {type(self).__name__} must have {listed(missing)} for"
                f" its loss; received {listed(sorted(features))}"
            )
        loss, sums = self.loss_and_metrics(y_pred, features, self.normalizers(features))
        for name, (total, weight) in sums.items():
            mean = tf.math.divide_no_nan(total, weight)
            means[name].update_state(mean, sample_weight=weight)
        # Keras sums gradients over replicas.
        return loss / tf.distribute.get_strategy().num_replicas_in_sync


def _named(values: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Returns values by name: a dictionary unchanged, a list or one tensor paired with `names`."""
    if isinstance(values, Mapping):
        return values
    values = values if isinstance(values, list | tuple) else [values]
    if len(values) > len(names):
        raise UserError(
            f"A list of inputs or labels must be no longer than {listed(names)}; received"
            f" {len(values)} values. Pass them by name, in a dictionary"
        )
    return dict(zip(names, values, strict=False))


def _int32_or_float32(value: Any) -> Any:
    """Returns a tensor of numbers as int32 or float32, as in records; None for other tensors.

    NumPy arrays are often int64, float64 or bool.
    """
    if value is None:
        return None
    if not isinstance(value, keras.KerasTensor):
        value = tf.convert_to_tensor(value)
    dtype = tf.as_dtype(value.dtype)
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        return None
    wanted = "float32" if dtype.is_floating else "int32"
    return value if dtype.name == wanted else keras.ops.cast(value, wanted)
