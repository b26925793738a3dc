"""IMDB: positive and negative film reviews."""

import os

from bert_tf.datasets.tables import read_text
from bert_tf.errors import UserError
from bert_tf.files.storage import contents, ending_of
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.classification.examples import DataProcessor, InputExample


class ImdbProcessor(DataProcessor):
    """Sentiment of film reviews, in the folder `aclImdb`. Its test set is also the dev set.

    Examples are sorted by class and file name. HTML line breaks in the texts are kept, as in the
    original's notebook.
    """

    labels = ("neg", "pos")
    tfds_splits = {"train": ("train",), "dev": ("validation", "test"), "test": ("test",)}

    def has(self, split: str, data_dir: str) -> bool:
        return tf.io.gfile.isdir(self._folder(split, data_dir))

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        examples = []
        for label in self.labels:
            folder = os.path.join(self._folder(split, data_dir), label)
            names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
            names = sorted(name for name in names if ending_of(name) == ".txt")
            if not names:
                raise UserError(
                    f"There are no reviews in {folder}: {contents(data_dir)}. --data_dir must be"
                    " the folder aclImdb, with train/neg, train/pos, test/neg and test/pos"
                )
            for name in names:
                guid = f"{split}-{label}-{os.path.splitext(name)[0]}"
                text = read_text(os.path.join(folder, name))
                examples.append(InputExample(guid, text, None, label, label))
        return examples

    def _folder(self, split: str, data_dir: str) -> str:
        return os.path.join(data_dir, "train" if split == "train" else "test")
