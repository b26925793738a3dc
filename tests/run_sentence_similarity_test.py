"""run_sentence_similarity as a program: both losses, one after the other."""

import re

import numpy as np
import pytest

from bert_tf.runs.folder import reporting
from tests.support.pretraining_runs import run, variables
from tests.support.small_sentences import write_sentences


def call(folder, name, *flags):
    """Returns what the program prints; it writes to a folder of this name in the given one."""
    return run(
        *(f"--data_dir={folder}", f"--output_dir={folder}/{name}"),
        *(f"--vocab_file={folder}/vocab.txt", f"--bert_config_file={folder}/bert_config.json"),
        *("--text_a_column=one", "--text_b_column=other", "--label_column=score"),
        *("--max_seq_length=8", "--length_buckets=none", "--learning_rate=0.01"),
        *flags,
        program="run_sentence_similarity.py",
    )


@pytest.mark.slow  # tests/tasks/sentences has quicker ones
def test_positive_pairs_are_learned_and_then_scores(tmp_path):
    folder = write_sentences(tmp_path)
    negatives = ("--loss=in_batch_negatives", "--min_positive_score=4", "--train_batch_size=12")
    log = call(folder, "first", "--do_train", *negatives, "--num_train_epochs=6")
    assert f"{folder}/train.tsv: 60 of 120 pairs are positive" in log
    assert variables(folder / "first")["global_step"] == 6 * 60 // 12
    assert not (folder / "first/eval_results.txt").exists()

    words = ("--do_train", "--do_eval", "--do_predict", "--score_scale=4", "--train_batch_size=20")
    more = ("--num_train_epochs=10", f"--init_checkpoint={folder}/first")
    assert re.search(f"Initialised .* from {folder}/first", call(folder, "second", *words, *more))
    results = reporting.read_results(str(folder / "second/eval_results.txt"))
    names = {"eval_loss", "eval_pearson", "eval_spearman", "global_step", "loss"}
    assert results.keys() == names and results["global_step"] == 60
    assert results["eval_pearson"] > 0.9 and results["eval_spearman"] > 0.8
    assert results["eval_loss"] < 0.05  # all 0.5 would have 0.25
    weights = variables(folder / "second")
    assert "bert/encoder/layer_0/output/dense/kernel/adam_m" in weights
    assert "bert/pooler/dense/kernel" in weights
    assert "bert/pooler/dense/kernel/adam_m" not in weights

    cosines = np.loadtxt(folder / "second/test_results.tsv")
    with np.load(folder / "second/test_vectors.npz") as archive:
        assert sorted(archive) == ["second_vectors", "vectors"]
        first, second = archive["vectors"], archive["second_vectors"]
    assert first.shape == second.shape == (7, 16) and first.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.sum(first * second, axis=1), cosines, atol=1e-6)
    assert (cosines > 0.5).tolist() == [True, False] * 3 + [True]
