"""The classification tasks by name."""

import dataclasses
from collections.abc import Sequence

from bert_tf.errors import UserError
from bert_tf.tasks.classification import glue, other, table, tfds_input
from bert_tf.tasks.classification.examples import DataProcessor

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


def get_processor(
    task_name: str,
    data_dir: str = "",
    xnli_language: str = "zh",
    columns: table.TableColumns | None = None,
    source: tfds_input.TfdsSource | None = None,
    learned_labels: Sequence[str] | None = None,
) -> DataProcessor:
    """Returns the processor of a task. The other arguments are the program's flags.

    Args:
        task_name: its name, in whatever case and with or without hyphens.
        data_dir: where its files are; only the task `table` looks there now, for its classes.
        xnli_language: the language, for the task `xnli`.
        columns: what the task `table` needs to know, or where a dataset has what.
        source: a dataset to read instead of files.
        learned_labels: the classes of the model, if it has learned some; those of the task `table`
            where its columns name none.

    Raises:
        UserError: there is no such task, or it cannot be set up so.
    """
    wanted = task_name.lower().replace("-", "")
    found = [cls for name, cls in processors.items() if name.replace("-", "") == wanted]
    if not found:
        raise UserError(
            f"--task_name={task_name}: no such task; there are {', '.join(sorted(processors))}"
        )
    columns = columns or table.TableColumns()
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
