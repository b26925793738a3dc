"""Loads a model that tools.export wrote for ONNX Runtime: the same answers without TensorFlow."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.model_notes import LABELS_FILE, ModelInput, labels_in
from bert_tf.files.whole_files import read_json
from bert_tf.files.whole_folders import Unreplaced
from bert_tf.model.family import CONFIG_FILES, read_config
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings
from bert_tf.pretrained.folder import ModelFolder, check_vocabulary_size
from bert_tf.pretrained.methods.answer import AnswerQuestions
from bert_tf.pretrained.methods.classify import Classify
from bert_tf.pretrained.methods.encode import Encode
from bert_tf.pretrained.methods.fill_mask import FillMask
from bert_tf.pretrained.methods.rank import Rank
from bert_tf.pretrained.methods.tag import Tag
from bert_tf.pretrained.onnx_runtime import OnnxRuntime, checksum
from bert_tf.start.local_files import only_local_files
from bert_tf.tasks.arguments import SWITCH, check_count, check_type
from bert_tf.tasks.registry import HEADS
from bert_tf.text.tokenizer_settings import TOKENIZER_CONFIG
from bert_tf.text.tokenizers import VOCABULARY_FILES, load_tokenizer, vocabulary_in

DESCRIPTION_FILE = "export.json"
SAVED_MODEL, ONNX, LITERT = FORMATS = ("saved_model", "onnx", "litert")
ONNX_FILE = "model.onnx"
_NAMES = (DESCRIPTION_FILE, ONNX_FILE, LABELS_FILE, TOKENIZER_CONFIG, *CONFIG_FILES)
_AGAIN = "Export the model again"


def described(folder: ModelFolder, head: str, onnx: bytes | None) -> dict[str, Any]:
    """Returns the part of export.json that `load` needs; `onnx` is the model's file."""
    return {
        "heads": [head] if head in HEADS else [],
        "trained_on": dataclasses.asdict(folder.trained_on),
        "vectors": folder.vectors._asdict(),
        "has_sigmoid": folder.has_sigmoid,
        "checksum": None if onnx is None else checksum([onnx]),
    }


class ExportedModel(FillMask, Classify, Rank, AnswerQuestions, Tag, Encode):
    """An exported model: text in, answers out, as from the model that it was exported from.

    A pickle or a copy has only the path of the folder, and loads the model again. For the
    attributes see `Pretrained`.
    """

    def __init__(self, folder: ModelFolder, runtime: OnnxRuntime):
        self._hold(folder, runtime)

    def __reduce__(self) -> tuple[Callable[..., "ExportedModel"], tuple[Any, ...]]:
        return _load_again, (dict(self._folder.source),)


def _needs_tensorflow(name: str) -> Callable[..., Any]:
    def method(self: ExportedModel, *unused: Any, **options: Any) -> Any:
        raise UserError(
            f"{name} needs the model with its weights; {self._folder.path} is an exported one,"
            " which only answers. Load the folder that it was exported from, with TensorFlow"
        )

    return method


for _name in "fit evaluate predict save".split():
    setattr(ExportedModel, _name, _needs_tensorflow(_name))
for _name in "classification regression tagging answers multiple_choice sentences".split():
    setattr(ExportedModel, f"for_{_name}", _needs_tensorflow(f"for_{_name}"))


def _load_again(source: dict[str, Any]) -> ExportedModel:
    expected = source.pop("checksum")
    model = load_exported(**source)
    if model._folder.source["checksum"] != expected:
        raise UserError(
            f"A pickle or a copy of a model is loaded from its folder, {source['folder']}, which"
            " has a different model now. Load that one with bert_tf.load"
        )
    return model


@contextlib.contextmanager
def reading(folder: str) -> Iterator[tuple[Any, str]]:
    """Gives the content of export.json and the vocabulary's path; names a damaged export.json."""
    path = os.path.join(folder, DESCRIPTION_FILE)
    found = read_json(path, path, _AGAIN)
    if not (vocab_file := vocabulary_in(folder)):
        raise UserError(f"{folder} must have the vocabulary that tools.export wrote. {_AGAIN}")
    try:
        yield found, vocab_file
    except (AttributeError, LookupError, TypeError) as error:
        raise UserError(
            f"{path} was not written by this version of tools.export, or is damaged ({error!r})."
            f" {_AGAIN}"
        ) from error


