#!/usr/bin/env python
r"""Fine-tunes BERT to classify texts or pairs of texts, evaluates, and predicts.

The original's command:

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \
        --data_dir=/data/glue/MRPC --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt --max_seq_length=128 \
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir=/tmp/mrpc

Your own task, in /data/mine/train.csv, dev.csv and test.csv:

    python run_classifier.py --task_name=table --text_a_column=review --label_column=stars \
        --data_dir=/data/mine --do_train --do_eval --do_predict ...

A smaller model that learns from a fine-tuned one, too: add --teacher_checkpoint=/tmp/mrpc.

Started again, the same command resumes from the last checkpoint in --output_dir.
"""

from absl import flags

from bert_tf.runs.flags import command_flags  # first: it keeps TensorFlow's start quiet

# isort: split
from bert_tf.errors import UserError
from bert_tf.model.family import read_config
from bert_tf.runs.flags.settings import DeviceSettings, ModelSettings
from bert_tf.runs.training.fine_tuning_checks import learned_labels
from bert_tf.tasks.classification.processors import ProcessorSettings, get_processor
from bert_tf.tasks.classification.run import run_classifier
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns, TfdsSource

FLAGS = flags.FLAGS
SETTINGS = (
    ClassifierSettings,
    ProcessorSettings,
    TableColumns,
    TfdsSource,
    ModelSettings,
    DeviceSettings,
)
command_flags.define_flags(*SETTINGS)


def main() -> None:
    """Reads the flags and fine-tunes, evaluates and predicts."""
    if not FLAGS.data_dir and not FLAGS.tfds:
        raise UserError("--data_dir or --tfds must be given: they have the examples")
    config = read_config(FLAGS.bert_config_file)
    settings = command_flags.settings_from_flags(ClassifierSettings)
    processor = get_processor(
        FLAGS.task_name,
        FLAGS.data_dir or "",
        FLAGS.xnli_language,
        command_flags.settings_from_flags(TableColumns),
        command_flags.settings_from_flags(TfdsSource),
        learned_labels(settings),
    )
    strategy = command_flags.get_strategy(["output_dir", "init_checkpoint", "teacher_checkpoint"])
    run_classifier(config, processor, strategy, settings)


if __name__ == "__main__":
    command_flags.run_program(main)
