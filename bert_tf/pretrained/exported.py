"""Loads a model that tools.export wrote for ONNX Runtime: the same answers without TensorFlow."""

import contextlib
import dataclasses
import functools
import importlib.util
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.errors import UserError, listed, needs_package, quoted
from bert_tf.files.model_notes import LABELS_FILE, ModelInput, labels_in
from bert_tf.files.whole_files import read_json
from bert_tf.files.whole_folders import Unreplaced
from bert_tf.model.family import CONFIG_FILES, read_config
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings
from bert_tf.pretrained.folder import ModelFolder, check_vocabulary_size
from bert_tf.pretrained.forward import Compute
from bert_tf.pretrained.methods.answer import AnswerQuestions
from bert_tf.pretrained.methods.classify import Classify
from bert_tf.pretrained.methods.encode import Encode
from bert_tf.pretrained.methods.tag import Tag
from bert_tf.pretrained.pooling import array_vectors
from bert_tf.start.local_files import only_local_files
from bert_tf.tasks.arguments import SWITCH, check_count, check_type
from bert_tf.tasks.registry import HEADS
from bert_tf.text.tokenizer_settings import TOKENIZER_CONFIG
from bert_tf.text.tokenizers import VOCABULARY_FILES, load_tokenizer, vocabulary_in

_Arrays = Mapping[str, NDArray[np.int32]]
_ENCODED = "sequence_output"


def checksum(parts: Iterable[bytes]) -> int:
    """Returns the checksum of a file's bytes, to detect a damaged or replaced file."""
    found = 0
    for part in parts:
        found = zlib.crc32(part, found)
    return found


@functools.cache
def _lock(process: int) -> threading.Lock:
    """Returns the lock of a process: after a fork, the parent's lock may never be released."""
    return threading.Lock()


