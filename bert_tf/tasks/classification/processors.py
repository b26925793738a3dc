"""Classification tasks by name: GLUE's (the original has CoLA, MNLI, MRPC), XNLI, IMDB, tables."""

import dataclasses
import os
from collections.abc import Iterator, Sequence

from bert_tf.datasets.tables import place_of, read_text
from bert_tf.errors import UserError
from bert_tf.files.paths import names_in
from bert_tf.files.storage import contents, ending_of
from bert_tf.runs.flags.setting_fields import Group, Settings
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.classification.examples import DataProcessor, InputExample
from bert_tf.tasks.classification.settings import TableColumns, TfdsSource
from bert_tf.tasks.classification.table import ColumnNumbers, TableProcessor, TsvProcessor
from bert_tf.tasks.classification.tfds_input import TfdsProcessor, class_names


class ColaProcessor(TsvProcessor):
    """Corpus of Linguistic Acceptability: is a sentence grammatical? Only test.tsv has a header."""

    labels = ("0", "1")
    metrics = ("matthews_correlation", "accuracy")
    best_metric = "eval_matthews_correlation"
    submission_file = "CoLA.tsv"
    columns = ColumnNumbers(text_a=3, label=1, header=False)
    test_columns = ColumnNumbers(text_a=1)


class Sst2Processor(TsvProcessor):
    """Stanford Sentiment Treebank: is the review positive?"""

    labels = ("0", "1")
    submission_file = "SST-2.tsv"
    columns = ColumnNumbers(text_a=0, label=1)
    test_columns = ColumnNumbers(text_a=1)


class MrpcProcessor(TsvProcessor):
    """Microsoft Research Paraphrase Corpus: do both sentences mean the same?"""

    labels = ("0", "1")
    metrics = ("accuracy", "f1")
    best_metric = "eval_accuracy_and_f1"
    submission_file = "MRPC.tsv"
    columns = ColumnNumbers(text_a=3, text_b=4, label=0)
    test_columns = ColumnNumbers(text_a=3, text_b=4)


class StsbProcessor(TsvProcessor):
    """Semantic Textual Similarity Benchmark: how similar are the sentences, from 0 to 5?"""

    label_range = (0.0, 5.0)
    metrics = ("pearson", "spearman")
    best_metric = "eval_pearson_and_spearman"
    submission_file = "STS-B.tsv"
    columns = ColumnNumbers(text_a=7, text_b=8, label=9)
    test_columns = ColumnNumbers(text_a=7, text_b=8)


class QqpProcessor(TsvProcessor):
    """Quora Question Pairs: do both ask the same? A few rows of train.tsv lack columns."""

    labels = ("0", "1")
    metrics = ("accuracy", "f1")
    best_metric = "eval_accuracy_and_f1"
    submission_file = "QQP.tsv"
    columns = ColumnNumbers(text_a=3, text_b=4, label=5)
    test_columns = ColumnNumbers(text_a=1, text_b=2)
    skip_short_rows = True


class MnliMismatchedProcessor(TsvProcessor):
    """MultiNLI, evaluated on genres that the training set does not have."""

    labels = ("contradiction", "entailment", "neutral")
    submission_file = "MNLI-mm.tsv"
    files = {"train": "train.tsv", "dev": "dev_mismatched.tsv", "test": "test_mismatched.tsv"}
    guid_names = {"dev": "dev_mismatched"}
    tfds_splits = {
        "train": ("train",),
        "dev": ("validation_mismatched",),
        "test": ("test_mismatched",),
    }
    # The label is the last column: dev files have the labels of five annotators before it.
    columns = ColumnNumbers(text_a=8, text_b=9, label=-1, guid=0)
    test_columns = ColumnNumbers(text_a=8, text_b=9, guid=0)


class MnliProcessor(MnliMismatchedProcessor):
    """MultiNLI: does the second sentence follow from the first?

    Evaluated on the genres of the training set.
    """

    submission_file = "MNLI-m.tsv"
    files = {"train": "train.tsv", "dev": "dev_matched.tsv", "test": "test_matched.tsv"}
    guid_names = {"dev": "dev_matched"}
    tfds_splits = {
        "train": ("train",),
        "dev": ("validation_matched", "validation"),
        "test": ("test_matched", "test"),
    }
    also = {"mismatched": MnliMismatchedProcessor()}


class AxProcessor(TsvProcessor):
    """GLUE's diagnostic set, for predictions of a model that was trained on MNLI."""

    labels = MnliProcessor.labels
    submission_file = "AX.tsv"
    files = {"test": "diagnostic.tsv"}
    test_columns = ColumnNumbers(text_a=1, text_b=2)


class QnliProcessor(TsvProcessor):
    """Question NLI: does the sentence contain the answer to the question?"""

    labels = ("entailment", "not_entailment")
    submission_file = "QNLI.tsv"
    columns = ColumnNumbers(text_a=1, text_b=2, label=3)
    test_columns = ColumnNumbers(text_a=1, text_b=2)


class RteProcessor(QnliProcessor):
    """Recognizing Textual Entailment: does the second sentence follow from the first?"""

    submission_file = "RTE.tsv"


