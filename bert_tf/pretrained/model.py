"""The model that `load` returns: text in, answers out.

    model = bert_tf.load("uncased_L-12_H-768_A-12")
    model.fill_mask("Paris is the [MASK] of France.")

Most methods take one text and return one result, or take a list of texts and return the results in
the same order. Long lists are sorted by length and computed in batches.
"""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_tf.files.whole_folders import read_again
from bert_tf.pretrained.folder import read_folder
from bert_tf.pretrained.methods.answer import AnswerQuestions
from bert_tf.pretrained.methods.base import is_forked
from bert_tf.pretrained.methods.classify import Classify
from bert_tf.pretrained.methods.encode import Encode
from bert_tf.pretrained.methods.tag import Tag
from bert_tf.pretrained.methods.train import Train
from bert_tf.tasks.rows import Rows


def _load_again(
    source: dict[str, Any],
    files: dict[str, bytes],
    max_seq_length: int,
    dtype: str | None,
    chosen: Rows | None,
) -> "Pretrained":
    """Loads a pickled model, from the folder that the pickle names or from the files in it."""
    if is_forked():  # the model's methods raise; an error here would hang a process pool
        return Pretrained.__new__(Pretrained)
    if source:
        length = max_seq_length
        model = read_again(lambda: Pretrained(read_folder(**source, max_seq_length=length), dtype))
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


class Pretrained(Classify, AnswerQuestions, Tag, Encode, Train):
    """A trained model: text in, answers out. `print` describes it.

    A pickle or a copy of a model that was trained in memory has the weights. Otherwise it has only
    the path of the folder, and loads the model again.

    Attributes:
        config: the model's BertConfig.
        tokenizer: `encode` converts texts to ids; `vocab` is token -> id.
        heads: the heads that the checkpoint has weights for: `masked_lm`, `next_sentence`,
            `classification`, `regression`, `tagging`, `multiple_choice`, `squad`.
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
