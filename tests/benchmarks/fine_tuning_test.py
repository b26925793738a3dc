"""Test of benchmarks/fine_tuning.py."""

import re

import pytest

from tests.support.pretraining_runs import run, write_config
from tests.support.small_classification import SIZES, VOCAB, WORDS


@pytest.mark.slow
def test_a_task_of_few_examples(tmp_path):
    """All its epochs together are less than a batch."""
    for name, count in (("train", 7), ("dev", 5)):
        lines = [f"id\t{i % 2}\t\t{' '.join(WORDS[: i + 2])}\n" for i in range(count)]
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    printed = run(
        *("--task_name=CoLA", f"--data_dir={tmp_path}", f"--vocab_file={tmp_path}/vocab.txt"),
        f"--bert_config_file={write_config(tmp_path / 'bert_config.json', **SIZES)}",
        *("--max_seq_length=12", "--length_buckets=6,12", "--num_steps=1", "--num_rounds=1"),
        program="benchmarks.fine_tuning",
    )
    found = re.findall(r"^(.*): [\d.]+ examples/s", printed, re.MULTILINE)
    training = ["padded to 12", "padded to buckets", "grouped by length"]
    assert found == [*training, "padded to 12", "sorted"]
