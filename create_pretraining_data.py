#!/usr/bin/env python
r"""Text to TFRecord files for pre-training: masked language model and next sentence prediction.

    python create_pretraining_data.py --input_file=corpus.txt --output_file=/tmp/corpus.tfrecord \
        --vocab_file=vocab.txt --max_seq_length=128 --max_predictions_per_seq=20

The input is plain UTF-8 text, one sentence a line, with an empty line between documents. With the
same flags and seed the records are those of google-research/bert's program of this name.
"""

from absl import flags

from bert_tf.runs import command_flags
from bert_tf.tasks.pretraining import data

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "input_file", None, "Text to read: files or globs, separated by commas. Or --tfds."
)
flags.DEFINE_string(
    "output_file", None, "TFRecord file to write, or several separated by commas, filled in turn."
)
flags.DEFINE_string("vocab_file", None, "The vocabulary the model is trained with.")
flags.DEFINE_bool(
    "do_lower_case", True, "Lower-case the text and strip accents: true for uncased vocabularies."
)
flags.DEFINE_bool(
    "do_whole_word_mask", False, "Mask all word pieces of a word together instead of one by one."
)
flags.DEFINE_integer("max_seq_length", 128, "Tokens in a sequence, [CLS] and two [SEP] included.")
flags.DEFINE_integer(
    "max_predictions_per_seq",
    20,
    "Most masked tokens in a sequence; about max_seq_length * masked_lm_prob.",
)
flags.DEFINE_integer("random_seed", 12345, "Seed of everything random.")
flags.DEFINE_integer(
    "dupe_factor", 10, "How often the text is gone through, each time with other masks."
)
flags.DEFINE_float("masked_lm_prob", 0.15, "Share of a sequence's tokens to predict.")
flags.DEFINE_float(
    "short_seq_prob",
    0.1,
    "Share of documents, in each pass, cut into sequences shorter than max_seq_length.",
)
flags.DEFINE_string(
    "tfds",
    None,
    "Read text from a prepared TensorFlow Datasets dataset instead: NAME[:SPLIT], e.g. "
    "wiki40b/en:train. An example is a document; its text is split into sentences.",
)
flags.DEFINE_string(
    "tfds_data_dir", None, "Where --tfds is; by default where TensorFlow Datasets keeps its data."
)
flags.DEFINE_string("tfds_text_feature", "text", "The feature of --tfds that is the text.")
flags.DEFINE_string(
    "spill_dir",
    None,
    "Local directory for a temporary file, about as large as the output. By default that of the "
    "first output file, or the system's (TMPDIR) if the output is not on a local disk.",
)


def main() -> None:
    """Reads the flags and makes the records."""
    data.create_pretraining_data(
        input_file=FLAGS.input_file,
        output_file=FLAGS.output_file,
        vocab_file=FLAGS.vocab_file,
        do_lower_case=FLAGS.do_lower_case,
        do_whole_word_mask=FLAGS.do_whole_word_mask,
        max_seq_length=FLAGS.max_seq_length,
        max_predictions_per_seq=FLAGS.max_predictions_per_seq,
        random_seed=FLAGS.random_seed,
        dupe_factor=FLAGS.dupe_factor,
        masked_lm_prob=FLAGS.masked_lm_prob,
        short_seq_prob=FLAGS.short_seq_prob,
        tfds=FLAGS.tfds,
        tfds_data_dir=FLAGS.tfds_data_dir,
        tfds_text_feature=FLAGS.tfds_text_feature,
        spill_dir=FLAGS.spill_dir,
    )


if __name__ == "__main__":
    flags.mark_flags_as_required(["output_file", "vocab_file"])
    command_flags.run_program(main)
