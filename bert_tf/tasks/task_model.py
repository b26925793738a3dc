"""The base class of a task's model, with its loss, metrics and predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

import functools
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.bounds import inputs_were_checked
from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError, listed
from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import OutputLayer, example_weights
from bert_tf.model.inputs import (
    OPTIONAL_INPUTS,
    WEIGHTS,
    as_dtype,
    checked_inputs,
    features_by_name,
    finite,
    get_shape_list,
    input_names,
    is_numeric,
    model_signature,
    named_inputs,
    numeric,
    paired,
    renamed,
    shaped,
)
from bert_tf.model.layers import dtype_policy
from bert_tf.model.saving import Savable
from bert_tf.modeling import BertModel, BertOutput
from bert_tf.runs.training.watch import set_modes
from bert_tf.tasks.fit_arguments import array_arguments, weigh_classes


class TaskModel(Savable, keras.Model):
    """BERT with a task's head: a model and its objective (`bert_tf.engine.steps.Objective`) in one.

    A call takes the arguments of `call`, in order or by name, or all features in one dictionary, or
    inputs in a list; see `BertModel`. A dictionary may also have labels and other features of
    records; a name that neither the model nor any record knows raises UserError.

    `fit` and `evaluate` compute `loss_and_metrics` if `compile` was given no loss. Labels are
    features, or the y of Keras's (x, y): an array for the first of `label_names`, a tuple in their
    order, or a dictionary. Keras's sample_weight, float [B], is the weight of each example in loss
    and metrics, and so is a feature `example_weight`.
    """

    required_inputs: tuple[str, ...] = ("input_ids",)  # arguments that `call` requires
    input_rank = 2  # number of axes of `input_ids`
    label_names: tuple[str, ...] = ()  # labels that `loss_and_metrics` reads; () if it needs none
    task_metrics: tuple[str, ...] = ()  # names of the metrics of `loss_and_metrics`
    # See `bert_tf.engine.steps.Objective`.
    compared_features: tuple[str, ...] = ()
    sums_losses: bool = False

    def __init__(self, config: BertConfig, *, dtype: Any = None, **options: Any):
        policy = dtype_policy(dtype)
        super().__init__(name="", dtype=policy)  # a name would come first in the variables' paths
        self.bert = BertModel(config, dtype=policy, **options)
        self.built = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs of `call`, after checks of the inputs.

        Args:
            *args: the arguments of `call` in order; the first may also be a list of inputs, or a
                dictionary of features.
            **kwargs: arguments of `call` by name.

        Raises:
            UserError: see `BertModel.__call__`.
        """
        inputs = named_inputs(self, args, kwargs)
        missing = [name for name in self.required_inputs if name not in inputs]
        if missing:
            raise UserError(
                f"The features of {type(self).__name__} must have {listed(missing)}; received"
                f" {listed(sorted(inputs)) or 'none'}"
            )
        inputs = checked_inputs(inputs, self.bert.config, self.input_rank)
        input_ids = inputs.pop("input_ids")
        with inputs_were_checked():
            return super().__call__(input_ids, **inputs)

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
    ) -> Any:
        """Returns the outputs of the head; see `head_outputs`.

        Args:
            input_ids: int32 [B, S]; or [B, C, S] if an example has C sequences (`input_rank` 3).
            input_mask: of the same shape, 1 for tokens and 0 for padding; None is all ones.
            segment_ids: of the same shape, 1 for the second text; None is all zeros.
            training: whether dropout is on.
            dropout_seed: int32 [2]; None draws one.
        """
        inputs = [input_ids, input_mask, segment_ids]
        *examples, length = get_shape_list(input_ids)
        if self.input_rank == 3:
            inputs = [x if x is None else tf.reshape(x, [-1, length]) for x in inputs]
        dropout = {"training": training, "dropout_seed": dropout_seed}
        found = self.head_outputs(self.bert(*inputs, **dropout), inputs[1], **dropout)
        if self.input_rank == 3:
            found = tf.reshape(found, [-1, examples[1], *found.shape[1:]])
        return found

    def head_outputs(self, output: BertOutput, input_mask: Any, **dropout: Any) -> Any:
        """Returns the head's outputs for BERT's output, with a row for each sequence.

        `dropout` has `training` and `dropout_seed`; for the other arguments see `call`.
        """
        raise NotImplementedError

    def _features(self, x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, Any]:
        """Returns inputs and labels by name, as int32 or float32, and `example_weight`.

        Labels and weights are checked; inputs are only converted, because `__call__` checks them.
        """
        features = self._by_name(x, y)
        missing = [name for name in self.label_names if name not in features]
        if missing:
            raise UserError(
                f"The features or labels of {type(self).__name__} must have {listed(missing)} for"
                f" its loss; received {listed(sorted(features))}"
            )
        inputs = {name: features[name] for name in input_names(self) if name in features}
        with inputs_were_checked():
            features |= checked_inputs(inputs, self.bert.config, self.input_rank)
        batch = get_shape_list(features["input_ids"])[:1]
        weights = [features["example_weight"]] if "example_weight" in features else []
        # Keras repeats sample_weight in the structure of y.
        weights += [] if sample_weight is None else tf.nest.flatten(sample_weight)[:1]
        if weights:
            one = "one number for each example"
            checked = (shaped(numeric(w, "weights"), "weights", batch, one) for w in weights)
            checked = (finite(weight, "weights", bounds=WEIGHTS) for weight in checked)
            features["example_weight"] = functools.reduce(tf.multiply, checked)
        features |= self.checked_labels(features)
        return {
            name: as_dtype(value, "float32" if value.dtype.is_floating else "int32")
            for name, value in features.items()
        }

    def _by_name(self, x: Any, y: Any) -> dict[str, tf.Tensor]:
        if isinstance(x, Mapping):
            features = features_by_name(self, x)
        else:
            values = x if isinstance(x, list | tuple) else [x]
            features = paired(values, input_names(self))
        if isinstance(y, Mapping):
            features |= renamed(y, self.label_names)
        elif y is not None:
            features |= paired(y if isinstance(y, list | tuple) else [y], self.label_names)
        known = {*input_names(self), *self.label_names}
        return {
            name: numeric(value, name)
            for name, value in features.items()
            if value is not None and (name in known or is_numeric(value))
        }

    def output_layer(self, num_outputs: int, dropout_prob: float, **options: Any) -> OutputLayer:
        """Returns a head for BERT's outputs; see `OutputLayer`."""
        config = self.bert.config
        arguments = {"size": config.hidden_size, "glorot": config.glorot_heads, **options}
        policy = self.bert.dtype_policy
        return OutputLayer(num_outputs, dtype=policy, dropout_prob=dropout_prob, **arguments)

    # --- loss, metrics, predictions ---------------------------------------------------------------

    def normalizers(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the sums of weights, float32 [], that divide the losses of a batch.

        Unless overridden: `examples`, the sum of the examples' weights.

        Args:
            features: a whole batch. `example_weight`, float32 [B], is the weight of each example;
                without it every example has weight 1.
        """
        return {"examples": tf.reduce_sum(example_weights(features))}

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
        """Returns predictions by name, tensors [B, ...]; weights do not change them.

        Args:
            outputs: what the model returned for these features, without dropout.
            features: the batch by name.
        """
        raise NotImplementedError

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the labels with the shapes and types of records; see `bert_tf.model.inputs`.

        Args:
            features: checked inputs and `example_weight`, and labels as they were given.

        Raises:
            UserError: the shape of a label is wrong, or its value is out of range.
        """
        return {}

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains the model; see `keras.Model.fit`.

        Lists, and labels among the features, are converted to what Keras expects. Callbacks that
        monitor a metric of the task learn in which direction the metric improves.

        Raises:
            UserError: labels are not numbers, or `class_weight` does not fit the task.
        """
        given = array_arguments(super().fit, args, kwargs, self)
        if given.get("class_weight") is not None:
            weigh_classes(given, self)
        set_modes(given.get("callbacks"), self.task_metrics)
        return super().fit(**given)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Returns loss and metrics; see `keras.Model.evaluate`, and `fit` for labels."""
        return super().evaluate(**array_arguments(super().evaluate, args, kwargs, self))

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs for all rows as arrays; see `keras.Model.predict`."""
        return super().predict(**array_arguments(super().predict, args, kwargs, self))

    def export(self, filepath: Any, *args: Any, input_signature: Any = None, **kwargs: Any) -> None:
        """Exports the model for serving; see `keras.Model.export`.

        Args:
            filepath: the folder to write.
            *args, **kwargs: see `keras.Model.export`.
            input_signature: None for a dictionary of all inputs except those for packed rows, each
                int32 of any size.
        """
        names = (*self.required_inputs, *OPTIONAL_INPUTS)
        signature = input_signature or [model_signature(names, self.input_rank)]
        super().export(filepath, *args, input_signature=signature, **kwargs)

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
                step for each batch shape, and the step does not get faster.
        """
        accelerated = any(tf.config.list_physical_devices(kind) for kind in ("GPU", "TPU"))
        if jit_compile == "auto" and not accelerated:
            jit_compile = False
        # Metrics are created here, under the strategy. __dict__ bypasses Keras's tracking, which
        # refuses new metrics in a built model.
        own_loss = loss is None and bool(type(self).label_names)
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
            y = self._labels_of(x) if y is None else y
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        features = self._features(x, y, sample_weight)
        loss, sums = self.loss_and_metrics(y_pred, features, self.normalizers(features))
        for name, metric in means.items():
            total, weight = sums[name]
            mean = tf.math.divide_no_nan(total, weight)
            metric.update_state(mean, sample_weight=weight)
        # Keras sums gradients over replicas.
        return loss / tf.distribute.get_strategy().num_replicas_in_sync

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Returns the metrics by name; labels may be among the features, as in `compute_loss`."""
        y = self._labels_of(x) if y is None else y
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _labels_of(self, x: Any) -> Any:
        """Returns the labels among the features as Keras's y: one, a tuple of several, or None."""
        features = features_by_name(self, x) if isinstance(x, Mapping) else {}
        found = tuple(features[name] for name in type(self).label_names if name in features)
        return found[0] if len(found) == 1 else found or None
