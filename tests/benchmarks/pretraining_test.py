"""Tests of benchmarks/pretraining.py, and of the speeds that it measures."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.environment import of_a_user
from tests.support.pretraining_runs import run


def benchmark(*words: str) -> str:
    """Returns what the program prints."""
    return run(*words, program="benchmarks.pretraining", env=of_a_user())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("masking", "cores"), [([], 1), (["pieces"], 1), (["whole_words"], min(2, os.cpu_count()))]
)
def test_each_core_reads_ten_thousand_examples_a_second(masking, cores):
    words = ["--measure=input_pipeline", "--train_batch_size=32", f"--cores={cores}"]
    words += [f"--dynamic_masking={kind}" for kind in masking]
    output = benchmark(*words)
    by_clock, of_processor = (
        int(re.search(rf"^examples/s {how}: median (\d+)$", output, re.MULTILINE).group(1))
        for how in ("by the clock", "of processor time")
    )
    # A core cannot spend more processor time than time. (A tenth for the clocks' resolution.)
    assert 0 < by_clock < 1.1 * cores * of_processor
    # Other programs on the machine change only the speed by the clock.
    assert of_processor > 10_000


@pytest.mark.slow
def test_little_time_passes_between_steps():
    model = "flags/models/uncased_L-2_H-128_A-2/bert_config.json"
    words = ["--measure=training_step", f"--bert_config_file={model}", "--num_steps=60"]
    output = benchmark(*words)
    between = re.search(r"^between steps: (\d+\.\d+)% of the time$", output, re.MULTILINE)
    assert float(between.group(1)) < 5.0
    share = re.search(r"a share of (\d\.\d+)$", output, re.MULTILINE)
    assert float(share.group(1)) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["training_step", "dtypes"])
def test_a_model_without_next_sentences_is_measured(tmp_path, measure):
    config = tmp_path / "bert_config.json"
    sizes = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1, "intermediate_size": 40}
    config.write_text(json.dumps({"model_type": "roberta", "num_attention_heads": 3, **sizes}))
    words = [f"--measure={measure}", f"--bert_config_file={config}", "--num_steps=2"]
    output = benchmark(*words, "--train_batch_size=4", "--max_seq_length=16")
    assert "batch: 4 of length 16" in output


@pytest.mark.slow
def test_a_cpu_that_multiplies_bfloat16_is_faster_with_it(tmp_path):
    """Two layers of BERT-Base, with few words, because the optimizer always works in float32."""
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps({"vocab_size": 500, "num_hidden_layers": 2}))
    words = ["--measure=dtypes", f"--bert_config_file={config}", "--num_steps=5"]
    output = benchmark(*words)
    training, prediction = (
        float(re.search(rf"^{what}, bfloat16: .* ([\d.]+) times", output, re.MULTILINE)[1])
        for what in ("training step", "prediction")
    )
    cpu = Path("/proc/cpuinfo").read_text()
    if "amx_bf16" not in cpu and not ("AuthenticAMD" in cpu and "avx512_bf16" in cpu):
        pytest.skip("This CPU multiplies bfloat16 no faster than float32 (docs/devices.md).")
    assert training > 1.2
    assert prediction > 1.2