def vector_settings(values: Mapping[str, Any]) -> VectorSettings:
    """Parses the vector settings in an export.json."""
    found = VectorSettings(**values)
    prompts = tuple(map(tuple, found.prompts))
    return found._replace(poolings=tuple(found.poolings), prompts=prompts)


def is_exported(folder: str) -> bool:
    """Returns whether tools.export wrote a local folder."""
    return "://" not in folder and os.path.exists(os.path.join(folder, DESCRIPTION_FILE))


def load_exported(
    folder: str,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    num_threads: int | None = None,
) -> ExportedModel:
    """Loads the ONNX file of a folder; for arguments and errors see `bert_tf.load`."""
    check_type("do_lower_case", do_lower_case, SWITCH, "for the export's")
    with only_local_files(), Unreplaced(folder, (*_NAMES, *VOCABULARY_FILES), folder):
        with reading(folder) as (found, vocab_file):
            kind = found.get("format")
            if kind in FORMATS and kind != ONNX:
                raise UserError(
                    f"{folder} has a model in the format {quoted(kind)}; of exported models load"
                    " only takes --format=onnx. Export the model again, or load the folder that it"
                    " was exported from"
                )
            inputs = found["signatures"]["serving_default"]["inputs"]
            if {*inputs["input_ids"]["shape"]} != {None}:
                raise UserError(
                    f"{folder} was exported with a fixed --batch_size or --seq_length, and load"
                    " needs any number of texts of any length. Export the model without the two"
                )
            held = _held(folder, found, vocab_file, do_lower_case, max_seq_length)
            given = found["checksum"], found["head"], [*inputs]
        onnx = os.path.join(folder, ONNX_FILE)
        if not os.path.exists(onnx):
            raise UserError(f"{folder} must have {ONNX_FILE}, which tools.export wrote. {_AGAIN}")
        runtime = OnnxRuntime(onnx, *given, num_threads)
    source = {
        "folder": os.path.abspath(folder),
        "do_lower_case": do_lower_case,
        "max_seq_length": held.max_seq_length,
        "num_threads": num_threads,
        "checksum": found["checksum"],
    }
    return ExportedModel(dataclasses.replace(held, source=source), runtime)


def _held(
    folder: str,
    found: Mapping[str, Any],
    vocab_file: str,
    do_lower_case: bool | None,
    max_seq_length: int | None,
) -> ModelFolder:
    """Reads all files of a folder except the model."""
    remedy = f"Move the others away, or {_AGAIN.lower()}"
    names = [name for name in CONFIG_FILES if os.path.exists(os.path.join(folder, name))]
    if len(names) != 1:
        raise UserError(
            f"{folder} must have the model's configuration, {' or '.join(CONFIG_FILES)}; it has"
            f" {listed(names) or 'neither'}. {remedy if names else _AGAIN}"
        )
    config_file = os.path.join(folder, names[0])
    config = read_config(config_file)
    casing = found["do_lower_case"] if do_lower_case is None else bool(do_lower_case)
    outputs = found["signatures"]["serving_default"]["outputs"]
    has_labels = found["head"] in ("classification", "tagging")
    length = found["max_seq_length"] if max_seq_length is None else max_seq_length
    what = f"{config.length_rule} of {names[0]}"
    longest, default = config.longest_sequence, "for the export's"
    check_count("max_seq_length", length, 4, longest, what, default)
    held = ModelFolder(
        path=folder,
        config=config,
        shapes={"bert/pooler/dense/kernel": []} if "pooled_output" in outputs else {},
        read=lambda name: _missing(folder, name),
        tokenizer=load_tokenizer(vocab_file, casing, drop_category_c=config.drop_category_c),
        heads=tuple(found["heads"]),
        labels=tuple(labels_in(folder) or ()) if has_labels else (),
        max_seq_length=int(length),
        source={},
        vectors=vector_settings(found["vectors"]),
        trained_on=ModelInput(**found["trained_on"]),
        has_sigmoid=found["has_sigmoid"],
    )
    check_vocabulary_size(held.tokenizer.vocab, config, vocab_file, config_file)
    return held


def _missing(folder: str, name: str) -> Any:
    raise UserError(f"{folder} is an exported model, which does not give the weight {name}")
