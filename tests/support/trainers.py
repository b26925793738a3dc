"""Trainers of new runs, for any task."""

from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.trainer import Trainer


def make_trainer(task, strategy, output_dir, schedule, **settings):
    """Returns a trainer in a directory; `settings` are further fields of TrainingSettings."""
    settings = TrainingSettings(
        output_dir=str(output_dir), do_train=schedule is not None, **settings
    )
    return Trainer(task, Run(strategy, settings), schedule)
