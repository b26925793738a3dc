r"""Prints LAMB's learning rate and warm-up for a batch, by the square-root rule.

    python -m tools.large_batch --train_batch_size=4096

The rule is that of table 4 of https://arxiv.org/abs/1904.00962, where BERT-Large is trained with
batches of 512 to 32,768 and nothing is tuned between them: a rate of 5e-3 for 32,768, in proportion
to the square root of the batch, and a warm-up over a fifth of the steps for 32,768, in proportion
to the batch. By default the run sees as many sequences as there, 512 x 1,000,000; the warm-up then
has 3,125 steps with any batch. The rule gives a rate to start from, not the best one.
"""

from typing import NamedTuple

from absl import flags

from bert_tf.runs.flags import command_flags

FLAGS = flags.FLAGS

BATCH, RATE, WARMUP_SHARE = 32768, 5e-3, 1 / 5
SMALLEST = 512  # batch of the table
SEQUENCES = 512 * 1_000_000  # of a run in table 1
SHORT_SHARE = 0.9  # of the steps, at length 128; the rest at 512


class Recipe(NamedTuple):
    """What the rule gives for a batch.

    share: of the steps, for the warm-up.
    """

    learning_rate: float
    share: float
    num_train_steps: int
    num_warmup_steps: int


def square_root_rule(train_batch_size: int, num_train_steps: int | None = None) -> Recipe:
    """Returns rate and warm-up for a batch.

    Args:
        train_batch_size: sequences in a step, over all replicas.
        num_train_steps: length of the run; None for that of the paper's runs in sequences.
    """
    scale = train_batch_size / BATCH
    share = min(1.0, WARMUP_SHARE * scale)
    steps = num_train_steps or max(1, round(SEQUENCES / train_batch_size))
    return Recipe(RATE * scale**0.5, share, steps, round(share * steps))


def describe(train_batch_size: int, recipe: Recipe) -> str:
    """Returns the text to print: the rule, and the flags of run_pretraining.py."""
    batch, steps = train_batch_size, recipe.num_train_steps
    short = round(SHORT_SHARE * steps)
    phases = f"128:{short}:{batch}:20,512:{steps - short}:{batch}:77"
    if not 0 < short < steps:  # too short a run for two phases
        phases = f"128:{steps}:{batch}:20"
    lines = [
        f"batch  {batch:,}: {batch * steps:,} sequences in {steps:,} steps",
        f"rate   {recipe.learning_rate:.6g}: {RATE:g} x sqrt({batch:,} / {BATCH:,})",
        f"warm-up over {recipe.share:.4g} of the steps: {recipe.num_warmup_steps:,}",
        f"flags  --optimizer=lamb --learning_rate={recipe.learning_rate:.6g}"
        f" --num_warmup_steps={recipe.num_warmup_steps} --phases={phases}",
    ]
    if not SMALLEST <= batch <= BATCH:
        lines.append(
            f"The paper tried the rule with batches of {SMALLEST} to {BATCH:,} only; this is"
            " outside of them"
        )
    return "\n".join(lines)


def main() -> None:
    """Prints what the rule gives for --train_batch_size."""
    recipe = square_root_rule(FLAGS.train_batch_size, FLAGS.num_train_steps)
    print(describe(FLAGS.train_batch_size, recipe))


def _define_flags() -> None:
    flags.DEFINE_integer(
        "train_batch_size",
        None,
        "Sequences in a training step, over all replicas.",
        required=True,
        lower_bound=1,
        upper_bound=2**20,
    )
    flags.DEFINE_integer(
        "num_train_steps",
        None,
        "Number of training steps. Default: as many as see 512,000,000 sequences.",
        lower_bound=1,
        upper_bound=2**31 - 1,
    )


if __name__ == "__main__":
    _define_flags()
    command_flags.run_program(main)
