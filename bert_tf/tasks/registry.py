"""The tasks for fine-tuning. Add a new task here; its program and its tests read this list."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from bert_tf.runs.flags.setting_fields import Settings

if TYPE_CHECKING:
    from bert_tf.tasks.task import FineTuningTask

_EXAMPLES = "flags/quickstart"


class RegisteredTask(NamedTuple):
    """Where a task's class, program, docs and flags are."""

    path: str  # the task's class, as MODULE.CLASS below `bert_tf.tasks`
    settings: tuple[str, ...]  # classes that define the program's flags; the first is the task's
    program: str  # the name of the program at the top of the repository
    page: str  # the task's page in docs/
    recipes: str  # the folder of the task's recipes in flags/
    example: Mapping[str, object]  # flags that run the task on its example in flags/

    def load(self) -> "type[FineTuningTask]":
        """Imports the task's class and returns it."""
        return _load(self.path)

    def settings_classes(self) -> list[type[Settings]]:
        """Returns the classes of `settings`; `from_settings` of the task takes one of each."""
        package, _, _ = self.path.partition(".")
        return [_load(f"{package}.{path}") for path in self.settings]


def _load(path: str) -> type:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"bert_tf.tasks.{module}"), name)


TASKS = {
    "classification": RegisteredTask(
        "classification.task.ClassificationTask",
        (
            *("settings.ClassifierSettings", "processors.ProcessorSettings"),
            *("settings.TableColumns", "settings.TfdsSource"),
        ),
        "run_classifier",
        "classification",
        "glue",
        {
            "data_dir": f"{_EXAMPLES}/numbers",
            "task_name": "table",
            "text_a_column": "sentence",
            "label_column": "has_number",
        },
    ),
    "squad": RegisteredTask(
        "squad.task.SquadTask",
        ("settings.SquadSettings",),
        "run_squad",
        "question-answering",
        "squad",
        {
            "train_file": f"{_EXAMPLES}/squad.json",
            "predict_file": f"{_EXAMPLES}/squad.json",
            "version_2_with_negative": True,
        },
    ),
    "tagging": RegisteredTask(
        "tagging.task.TaggingTask",
        ("settings.TaggingSettings",),
        "run_tagging",
        "tagging",
        "tagging",
        {"data_dir": f"{_EXAMPLES}/entities"},
    ),
    "multiple_choice": RegisteredTask(
        "multiple_choice.task.MultipleChoiceTask",
        ("settings.MultipleChoiceSettings",),
        "run_multiple_choice",
        "multiple-choice",
        "multiple_choice",
        {"data_dir": f"{_EXAMPLES}/endings"},
    ),
    "sentences": RegisteredTask(
        "sentences.task.SentenceTask",
        ("settings.SentenceSettings",),
        "run_sentence_similarity",
        "sentences",
        "sentences",
        {
            "data_dir": f"{_EXAMPLES}/sentences",
            "text_a_column": "sentence1",
            "text_b_column": "sentence2",
            "label_column": "score",
            "score_scale": 5.0,
        },
    ),
}
