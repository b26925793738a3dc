"""Writes a model in each of the three formats."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from types import ModuleType

import keras
import tensorflow as tf

from bert_tf.export.packages import import_package
from bert_tf.export.settings import INT8, LITERT, ONNX, SAVED_MODEL
from bert_tf.export.signatures import DEFAULT_SIGNATURE
from bert_tf.files.whole_files import write_whole
from bert_tf.pretrained.build import POSITIONS, Outputs

Signatures = Mapping[str, tf.types.experimental.ConcreteFunction]
FILES = {ONNX: "model.onnx", LITERT: "model.tflite", SAVED_MODEL: "saved_model.pb"}
# Not the newest, so that older versions of ONNX Runtime can read the file. tf2onnx supports all
# operations of BERT in it.
OPSET = 17
_AXES = {2: ("batch", "length"), 3: ("batch", "choices", "length")}


def write_saved_model(path: str, module: tf.Module, signatures: Signatures) -> None:
    """Writes a SavedModel to a folder; `module` has all variables and tables of the signatures."""
    tf.saved_model.save(module, path, signatures=dict(signatures))


def write_onnx(
    path: str,
    model: keras.Model,
    outputs: Outputs,
    specs: Mapping[str, tf.TensorSpec],
    quantize: str | None,
) -> None:
    """Writes a file for ONNX Runtime.

    Args:
        model: the model with the variables that `outputs` uses.
        outputs: input tensors by name -> output tensors by name.
        specs: name of an input -> its dtype and shape.
        quantize: "int8" to store matrices as 8-bit integers; None for float32.

    Raises:
        UserError: a package is missing.
    """
    tf2onnx = import_package("tf2onnx", "tf2onnx", "--format=onnx")
    onnx = import_package("onnx", "onnx", "--format=onnx")

    # The weights are inputs while tf2onnx works on the graph: it copies constants so often that it
    # would take fifty times the size of the model in memory.
    def with_weights(features, weights):
        with keras.StatelessScope(list(zip(model.variables, weights, strict=True))):
            return outputs(features)

    weights = [
        tf.TensorSpec(v.shape, tf.float32, _weight(i)) for i, v in enumerate(model.variables)
    ]
    converted, _ = tf2onnx.convert.from_function(
        tf.function(with_weights, autograph=False),
        input_signature=[dict(specs), weights],
        opset=OPSET,
    )
    _set_weights(onnx, converted.graph, model.variables)
    _name_axes(converted.graph)
    onnx.checker.check_model(converted)
    if quantize == INT8:
        quantization = import_package("onnxruntime.quantization", "onnxruntime", "--quantize=int8")
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, FILES[ONNX])
            kind = quantization.QuantType.QInt8
            quantization.quantize_dynamic(converted, local, weight_type=kind, per_channel=True)
            converted = onnx.load(local)
    write_whole(path, converted.SerializeToString())


def _weight(number: int) -> str:
    return f"weight_{number}"


def _set_weights(onnx: ModuleType, graph, variables: Sequence[keras.Variable]) -> None:
    """Replaces the inputs that stand for variables by constants with the variables' names."""
    paths = {_weight(i): variable.path for i, variable in enumerate(variables)}
    used = {name for node in graph.node for name in node.input}
    inputs = [value for value in graph.input if value.name not in paths]
    del graph.input[:]
    graph.input.extend(inputs)
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = paths.get(name, name)
    for i, variable in enumerate(variables):
        if _weight(i) in used:
            value = variable.value.numpy()
            graph.initializer.append(onnx.numpy_helper.from_array(value, variable.path))


def _name_axes(graph) -> None:
    """Names the axes of the inputs that may have any size."""
    for value in graph.input:
        dimensions = value.type.tensor_type.shape.dim
        axes = ("batch", "masks") if value.name == POSITIONS else _AXES[len(dimensions)]
        for dimension, axis in zip(dimensions, axes, strict=True):
            if not dimension.dim_value:
                dimension.dim_param = axis


def write_litert(
    path: str, module: tf.Module, signatures: Signatures, quantize: str | None
) -> None:
    """Writes a file for LiteRT; `module` as in `write_saved_model`, `quantize` in `write_onnx`."""
    with tempfile.TemporaryDirectory() as folder:
        write_saved_model(folder, module, signatures)
        names = [DEFAULT_SIGNATURE]
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=names)
        if quantize == INT8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        model = converter.convert()
    write_whole(path, model)
