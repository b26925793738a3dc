"""Lets Keras save and load layers and models: `Savable`, `register`.

A saved model records the class of each part and the arguments of its constructor. Keras finds
classes by their registered names, so import the module of a class before you load its model.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.errors import UserError, quoted
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import config_from_dict
from bert_tf.model.inputs import renamed

# A decorator: Keras knows the class as `bert_tf>NAME`.
register = keras.saving.register_keras_serializable("bert_tf")


class Unquantized:
    """A layer or model whose `quantize` is an error: a file would not keep the change.

    List this class before Keras's. In a model around one of ours, Keras shows the error as a
    warning.
    """

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "Keras's quantize does not support bert_tf's layers. For 8-bit integers use"
            " bert_tf.export_model with format='onnx' or 'litert' and quantize='int8'"
        )


class Savable(Unquantized):
    """A Keras layer or model whose config is the arguments of its constructor.

    A `BertConfig` argument becomes a dictionary. Two more keys say what is not trained: `trainable`
    is False if the whole layer is frozen, and `frozen` lists the paths of frozen variables.

    List this class before Keras's: `class Pooler(Savable, keras.layers.Layer)`.
    """

    def __new__(cls, *args, **kwargs):
        """Returns an instance that keeps a copy of its constructor's arguments."""
        instance = super().__new__(cls, *args, **kwargs)
        signature = inspect.signature(cls.__init__)
        bound = signature.bind(instance, *args, **kwargs)
        bound.apply_defaults()
        arguments: dict[str, Any] = {}
        for name, value in list(bound.arguments.items())[1:]:  # without self
            is_options = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            arguments |= value if is_options else {name: value}
        # vars() bypasses Keras, which would look for layers in the arguments.
        vars(instance)["_arguments"] = {name: _plain(value) for name, value in arguments.items()}
        kinds = {parameter.kind for parameter in signature.parameters.values()}
        takes_options = inspect.Parameter.VAR_KEYWORD in kinds  # passed on to `BertModel`
        vars(instance)["_takes_dtype"] = takes_options or "dtype" in arguments
        return instance

    def get_config(self) -> dict[str, Any]:
        """Returns the JSON values from which `from_config` makes an equal layer or model."""
        config = self._arguments.get("config")
        values = [*self._arguments.values(), *(config.values() if isinstance(config, dict) else ())]
        if functions := [value for value in values if callable(value)]:
            raise UserError(
                "To be saved by Keras, a model must have the name of an activation as hidden_act of"
                f' its BertConfig, such as "gelu" or "relu", not the function'
                f" {quoted(functions[0])}; or save only the weights:"
                ' model.save_weights("x.weights.h5")'
            )
        dtype = {"dtype": self.dtype_policy.name} if self._takes_dtype else {}
        frozen = [variable.path for variable in self.variables if not variable.trainable]
        return {**self._arguments, **dtype, "trainable": self.trainable, "frozen": frozen}

    @classmethod
    def from_config(cls, config: dict[str, Any]):
        """Returns a new layer or model, with initial weights, from what `get_config` returned."""
        config = dict(config)
        trainable, frozen = config.pop("trainable", True), config.pop("frozen", None)
        if isinstance(config.get("config"), dict):
            config["config"] = config_from_dict(config["config"])
        made = cls(**config)
        for variable in made.variables if frozen is not None else ():
            variable.trainable = variable.path not in frozen
        if not trainable:
            made.trainable = False
        return made

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, *shapes, **shapes_by_name):
        """Returns the shapes of the outputs, in their structure.

        `shapes` are the shapes of the first arguments of `call`, or a single list or dictionary of
        all shapes; `shapes_by_name` are `NAME_shape` of further arguments.
        """
        names = [*inspect.signature(self.call).parameters]
        first, *others = shapes or [shapes_by_name.pop("input_shape", None)]
        if isinstance(first, Mapping):
            given = renamed(first, names)
        elif isinstance(first, list | tuple) and first and isinstance(first[0], list | tuple):
            given = dict(zip(names, first, strict=False))
        else:
            given = {names[0]: first}
        given |= dict(zip(names[1:], others, strict=False))
        given |= {key.removesuffix("_shape"): shape for key, shape in shapes_by_name.items()}
        given = {name: shape for name, shape in given.items() if name in names and shape}
        if not given:  # as when Keras's `summary` asks
            raise NotImplementedError("compute_output_shape needs the shape of an input")
        inputs = {
            name: keras.KerasTensor(
                tuple(shape), "int32" if name.endswith(_INTEGERS) else self.compute_dtype
            )
            for name, shape in given.items()
        }
        outputs = self.compute_output_spec(**inputs)
        return keras.tree.map_structure(lambda output: tuple(output.shape), outputs)


# Endings of the names of integer arguments.
_INTEGERS = ("_ids", "_mask", "positions", "_numbers")


def _plain(value: Any) -> Any:
    """Returns an argument as a JSON value; a function is returned unchanged."""
    if isinstance(value, BertConfig):
        return value.to_dict()
    if isinstance(value, tuple):  # Keras would not restore a tuple
        return list(value)
    return value.name if isinstance(value, keras.DTypePolicy) else value
