"""Tasks beyond GLUE: XNLI, as in the original and in its other languages, and IMDB."""

import os

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.tasks.classification.examples import (
    Columns,
    DataProcessor,
    InputExample,
    TsvProcessor,
    contents,
    read_text,
    rows_to_examples,
)

XNLI_LANGUAGES = tuple("ar bg de el en es fr hi ru sw th tr ur vi zh".split())


class XnliProcessor(TsvProcessor):
    """MultiNLI in other languages: the training set machine-translated, the others by people.

    The files are those of XNLI-1.0.zip and XNLI-MT-1.0.zip in one folder. A model trained in one
    language can be evaluated in another ("zero shot" in the original's multilingual.md).
    """

    labels = ("contradiction", "entailment", "neutral")
    columns = Columns(text_a=6, text_b=7, label=1)
    test_columns = columns
    train_columns = Columns(text_a=0, text_b=1, label=2)

    def __init__(self, language: str):
        """Takes the language of the examples, such as "zh", the original's.

        Raises:
            UserError: XNLI has no such language.
        """
        if language not in XNLI_LANGUAGES:
            raise UserError(
                f"--xnli_language must be one of {', '.join(XNLI_LANGUAGES)}; got {language}"
            )
        self.language = language
        self.files = {
            "train": f"multinli/multinli.train.{language}.tsv",
            "dev": "xnli.dev.tsv",
            "test": "xnli.test.tsv",
        }

    def read(self, which: str, data_dir: str) -> list[InputExample]:
        path = os.path.join(data_dir, self.files[which])
        columns = self.train_columns if which == "train" else self.columns
        rows = self.numbered_rows(path, columns)
        if which == "train":
            # The training files spell one of the labels in their own way.
            rows = (
                (i, [*row[:2], "contradiction"] if row[2:3] == ["contradictory"] else row)
                for i, row in rows
            )
        else:
            rows = [(i, row) for i, row in rows if row[:1] == [self.language]]
            if not rows:
                raise UserError(
                    f"{path} has no line that begins with {self.language}; --xnli_language must "
                    "be one that is there"
                )
        return rows_to_examples(rows, path, columns, self, which)


class ImdbProcessor(DataProcessor):
    """Film reviews, liked or not, in the folder `aclImdb`. Its test set is also what is evaluated.

    Examples come sorted by class and file name. The HTML line breaks in the texts stay, as in the
    original's notebook.
    """

    labels = ("neg", "pos")
    tfds_splits = {"train": ("train",), "dev": ("validation", "test"), "test": ("test",)}

    def has(self, which: str, data_dir: str) -> bool:
        return tf.io.gfile.isdir(self._folder(which, data_dir))

    def read(self, which: str, data_dir: str) -> list[InputExample]:
        examples = []
        for label in self.labels:
            folder = os.path.join(self._folder(which, data_dir), label)
            names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
            names = sorted(name for name in names if name.endswith(".txt"))
            if not names:
                raise UserError(
                    f"there is no review in {folder}: {contents(data_dir)}. --data_dir must be the "
                    "folder aclImdb, with train/neg, train/pos, test/neg and test/pos"
                )
            for name in names:
                examples.append(
                    InputExample(
                        guid=f"{which}-{label}-{name.removesuffix('.txt')}",
                        text_a=read_text(os.path.join(folder, name)),
                        label=label,
                    )
                )
        return examples

    def _folder(self, which: str, data_dir: str) -> str:
        return os.path.join(data_dir, "train" if which == "train" else "test")
