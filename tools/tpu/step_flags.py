"""Defines a teacher's flags and checks batches, for tools with run_pretraining.py's flags."""

from absl import flags

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.pretraining.training.settings import RecordBatches

FLAGS = flags.FLAGS

flags.disclaim_key_flags()  # --help lists the flags below as the calling tool's


def define_teacher(verb: str) -> None:
    """Defines the flags; `verb` is what the tool does with a step."""
    flags.DEFINE_string(
        "teacher_config_file",
        None,
        f"{verb} the step of run_distillation.py, with a teacher of this configuration.",
    )
    flags.DEFINE_bool(
        "restrict_ce_to_mask", False, "As in run_distillation.py, with --teacher_config_file."
    )


def read_teacher() -> BertConfig | None:
    from bert_tf.model.family import read_config  # imports TensorFlow

    if FLAGS.teacher_config_file:
        return read_config(FLAGS.teacher_config_file, "teacher_config_file")
    if FLAGS.restrict_ce_to_mask:
        raise UserError(
            "--restrict_ce_to_mask needs --teacher_config_file; add --teacher_config_file, or"
            " remove --restrict_ce_to_mask"
        )
    return None


def check_phase(
    config: BertConfig, phase: RecordBatches, replicas: int, source: str, accumulation_steps: int
) -> None:
    """Raises UserError for a phase that run_pretraining.py would refuse."""
    # `source` is the flag that sets the number of replicas, for the message.
    config.check_seq_length(phase.max_seq_length, "max_seq_length or --phases")
    parts = replicas * accumulation_steps
    if phase.batch_size % parts:
        raise UserError(
            f"the batch of --train_batch_size or --phases ({phase.batch_size}) must be a multiple"
            f" of {parts}: the replicas of {source} times --gradient_accumulation_steps"
        )
