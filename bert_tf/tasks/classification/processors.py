"""The classification tasks by name."""

import dataclasses
from collections.abc import Sequence

from bert_tf.errors import UserError
from bert_tf.runs.setting_fields import Group, Settings, setting
from bert_tf.tasks.classification import glue, other, table, tfds_input
from bert_tf.tasks.classification.examples import DataProcessor
from bert_tf.tasks.classification.settings import TableColumns, TfdsSource

# The original's keys are cola, mnli, mrpc and xnli; as there, --task_name is put in lower case.
processors: dict[str, type[DataProcessor]] = {
    "ax": glue.AxProcessor,
    "cola": glue.ColaProcessor,
    "imdb": other.ImdbProcessor,
    "mnli": glue.MnliProcessor,
    "mnli-mm": glue.MnliMismatchedProcessor,
    "mrpc": glue.MrpcProcessor,
    "qnli": glue.QnliProcessor,
    "qqp": glue.QqpProcessor,
    "rte": glue.RteProcessor,
    "sst-2": glue.Sst2Processor,
    "sts-b": glue.StsbProcessor,
    "table": table.TableProcessor,
    "wnli": glue.WnliProcessor,
    "xnli": other.XnliProcessor,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessorSettings(Settings):
    """Which task it is."""

    task_name: str = setting(
        help=f"The task, in upper or lower case: {', '.join(processors)}.", group=Group.DATA
    )
    xnli_language: str = setting(
        "zh",
        help="Language of the examples of --task_name=XNLI.",
        group=Group.DATA,
        choices=other.XNLI_LANGUAGES,
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

    Args:
        task_name: name of the task, in any case, with or without hyphens.
        data_dir: folder with its files. Only the task `table` reads them here, for its classes.
        xnli_language: language of the examples of the task `xnli`.
        columns: columns of the task `table`, or features of the dataset.
        source: dataset to read instead of files; one without a name counts as None.
        learned_labels: the classes that the model was trained with, if any: the default for the
            classes of the task `table`.

    Raises:
        UserError: there is no such task, or the arguments do not fit it or each other.
    """
    wanted = task_name.lower().replace("-", "")
    found = [cls for name, cls in processors.items() if name.replace("-", "") == wanted]
    if not found:
        raise UserError(
            f"--task_name={task_name}: no such task; there are {', '.join(sorted(processors))}"
        )
    columns = columns or TableColumns()
    if source and not source.tfds:
        source = None
    if source and data_dir:
        raise UserError(
            f"The examples come from --data_dir={data_dir} or from --tfds={source.tfds}; leave one"
            " of them out"
        )
    for field in dataclasses.fields(columns):
        if getattr(columns, field.name) == field.default:
            continue
        if source and field.name in ("has_header", "delimiter"):
            raise UserError(f"--{field.name} is for files; leave it out with --tfds")
        if found == [table.TableProcessor]:
            continue
        if not source:
            raise UserError(
                f"--{field.name} is for --task_name=table or --tfds; leave it out, since "
                f"--task_name={task_name} has files of a form of its own"
            )
        if field.name in ("labels", "regression"):
            raise UserError(
                f"--{field.name} is for --task_name=table; leave it out, since"
                f" --task_name={task_name} has labels of its own"
            )
    if found == [table.TableProcessor]:
        if learned_labels and not columns.regression and columns.labels is None:
            columns = dataclasses.replace(columns, labels=learned_labels)
        if source and not columns.regression and columns.labels is None:
            columns = dataclasses.replace(columns, labels=tfds_input.class_names(source, columns))
        processor = table.TableProcessor(columns, data_dir)
    elif found == [other.XnliProcessor]:
        processor = other.XnliProcessor(xnli_language)
    else:
        processor = found[0]()
    if source:
        return tfds_input.TfdsProcessor(processor, source, columns, xnli_language)
    return processor
