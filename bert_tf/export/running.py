"""Runs an exported model as its users do, and compares it with the original model."""

import importlib
import os
from collections.abc import Callable, Mapping
from types import ModuleType

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.measures import pearson, spearman
from bert_tf.errors import UserError, needs_package
from bert_tf.export.settings import ENCODER, FILES, LITERT, ONNX, ExportSettings
from bert_tf.files.whole_files import read_bytes
from bert_tf.pretrained.build import POSITIONS
from bert_tf.pretrained.exported import ExportedModel
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.model import Pretrained
from bert_tf.tasks.classification.examples import InputExample, as_labels
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.classification.table import TableProcessor


def import_package(name: str, package: str, needed_by: str, extra: str = "export") -> ModuleType:
    """Imports a package that only an extra of setup.py installs."""
    with needs_package(needed_by, package, extra):
        return importlib.import_module(name)


Arrays = Mapping[str, np.ndarray]
Runner = Callable[[Arrays], dict[str, np.ndarray]]
# Format -> the module that runs it, and its package; TensorFlow runs a SavedModel.
_RUNTIMES = {
    ONNX: ("onnxruntime", "onnxruntime"),
    LITERT: ("ai_edge_litert.interpreter", "ai-edge-litert"),
}


def import_runtime(output_format: str) -> ModuleType:
    if output_format not in _RUNTIMES:
        return tf
    return import_package(*_RUNTIMES[output_format], f"--format={output_format}")


def open_exported(
    folder: str, output_format: str, signature: str, threads: int | None = None
) -> Runner:
    """Returns an exported model as a function from arrays by name to arrays by name."""
    path = os.path.join(folder, FILES[output_format])
    if output_format == ONNX:
        return onnx_runner(read_bytes(path, path), threads)
    if output_format == LITERT:
        runtime = import_runtime(LITERT)
        content = read_bytes(path, path)
        interpreter = runtime.Interpreter(model_content=content, num_threads=threads)
        runner = interpreter.get_signature_runner()
        return lambda arrays: runner(**arrays)
    loaded = tf.saved_model.load(folder)  # a signature does not keep its model alive
    function = loaded.signatures[signature]

    def run(arrays: Arrays, loaded=loaded) -> dict[str, np.ndarray]:
        outputs = function(**{name: tf.constant(value) for name, value in arrays.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    return run


def onnx_runner(content: bytes, threads: int | None = None) -> Runner:
    """Returns an ONNX model as a function from arrays by name to arrays by name."""
    runtime = import_runtime(ONNX)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3  # errors
    session = runtime.InferenceSession(content, options)
    names = [output.name for output in session.get_outputs()]
    return lambda arrays: dict(zip(names, session.run(names, dict(arrays)), strict=True))


def sample_inputs(
    specs: Mapping[str, tf.TensorSpec],
    vocab_size: int,
    longest: int,
    num_segments: int = 2,
) -> dict[str, np.ndarray]:
    """Returns a small batch of random ids; rows have a random number of tokens, then padding."""
    generator = np.random.default_rng(0)
    shape = list(specs["input_ids"].shape)
    free = (3, min(12, longest)) if len(shape) == 2 else (2, 3, 9)
    shape = [y if x is None else x for x, y in zip(shape, free, strict=True)]
    lengths = generator.integers(3, shape[-1], shape[:-1], endpoint=True)[..., np.newaxis]
    places = np.arange(shape[-1])
    found = {
        "input_ids": np.where(places < lengths, generator.integers(1, vocab_size, shape), 0),
        "input_mask": np.broadcast_to(places < lengths, shape),
        "segment_ids": (places >= lengths // 2) & (places < lengths) & (num_segments > 1),
    }
    if POSITIONS in specs:
        masks = specs[POSITIONS].shape[1] or 2
        found[POSITIONS] = generator.integers(0, lengths, (shape[0], masks))
    return {name: found[name].astype(np.int32) for name in specs}


def largest_difference(expected: Arrays, found: Arrays) -> float:
    """Returns the largest difference of any output; NaN if any number is NaN.

    A difference is relative to the largest value of its output if that is above 1, as in logits.
    """
    assert expected.keys() == found.keys(), f"{sorted(expected)} and {sorted(found)}"
    differences = [
        np.abs(found[name] - value).max() / max(1.0, np.abs(value).max())
        for name, value in expected.items()
    ]
    return float(np.max(differences))


def read_examples(settings: ExportSettings, head: str, folder: ModelFolder) -> list[InputExample]:
    """Reads the examples of --data_dir; UserError if the head cannot be measured on them."""
    columns = TableColumns(
        text_a_column=settings.text_a_column,
        text_b_column=settings.text_b_column,
        label_column=settings.label_column,
        labels=folder.labels if head == "classification" else None,
        regression=head != "classification",
        multi_label=head == "classification" and folder.config.is_multi_label,
    )
    if head not in ("classification", "regression", ENCODER):
        raise UserError(
            f"--data_dir is for classes, numbers and sentence vectors, not for --head={head}:"
            " compare the answers of both folders yourself, with bert_tf.load"
        )
    if head == ENCODER and not settings.text_b_column:
        raise UserError(
            "--data_dir needs --text_b_column for sentence vectors: their cosine is compared with"
            " the label"
        )
    return TableProcessor(columns, settings.data_dir).read("dev", settings.data_dir)


def log_measures(
    examples: list[InputExample], head: str, before: Pretrained, after: ExportedModel
) -> None:
    """Measures a model on a table of texts and labels, before and after its export."""
    was, now = (_measures(examples, head, model) for model in (before, after))
    for name, value in was.items():
        logging.info(
            "%s of %d examples: %.4f before the export, %.4f after it",
            *(name, len(examples), value, now[name]),
        )


def _measures(
    examples: list[InputExample], head: str, model: Pretrained | ExportedModel
) -> Mapping[str, float]:
    first, second = [x.text_a for x in examples], [x.text_b for x in examples]
    labels = [x.label for x in examples]
    texts = first if second[0] is None else [*zip(first, second, strict=True)]
    if head == "classification":
        found = model.classify(texts)
        right = [as_labels(y) == x.labels for x, y in zip(found, labels, strict=True)]
        return {"Accuracy": sum(right) / len(right)}
    numbers = model.similarity(first, second) if head == ENCODER else model.classify(texts)
    pair = np.array(labels), np.array(numbers)
    return {"Pearson correlation": pearson(*pair), "Spearman correlation": spearman(*pair)}
