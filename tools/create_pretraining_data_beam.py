r"""Makes records for pre-training with Apache Beam, for text that is too large for one machine.

    python -m tools.create_pretraining_data_beam --input_file='gs://my-bucket/text/*.txt' \
        --output_file=gs://my-bucket/records/a.tfrecord --vocab_file=gs://my-bucket/vocab.txt \
        --num_shards=1024 --runner=DataflowRunner --project=my-project --region=us-central1 \
        --temp_location=gs://my-bucket/temporary

create_pretraining_data.py writes the same shards with the same flags; the runner and the number of
workers do not matter. All other flags are Beam's pipeline options, such as --runner and
--direct_num_workers.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.create_pretraining_data_beam")

from collections.abc import Sequence

from bert_tf.errors import needs_package
from bert_tf.runs.flags import command_flags
from bert_tf.tasks.pretraining.records.data_settings import BeamDataSettings


def main(others: Sequence[str]) -> None:
    with needs_package("This program", "apache-beam", "beam"):
        from bert_tf.tasks.pretraining.records import beam_shards
    options = beam_shards.pipeline_options(others)
    command_flags.model_from_flags(BeamDataSettings)  # the vocabulary
    settings = command_flags.settings_from_flags(BeamDataSettings)
    beam_shards.create_shards_with_beam(settings, options)


if __name__ == "__main__":
    command_flags.define_flags(BeamDataSettings)
    command_flags.run_program(main, takes_others=True)
