"""Computes a model's batches in ONNX Runtime, from the file that tools.export wrote."""

import functools
import importlib.util
import os
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.errors import UserError, needs_package
from bert_tf.pretrained.forward import Compute
from bert_tf.pretrained.pooling import array_vectors
from bert_tf.tasks.arguments import check_count

_Arrays = Mapping[str, NDArray[np.int32]]
_ENCODED = "sequence_output"


def checksum(parts: Iterable[bytes]) -> int:
    """Returns the checksum of a file's bytes, to detect a damaged or exchanged file."""
    found = 0
    for part in parts:
        found = zlib.crc32(part, found)
    return found


@functools.cache
def _lock(process: int) -> threading.Lock:
    """Returns the lock of a process: after a fork, the parent's may never be released."""
    return threading.Lock()


class OnnxRuntime:
    """Runs a model's file, whose checksum is `expected`; see `forward.Runtime`.

    ONNX Runtime is imported with the first batch: if it was imported before a fork, the new process
    hangs or aborts when it exits. The file is kept open, so that the session reads this file even
    if the folder is replaced.
    """

    def __init__(
        self, path: str, expected: int, head: str, inputs: Sequence[str], num_threads: Any = None
    ):
        check_count("num_threads", num_threads, 1, default="for one for each core")
        with needs_package(path, "onnxruntime", "onnx"):
            if importlib.util.find_spec("onnxruntime") is None:
                raise ImportError("no module of this name")
        self._path, self._head, self._inputs = path, head, inputs
        self._num_threads = int(num_threads or 0)
        self._file = open(path, "rb")  # noqa: SIM115 - for as long as the model
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
                    " process. Let a model answer only after the fork: to load it before is fine"
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
            for name in {*self._inputs} - given.keys():  # positions of masks: none
                given[name] = np.zeros([len(arrays["input_ids"]), 0], np.int32)
            found = self._run(given, names)
            pooled, mask = found.get("pooled_output"), arrays["input_mask"]
            vectors = array_vectors(found[_ENCODED], pooled, mask, poolings, num_skipped)
            return {"vector": vectors}

        return compute

    def attention(self) -> Compute:
        """Raises UserError: the file does not give the attention."""
        raise UserError(
            f"attention needs the model itself; {self._path} only gives outputs. Load the folder"
            " that it was exported from, with TensorFlow"
        )
