"""Exports a trained model (tools/export.py)."""

import contextlib
import dataclasses
import logging as python_logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.bounds import inputs_were_checked
from bert_tf.errors import UserError, listed
from bert_tf.export import running, signatures
from bert_tf.export.onnx_graph import Int8Graph, OnnxGraph
from bert_tf.export.onnx_model import OnnxModel, calibrated_ranges, checked
from bert_tf.export.readme import readme
from bert_tf.export.settings import (
    BFLOAT16,
    ENCODER,
    FILES,
    FLOAT32,
    HEADS,
    IDS,
    INT8,
    LITERT,
    ONNX,
    SAVED_MODEL,
    TRAINED_LAST,
    ExportSettings,
)
from bert_tf.export.signatures import DEFAULT_SIGNATURE, ENCODED
from bert_tf.export.text_inputs import TextInputs
from bert_tf.files.checkpoint_names import check_path
from bert_tf.files.model_notes import write_labels
from bert_tf.files.whole_files import read_bytes, write_json, write_whole
from bert_tf.files.whole_folders import whole_folder
from bert_tf.model.layers import ROUNDED
from bert_tf.model_folder.writer import COMPANIONS, write_model_files
from bert_tf.pretrained.build import INPUTS, Outputs, build_model
from bert_tf.pretrained.exported import DESCRIPTION_FILE, described, load_exported
from bert_tf.pretrained.folder import ModelFolder, read_folder
from bert_tf.pretrained.methods.train import held_folder
from bert_tf.pretrained.model import Pretrained
from bert_tf.tasks.arguments import PATH, check_type, option_value, received
from bert_tf.tasks.course import as_arguments
from bert_tf.tasks.squad.model import head_options
from bert_tf.text.fast_tokenization import FastTokenizer

# Names that an exported folder may contain.
_OF_SAVED_MODEL = ("variables", "assets", "fingerprint.pb")
_NAMES = (*FILES.values(), *_OF_SAVED_MODEL, *COMPANIONS, "README.md", DESCRIPTION_FILE)
# Rounding causes differences of at most 1e-5, and about 1e-2 for bfloat16; only wrong conversions
# exceed the limits below.
_MOST_DIFFERENCE = {FLOAT32: 1e-3, BFLOAT16: 0.5}


def export(settings: ExportSettings, folder: ModelFolder | None = None) -> None:
    """Writes a trained model in the format that `settings` names.

    The exported model is run and compared with the original before its folder appears. `folder` is
    a model in memory; settings that name a model's files are then ignored.
    """
    running.import_runtime(settings.format)
    if settings.format == SAVED_MODEL:
        check_path(settings.output, "output")
    what = "one that an earlier export wrote"
    with whole_folder(settings.output, "output", DESCRIPTION_FILE, _NAMES, what) as place:
        folder = folder or read_folder(
            settings.input,
            settings.bert_config_file,
            settings.vocab_file,
            settings.do_lower_case,
            settings.max_seq_length,
            flag="input",
        )
        logging.info("%s", folder)
        head = head_to_export(settings, folder)
        check_length(settings, folder)
        examples = running.read_examples(settings, head, folder) if settings.data_dir else []
        specs = signatures.input_specs(head, settings.batch_size, settings.seq_length)
        module, functions = _traced(settings, head, folder, specs)
        of_ids = functions[IDS if settings.takes_text else DEFAULT_SIGNATURE]
        path = os.path.join(place, FILES[settings.format])
        with _quiet_converters():
            if settings.format == ONNX:
                results = of_ids.structured_outputs
                write_onnx(path, head, folder, specs, results, settings.quantize)
            elif settings.format == LITERT:
                write_litert(path, module, functions, settings.quantize)
            else:
                tf.saved_model.save(module, place, signatures=functions)
        sizes = folder.config.vocab_size, folder.max_seq_length, folder.config.type_vocab_size
        sample = running.sample_inputs(specs, *sizes)
        inputs = {name: tf.constant(value) for name, value in sample.items()}
        if settings.dtype == FLOAT32:
            expected = of_ids(**inputs)
        else:
            _, original = _computation(settings, head, folder, FLOAT32)
            expected = original(inputs)
        _check(place, settings, sample, expected)
        _write_companions(place, settings, head, folder, functions)
        if examples:
            running.log_measures(examples, head, Pretrained(folder, FLOAT32), load_exported(place))
        files = (os.path.join(x, name) for x, _, names in tf.io.gfile.walk(place) for name in names)
        size = sum(tf.io.gfile.stat(file).length for file in files)
    message = "Wrote %s, %.3g MB; its README.md says how to call the model"
    logging.info(message, settings.output, size / 1e6)


