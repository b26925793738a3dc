r"""Benchmarks pre-training on this machine: training steps, the input pipeline, making records.

    python -m benchmarks.pretraining --measure=training_step
    python -m benchmarks.pretraining --measure=dtypes
    python -m benchmarks.pretraining --measure=input_pipeline --train_batch_size=32 --cores=2
    python -m benchmarks.pretraining --measure=create_pretraining_data --input_file=corpus.txt \
        --vocab_file=vocab.txt

training_step prints the seconds per step in the training loop of run_pretraining.py, the share of
time spent between steps, and peak memory. In turn with the training loop, it also times a step's
matrix products on their own, and prints the speed of the step as a share of their speed. The
default is BERT-Base with batches of 8 sequences of length 128. An ELECTRA is measured with its
generator, of the default size.

dtypes prints the seconds of a training step and of a batch's predictions with --dtype=float32 and
with --dtype=bfloat16, in turn.

input_pipeline prints how many examples per second --cores cores read, check, mask and batch when
they do nothing else. This is the most that they can feed to accelerators. A step waits for input if
its examples per second are more; the log of a run says so.

create_pretraining_data prints instances per second, without start-up, and peak memory, for
--dupe_factor=1 and for the given --dupe_factor. The program runs on one core.
"""

import os

from absl import flags

from benchmarks import ROOT, data_speed
from bert_tf.model.family import read_config
from bert_tf.runs.flags import command_flags

FLAGS = flags.FLAGS
CORPUS = os.path.join(ROOT, "flags", "quickstart", "corpus.txt")
BASE = os.path.join(ROOT, "flags", "models", "uncased_L-12_H-768_A-12", "bert_config.json")


def main() -> None:
    length, predictions = FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    if FLAGS.measure == "create_pretraining_data":
        data_speed.measure_create_pretraining_data(
            FLAGS.input_file, FLAGS.vocab_file, length, predictions, FLAGS.dupe_factor
        )
        return
    from benchmarks import dtype_speed, training_step
    from bert_tf.tasks.pretraining.training.settings import RecordBatches

    config = read_config(FLAGS.bert_config_file)
    phase = RecordBatches(length, FLAGS.num_steps, FLAGS.train_batch_size, predictions)
    if FLAGS.measure == "training_step":
        training_step.measure_training_step(config, phase)
    elif FLAGS.measure == "dtypes":
        dtype_speed.measure_dtypes(config, phase, FLAGS.num_steps)
    else:
        data_speed.measure_input_pipeline(config, phase, FLAGS.dynamic_masking, FLAGS.cores)


if __name__ == "__main__":
    flags.DEFINE_enum(
        "measure",
        None,
        ["training_step", "dtypes", "input_pipeline", "create_pretraining_data"],
        "What to measure: see above.",
        required=True,
    )
    flags.DEFINE_string(
        "bert_config_file", BASE, "The model's bert_config.json; not for create_pretraining_data."
    )
    flags.DEFINE_integer(
        "train_batch_size", 8, "Examples per batch; not for create_pretraining_data.", lower_bound=1
    )
    flags.DEFINE_integer("max_seq_length", 128, "Sequence length in word pieces.", lower_bound=5)
    flags.DEFINE_integer(
        "max_predictions_per_seq", 20, "Masked positions per sequence.", lower_bound=1
    )
    flags.DEFINE_enum(
        "dynamic_masking",
        None,
        data_speed.MASKING,
        "For input_pipeline: read unmasked records, and mask pieces or whole words.",
    )
    flags.DEFINE_integer(
        "cores",
        1,
        "For input_pipeline: cores to use.",
        lower_bound=1,
        upper_bound=os.cpu_count(),
    )
    flags.DEFINE_integer(
        "num_steps", 10, "For training_step and dtypes: steps to time.", lower_bound=1
    )
    flags.DEFINE_integer(
        "iterations_per_loop",
        100,
        "For training_step: steps that run on the device without returning to Python.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "recompute_activations",
        False,
        "For training_step: compute each encoder layer again in the backward pass, to save memory.",
    )
    flags.DEFINE_integer(
        "gradient_accumulation_steps",
        1,
        "For training_step: parts of a batch that are computed one after another, to save memory.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "input_file", CORPUS, "For create_pretraining_data: the text, one sentence per line."
    )
    flags.DEFINE_string(
        "vocab_file",
        None,
        "For create_pretraining_data: the vocabulary. By default one is learned from --input_file.",
    )
    flags.DEFINE_integer(
        "dupe_factor",
        5,
        "For create_pretraining_data: how often each document is cut and masked again.",
        lower_bound=2,
    )
    command_flags.run_program(main)
