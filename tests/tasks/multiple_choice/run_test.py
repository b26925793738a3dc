"""Tests of run_multiple_choice, as a program and as a call."""

import csv
import random

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.runs.folder import reporting
from tests.support.pretraining_runs import run, variables, write_config
from tests.support.registered_tasks import run_in

VOCAB = "[PAD] [UNK] [CLS] [SEP] she sits up down".split()
COLUMNS = ["sent1", "sent2", *(f"ending{i}" for i in range(4))]


def write_csv(path, count, labelled=True):
    """Writes questions with the correct ending `up`; the others are `down`."""
    rng = random.Random(count)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*COLUMNS, *(["label"] if labelled else [])])
        for _ in range(count):
            label = rng.randrange(4)
            endings = ["up" if i == label else "down" for i in range(4)]
            writer.writerow(["She sits", "She", *endings, *([label] if labelled else [])])


@pytest.fixture
def folder(tmp_path):
    """A folder with the files of a tiny run."""
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    write_csv(tmp_path / "train.csv", 24)
    write_csv(tmp_path / "val.csv", 7)
    write_csv(tmp_path / "test.csv", 5, labelled=False)
    write_config(tmp_path / "bert_config.json", hidden_dropout_prob=0.0)
    return tmp_path


@pytest.mark.slow
def test_the_program_learns_scores_and_chooses(folder):
    output_dir = folder / "out"
    run(
        f"--data_dir={folder}",
        f"--output_dir={output_dir}",
        f"--vocab_file={folder / 'vocab.txt'}",
        f"--bert_config_file={folder / 'bert_config.json'}",
        *("--do_train", "--do_eval", "--do_predict", "--length_buckets=none"),
        *("--max_seq_length=9", "--train_batch_size=8", "--num_train_epochs=10"),
        "--learning_rate=0.01",
        program="run_multiple_choice.py",
    )
    results = reporting.read_results(str(output_dir / "eval_results.txt"))
    assert results.keys() == {"eval_accuracy", "eval_loss", "global_step", "loss"}
    assert results["eval_accuracy"] == 1.0
    assert results["eval_loss"] == results["loss"] < 1.0  # a guess has log(4) = 1.39
    assert results["global_step"] == 30
    probabilities = np.loadtxt(output_dir / "test_results.tsv", delimiter="\t")
    with (folder / "test.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    right = [[row[f"ending{i}"] for i in range(4)].index("up") for row in rows]
    assert probabilities.shape == (5, 4)
    np.testing.assert_allclose(probabilities.sum(-1), 1.0, rtol=1e-5)
    assert probabilities.argmax(-1).tolist() == right
    assert {"output_weights", "output_weights/adam_m"} <= variables(output_dir).keys()


def choose(folder, **options):
    return run_in(folder, "multiple_choice", max_seq_length=9, **options)


def test_length_buckets_change_no_score(folder):
    results = [choose(folder, do_eval=True, length_buckets=lengths) for lengths in ("none", "8")]
    assert results[1] == pytest.approx(results[0], rel=1e-5)


@pytest.mark.parametrize(
    "flag, file, text, message",
    [
        ("do_train", "train.csv", "", "train.csv is empty"),
        ("do_eval", "val.csv", "a,b\n", "val.csv: the first line must name the columns"),
        ("do_predict", "test.csv", "a,b\n", "test.csv: .* it lacks 'sent1', 'sent2', 'end"),
    ],
)
def test_a_bad_file_is_refused_before_the_run(folder, flag, file, text, message):
    (folder / file).write_text(text)
    with pytest.raises(UserError, match=message):
        choose(folder, **{flag: True})
    assert not (folder / "out").exists()