class OnnxRuntime:
    """Runs an ONNX file, whose checksum must be `expected`; see `forward.Runtime`.

    ONNX Runtime is imported with the first batch: if it was imported before a fork, the new process
    hangs or aborts when it exits. The file is kept open, so that the session reads this file even
    if the folder is replaced.
    """

    def __init__(
        self, path: str, expected: int, head: str, inputs: Sequence[str], num_threads: Any = None
    ):
        check_count("num_threads", num_threads, 1, default="for one per core")
        with needs_package(path, "onnxruntime", "onnx"):
            if importlib.util.find_spec("onnxruntime") is None:
                raise ImportError("no module of this name")
        self._path, self._head, self._inputs = path, head, inputs
        self._num_threads = int(num_threads or 0)
        self._file = open(path, "rb")  # noqa: SIM115 - open as long as the model
        self._sessions: dict[int, Any] = {}  # process id -> session
        if checksum(iter(lambda: self._file.read(1 << 20), b"")) != expected:
            raise UserError(
                f"{path} is not the file that tools.export wrote with the export.json beside it: it"
                " is damaged, or from a different export. Export the model again"
            )

    def _session(self) -> Any:
        process = os.getpid()
        if process not in self._sessions:
            if self._sessions:
                raise UserError(
                    f"This process ({process}) was forked from process {[*self._sessions][0]} after"
                    " the model had answered there, and ONNX Runtime does not work in a forked"
                    " process. Let a model answer only after the fork; loading it before is fine"
                )
            with _lock(process):
                if process not in self._sessions:
                    import onnxruntime

                    options = onnxruntime.SessionOptions()
                    options.intra_op_num_threads = self._num_threads
                    options.log_severity_level = 3  # errors
                    opened = f"/dev/fd/{self._file.fileno()}"  # bytes would stay in memory
                    self._sessions[process] = onnxruntime.InferenceSession(
                        opened if os.path.exists(opened) else self._path,
                        options,
                        providers=["CPUExecutionProvider"],
                    )
        return self._sessions[process]

    def _run(self, arrays: _Arrays, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        return dict(zip(names, self._session().run(names, dict(arrays)), strict=True))

    def head(self, name: str) -> Compute:
        if name == "regression":
            return lambda arrays: {"logits": self._run(arrays, ["values"])["values"][:, np.newaxis]}
        names = ["start_logits", "end_logits"] if name == "squad" else ["logits"]
        return lambda arrays: self._run(arrays, names)

    def vectors(self, poolings: Sequence[str], num_skipped: int) -> Compute:
        names = [_ENCODED, *(["pooled_output"] if "pooled" in poolings else [])]

        def compute(arrays: _Arrays) -> dict[str, NDArray[Any]]:
            given = dict(arrays)
            if self._head == "multiple_choice":  # a single choice
                given = {name: array[:, np.newaxis] for name, array in arrays.items()}
            for name in {*self._inputs} - given.keys():  # no masked positions
                given[name] = np.zeros([len(arrays["input_ids"]), 0], np.int32)
            found = self._run(given, names)
            pooled, mask = found.get("pooled_output"), arrays["input_mask"]
            vectors = array_vectors(found[_ENCODED], pooled, mask, poolings, num_skipped)
            return {"vector": vectors}

        return compute

    def attention(self) -> Compute:
        """Raises UserError: an exported model does not return its attention."""
        raise UserError(
            f"attention needs the model itself; {self._path} only gives outputs. Load the folder"
            " that it was exported from, with TensorFlow"
        )


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


class ExportedModel(Classify, AnswerQuestions, Tag, Encode):
    """An exported model, for inference only; for the attributes see `Pretrained`.

    A pickle or a copy has only the folder's path and the options, and loads the model again.
    """

    def __init__(self, folder: ModelFolder, runtime: OnnxRuntime):
        self._hold(folder, runtime)

    def __reduce__(self) -> tuple[Callable[..., "ExportedModel"], tuple[Any, ...]]:
        return _load_again, (dict(self._folder.source),)


def _needs_tensorflow(name: str) -> Callable[..., Any]:
    def method(self: ExportedModel, *unused: Any, **options: Any) -> Any:
        raise UserError(
            f"{name} needs the model with its weights; {self._folder.path} is an exported model,"
            " which can only answer. Load the folder that it was exported from, with TensorFlow"
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
    """Yields the content of export.json and the vocabulary's path; reports a damaged file."""
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
    found = VectorSettings(**values)
    prompts = tuple(map(tuple, found.prompts))
    return found._replace(poolings=tuple(found.poolings), prompts=prompts)


def is_exported(folder: str) -> bool:
    return "://" not in folder and os.path.exists(os.path.join(folder, DESCRIPTION_FILE))


def load_exported(
    folder: str,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    num_threads: int | None = None,
) -> ExportedModel:
    """Loads the ONNX file of a folder; for arguments and errors see `bert_tf.load`."""
    check_type("do_lower_case", do_lower_case, SWITCH, "for the export's casing")
    with only_local_files(), Unreplaced(folder, (*_NAMES, *VOCABULARY_FILES), folder):
        with reading(folder) as (found, vocab_file):
            kind = found.get("format")
            if kind in FORMATS and kind != ONNX:
                raise UserError(
                    f"{folder} has a model in the format {quoted(kind)}; load reads only models"
                    " exported with --format=onnx. Export the model again, or load the folder that"
                    " it was exported from"
                )
            inputs = found["signatures"]["serving_default"]["inputs"]
            if {*inputs["input_ids"]["shape"]} != {None}:
                raise UserError(
                    f"{folder} was exported with a fixed --batch_size or --seq_length, but"
                    " load needs an export for any number of texts of any length. Export the model"
                    " without the two"
                )
            held = _held(folder, found, vocab_file, do_lower_case, max_seq_length)
            given = found["checksum"], found["head"], [*inputs]
        runtime = OnnxRuntime(os.path.join(folder, ONNX_FILE), *given, num_threads)
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
    longest, default = config.longest_sequence, "for the export's length"
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
    raise UserError(f"{folder} is an exported model, which has no weight {name}")
