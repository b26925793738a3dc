"""tools/large_batch.py: the rates and warm-ups of the paper's table, and the flags it prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert_tf.tasks.pretraining.training.phases import parse_phases
from tools.large_batch import describe, square_root_rule

ROOT = Path(__file__).resolve().parents[2]

# Table 4 of arXiv:1904.00962: batch -> k of the rate 5 / (2^k * 10^3), 1 / share of the warm-up.
TABLE = {
    512: (3.0, 320),
    1024: (2.5, 160),
    2048: (2.0, 80),
    4096: (1.5, 40),
    8192: (1.0, 20),
    16384: (0.5, 10),
    32768: (0.0, 5),
}


@pytest.mark.parametrize("batch", TABLE)
def test_the_rule_is_the_papers_table(batch):
    recipe = square_root_rule(batch)
    k, parts = TABLE[batch]
    assert recipe.learning_rate == pytest.approx(5 / (2**k * 1e3), rel=1e-12)
    assert recipe.share == pytest.approx(1 / parts, rel=1e-12)
    assert recipe.num_train_steps == 512_000_000 // batch
    assert recipe.num_warmup_steps == 3125
    assert "outside" not in describe(batch, recipe)


def test_a_run_of_another_length_and_batches_outside_of_the_table():
    recipe = square_root_rule(4096, 2000)
    assert (recipe.num_train_steps, recipe.num_warmup_steps) == (2000, 50)
    assert square_root_rule(2**20).num_warmup_steps == square_root_rule(2**20).num_train_steps
    for batch in (256, 65536):
        assert describe(batch, square_root_rule(batch)).endswith("this is outside of them")
    assert "--phases=128:1:8:20\n" in describe(8, square_root_rule(8, 1))


def test_program():
    command = [sys.executable, "-m", "tools.large_batch", "--train_batch_size=4096"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = (ROOT / "docs" / "large-batches.md").read_text()
    assert done.stdout in shown
    phases = parse_phases(re.search(r"--phases=(\S+)", done.stdout).group(1))
    assert [phase.num_steps for phase in phases] == [112_500, 12_500]
