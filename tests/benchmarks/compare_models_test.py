"""Tests of benchmarks/compare_models.py."""

import json
import re

import pytest

from tests.support.pretraining_runs import run

BERT = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 9,
    "type_vocab_size": 2,
}
ALBERT = {**BERT, "embedding_size": 4, "num_hidden_groups": 1}
# Embeddings and their LayerNorm; a layer: attention, feed-forward network, two LayerNorms.
LAYER = 4 * (16 * 16 + 16) + 16 * 24 + 24 + 24 * 16 + 16 + 4 * 16
POOLER = 16 * 16 + 16
BERT_PARAMETERS = (50 + 9 + 2 + 2) * 16 + 3 * LAYER + POOLER
ALBERT_PARAMETERS = (50 + 9 + 2 + 2) * 4 + 4 * 16 + 16 + LAYER + POOLER


def test_a_row_for_each_model(tmp_path):
    paths = []
    for name, config in (("plain", BERT), ("shared", ALBERT)):
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "bert_config.json")
        paths[-1].write_text(json.dumps(config))
    program = {"program": "benchmarks.compare_models"}
    files = f"--bert_config_file={paths[0]},{paths[1]}"
    printed = run(files, "--max_seq_length=9", "--batch_size=3", "--num_batches=2", **program)
    header, _, first, second = printed.splitlines()[-4:]
    assert header == "| Model | Parameters | MiB | Sequences/s | Times as fast |"
    row = r"\| (.+), (\w+) \| ([\d,]+) \| 0 \| (\d+\.\d) \| (\d+\.\d\d) \|"
    bert, albert = (re.fullmatch(row, line).groups() for line in (first, second))
    assert bert[:3] == ("BERT", "plain", f"{BERT_PARAMETERS:,}") and bert[4] == "1.00"
    assert albert[:3] == ("ALBERT", "shared", f"{ALBERT_PARAMETERS:,}")
    assert float(albert[4]) == pytest.approx(float(albert[3]) / float(bert[3]), abs=0.02)

    printed = run(files, "--max_seq_length=10", **program, status=1)
    assert "--max_seq_length must be at most max_position_embeddings (9)" in printed
