"""The classification tasks by name."""

import dataclasses
from collections.abc import Sequence

from bert_tf.errors import UserError
from bert_tf.runs.flags.setting_fields import Group, Settings
from bert_tf.tasks.classification import glue
from bert_tf.tasks.classification.examples import DataProcessor
from bert_tf.tasks.classification.imdb import ImdbProcessor
from bert_tf.tasks.classification.settings import TableColumns, TfdsSource
from bert_tf.tasks.classification.table import TableProcessor
from bert_tf.tasks.classification.tfds_input import TfdsProcessor, class_names
from bert_tf.tasks.classification.xnli import XNLI_LANGUAGES, XnliProcessor

# As in the original, which has cola, mnli, mrpc and xnli, --task_name may be in upper case.
processors: dict[str, type[DataProcessor]] = {
    "ax": glue.AxProcessor,
    "cola": glue.ColaProcessor,
    "imdb": ImdbProcessor,
    "mnli": glue.MnliProcessor,
    "mnli-mm": glue.MnliMismatchedProcessor,
    "mrpc": glue.MrpcProcessor,
    "qnli": glue.QnliProcessor,
    "qqp": glue.QqpProcessor,
    "rte": glue.RteProcessor,
    "sst-2": glue.Sst2Processor,
    "sts-b": glue.StsbProcessor,
    "table": TableProcessor,
    "wnli": glue.WnliProcessor,
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


_XNLI_LANGUAGE = ProcessorSettings.xnli_language


def get_processor(
    task_name: str,
    data_dir: str = "",
    xnli_language: str = _XNLI_LANGUAGE,
    columns: TableColumns | None = None,
    source: TfdsSource | None = None,
    learned_labels: Sequence[str] | None = None,
) -> DataProcessor:
    """Returns the processor of a task.

    Args:
        task_name: name of the task, in upper or lower case, with or without hyphens.
        data_dir: folder with the files of the task. Only the task `table` reads them here, to
            collect its classes.
        xnli_language: language of the examples of the task `xnli`.
        columns: columns of the task `table`, or features of the dataset.
        source: dataset to read instead of files; ignored if it has no name.
        learned_labels: the classes that the model was trained with, if any; the default of
            --labels.

    Raises:
        UserError: the task is unknown, or the arguments do not fit it or each other.
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
    if not (processor_class is XnliProcessor or source) and xnli_language != _XNLI_LANGUAGE:
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
    """Checks that the given flags apply to the task and to the source of its examples."""
    given = [f.name for f in dataclasses.fields(columns) if getattr(columns, f.name) != f.default]
    for name in given:
        if is_dataset and name in ("has_header", "delimiter", "label_columns"):
            raise UserError(f"--{name} is for files; leave it out with --tfds")
        if not is_table and not is_dataset:
            raise UserError(
                f"--{name} is for --task_name=table or --tfds; leave it out, since the files of"
                f" --task_name={task_name} have fixed columns"
            )
        if not is_table and name in ("labels", "regression", "multi_label", "label_separator"):
            raise UserError(
                f"--{name} is for --task_name=table; leave it out, since the labels of"
                f" --task_name={task_name} are fixed"
            )