def export_model(model: Pretrained, output: str | os.PathLike[str], **options: Any) -> None:
    """Writes a loaded or trained model for servers, other languages or phones.

        bert_tf.export_model(model, "exported", format="onnx")

    The exported model has the weights that `model` has now.

    Args:
        model: the result of `bert_tf.load`, trained or not.
        output: the folder to write to. An earlier export there is replaced.
        **options: the flags of tools/export.py: `format` ("saved_model", "onnx" or "litert"),
            `input_kind`, `quantize`, `dtype`, `head`, `batch_size`, `seq_length`, and `data_dir`
            with the names of its columns. None means the default.

    Raises:
        UserError: an argument is wrong or does not fit the model, a package is missing, or the
            folder has other files.
        OSError: writing failed for a reason that may be temporary, such as a full disk.
    """
    if not isinstance(model, Pretrained):
        raise UserError(f"model must be a model that bert_tf.load returned; {received(model)}")
    check_type("output", output, PATH)
    folder = held_folder(model)
    of_files = "input output bert_config_file vocab_file do_lower_case max_seq_length".split()
    names = [x.name for x in dataclasses.fields(ExportSettings) if x.name not in of_files]
    if wrong := [name for name in options if name not in names]:
        raise UserError(
            f"export_model has no option {listed(wrong)}; its options are {', '.join(names)}"
        )
    hints = get_type_hints(ExportSettings)
    values = {name: value for name, value in options.items() if value is not None}
    given = {name: option_value(name, value, hints[name]) for name, value in values.items()}
    with as_arguments():
        export(ExportSettings(input=folder.path, output=os.fspath(output), **given), folder)


def check_length(settings: ExportSettings, folder: ModelFolder) -> None:
    """Checks the lengths; warns if they exceed the length that the model was trained with."""
    longest, trained = folder.max_seq_length, folder.trained_on.max_seq_length
    if (settings.seq_length or 0) > longest:
        rule = "the model's longest input"
        if settings.max_seq_length:
            rule = "--max_seq_length"
        elif longest == trained:
            rule = (
                "the length that the model was trained with. To export it with a different length,"
                f" also give --max_seq_length={settings.seq_length}"
            )
        raise UserError(f"--seq_length={settings.seq_length} must be at most {longest}, {rule}")
    if trained and longest > trained:
        logging.warning(
            "--max_seq_length=%d is longer than the %d word pieces that the model was trained and"
            " evaluated with: its answers to longer texts were never measured",
            *(longest, trained),
        )


def head_to_export(settings: ExportSettings, folder: ModelFolder) -> str:
    """Returns the head to export, after checking that it can be exported as `settings` ask."""
    tokenizer = folder.tokenizer
    if settings.takes_text and not isinstance(tokenizer, FastTokenizer):
        raise UserError(
            f"--input_kind=text needs a vocabulary of word pieces; {folder.path} has"
            f" {' and '.join(tokenizer.files)}. Set --input_kind=ids, and make the ids"
            " with bert_tf.load(...).tokenizer or the package that made the vocabulary"
        )
    head = settings.head or next(x for x in HEADS if x in (*folder.heads, ENCODER))
    if head != ENCODER:
        folder.check_head(head, f"--head={head}")
    if head == "squad" and head_options(folder.shapes):
        raise UserError(
            f"{folder.path} has ELECTRA's heads for questions, which cannot be exported: their"
            " answers need a beam search or a classifier that programs without bert_tf do not have."
            " Use bert_tf.load(...).answer, or fine-tune without --joint_prediction and"
            " --answerable_classifier"
        )
    has_steps = folder.vectors.prompt or folder.vectors.do_lower_case
    if head == ENCODER and has_steps and settings.format != ONNX:
        raise UserError(
            f"{folder.path}: a SavedModel or LiteRT model cannot put the prompt of"
            " default_prompt_name before a text, or lower-case it, as do_lower_case of"
            " sentence_bert_config.json asks. Use --format=onnx and bert_tf.load, or delete the key"
            " and change the texts yourself before you send them"
        )
    return head


def _computation(
    settings: ExportSettings, head: str, folder: ModelFolder, dtype: keras.DTypePolicy | str
) -> tuple[keras.Model, Outputs]:
    """Returns the model, and the function that computes the head's outputs."""
    model = build_model("" if head == ENCODER else head, folder, dtype)
    is_onnx = settings.format == ONNX  # a loaded export's `encode` needs these outputs
    outputs = signatures.outputs_of(head, model, folder, with_encoded=is_onnx)
    return model, inputs_were_checked()(outputs)


_Specs = Mapping[str, tf.TensorSpec]
_Functions = dict[str, tf.types.experimental.ConcreteFunction]


