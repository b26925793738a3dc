"""Exports a trained model (tools/export.py)."""

import contextlib
import json
import logging as python_logging
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError, listed
from bert_tf.export import formats, running
from bert_tf.export.readme import EXAMPLE, Interface, readme
from bert_tf.export.settings import IDS, LITERT, ONNX, ExportSettings
from bert_tf.export.signatures import (
    DEFAULT_SIGNATURE,
    ENCODER,
    HEADS,
    input_specs,
    outputs_of,
)
from bert_tf.export.text_inputs import TextInputs
from bert_tf.export.text_signatures import text_signatures
from bert_tf.files.label_file import write_labels
from bert_tf.files.whole_files import write_whole
from bert_tf.files.whole_folders import whole_folder
from bert_tf.model_folder.writer import COMPANIONS, write_model_files
from bert_tf.pretrained.build import build_model
from bert_tf.pretrained.folder import ModelFolder, read_folder
from bert_tf.text import sequences
from bert_tf.text.tokenizers import WORD_PIECES

DESCRIPTION_FILE = "export.json"
# Names that an exported folder may contain.
_NAMES = (
    *formats.FILES.values(),
    *("variables", "assets", "fingerprint.pb"),  # belong to a SavedModel
    *COMPANIONS,
    *("README.md", DESCRIPTION_FILE),
)
# Rounding errors are at most 1e-5; a difference above this means a wrong conversion.
_MOST_DIFFERENCE = 1e-3


def export(settings: ExportSettings) -> None:
    """Writes a trained model in the format that `settings` names.

    Before its folder appears, the exported model is run and compared with the original model.

    Raises:
        UserError: the input has no such model, a package is missing, or the output folder has other
            files in it.
        OSError: writing failed for a reason that may be temporary, such as a full disk.
        RuntimeError: the exported model's outputs differ; a converter has a defect.
    """
    running.import_runtime(settings.format)
    what = "one that an earlier export wrote"
    with whole_folder(settings.output, "output", DESCRIPTION_FILE, _NAMES, what) as place:
        folder = read_folder(
            settings.input,
            settings.bert_config_file,
            settings.vocab_file,
            settings.do_lower_case,
            settings.max_seq_length,
        )
        logging.info("%s", folder)
        if settings.takes_text and WORD_PIECES not in folder.tokenizer.files:
            raise UserError(
                f"--input_kind=text needs a vocabulary of word pieces; {folder.path} has"
                f" {' and '.join(folder.tokenizer.files)}. Set --input_kind=ids, and make the ids"
                " with bert_tf.load(...).tokenizer or the package that made the vocabulary"
            )
        head = choose_head(settings.head, folder)
        if (settings.seq_length or 0) > folder.max_seq_length:
            raise UserError(
                f"--seq_length={settings.seq_length} must be at most {folder.max_seq_length}, the"
                " model's longest input"
            )
        model = build_model("" if head == ENCODER else head, folder)
        specs = input_specs(head, settings.batch_size, settings.seq_length)
        outputs = outputs_of(head, model, folder)
        function = tf.function(lambda **inputs: outputs(inputs), autograph=False)
        signatures = {DEFAULT_SIGNATURE: function.get_concrete_function(**specs)}
        module = tf.Module()
        module.weights = [variable.value for variable in model.variables]
        vocab = folder.tokenizer.tokens()
        if settings.takes_text:
            tokenizer = folder.tokenizer
            module.text_inputs = TextInputs(
                tokenizer.vocab, tokenizer.do_lower_case, folder.max_seq_length
            )
            signatures = {
                **text_signatures(head, outputs, module.text_inputs, vocab),
                IDS: signatures[DEFAULT_SIGNATURE],
            }
        with _quiet():
            path = os.path.join(place, formats.FILES[settings.format])
            if settings.format == ONNX:
                formats.write_onnx(path, model, outputs, specs, settings.quantize)
            elif settings.format == LITERT:
                formats.write_litert(path, module, signatures, settings.quantize)
            else:
                formats.write_saved_model(place, module, signatures)
        _write_companions(place, settings, head, folder, vocab, signatures)
        config = folder.config
        sizes = config.vocab_size, folder.max_seq_length, config.type_vocab_size
        inputs = running.sample_inputs(specs, *sizes)
        _check(place, settings, inputs, signatures)
    logging.info("Wrote %s; its README.md says how to call the model", settings.output)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences the converters' progress messages and warnings."""
    before = python_logging.root.manager.disable
    python_logging.disable(python_logging.WARNING)
    try:
        yield
    finally:
        python_logging.disable(before)


