"""`LoadedModel`: what every method of a loaded model uses."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.forward import Compute, Forward, Row, Runtime
from bert_tf.pretrained.text_input import TextRows, of_folder
from bert_tf.text.base_tokenizer import Tokenizer

_loaded_in: int | None = None  # id of the process that loaded the first model


def is_forked() -> bool:
    """Returns whether this process was forked from one that had loaded a model.

    TensorFlow's threads do not survive a fork: calls in the new process would never return.
    """
    return _loaded_in not in (None, os.getpid())


def check_process() -> None:
    """Raises UserError if this process `is_forked`."""
    if is_forked():
        raise UserError(
            f"This process ({os.getpid()}) was forked from process {_loaded_in}, which had"
            " loaded a model, and TensorFlow does not work in a forked process: the call would"
            ' never end. Start processes with multiprocessing.get_context("spawn"), or load models'
            " only in the processes that use them (gunicorn: without --preload)"
        )


def mark_loaded() -> None:
    """Remembers that this process has loaded a model. Raises UserError if it `is_forked`."""
    global _loaded_in
    check_process()
    _loaded_in = os.getpid()


Text = str | tuple[str, str]  # a text, or a pair of texts


class LoadedModel:
    """The model of a folder, ready to run. For the attributes see `Pretrained`."""

    config: BertConfig
    tokenizer: Tokenizer
    heads: tuple[str, ...]
    labels: tuple[str, ...]
    max_seq_length: int

    def _hold(self, folder: ModelFolder, runtime: Runtime) -> None:
        self._own_folder = folder
        self._runtime = runtime
        self.config = folder.config
        self.tokenizer = folder.tokenizer
        self.heads = folder.heads
        self.labels = folder.labels
        self.max_seq_length = folder.max_seq_length
        self._forwards: dict[str, Forward] = {}

    @property
    def _folder(self) -> ModelFolder:
        return self._own_folder

    def __repr__(self) -> str:
        return f"<{vars(self).get('_own_folder', 'a model in a forked process')}>"

    def _windows(
        self, texts: Sequence[Text], long_text: str | None, window_stride: int | None
    ) -> TextRows:
        """Returns the rows of texts; arguments that are None default to the folder's settings."""
        length = self.max_seq_length
        given = of_folder(long_text, window_stride, self._folder.trained_on, length)
        return TextRows(texts, self.tokenizer, length, *given)

    def _run(
        self, name: str, rows: Sequence[Row], make: Callable[[], Compute] | None = None
    ) -> list[dict[str, NDArray[Any]]]:
        """Returns the outputs of each row, computed by the head `name`, or by `make`'s result."""
        if not rows:
            return []
        segment = max(max(row["segment_ids"]) for row in rows)
        if segment >= self._folder.config.type_vocab_size:
            raise UserError(
                f"{self._folder.path} does not take pairs of texts: the vocabulary gives the second"
                f" text the segment {segment}, and type_vocab_size of the model's configuration is"
                f" {self._folder.config.type_vocab_size}. Give single texts, or a model for pairs"
            )
        if name not in self._forwards:
            compute = make() if make else self._runtime.head(name)
            self._forwards[name] = Forward(compute)
        return self._forwards[name](rows)
