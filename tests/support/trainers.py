"""Trainers of new runs, for any task."""

from bert_tf.runs.run import Run
from bert_tf.runs.settings import TrainingSettings
from bert_tf.runs.trainer import Trainer


def make_trainer(task, strategy, output_dir, schedule, **settings):
    """Returns a trainer in a directory; `settings` are further fields of TrainingSettings."""
    settings = TrainingSettings(
        output_dir=str(output_dir), do_train=schedule is not None, **settings
    )
    return Trainer(task, Run(strategy, settings), schedule)
