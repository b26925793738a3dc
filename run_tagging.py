#!/usr/bin/env python
r"""Tags the words of sentences: named entities of CoNLL-2003 (paper, section 5.3).

Fine-tune, evaluate on valid.txt and tag test.txt:

    python run_tagging.py --data_dir=/data/conll2003 --output_dir=/data/out \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict

With --feature_based, BERT's weights stay as they are, and a BiLSTM is trained on its layers (table
7).
"""

from absl import flags

from bert_tf.runs.flags import command_flags  # first: it keeps TensorFlow's start quiet

# isort: split
from bert_tf.model.family import read_config
from bert_tf.runs.flags.settings import DeviceSettings, ModelSettings
from bert_tf.tasks.tagging.run import run_tagging
from bert_tf.tasks.tagging.settings import TaggingSettings

FLAGS = flags.FLAGS
SETTINGS = (TaggingSettings, ModelSettings, DeviceSettings)
command_flags.define_flags(*SETTINGS)


def main() -> None:
    """Reads the flags and fine-tunes, evaluates and tags."""
    config = read_config(FLAGS.bert_config_file)
    settings = command_flags.settings_from_flags(TaggingSettings)
    strategy = command_flags.get_strategy(["output_dir", "init_checkpoint"])
    run_tagging(config, strategy, settings)


if __name__ == "__main__":
    command_flags.run_program(main)
