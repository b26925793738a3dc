#!/usr/bin/env python
r"""Fine-tunes BERT on SQuAD 1.1 or 2.0, and answers questions about texts.

The original's command:

    python run_squad.py --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
        --init_checkpoint=$BERT/bert_model.ckpt --do_train=True --train_file=train-v1.1.json \
        --do_predict=True --predict_file=dev-v1.1.json --train_batch_size=12 \
        --learning_rate=3e-5 --num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128 \
        --output_dir=/tmp/squad_base/

For SQuAD 2.0 add --version_2_with_negative. Where --predict_file has answers, exact match and F1
follow, and for 2.0 the best --null_score_diff_threshold.
"""

from absl import flags

from bert_tf.model.configuration import BertConfig
from bert_tf.runs import command_flags
from bert_tf.tasks.squad.answers import AnswerSettings
from bert_tf.tasks.squad.features import WindowSettings
from bert_tf.tasks.squad.run import SquadSettings, run_squad

FLAGS = flags.FLAGS

command_flags.define_model_flags()
command_flags.define_training_flags()
command_flags.define_fine_tuning_flags()
command_flags.define_predict_flags()
command_flags.define_device_flags()
FLAGS.set_default("max_seq_length", 384)
FLAGS.set_default("length_buckets", "none")
FLAGS["length_buckets"].help += (
    " Off by default here: the original's loss and n-best lists count the padding of"
    " --max_seq_length, too, so that other lengths change them a little."
)
flags.DEFINE_string("train_file", None, "SQuAD JSON to train on, e.g. train-v1.1.json.")
flags.DEFINE_string(
    "predict_file", None, "SQuAD JSON to answer, e.g. dev-v1.1.json; with answers it is scored."
)
flags.DEFINE_integer(
    "doc_stride",
    128,
    "A text longer than a sequence is cut into windows that begin so many tokens apart.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "max_query_length", 64, "Most word pieces of a question; longer ones are cut.", lower_bound=1
)
flags.DEFINE_integer(
    "n_best_size", 20, "Answers of a question in nbest_predictions.json.", lower_bound=1
)
flags.DEFINE_integer("max_answer_length", 30, "Most word pieces of an answer.", lower_bound=1)
flags.DEFINE_bool(
    "verbose_logging",
    False,
    "Whether to log each answer whose characters cannot be told from its word pieces; some such"
    " are normal.",
)
flags.DEFINE_bool(
    "version_2_with_negative", False, "Whether questions may have no answer, as in SQuAD 2.0."
)
flags.DEFINE_float(
    "null_score_diff_threshold",
    0.0,
    "With --version_2_with_negative: there is no answer if the score of that exceeds the best"
    " answer's by more than this. A scored run writes the best value to null_threshold.json.",
)


def main() -> None:
    """Reads the flags, fine-tunes and predicts."""
    settings = command_flags.settings_from_flags(
        SquadSettings,
        windows=command_flags.settings_from_flags(WindowSettings),
        answers=command_flags.settings_from_flags(AnswerSettings),
    )
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    strategy, on_tpu = command_flags.get_strategy(["output_dir", "init_checkpoint"])
    run_squad(config, strategy, settings, command_flags.model_options(on_tpu))


if __name__ == "__main__":
    command_flags.run_program(main)
