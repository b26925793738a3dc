"""Writes a model in each of the three formats."""

import tempfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.export.onnx_graph import OnnxGraph
from bert_tf.export.onnx_int8 import Int8Graph, calibrated_ranges
from bert_tf.export.onnx_model import OnnxModel, checked
from bert_tf.export.settings import INT8, LITERT, ONNX, SAVED_MODEL
from bert_tf.export.signatures import DEFAULT_SIGNATURE
from bert_tf.files.whole_files import write_whole
from bert_tf.pretrained.build import INPUTS
from bert_tf.pretrained.folder import ModelFolder

Signatures = Mapping[str, tf.types.experimental.ConcreteFunction]
FILES = {ONNX: "model.onnx", LITERT: "model.tflite", SAVED_MODEL: "saved_model.pb"}
_AXES = {"multiple_choice": ("batch", "choices", "length")}


def write_saved_model(path: str, module: tf.Module, signatures: Signatures) -> None:
    """Writes a SavedModel to a folder; `module` has all variables and tables of the signatures."""
    tf.saved_model.save(module, path, signatures=dict(signatures))


def write_onnx(
    path: str,
    head: str,
    folder: ModelFolder,
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.TensorSpec],
    quantize: str | None,
) -> None:
    """Writes a file for ONNX Runtime and OpenVINO.

    Args:
        head: a name in `signatures.HEADS`.
        folder: the model's configuration, settings and weights.
        inputs, outputs: dtype and shape by name; an axis of None has any size.
        quantize: "int8" to store matrices as 8-bit integers; None for float32.

    Raises:
        UserError: the package onnx is missing.
    """
    graph = Int8Graph(calibrated_ranges(folder)) if quantize == INT8 else OnnxGraph()
    tensors = {name: graph.input(name, *_described(name, x, head)) for name, x in inputs.items()}
    found = OnnxModel(graph, folder).outputs(head, checked(graph, tensors, folder.config))
    for name, x in outputs.items():
        graph.output(name, found[name], *_described(name, x, head))
    write_whole(path, graph.model().SerializeToString())


def _described(name: str, x: tf.TensorSpec, head: str) -> tuple[Any, list[int | str]]:
    """Returns the dtype and the shape of an input or output, with names for axes of any size."""
    axes = _AXES.get(head, ("batch", "length"))
    if head == "masked_lm" and name not in INPUTS:
        axes = ("batch", "masks")
    names = [*axes, *[""] * len(x.shape)]
    shape = [names[i] if size is None else size for i, size in enumerate(x.shape)]
    return x.dtype.as_numpy_dtype, shape


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
