"""The tasks for fine-tuning. Add a new task here; its program and the tests read this list."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_tf.runs.flags.setting_fields import Settings

if TYPE_CHECKING:
    from bert_tf.model.configuration import BertConfig
    from bert_tf.tasks.rows import Rows
    from bert_tf.tasks.task import FineTuningTask, TaskFiles

_EXAMPLES = "flags/quickstart"


class Head(NamedTuple):
    """A head that training adds to BERT."""

    shown: str  # its name in descriptions
    trained_by: str  # the program that trains it
    biases: tuple[str, ...] = ()  # names in BERT and ELECTRA; zero if the head was never trained
    rows: str = ""  # its class of rows, as MODULE.CLASS in the task's folder
    model: str = ""  # the class of its Keras model, likewise
    takes_num_labels: bool = False  # whether that class takes the number of labels
    needs_pooler: bool = False  # whether its outputs depend on the pooler


class RegisteredTask(NamedTuple):
    """Where a task's classes, program, docs and flags are."""

    name: str  # the task's folder below `bert_tf.tasks`
    prefix: str  # of the names of its classes, such as SquadTask in task.py
    heads: Mapping[str, Head]
    settings: tuple[str, ...]  # classes that define the program's flags; the first is the task's
    program: str  # the name of the program at the top of the repository
    page: str  # the task's page in docs/
    recipes: str  # the folder of the task's recipes in flags/
    example: Mapping[str, object]  # flags that run the task on its example in flags/

    def task_class(self) -> "type[FineTuningTask]":
        """Imports and returns the task's class."""
        return self._load(f"task.{self.prefix}Task")

    def files_class(self) -> "type[TaskFiles]":
        return self._load(f"files.{self.prefix}Files")

    def rows_class(self, head: str) -> "type[Rows]":
        return self._load(self.heads[head].rows)

    def make_model(self, head: str, config: "BertConfig", num_labels: int, dtype: Any) -> Any:
        sizes = [num_labels] if self.heads[head].takes_num_labels else []
        return self._load(self.heads[head].model)(config, *sizes, dtype=dtype)

    def settings_classes(self) -> list[type[Settings]]:
        return [self._load(path) for path in self.settings]

    def _load(self, path: str) -> type:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(f"bert_tf.tasks.{self.name}.{module}"), name)


_BIAS = ("output_bias",)
_CLASSIFIER: dict[str, Any] = {
    "model": "model.ClassificationModel",
    "takes_num_labels": True,
    "needs_pooler": True,
}
TASKS = {
    "classification": RegisteredTask(
        *("classification", "Classification"),
        {
            "classification": Head(
                *("classification", "run_classifier.py", _BIAS, "rows.ClassificationRows"),
                **_CLASSIFIER,
            ),
            "regression": Head(
                *("regression", "a regression of run_classifier.py", _BIAS, "rows.RegressionRows"),
                **_CLASSIFIER,
            ),
        },
        (
            *("settings.ClassifierSettings", "processors.ProcessorSettings"),
            *("settings.TableColumns", "settings.TfdsSource"),
        ),
        *("run_classifier", "classification", "glue"),
        {
            "data_dir": f"{_EXAMPLES}/numbers",
            "task_name": "table",
            "text_a_column": "sentence",
            "label_column": "has_number",
        },
    ),
    "tagging": RegisteredTask(
        *("tagging", "Tagging"),
        {
            "tagging": Head(
                *("tagging", "run_tagging.py", _BIAS, "data.TaggingRows"),
                model="model.TaggingModel",
                takes_num_labels=True,
            )
        },
        ("settings.TaggingSettings",),
        *("run_tagging", "tagging", "tagging"),
        {"data_dir": f"{_EXAMPLES}/entities"},
    ),
    "squad": RegisteredTask(
        *("squad", "Squad"),
        {
            "squad": Head(
                "answers (SQuAD)",
                "run_squad.py",
                ("cls/squad/output_bias", "task_specific/squad/dense/bias"),
                "examples.SquadRows",
                "model.SquadModel",
            )
        },
        ("settings.SquadSettings",),
        *("run_squad", "question-answering", "squad"),
        {
            "train_file": f"{_EXAMPLES}/squad.json",
            "predict_file": f"{_EXAMPLES}/squad.json",
            "version_2_with_negative": True,
        },
    ),
    "multiple_choice": RegisteredTask(
        *("multiple_choice", "MultipleChoice"),
        {
            "multiple_choice": Head(
                *("multiple choice", "run_multiple_choice.py", (), "data.MultipleChoiceRows"),
                model="model.MultipleChoiceModel",
                needs_pooler=True,
            )
        },
        ("settings.MultipleChoiceSettings",),
        *("run_multiple_choice", "multiple-choice", "multiple_choice"),
        {"data_dir": f"{_EXAMPLES}/endings"},
    ),
    "sentences": RegisteredTask(
        *("sentences", "Sentence"),
        {},
        ("settings.SentenceSettings",),
        *("run_sentence_similarity", "sentences", "sentences"),
        {
            "data_dir": f"{_EXAMPLES}/sentences",
            "text_a_column": "sentence1",
            "text_b_column": "sentence2",
            "label_column": "score",
            "score_scale": 5.0,
        },
    ),
}

HEADS = {
    "masked_lm": Head(
        "masked language model",
        "run_pretraining.py",
        ("cls/predictions/output_bias", "generator_predictions/output_bias"),
    ),
    "next_sentence": Head("next sentence", "run_pretraining.py"),
    **{name: head for task in TASKS.values() for name, head in task.heads.items()},
}
