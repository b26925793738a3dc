#!/usr/bin/env python
r"""Extracts a pre-trained BERT's vectors of tokens or whole lines, and its attention.

The original's command:

    python extract_features.py --input_file=/tmp/input.txt --output_file=/tmp/output.jsonl \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --layers=-1,-2,-3,-4 --max_seq_length=128 --batch_size=8

A line is a text, or two texts with ` ||| ` between them. To get one vector for each line, as a
NumPy archive:

    python extract_features.py ... --layers=-2 --outputs=mean_vector --output_format=npz
"""

from absl import flags

from bert_tf.files.paths import check_overwrites
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import DeviceSettings, ModelSettings
from bert_tf.tasks.extraction.settings import ExtractionSettings, parse_layers

FLAGS = flags.FLAGS
SETTINGS = (ExtractionSettings, ModelSettings, DeviceSettings)
command_flags.define_flags(*SETTINGS)


def main() -> None:
    """Reads the flags and extracts the features."""
    # Imported late: --help and errors in flags should not wait for TensorFlow.
    from bert_tf.tasks.extraction.run import extract_features

    config = command_flags.model_from_flags(ExtractionSettings, ModelSettings)
    settings = command_flags.settings_from_flags(ExtractionSettings)
    read = {"bert_config_file": FLAGS.bert_config_file}
    check_overwrites([settings.output_file], "output_file", read)
    parse_layers(settings.layers, config.num_layer_outputs)  # before waiting for a TPU
    strategy = command_flags.get_strategy()
    extract_features(config, strategy, settings)


if __name__ == "__main__":
    command_flags.run_program(main)
