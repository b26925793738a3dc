"""Trainers of new runs, for any model."""

from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.trainer import Trainer


def make_trainer(build, strategy, output_dir, schedule, objective=lambda model: model, **settings):
    """Returns a trainer in a directory; `settings` are further fields of TrainingSettings."""
    settings = TrainingSettings(
        output_dir=str(output_dir), do_train=schedule is not None, **settings
    )
    return Trainer(build, Run(strategy, settings), schedule, objective=objective)
