"""The flags of a teacher, for tools that take the flags of run_pretraining.py."""

from absl import flags

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig

FLAGS = flags.FLAGS


def define(verb: str) -> None:
    """Defines the flags; `verb` says what the tool does with a step."""
    flags.DEFINE_string(
        "teacher_config_file",
        None,
        f"{verb} the step of run_distillation.py, with a teacher of this configuration.",
    )
    flags.DEFINE_bool(
        "restrict_ce_to_mask", False, "As in run_distillation.py, with --teacher_config_file."
    )


def read_teacher() -> BertConfig | None:
    """Returns the teacher's configuration; None without a teacher."""
    from bert_tf.model.family import read_config  # imports TensorFlow

    if FLAGS.teacher_config_file:
        return read_config(FLAGS.teacher_config_file, "teacher_config_file")
    if FLAGS.restrict_ce_to_mask:
        raise UserError(
            "--restrict_ce_to_mask needs --teacher_config_file; add --teacher_config_file, or"
            " remove --restrict_ce_to_mask"
        )
    return None