class WnliProcessor(QnliProcessor):
    """Winograd NLI: is the pronoun replaced correctly?"""

    labels = ("0", "1")
    submission_file = "WNLI.tsv"


XNLI_LANGUAGES = tuple("ar bg de el en es fr hi ru sw th tr ur vi zh".split())


class ImdbProcessor(DataProcessor):
    """Sentiment of film reviews, in the folder `aclImdb`. The test set is also the dev set.

    Examples are sorted by class and file name. Texts keep HTML's line breaks, as in the original.
    """

    labels = ("neg", "pos")
    tfds_splits = {"train": ("train",), "dev": ("validation", "test"), "test": ("test",)}

    def has(self, split: str, data_dir: str) -> bool:
        return tf.io.gfile.isdir(self._folder(split, data_dir))

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        examples = []
        for label in self.labels:
            folder = os.path.join(self._folder(split, data_dir), label)
            names = names_in(folder) if tf.io.gfile.isdir(folder) else []
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


class XnliProcessor(TsvProcessor):
    """Natural language inference in one language.

    The training set is translated by machine, the dev and test sets by people. The files come from
    XNLI-1.0.zip and XNLI-MT-1.0.zip, in one folder. A model can be trained in one language and
    evaluated in a different one ("zero shot" in the original's multilingual.md).
    """

    labels = ("contradiction", "entailment", "neutral")
    train_columns = ColumnNumbers(text_a=0, text_b=1, label=2)
    columns = ColumnNumbers(text_a=6, text_b=7, label=1)

    def __init__(self, language: str):
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


# As in the original, which has cola, mnli, mrpc and xnli, --task_name may be in upper case.
processors: dict[str, type[DataProcessor]] = {
    "ax": AxProcessor,
    "cola": ColaProcessor,
    "imdb": ImdbProcessor,
    "mnli": MnliProcessor,
    "mnli-mm": MnliMismatchedProcessor,
    "mrpc": MrpcProcessor,
    "qnli": QnliProcessor,
    "qqp": QqpProcessor,
    "rte": RteProcessor,
    "sst-2": Sst2Processor,
    "sts-b": StsbProcessor,
    "table": TableProcessor,
    "wnli": WnliProcessor,
    "xnli": XnliProcessor,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessorSettings(Settings):
    """Which task to train, and XNLI's language."""

    task_name: str = Group.DATA.setting(
        help=f"The task, in upper or lower case: {', '.join(processors)}."
    )
    xnli_language: str = Group.DATA.setting(
        "zh", help="Language of the examples of --task_name=XNLI.", choices=XNLI_LANGUAGES
    )


def get_processor(
    task_name: str,
    data_dir: str = "",
    xnli_language: str = ProcessorSettings.xnli_language,
    columns: TableColumns | None = None,
    source: TfdsSource | None = None,
    learned_labels: Sequence[str] | None = None,
) -> DataProcessor:
    """Returns the processor of a task.

    Only the task `table` reads `data_dir` here, to collect its classes; `columns` names its
    columns. If `source` has a name, that dataset is read instead of files, and `columns` names its
    features. `learned_labels`, the classes of the trained model, are the default of --labels.
    """
    by_name = {key.replace("-", ""): cls for key, cls in processors.items()}
    processor_class = by_name.get(task_name.lower().replace("-", ""))
    if processor_class is None:
        raise UserError(
            f"--task_name must be one of {', '.join(sorted(processors))}; got {task_name}"
        )
    is_table = processor_class is TableProcessor
    columns = columns or TableColumns()
    if source and not source.tfds:
        source = None
    if source and data_dir:
        raise UserError(
            f"--data_dir={data_dir} and --tfds={source.tfds} exclude each other: both name the"
            " examples to read; leave one of them out"
        )
    is_read = processor_class is XnliProcessor or source is not None
    if not is_read and xnli_language != ProcessorSettings.xnli_language:
        raise UserError(
            f"--xnli_language={xnli_language} is for --task_name=XNLI; leave it out with"
            f" --task_name={task_name}"
        )
    _check_columns(columns, task_name, is_table, source is not None)
    if is_table and not (columns.regression or columns.labels or columns.label_columns):
        labels = learned_labels or (class_names(source, columns) if source else None)
        columns = dataclasses.replace(columns, labels=labels)
    processor = processor_class.create(columns, data_dir, xnli_language)
    return TfdsProcessor(processor, source, columns, xnli_language) if source else processor


def _check_columns(columns: TableColumns, task_name: str, is_table: bool, is_dataset: bool) -> None:
    given = [f.name for f in dataclasses.fields(columns) if getattr(columns, f.name) != f.default]
    for name in given:
        if is_dataset and name in ("has_header", "delimiter", "label_columns"):
            raise UserError(f"--{name} is for files; leave it out with --tfds")
        of_labels = name in ("labels", "regression", "multi_label", "label_separator")
        if not is_table and (of_labels or not is_dataset):
            raise UserError(
                f"--{name} is for --task_name=table{'' if of_labels else ' or --tfds'}; leave it"
                f" out, since the files and labels of --task_name={task_name} are fixed"
            )
