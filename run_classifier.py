#!/usr/bin/env python
r"""Fine-tunes BERT to classify texts or pairs of texts, evaluates it, and predicts.

The original's command:

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \
        --data_dir=/data/glue/MRPC --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt --max_seq_length=128 \
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir=/tmp/mrpc

A task of one's own, in /data/mine/train.csv, dev.csv and test.csv:

    python run_classifier.py --task_name=table --text_a_column=review --label_column=stars \
        --data_dir=/data/mine --do_train --do_eval --do_predict ...

The same command started again goes on from the last checkpoint in --output_dir.
"""

from absl import flags

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import command_flags
from bert_tf.runs import fine_tuning_checks as fine_tuning_settings
from bert_tf.tasks.classification.other import XNLI_LANGUAGES
from bert_tf.tasks.classification.processors import get_processor, processors
from bert_tf.tasks.classification.run import ClassifierSettings, run_classifier
from bert_tf.tasks.classification.table import TableColumns
from bert_tf.tasks.classification.tfds_input import TfdsSource

FLAGS = flags.FLAGS

command_flags.define_model_flags()
command_flags.define_training_flags()
command_flags.define_fine_tuning_flags()
command_flags.define_eval_flags()
command_flags.define_predict_flags()
command_flags.define_device_flags()
flags.DEFINE_string("data_dir", None, "Folder with the task's files.")
flags.DEFINE_string(
    "task_name", None, f"The task, in any case: {', '.join(processors)}.", required=True
)
flags.DEFINE_enum("xnli_language", "zh", XNLI_LANGUAGES, "The language, for the task XNLI.")
flags.DEFINE_string(
    "text_a_column",
    None,
    "Task table: the column with the text, or the first of two, by its name in the header.",
)
flags.DEFINE_string("text_b_column", None, "Task table: the column with the second text, if any.")
flags.DEFINE_string("label_column", None, "Task table: the column with the label.")
flags.DEFINE_bool(
    "has_header",
    True,
    "Task table: whether line 1 of a file names the columns. If not, columns are named by their"
    " numbers, from 0.",
)
flags.DEFINE_string(
    "delimiter", None, "Task table: what separates columns, if the ending .tsv or .csv misleads."
)
flags.DEFINE_list(
    "labels", None, "Task table: the classes; by default the model's, else the training file's."
)
flags.DEFINE_bool("regression", False, "Task table: whether labels are numbers, not classes.")
flags.DEFINE_string(
    "tfds", None, "Read a prepared dataset of TensorFlow Datasets, such as glue/mrpc."
)
flags.DEFINE_string("tfds_data_dir", None, "Where datasets are, if not in the usual place.")
flags.DEFINE_string("tfds_train_split", None, "Its split to train on, such as train[:90%].")
flags.DEFINE_string("tfds_dev_split", None, "Its split to evaluate on, such as train[90%:].")
flags.DEFINE_string("tfds_test_split", None, "Its split to predict.")


def main() -> None:
    """Reads the flags and runs what they ask for."""
    if not FLAGS.data_dir and not FLAGS.tfds:
        raise UserError("The examples must come from --data_dir or --tfds; neither is given")
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    settings = command_flags.settings_from_flags(ClassifierSettings)
    processor = get_processor(
        FLAGS.task_name,
        FLAGS.data_dir or "",
        FLAGS.xnli_language,
        command_flags.settings_from_flags(TableColumns),
        command_flags.settings_from_flags(TfdsSource) if FLAGS.tfds else None,
        fine_tuning_settings.learned_labels(settings),
    )
    strategy, on_tpu = command_flags.get_strategy(["output_dir", "init_checkpoint"])
    options = command_flags.model_options(on_tpu)
    run_classifier(config, processor, strategy, settings, options)


if __name__ == "__main__":
    command_flags.run_program(main)
