#!/usr/bin/env python
r"""Pre-trains BERT: masked LM and next sentence prediction.

The original's command:

    python run_pretraining.py --input_file=/data/tf_examples.tfrecord --output_dir=/data/out \
        --do_train=True --do_eval=True --bert_config_file=bert_config.json \
        --train_batch_size=32 --max_seq_length=128 --max_predictions_per_seq=20 \
        --num_train_steps=20 --num_warmup_steps=10 --learning_rate=2e-5

The paper's schedule (A.2), 90% of the steps at length 128 and the rest at 512, in one run:

    python run_pretraining.py --input_file='/data/{max_seq_length}/*.tfrecord' \
        --output_dir=/data/out --do_train --bert_config_file=bert_config.json \
        --phases=128:900000:256:20,512:100000:256:77 --learning_rate=1e-4 --num_warmup_steps=10000

The same command started again goes on from the last checkpoint in --output_dir.
"""

from absl import flags

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import command_flags
from bert_tf.tasks.pretraining.model import PretrainingTask
from bert_tf.tasks.pretraining.phases import PretrainingPhase, parse_phases
from bert_tf.tasks.pretraining.run import PretrainingSettings, run_pretraining

FLAGS = flags.FLAGS

command_flags.define_model_flags()
command_flags.define_training_flags()
command_flags.define_eval_flags()
command_flags.define_device_flags()
flags.DEFINE_string(
    "input_file",
    None,
    "Record files of create_pretraining_data: names or globs, separated by commas."
    " {max_seq_length} in it stands for the length of each phase.",
    required=True,
)
flags.DEFINE_string("eval_input_file", None, "Record files to evaluate on, if not --input_file.")
flags.DEFINE_integer(
    "max_seq_length", 128, "Length of the sequences in the records.", lower_bound=1
)
flags.DEFINE_integer("max_predictions_per_seq", 20, "Masked positions of a record.", lower_bound=1)
flags.DEFINE_string(
    "phases",
    None,
    "The course of training as length:steps:batch:predictions,... in place of --max_seq_length,"
    " --num_train_steps, --train_batch_size and --max_predictions_per_seq. Evaluation takes the"
    " last phase's lengths, or those of the phase with --max_seq_length if that is given.",
)
flags.DEFINE_integer("num_train_steps", 100000, "Steps of training, all in all.", lower_bound=1)
flags.DEFINE_integer(
    "num_warmup_steps", 10000, "Steps over which the learning rate rises from 0.", lower_bound=0
)
flags.DEFINE_bool(
    "restart_schedule",
    False,
    "Whether each phase has a learning rate schedule of its own, warm-up and all, instead of one"
    " over all phases. Steps and optimizer slots go on either way.",
)
flags.DEFINE_integer(
    "max_eval_steps",
    100,
    "Batches of an evaluation, the files over and over if need be; 0 for every example once.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "evaluate_every_steps",
    0,
    "Evaluate every so many steps during training, too; 0 for never.",
    lower_bound=0,
)


def phases_from_flags() -> tuple[list[PretrainingPhase], PretrainingPhase]:
    """Returns the phases of training, and the lengths, batch size and steps of evaluation.

    Raises:
        UserError: flags contradict each other.
    """
    if FLAGS.phases is None:
        phases = [
            PretrainingPhase(
                FLAGS.max_seq_length,
                FLAGS.num_train_steps,
                FLAGS.train_batch_size,
                FLAGS.max_predictions_per_seq,
            )
        ]
    else:
        phases = parse_phases(FLAGS.phases)
        total = sum(phase.num_steps for phase in phases)
        if FLAGS["num_train_steps"].present and FLAGS.num_train_steps != total:
            raise UserError(
                f"--num_train_steps ({FLAGS.num_train_steps}) must equal the sum of the steps in"
                f" --phases ({total}), or be left out"
            )
        if FLAGS["train_batch_size"].present:
            raise UserError("--train_batch_size is in --phases already; leave it out")
    length = FLAGS.max_seq_length if FLAGS["max_seq_length"].present else phases[-1].max_seq_length
    of_phases = {phase.max_seq_length: phase.max_predictions_per_seq for phase in phases}
    if FLAGS["max_predictions_per_seq"].present or length not in of_phases:
        predictions = FLAGS.max_predictions_per_seq
    else:
        predictions = of_phases[length]
    return phases, PretrainingPhase(
        length, FLAGS.max_eval_steps, FLAGS.eval_batch_size, predictions
    )


def main() -> None:
    """Reads the flags and pre-trains."""
    phases, evaluation_phase = phases_from_flags()
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    strategy, on_tpu = command_flags.get_strategy(
        ["input_file", "eval_input_file", "output_dir", "init_checkpoint"]
    )
    task = PretrainingTask(config, **command_flags.model_options(on_tpu))
    settings = command_flags.settings_from_flags(
        PretrainingSettings, phases=phases, evaluation_phase=evaluation_phase
    )
    run_pretraining(config, task, strategy, settings)


if __name__ == "__main__":
    command_flags.run_program(main)