def choose_head(wanted: str | None, folder: ModelFolder) -> str:
    """Returns the head to export.

    Args:
        wanted: --head; None for the first of `HEADS` that the model has.
        folder: the model's folder.

    Raises:
        UserError: the model does not have the wanted head.
    """
    present = [head for head in HEADS if head in (*folder.heads, ENCODER)]
    if wanted is not None and wanted not in present:
        raise UserError(
            f"--head={wanted} must be a head of the model; {folder.path} has {listed(present)}"
        )
    return wanted or present[0]


def _write_companions(
    place: str,
    settings: ExportSettings,
    head: str,
    folder: ModelFolder,
    vocab: Sequence[str],
    signatures: Mapping[str, tf.types.experimental.ConcreteFunction],
) -> None:
    """Writes README.md, export.json, the configuration, the vocabulary and the classes."""
    labels = folder.labels if head in ("classification", "tagging") else ()
    interfaces = {name: Interface.of(function) for name, function in signatures.items()}
    description = {
        "format": settings.format,
        "head": head,
        "quantize": settings.quantize,
        "labels": list(labels),
        "do_lower_case": folder.tokenizer.do_lower_case,
        "max_seq_length": settings.seq_length or folder.max_seq_length,
        "signatures": {name: interface.described() for name, interface in interfaces.items()},
    }
    pieces, _ = folder.tokenizer.encode([EXAMPLE])
    packed = sequences.pack_pair(pieces.tolist(), [], 0, folder.tokenizer.layout)
    ids = packed["input_ids"][: folder.max_seq_length]
    config = folder.config
    casing = "uncased" if folder.tokenizer.do_lower_case else "cased"
    numbers = "8-bit integers for matrices" if settings.quantize else "float32"
    about = (
        f"{config.NAME} with the head `{head}`: {config.num_hidden_layers} layers, hidden size"
        f" {config.hidden_size}, {casing}, {numbers}. Exported by bert-tf."
    )
    vocabulary = folder.tokenizer.files
    tokens = [vocab[i] for i in ids]
    text = readme(
        about, settings.format, interfaces, labels, tokens, ids, folder.tokenizer, vocabulary
    )
    write_model_files(place, config, vocabulary, folder.tokenizer.do_lower_case)
    write_labels(place, labels or None)
    for name, content in (
        ("README.md", text),
        (DESCRIPTION_FILE, json.dumps(description, indent=2) + "\n"),
    ):
        write_whole(os.path.join(place, name), content)


def _check(
    place: str,
    settings: ExportSettings,
    inputs: Mapping[str, np.ndarray],
    signatures: Mapping[str, tf.types.experimental.ConcreteFunction],
) -> None:
    """Runs the exported model on ids, and compares its outputs with the original model's."""
    name = IDS if settings.takes_text else DEFAULT_SIGNATURE
    outputs = signatures[name](**{key: tf.constant(value) for key, value in inputs.items()})
    expected = {key: value.numpy() for key, value in outputs.items()}
    found = running.open_exported(place, settings.format, name)(inputs)
    difference = running.largest_difference(expected, found)
    logging.info("Its outputs differ from the original model's by at most %.1e", difference)
    if not difference <= _MOST_DIFFERENCE and not settings.quantize:
        raise RuntimeError(
            f"The exported model computes something else: its outputs differ by {difference}, more"
            " than rounding explains. The converter has a defect; do not use this model"
        )
