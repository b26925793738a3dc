#!/usr/bin/env python
r"""Trains sentence vectors on pairs of sentences, evaluates their cosines, and writes vectors.

Train on scored pairs in /data/stsb/train.tsv, evaluate on dev.tsv, and write the vectors and the
cosines of the pairs in test.tsv:

    python run_sentence_similarity.py --data_dir=/data/stsb --text_a_column=sentence1 \
        --text_b_column=sentence2 --label_column=score --score_scale=5 --output_dir=/data/out \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict

With --loss=in_batch_negatives it trains on pairs of sentences that mean the same, without scores.
Without --text_b_column, --do_predict writes the vectors of single sentences.
"""

from absl import flags

from bert_tf.runs.flags import command_flags  # first: it keeps TensorFlow's start quiet

# isort: split
from bert_tf.model.family import read_config
from bert_tf.runs.flags.settings import DeviceSettings, ModelSettings
from bert_tf.tasks.sentences.run import run_sentence_similarity
from bert_tf.tasks.sentences.settings import SentenceSettings

FLAGS = flags.FLAGS
SETTINGS = (SentenceSettings, ModelSettings, DeviceSettings)
command_flags.define_flags(*SETTINGS)


def main() -> None:
    """Reads the flags, then trains, evaluates and predicts."""
    config = read_config(FLAGS.bert_config_file)
    settings = command_flags.settings_from_flags(SentenceSettings)
    strategy = command_flags.get_strategy(["output_dir", "init_checkpoint"])
    run_sentence_similarity(config, strategy, settings)


if __name__ == "__main__":
    command_flags.run_program(main)
