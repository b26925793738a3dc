"""The recipes of flags/squad and the flags of run_squad.py: the sources' settings and figures."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "flags" / "squad"

# Section 4.2 and 4.3 of the paper; figures of tables 2 and 3 on the dev set.
PAPER = {
    "squad_v1_base": (32, 3.0, False, "uncased_L-12_H-768_A-12", "exact match 80.8, F1 88.5"),
    "squad_v1_large": (32, 3.0, False, "uncased_L-24_H-1024_A-16", "exact match 84.1, F1 90.9"),
    "squad_v1_large_triviaqa": (
        32,
        1.0,
        False,
        "uncased_L-24_H-1024_A-16",
        "exact match 84.2, F1 91.1",
    ),
    "squad_v2_large": (48, 2.0, True, "uncased_L-24_H-1024_A-16", "exact match 78.7, F1 81.9"),
}
READ_FLAGS = """
import json, sys
import run_squad
FLAGS = run_squad.FLAGS
buckets = FLAGS["length_buckets"]
read = {"buckets": [buckets.default, buckets.help]}
for name in sys.argv[1:]:
    FLAGS.unparse_flags()
    for flag in FLAGS:
        FLAGS[flag].value, FLAGS[flag].present = FLAGS[flag].default, 0
    FLAGS(["run_squad.py", f"--flagfile=flags/squad/{name}.flags", "--vocab_file=v",
           "--output_dir=o"])
    read[name] = {flag: FLAGS[flag].value for flag in FLAGS}
print(json.dumps(read))
"""


@pytest.fixture(scope="module")
def read():
    """What the real program's flags read, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", READ_FLAGS, *PAPER], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_padding_counts_unless_buckets_are_asked_for(read):
    default, help_text = read["buckets"]
    assert default == "none" and "the original's loss and n-best lists count" in help_text


@pytest.mark.parametrize("name", PAPER)
def test_recipe(read, name):
    batch, epochs, with_negative, model, figures = PAPER[name]
    values = read[name]
    assert (values["train_batch_size"], values["num_train_epochs"]) == (batch, epochs)
    assert values["learning_rate"] == 5e-5
    assert values["version_2_with_negative"] == with_negative
    assert (values["max_seq_length"], values["doc_stride"]) == (384, 128)
    assert values["bert_config_file"] == f"flags/models/{model}/bert_config.json"
    assert values["do_train"] and values["do_predict"] == ("triviaqa" not in name)
    text = re.sub(r"\n#\s*", " ", (RECIPES / f"{name}.flags").read_text().split("\n--")[0])
    assert figures in text and model in text
    for cores in re.findall(r"8 TPU cores, each of which gets (\d+) of the", text):
        assert 8 * int(cores) == batch


def test_every_recipe_is_tested():
    assert {path.stem for path in RECIPES.iterdir()} == PAPER.keys()
