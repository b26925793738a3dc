"""The tasks for fine-tuning. Add a new task here; its program and its tests read this list."""

import importlib
from collections.abc import Mapping
from typing import NamedTuple

from bert_tf.tasks.task import FineTuningTask

_EXAMPLES = "flags/quickstart"


class RegisteredTask(NamedTuple):
    """Where a task's class, program, docs and flags are."""

    path: str  # the task's class, as MODULE.CLASS below `bert_tf.tasks`
    program: str  # the name of the program at the top of the repository
    page: str  # the task's page in docs/
    recipes: str  # the folder of the task's recipes in flags/
    example: Mapping[str, object]  # flags that run the task on its example in flags/

    def load(self) -> type[FineTuningTask]:
        """Imports the task's class and returns it."""
        module, _, name = self.path.rpartition(".")
        return getattr(importlib.import_module(f"bert_tf.tasks.{module}"), name)


TASKS = {
    "classification": RegisteredTask(
        "classification.task.ClassificationTask",
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
        "run_tagging",
        "tagging",
        "tagging",
        {"data_dir": f"{_EXAMPLES}/entities"},
    ),
    "multiple_choice": RegisteredTask(
        "multiple_choice.task.MultipleChoiceTask",
        "run_multiple_choice",
        "multiple-choice",
        "multiple_choice",
        {"data_dir": f"{_EXAMPLES}/endings"},
    ),
    "sentences": RegisteredTask(
        "sentences.task.SentenceTask",
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
