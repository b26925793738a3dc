"""The three formats: how a model is written in each."""

import os
import tempfile
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.export.packages import import_package
from bert_tf.export.settings import INT8, LITERT, ONNX, SAVED_MODEL
from bert_tf.files.whole_files import write_whole

FILES = {ONNX: "model.onnx", LITERT: "model.tflite", SAVED_MODEL: "saved_model.pb"}
DEFAULT_SIGNATURE = "serving_default"
# Older than what ONNX Runtime reads, so that older versions of it read the file, too; tf2onnx knows
# all operations of BERT in it.
OPSET = 17
_AXES = {2: ("batch", "length"), 3: ("batch", "choices", "length")}


def write_saved_model(
    path: str, module: tf.Module, signatures: Mapping[str, tf.types.experimental.ConcreteFunction]
) -> None:
    """Writes a SavedModel.

    Args:
        path: of its folder.
        module: has all variables and tables that the signatures use.
        signatures: functions by name.
    """
    tf.saved_model.save(module, path, signatures=dict(signatures))


def write_onnx(
    path: str, function: tf.types.experimental.ConcreteFunction, quantize: str | None
) -> None:
    """Writes a model for ONNX Runtime.

    Args:
        path: of the file.
        function: takes tensors by name.
        quantize: "int8" for matrices of 8-bit integers; None for float32.

    Raises:
        UserError: a package is missing.
    """
    tf2onnx = import_package("tf2onnx", "tf2onnx", "--format=onnx")
    onnx = import_package("onnx", "onnx", "--format=onnx")
    _, specs = function.structured_input_signature
    # tf2onnx wants a function that it can trace, with positional arguments.
    traceable = tf.function(lambda features: function(**features), autograph=False)
    model, _ = tf2onnx.convert.from_function(
        traceable,
        input_signature=[specs],
        opset=OPSET,
        custom_op_handlers={"Erfc": (_convert_erfc, [])},
    )
    for value in model.graph.input:
        dimensions = value.type.tensor_type.shape.dim
        axes = _AXES[len(dimensions)]
        if value.name == "masked_lm_positions":
            axes = ("batch", "masks")
        for dimension, axis in zip(dimensions, axes, strict=True):
            if not dimension.dim_value:
                dimension.dim_param = axis
    onnx.checker.check_model(model)
    if quantize == INT8:
        quantization = import_package("onnxruntime.quantization", "onnxruntime", "--quantize=int8")
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, FILES[ONNX])
            quantization.quantize_dynamic(
                model, local, weight_type=quantization.QuantType.QInt8, per_channel=True
            )
            with open(local, "rb") as reader:
                write_whole(path, reader.read())
    else:
        write_whole(path, model.SerializeToString())


def _convert_erfc(graph, node, name: str, _) -> None:
    """Replaces TensorFlow's Erfc, part of gelu_erf, by 1 - Erf; tf2onnx does not know it."""
    types = {
        "shapes": [graph.get_shape(node.output[0])],
        "dtypes": [graph.get_dtype(node.output[0])],
    }
    inputs, outputs = list(node.input), list(node.output)
    graph.remove_node(name)
    erf = graph.make_node("Erf", inputs, **types)
    one = graph.make_const(f"{name}/one", np.array(1, np.float32))
    graph.make_node("Sub", [one.output[0], erf.output[0]], name=name, outputs=outputs, **types)


def write_litert(
    path: str,
    module: tf.Module,
    signatures: Mapping[str, tf.types.experimental.ConcreteFunction],
    quantize: str | None,
) -> None:
    """Writes a model for LiteRT.

    Args:
        path: of the file.
        module, signatures: see `write_saved_model`.
        quantize: "int8" for matrices of 8-bit integers; None for float32.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_saved_model(folder, module, signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, signature_keys=[DEFAULT_SIGNATURE]
        )
        if quantize == INT8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        model = converter.convert()
    write_whole(path, model)
