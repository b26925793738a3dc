#!/usr/bin/env python
r"""Pre-trains BERT: masked LM and next sentence prediction.

The original's command:

    python run_pretraining.py --input_file=/data/tf_examples.tfrecord --output_dir=/data/out \
        --do_train=True --do_eval=True --bert_config_file=bert_config.json \
        --train_batch_size=32 --max_seq_length=128 --max_predictions_per_seq=20 \
        --num_train_steps=20 --num_warmup_steps=10 --learning_rate=2e-5

The paper's schedule (A.2), 90% of the steps at length 128 and the rest at 512, in one run:

    python run_pretraining.py --input_file='/data/{max_seq_length}/*.tfrecord' \
        --output_dir=/data/out --do_train --bert_config_file=bert_config.json \
        --phases=128:900000:256:20,512:100000:256:77 --learning_rate=1e-4 --num_warmup_steps=10000

Started again, the same command resumes from the last checkpoint in --output_dir.
"""

from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import DeviceSettings, ModelSettings
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.settings import ScheduleSettings

SETTINGS = (ElectraSettings, ScheduleSettings, ModelSettings, DeviceSettings)
command_flags.define_flags(*SETTINGS)


def main() -> None:
    """Reads the flags and pre-trains the model."""
    # Imported late: --help and errors in flags should not wait for TensorFlow.
    from bert_tf.tasks.pretraining.training.run import run_pretraining

    config = command_flags.model_from_flags(ElectraSettings, ModelSettings)
    settings = command_flags.settings_from_flags(ElectraSettings)
    strategy = command_flags.get_strategy()
    run_pretraining(config, strategy, settings)


if __name__ == "__main__":
    command_flags.run_program(main)
