"""Settings of run_classifier. Each field is the flag of that name."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from bert_tf.datasets.tables import check_delimiter
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.model_notes import check_label
from bert_tf.runs.flags.setting_fields import Group, Settings, inherit
from bert_tf.runs.flags.settings import EvaluationOptions, FineTuningFiles, TeacherSettings
from bert_tf.tasks.class_weights import ClassWeightSettings
from bert_tf.tasks.long_text import LongTextSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierOptions(LongTextSettings, ClassWeightSettings, EvaluationOptions, TeacherSettings):
    """How a classifier is trained, evaluated and asked for predictions."""

    losses: ClassVar[tuple[str, ...]] = ("ce", "labels", "cos")
    teacher_checkpoint: str | None = inherit(
        TeacherSettings,
        "teacher_checkpoint",
        help="Teacher, a model fine-tuned for this task, whose answers the student learns in"
        " addition to the labels: its folder, also Hugging Face's, or its checkpoint's prefix.",
    )
    temperature: float = inherit(
        TeacherSettings,
        "temperature",
        needs=["teacher_checkpoint", "alpha_ce"],
        because="only the loss that --alpha_ce weights has a temperature",
    )
    alpha_ce: float = Group.TRAINING.setting(
        0.5,
        help="Weight of the loss on the teacher's answers: the cross entropy with its probabilities"
        " at --temperature, or in a regression the squared difference from its output.",
        at_least=0.0,
        needs="teacher_checkpoint",
    )
    alpha_labels: float = Group.TRAINING.setting(
        0.5,
        help="Weight of the loss on the examples' labels.",
        at_least=0.0,
        needs="teacher_checkpoint",
    )
    alpha_cos: float = inherit(TeacherSettings, "alpha_cos", default=0.0)
    copy_teacher_head: bool = Group.MODEL.setting(
        False,
        help="Start with the teacher's pooler and classifier instead of --init_checkpoint's. Use it"
        " if the student was distilled to similar vectors (run_distillation.py --alpha_cos).",
        needs="teacher_checkpoint",
    )

    label_smoothing: float = Group.TRAINING.setting(
        0.0,
        help="Share of each training target to spread evenly over all classes, against"
        " overconfidence and wrong labels.",
        at_least=0.0,
        below=1.0,
    )
    double_unordered: bool = Group.TRAINING.setting(
        False,
        help="Train on each pair of texts in both orders, for tasks where the order means nothing,"
        " as ELECTRA does on MRPC and STS-B. Twice the examples.",
        excludes=("long_text", "mean", "max"),
        because="a long pair already becomes several examples",
    )
    temperature_scaling: bool = Group.EVALUATION.setting(
        False,
        help="Divide the trained model's logits by one number, the temperature, so that its"
        " probabilities fit the dev set best (the least negative log-likelihood). This changes the"
        " evaluation, the predictions and --export_dir, but not the checkpoints in --output_dir.",
        excludes=[("long_text", "mean", "max")],
        because="the answer for a long text is not a softmax of logits",
    )
    threshold: float | None = Group.EVALUATION.setting(
        None,
        help="Least probability of a predicted label if a text can have several (--multi_label)."
        " Training keeps it with the model. Default: the model's, or else 0.5.",
        above=0.0,
        below=1.0,
    )
    find_threshold: bool = Group.EVALUATION.setting(
        False,
        help="Find the --threshold with the highest micro F1 on the dev set, by the model's final"
        " weights, and keep it with the model.",
        excludes="threshold",
        because="it finds the threshold itself",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings(FineTuningFiles, ClassifierOptions):
    """Settings of run_classifier: the options, and how its files are read."""

    data_dir: str | None = Group.DATA.setting(
        None, help="Folder with the files of the task. Needed without --tfds."
    )
    label_scale: float = Group.TRAINING.setting(
        1.0,
        help="Divide the labels of a regression by this number, as ELECTRA divides STS-B's by 5."
        " Predictions and errors then have this scale; GLUE's submission file does not.",
        above=0.0,
    )
    folds: int = Group.EVALUATION.setting(
        0,
        help="Cross-validation: divide the training examples into N parts. Train N times on all"
        " parts but one, in OUTPUT_DIR/fold-1 and so on, and evaluate on that one. Results are the"
        " mean and standard deviation over the folds. Each class is divided evenly (with"
        " --multi_label each combination of labels, or, if fewer than N texts have it, its rarest"
        " label). 0: none.",
        at_least=0,
        needs=["do_train", "do_eval"],
        excludes=[
            *("do_predict", "dev_fraction", "export_dir"),
            *("find_threshold", "temperature_scaling"),
        ],
        because="every fold trains a model on its part of the data, only to evaluate it",
    )


@dataclasses.dataclass(frozen=True)
class TableColumns(Settings):
    """The columns of --task_name=table, or the features of a dataset."""

    text_a_column: str | None = Group.DATA.setting(
        None,
        help="--task_name=table or --tfds: name of the column or feature with the text, or with the"
        " first text of a pair.",
    )
    text_b_column: str | None = Group.DATA.setting(
        None,
        help="--task_name=table or --tfds: name of the column or feature with the second text.",
    )
    label_column: str | None = Group.DATA.setting(
        None,
        help="--task_name=table or --tfds: name of the column or feature with the label. The test"
        " file may lack it.",
    )
    group_column: str | None = Group.DATA.setting(
        None,
        help="--task_name=table or --tfds: name of the column or feature with the group of each"
        " example, such as the query of a passage. Evaluation then also tells how well relevant"
        " examples are ranked within their groups: MRR@10, nDCG@10 and MAP. With two classes the"
        " second means relevant; with --regression labels are grades.",
    )
    weight_column: str | None = Group.DATA.setting(
        None,
        help="--task_name=table or --tfds: name of the column or feature with a number of at least"
        " 0 that says how much an example counts, in training and evaluation. The dev file may"
        " lack it.",
    )
    fold_group_column: str | None = Group.DATA.setting(
        None,
        help="--task_name=table or --tfds: name of the column or feature with the group of each"
        " example, such as its author, for --folds: a group is never divided. Default:"
        " --group_column, if given.",
    )
    has_header: bool = Group.DATA.setting(
        True,
        help="--task_name=table: the first line of each file names the columns. If false, columns"
        " are named by their numbers, from 0.",
    )
    delimiter: str | None = Group.DATA.setting(
        None,
        help="--task_name=table: character between columns. Default: a tab for .tsv, a comma for"
        " .csv. Columns may be quoted, except between tabs.",
    )
    labels: Sequence[str] | None = Group.DATA.setting(
        None,
        help="--task_name=table: the classes in the order of the logits. Default: the classes of"
        " the model in --output_dir or --init_checkpoint, or else of the training file, sorted. Put"
        " double quotes around a class with a comma, as in CSV.",
    )
    regression: bool = Group.DATA.setting(
        False,
        help="--task_name=table: labels are numbers to predict, not classes.",
        excludes="labels",
        because="a regression has no classes",
    )
    multi_label: bool = Group.DATA.setting(
        False,
        help="--task_name=table: a text can have several labels, or none. The cells of"
        " --label_column have them all.",
        excludes=["regression", "group_column"],
        because="that needs one number or class for each example",
    )
    label_separator: str = Group.DATA.setting(
        "|",
        help="Character between the labels in a cell. White space beside it is ignored.",
        needs="multi_label",
    )
    label_columns: Sequence[str] | None = Group.DATA.setting(
        None,
        help="--task_name=table: instead of --label_column, the names of several columns, each a"
        " label. They have 1 for a text with that label, else 0.",
        needs=["multi_label", "has_header"],
        excludes=["label_column", "labels"],
        because="the names of the columns are the labels",
    )

    def __post_init__(self):
        super().__post_init__()
        check_delimiter(self.delimiter)
        sign = self.label_separator
        answers = self.label_columns or [self.label_column]
        for role in ("text_a", "text_b", "weight", "group", "fold_group"):
            column = getattr(self, f"{role}_column")
            if column is not None and column in answers:
                raise UserError(
                    f"--{role}_column={column} is the column of the labels, which a model must find"
                    " without reading them; name another column"
                )
        flag = "--label_columns" if self.label_columns else "--labels"
        labels = self.label_columns or self.labels
        if labels is None:
            return
        for label in labels:
            check_label(label, flag)
            if self.multi_label and sign in label:
                raise UserError(
                    f"{flag}: the label {quoted(label)} must not have --label_separator"
                    f" ({quoted(sign)}) in it, which separates labels; give another"
                    " --label_separator"
                )
        if len(set(labels)) < len(labels):
            raise UserError(f"{flag} names a class twice: {listed(labels)}")
        if len(labels) < 2:
            raise UserError(
                f"{flag} must list at least two classes; got {quoted(','.join(labels))}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSource(Settings):
    """A prepared dataset of TensorFlow Datasets with the examples of a task.

    A split may be sliced (`train[:90%]`); None is the task's default split.
    """

    tfds: str | None = Group.DATA.setting(
        None,
        help="Prepared dataset of TensorFlow Datasets to read instead of --data_dir:"
        " NAME[/CONFIG][:VERSION], such as glue/mrpc.",
    )
    tfds_data_dir: str | None = Group.DATA.setting(
        None, help="Folder of the dataset. Default: TensorFlow Datasets' own.", needs="tfds"
    )
    tfds_train_split: str | None = Group.DATA.setting(
        None,
        help="Split of the dataset to train on, such as train[:90%]. Default: the task's own.",
        needs="tfds",
    )
    tfds_dev_split: str | None = Group.DATA.setting(
        None,
        help="Split of the dataset to evaluate on, such as train[90%:]. Default: the task's own.",
        needs="tfds",
    )
    tfds_test_split: str | None = Group.DATA.setting(
        None, help="Split of the dataset to predict. Default: the task's own.", needs="tfds"
    )
