"""Compares two runs on the same examples: is one better, or is the difference chance?

    python -m tools.compare_runs output/one output/two

The arguments are the --output_dir of two runs that evaluated the same file, A and B. The tool reads
`eval_predictions.tsv` there, or else `predictions.tsv` if the test file has labels. It prints on
how many examples only one of them is right with McNemar's exact test, and for each metric the
difference with a 95% interval from a paired bootstrap over the examples. It works for classes,
numbers, tags, multiple choice and SQuAD.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags

from .data import comparison

FLAGS = flags.FLAGS


def check_words(words: Sequence[str]) -> None:
    if len(words) != 2:
        raise UserError(
            f"name the --output_dir of two runs: python -m tools.compare_runs A B; got {len(words)}"
        )


def main(words: Sequence[str]) -> None:
    name, a, b = comparison.read_pair(*words, FLAGS.file)
    print(f"A: {words[0]}\nB: {words[1]}\nfile: {name}\n")
    print(comparison.sentences(comparison.compare(a, b, FLAGS.num_resamples, FLAGS.random_seed)))


if __name__ == "__main__":
    flags.DEFINE_string(
        "file",
        None,
        "The file to compare, such as eval_predictions_mismatched.tsv. Default:"
        " eval_predictions.tsv, else predictions.tsv.",
    )
    flags.DEFINE_integer(
        "num_resamples", 2000, "Samples of the examples, with replacement.", lower_bound=100
    )
    flags.DEFINE_integer("random_seed", 12345, "Seed of these samples.", lower_bound=0)
    command_flags.run_program(main, takes_words=True, check_words=check_words)
