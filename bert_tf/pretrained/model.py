"""`load` a trained model from a folder, and use it: text in, answers out.

    model = bert_tf.load("uncased_L-12_H-768_A-12")
    model.fill_mask("Paris is the [MASK] of France.")

Every method takes one text and returns one result, or takes a list of texts and returns a list of
results in the same order. Long lists are sorted by length and computed in batches.
"""

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_tf.files.whole_folders import ReplacedError
from bert_tf.pretrained.folder import read_folder
from bert_tf.pretrained.methods.answer import AnswerQuestions
from bert_tf.pretrained.methods.base import check_process, is_forked
from bert_tf.pretrained.methods.classify import Classify
from bert_tf.pretrained.methods.encode import Encode
from bert_tf.pretrained.methods.fill_mask import FillMask
from bert_tf.pretrained.methods.rank import Rank
from bert_tf.pretrained.methods.tag import Tag
from bert_tf.pretrained.methods.train import Train
from bert_tf.tasks.rows import Rows

FolderPath = str | os.PathLike[str]
_TRIES, _PAUSE = 5, 0.2  # of reading a folder that is being replaced; seconds between them


def load(
    folder: FolderPath,
    *,
    bert_config_file: FolderPath | None = None,
    vocab_file: FolderPath | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    dtype: Any = None,
) -> "Pretrained":
    """Loads a trained model.

    Args:
        folder: a released model's (`bert_config.json`, `vocab.txt`, `bert_model.ckpt.*`), an
            --output_dir or --export_dir of the programs, or one of Hugging Face's (`config.json`,
            `model.safetensors`, `vocab.txt` or `tokenizer.json`). Or the prefix of a checkpoint.
        bert_config_file: overrides the folder's configuration. The configuration of a
            model.safetensors is always its config.json.
        vocab_file: overrides the folder's vocabulary.
        do_lower_case: whether text is lower-cased; None detects it.
        max_seq_length: longest input in word pieces, [CLS] and [SEP] included; longer texts are
            truncated, and longer contexts of `answer` are split into windows. None for the length
            that the model was fine-tuned with or, in a folder of sentence-transformers, that of its
            files; if neither is known, for the model's limit.
        dtype: "float32"; "bfloat16", which halves the memory of the weights, and is faster on
            devices that multiply it; "mixed_bfloat16", which keeps the weights in float32; or
            "auto", which is bfloat16 on those devices and else float32. A Keras policy or a
            TensorFlow or NumPy dtype works, too. Answers are float32 in any case, and training does
            not depend on it. None for Keras's global policy: float32 if it was not set.

    Raises:
        UserError: the folder has no model or several, or its files do not fit together.
    """
    check_process()
    options = (bert_config_file, vocab_file, do_lower_case, max_seq_length)
    return _retried(lambda: Pretrained(read_folder(folder, *options), dtype))


def _retried(make: Callable[[], "Pretrained"]) -> "Pretrained":
    """Returns what `make` returns; calls it again if the folder is replaced at that moment."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(ReplacedError):
            return make()
        time.sleep(_PAUSE)
    return make()


def _load_again(
    source: dict[str, Any],
    files: dict[str, bytes],
    max_seq_length: int,
    dtype: str | None,
    chosen: Rows | None,
) -> "Pretrained":
    """Returns the model that a pickle names; or has, as the files of its folder."""
    if is_forked():  # let its methods raise: an error here would hang a process pool
        return Pretrained.__new__(Pretrained)
    if source:
        length = max_seq_length
        model = _retried(lambda: Pretrained(read_folder(**source, max_seq_length=length), dtype))
        return model if chosen is None else model._for(chosen)
    with tempfile.TemporaryDirectory(prefix="bert_tf_") as place:
        for name, content in files.items():
            path = Path(place, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        folder = read_folder(place, max_seq_length=max_seq_length)
        weights = {name: folder.read(name) for name in folder.shapes}
    read = weights.__getitem__
    model = Pretrained(dataclasses.replace(folder, path="a pickle", source={}, read=read), dtype)
    model._chosen = chosen
    return model


class Pretrained(FillMask, Classify, Rank, AnswerQuestions, Tag, Encode, Train):
    """A trained model: text in, answers out. `print` describes it.

    A pickle or a copy has only the path of the folder, and loads the model again. A pickle or a
    copy of a model that was trained in memory has its weights.

    Attributes:
        config: the model's BertConfig.
        tokenizer: `encode` converts texts to ids; `vocab` is token -> id.
        heads: what the model can do: `masked_lm`, `next_sentence`, `classification`, `regression`,
            `tagging`, `multiple_choice`, `squad`; each if the checkpoint has its weights.
        labels: the classes in the order of the logits; () without classes.
        max_seq_length: longest input in word pieces, [CLS] and [SEP] included.
        model: the Keras model with the first of `heads`.
    """

    def __reduce__(self) -> tuple[Callable[..., "Pretrained"], tuple[Any, ...]]:
        source, files = self._folder.source, {}
        if source:
            self._folder.check_unchanged(self.model)
            self._folder.forget()
        else:
            with tempfile.TemporaryDirectory(prefix="bert_tf_") as place:
                self.save(f"{place}/model")
                paths = [path for path in Path(place).rglob("*") if path.is_file()]
                files = {f"{x.relative_to(f'{place}/model')}": x.read_bytes() for x in paths}
        return _load_again, (source, files, self.max_seq_length, self._dtype, self._chosen)