def _traced(
    settings: ExportSettings, head: str, folder: ModelFolder, specs: _Specs
) -> tuple[tf.Module, _Functions]:
    """Returns a module with the model's variables, and the functions to export by signature."""
    dtype = ROUNDED if settings.dtype == BFLOAT16 else FLOAT32
    model, outputs = _computation(settings, head, folder, dtype)
    check = signatures.looked_up if settings.format == LITERT else signatures.asserted

    def of_ids(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return outputs(check(inputs, specs, folder.config))

    functions = {
        DEFAULT_SIGNATURE: tf.function(of_ids, autograph=False).get_concrete_function(**specs)
    }
    module, tokenizer = tf.Module(), folder.tokenizer
    module.weights = [variable.value for variable in model.variables]
    if settings.takes_text and isinstance(tokenizer, FastTokenizer):
        module.text_inputs = TextInputs(tokenizer, folder.max_seq_length)
        inputs = module.text_inputs, tokenizer.tokens(), folder.trained_on.reads
        of_texts = signatures.text_signatures(head, outputs, *inputs)
        functions = of_texts | {IDS: functions[DEFAULT_SIGNATURE]}
    return module, functions


@contextlib.contextmanager
def _quiet_converters() -> Iterator[None]:
    """Silences the converters' progress messages and warnings in this context."""
    level = python_logging.root.manager.disable
    python_logging.disable(python_logging.WARNING)
    try:
        yield
    finally:
        python_logging.disable(level)


def _write_companions(
    place: str, settings: ExportSettings, head: str, folder: ModelFolder, functions: _Functions
) -> None:
    """Writes the model's other files, README.md and export.json beside the exported model."""
    path = os.path.join(place, FILES[ONNX])
    graph = read_bytes(path, path) if settings.format == ONNX else None
    labels = list(folder.labels if head in ("classification", "tagging") else ())
    tokenizer = folder.tokenizer
    description = {
        "format": settings.format,
        "head": head,
        "dtype": settings.dtype,
        "quantize": settings.quantize,
        "labels": labels,
        "do_lower_case": tokenizer.do_lower_case,
        "max_seq_length": settings.seq_length or folder.max_seq_length,
        "trained_max_seq_length": folder.trained_on.max_seq_length,
        "reads": folder.trained_on.reads if head in TRAINED_LAST else None,
        "signatures": {name: _described(function) for name, function in functions.items()},
        **described(folder, head, graph),
    }
    write_model_files(place, folder.config, tokenizer.files, tokenizer.do_lower_case)
    write_labels(place, labels or None)
    write_whole(os.path.join(place, "README.md"), readme(description, folder))
    write_json(os.path.join(place, DESCRIPTION_FILE), description)


def _described(function: tf.types.experimental.ConcreteFunction) -> dict[str, Any]:
    """Returns a signature's inputs and outputs by name, for JSON; None stands for any size."""
    _, inputs = function.structured_input_signature
    return {
        kind: {name: {"dtype": x.dtype.name, "shape": list(x.shape)} for name, x in tensors.items()}
        for kind, tensors in (("inputs", inputs), ("outputs", function.structured_outputs))
    }


def _check(
    place: str,
    settings: ExportSettings,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, tf.Tensor],
) -> None:
    """Runs the exported model on ids, and compares its outputs with the original model's."""
    expected = {key: value.numpy() for key, value in outputs.items()}
    if wrong := [key for key, value in expected.items() if not np.isfinite(value).all()]:
        raise UserError(
            f"--input={settings.input} must be a model with finite outputs; for random ids"
            f" '{wrong[0]}' is not finite. Weights are too large: choose a different model"
        )
    signature = IDS if settings.takes_text else DEFAULT_SIGNATURE
    run = running.open_exported(place, settings.format, signature)
    found = run(inputs)
    difference = running.largest_difference(expected, found)
    logging.info("The exported and the original outputs differ by at most %.1e", difference)
    most = np.finfo(float).max if settings.quantize else _MOST_DIFFERENCE[settings.dtype]
    if not difference <= most:  # also refuses NaN
        raise RuntimeError(
            f"The exported model gives wrong outputs: they differ by {difference}, more"
            " than rounding explains. The converter has a defect; do not use this model"
        )


def write_onnx(
    path: str, head: str, folder: ModelFolder, inputs: _Specs, outputs: _Specs, quantize: str | None
) -> None:
    graph = Int8Graph(calibrated_ranges(folder)) if quantize == INT8 else OnnxGraph()
    tensors = {name: graph.input(name, *_named_axes(name, x, head)) for name, x in inputs.items()}
    found = OnnxModel(graph, folder).outputs(head, checked(graph, tensors, folder.config))
    for name, x in outputs.items():
        graph.output(name, found[name], *_named_axes(name, x, head))
    write_whole(path, graph.model().SerializeToString())


def _named_axes(name: str, x: tf.TensorSpec, head: str) -> tuple[Any, list[int | str]]:
    """Returns the dtype and the shape of an input or output, with names for axes of any size."""
    axes = ["batch", "length"]
    if head == "multiple_choice":
        axes = ["rows", "length"] if name in ENCODED else ["batch", "choices", "length"]
    if head == "masked_lm" and name not in INPUTS:
        axes = ["batch", "length" if name in ENCODED else "masks"]
    names = [*axes, *[""] * len(x.shape)]
    shape = [names[i] if size is None else size for i, size in enumerate(x.shape)]
    return x.dtype.as_numpy_dtype, shape


def write_litert(
    path: str, module: tf.Module, functions: Mapping[str, Any], quantize: str | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=dict(functions))
        names = [DEFAULT_SIGNATURE]
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=names)
        if quantize == INT8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        model = converter.convert()
    write_whole(path, model)
