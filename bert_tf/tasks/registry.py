"""The tasks that are fine-tuned: a new one adds a line here. Their programs and tests read it."""

import importlib
from collections.abc import Mapping
from typing import NamedTuple

from bert_tf.tasks.task import FineTuningTask

_EXAMPLES = "flags/quickstart"


class RegisteredTask(NamedTuple):
    """A task.

    path: its class, as MODULE.CLASS below `bert_tf.tasks`.
    program: the name of the program at the top of the repository.
    page: its page in docs/.
    recipes: the folder of its recipes in flags/.
    example: flags for the example of the task in flags/.
    """

    path: str
    program: str
    page: str
    recipes: str
    example: Mapping[str, object]

    def load(self) -> type[FineTuningTask]:
        """Returns its class."""
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
