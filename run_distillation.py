#!/usr/bin/env python
r"""Distils BERT: pre-trains a student with fewer layers from a teacher (DistilBERT).

    python run_distillation.py --input_file='/data/tf_examples.tfrecord*' \
        --teacher_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \
        --bert_config_file=flags/models/uncased_L-6_H-768_A-12/bert_config.json \
        --output_dir=/data/student --do_train --max_seq_length=128 --max_predictions_per_seq=20 \
        --train_batch_size=256 --num_train_steps=100000 --learning_rate=5e-4

--bert_config_file is the student's. create_pretraining_data.py makes the records, as for
run_pretraining.py. The student is a BERT checkpoint like any other.

Started again, the same command resumes from the last checkpoint in --output_dir.
"""

from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import DeviceSettings, ModelSettings
from bert_tf.tasks.pretraining.training.settings import DistillationSettings, ScheduleSettings

SETTINGS = (DistillationSettings, ScheduleSettings, ModelSettings, DeviceSettings)
command_flags.define_flags(*SETTINGS)


def main() -> None:
    """Reads the flags and distils the student."""
    # Imported late: --help and errors in flags should not wait for TensorFlow.
    from bert_tf.tasks.pretraining.training.run_distillation import run_distillation

    config = command_flags.model_from_flags(DistillationSettings, ModelSettings)
    settings = command_flags.settings_from_flags(DistillationSettings)
    strategy = command_flags.get_strategy()
    run_distillation(config, strategy, settings)


if __name__ == "__main__":
    command_flags.run_program(main)
