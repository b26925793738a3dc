"""XNLI: MultiNLI in 15 languages (the original has Chinese)."""

from collections.abc import Iterator

from bert_tf.datasets.tables import place_of
from bert_tf.errors import UserError
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.classification.tsv import ColumnNumbers, TsvProcessor

XNLI_LANGUAGES = tuple("ar bg de el en es fr hi ru sw th tr ur vi zh".split())


class XnliProcessor(TsvProcessor):
    """Natural language inference in one language.

    The training set is translated by machine, the dev and test sets by people. The files come from
    XNLI-1.0.zip and XNLI-MT-1.0.zip, in one folder. A model trained in one language can be
    evaluated in another ("zero shot" in the original's multilingual.md).
    """

    labels = ("contradiction", "entailment", "neutral")
    train_columns = ColumnNumbers(text_a=0, text_b=1, label=2)
    columns = ColumnNumbers(text_a=6, text_b=7, label=1)

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

    @classmethod
    def create(cls, columns: TableColumns, data_dir: str, language: str) -> "XnliProcessor":
        return cls(language)

    def numbered_rows(self, split: str, path: str) -> Iterator[tuple[int, list[str]]]:
        rows = super().numbered_rows(split, path)
        if split == "train":
            for i, row in rows:  # the training files spell one label differently
                is_misspelt = row[2:3] == ["contradictory"]
                yield i, [*row[:2], "contradiction"] if is_misspelt else row
            return
        found = [(i, row) for i, row in rows if row[:1] == [self.language]]
        if not found:
            raise UserError(
                f"{place_of(path)} has no line that begins with {self.language}; choose one of its"
                " languages with --xnli_language"
            )
        yield from found
