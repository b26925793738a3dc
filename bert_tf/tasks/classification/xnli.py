"""XNLI: MultiNLI in 15 languages (the original has Chinese)."""

import os

from bert_tf.datasets import tables
from bert_tf.errors import UserError
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.tsv import ColumnNumbers, TsvProcessor, rows_to_examples

XNLI_LANGUAGES = tuple("ar bg de el en es fr hi ru sw th tr ur vi zh".split())


class XnliProcessor(TsvProcessor):
    """Natural language inference in one language.

    The training set is translated by machine, the dev and test sets by people. The files come from
    XNLI-1.0.zip and XNLI-MT-1.0.zip, in one folder. A model trained in one language can be
    evaluated in another ("zero shot" in the original's multilingual.md).

    Args:
        language: language of the examples, such as "zh", the original's.

    Raises:
        UserError: XNLI has no such language.
    """

    labels = ("contradiction", "entailment", "neutral")
    columns = ColumnNumbers(text_a=6, text_b=7, label=1)
    test_columns = columns
    train_columns = ColumnNumbers(text_a=0, text_b=1, label=2)

    def __init__(self, language: str):
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

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        path = os.path.join(data_dir, self.files[split])
        columns = self.train_columns if split == "train" else self.columns
        rows = self.numbered_rows(path, columns)
        if split == "train":
            # The training files spell one label differently.
            rows = (
                (i, [*row[:2], "contradiction"] if row[2:3] == ["contradictory"] else row)
                for i, row in rows
            )
        else:
            rows = [(i, row) for i, row in rows if row[:1] == [self.language]]
            if not rows:
                raise UserError(
                    f"{path} has no line that begins with {self.language}; choose one of its"
                    " languages with --xnli_language"
                )
        examples = tables.examples(rows, path, columns.needed, columns.header)
        return rows_to_examples(examples, columns, self, split)
