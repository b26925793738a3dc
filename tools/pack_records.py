r"""Packs pre-training records: several sequences share a row, to save padding.

    python -m tools.pack_records --input_file=train.tfrecord --output_file=packed.tfrecord

The input is from create_pretraining_data.py, masked or not. The lengths of the sequences decide
which of them share a row (https://arxiv.org/abs/2107.02027). Without --output_file the tool only
logs how many sequences would share a row, and whether packing is worthwhile.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.pack_records")

from bert_tf.runs.flags import command_flags
from bert_tf.tasks.pretraining.records.data_settings import PackingSettings
from bert_tf.tasks.pretraining.records.packing import pack_records


def main() -> None:
    pack_records(command_flags.settings_from_flags(PackingSettings))


if __name__ == "__main__":
    command_flags.define_flags(PackingSettings)
    command_flags.run_program(main)
