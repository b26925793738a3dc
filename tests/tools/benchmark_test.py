"""What the benchmark measures: the loop, and the input, which can feed an accelerator."""

import re
import subprocess
import sys

import pytest

from tests.support.environment import of_a_user
from tests.support.pretraining_runs import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("masking", [[], ["pieces"], ["whole_words"]], ids=str)
def test_one_core_reads_ten_thousand_examples_a_second(masking):
    words = ["--measure=input_pipeline", "--train_batch_size=32"]
    words += [f"--dynamic_masking={kind}" for kind in masking]
    done = subprocess.run(
        [sys.executable, "-m", "tools.benchmark", *words],
        cwd=ROOT,
        env=of_a_user(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    by_clock, of_processor = (
        int(re.search(rf"^examples/s {how}: median (\d+)$", done.stdout, re.MULTILINE).group(1))
        for how in ("by the clock", "of processor time")
    )
    # On one core there is no more processor time than time. (A tenth for the clocks' grain.)
    assert 0 < by_clock < 1.1 * of_processor
    # Other programs on the machine slow it by the clock, but cost it no processor time.
    assert of_processor > 10_000


@pytest.mark.slow
def test_little_time_passes_between_steps():
    model = "flags/models/uncased_L-2_H-128_A-2/bert_config.json"
    words = ["--measure=training_step", f"--bert_config_file={model}", "--num_steps=60"]
    done = subprocess.run(
        [sys.executable, "-m", "tools.benchmark", *words],
        cwd=ROOT,
        env=of_a_user(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    between = re.search(r"^between steps: (\d+\.\d+)% of the time$", done.stdout, re.MULTILINE)
    assert float(between.group(1)) < 5.0
    share = re.search(r"a share of (\d\.\d+)$", done.stdout, re.MULTILINE)
    assert float(share.group(1)) > 0.1
