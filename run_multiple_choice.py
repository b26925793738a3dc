#!/usr/bin/env python
r"""Fine-tunes BERT to choose one of several endings of a text: SWAG (paper, section 4.4).

    python run_multiple_choice.py --data_dir=/data/swag --output_dir=/data/out \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict \
        --train_batch_size=16 --learning_rate=2e-5 --num_train_epochs=3
"""

from absl import flags

from bert_tf.runs.flags import command_flags  # first: it keeps TensorFlow's start quiet

# isort: split
from bert_tf.model.family import read_config
from bert_tf.runs.flags.settings import DeviceSettings, ModelSettings
from bert_tf.tasks.multiple_choice.run import run_multiple_choice
from bert_tf.tasks.multiple_choice.settings import MultipleChoiceSettings

FLAGS = flags.FLAGS
SETTINGS = (MultipleChoiceSettings, ModelSettings, DeviceSettings)
command_flags.define_flags(*SETTINGS)


def main() -> None:
    """Reads the flags and fine-tunes, evaluates and predicts."""
    config = read_config(FLAGS.bert_config_file)
    settings = command_flags.settings_from_flags(MultipleChoiceSettings)
    strategy = command_flags.get_strategy(["output_dir", "init_checkpoint"])
    run_multiple_choice(config, strategy, settings)


if __name__ == "__main__":
    command_flags.run_program(main)
