"""The files of a fine-tuning program: its examples, and what it writes."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.runs.flags.setting_fields import Settings
from bert_tf.runs.results.tables import Cell
from bert_tf.tasks.splits import FoldKey
from bert_tf.tasks.task import Evaluated, ExampleSet, FineTuningTask


class TaskFiles(FineTuningTask):
    """A task with the files of its program: a base class beside the program's task."""

    other_settings: Sequence[Settings] = ()  # of the program; they describe the examples

    @classmethod
    def from_settings(cls, *settings: Settings) -> "TaskFiles":
        """Returns the task of a run from an instance of each class of settings in the registry."""
        return cls(*settings)

    def read(self, purpose: str) -> Sequence[Any]:
        """Returns the examples for a purpose."""
        raise NotImplementedError

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        """Returns the sets of examples for a purpose; two purposes may share a set."""
        return [self.example_set(purpose, self.read(purpose))]

    def dev_set(self) -> str | None:
        """Returns the path or name of the examples to evaluate on; None if there are none."""
        raise NotImplementedError

    def fold_key(self, example: Any) -> FoldKey:
        """Returns what decides the fold of an example, for --folds in tasks with that setting."""
        raise NotImplementedError

    def row(self, example: Any, purpose: str, number: int) -> Mapping[str, Cell] | None:
        """Returns an example's row in tables: `id`, texts and `label`; None without tables."""
        return None

    def write_review(self, example_set: ExampleSet, evaluated: Evaluated) -> None:
        """Writes tables and a report of the evaluated examples."""

    def write_predictions(
        self, example_set: ExampleSet, outputs: Any, global_step: int
    ) -> dict[str, float] | None:
        """Writes the outputs of `predict`; returns scores for eval_results.txt, or None."""
        raise NotImplementedError

    def path(self, name: str) -> str:
        return os.path.join(self.settings.output_dir, name)
