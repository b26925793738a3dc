#!/usr/bin/env python
r"""Makes records for pre-training from text: masked language model and next sentence prediction.

    python create_pretraining_data.py --input_file=corpus.txt --output_file=/tmp/corpus.tfrecord \
        --vocab_file=vocab.txt --max_seq_length=128 --max_predictions_per_seq=20

For large text, in parallel and restartable:

    python create_pretraining_data.py --input_file='text/*.txt' --output_file=/tmp/a.tfrecord \
        --vocab_file=vocab.txt --num_shards=64 --num_workers=8

The input is UTF-8 text, one sentence on each line, with an empty line between documents. The same
flags and seed give the same records as google-research/bert's program of this name.
"""

from bert_tf.runs.flags import command_flags
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.shards import create_shards

SETTINGS = (PretrainingDataSettings,)
command_flags.define_flags(*SETTINGS)


def main() -> None:
    """Reads the flags and makes the records."""
    command_flags.model_from_flags(PretrainingDataSettings)  # the vocabulary
    settings = command_flags.settings_from_flags(PretrainingDataSettings)
    if settings.num_shards is None:
        create_pretraining_data(settings)
    else:
        create_shards(settings)


if __name__ == "__main__":
    command_flags.run_program(main)
