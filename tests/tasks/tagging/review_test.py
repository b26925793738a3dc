"""Tables of tagged sentences and their report."""

import json

import pytest

from bert_tf.runs.results.tables import read_table
from bert_tf.tasks.tagging.conll import Sentence
from bert_tf.tasks.tagging.entities import entity_counts, entity_metrics
from bert_tf.tasks.tagging.review import write_tables

SENTENCES = [
    Sentence(["Ann", "is", "here"], ["B-PER", "O", "O"], 0),
    Sentence(["-", "Rome"], ["O", "B-LOC"], 0),
    Sentence(["New", "York"], ["B-LOC", "I-LOC"], 1),
]
PREDICTED = [["B-PER", "O", "O"], ["B-PER", "B-LOC"], ["B-LOC", "O"]]
LOSSES = [0.1, 0.0, 0.0, 0.7, 0.2, 0.0, 2.5]


def test_wrong_sentences_begin_with_the_surest_mistake(tmp_path):
    write_tables(f"{tmp_path}", "eval_predictions", SENTENCES, PREDICTED, LOSSES)
    assert read_table(f"{tmp_path}/errors.tsv") == {
        "id": ["sentence-2", "sentence-1"],
        "text": ["New York", "'- Rome"],
        "prediction": ["B-LOC O", "B-PER B-LOC"],
        "tags": ["B-LOC I-LOC", "O B-LOC"],
        "wrong": ["York: I-LOC, not O", "'-: O, not B-PER"],
        "loss": ["2.5", "0.7"],
    }
    every = read_table(f"{tmp_path}/eval_predictions.tsv")
    assert len(every["id"]) == 3 and every["wrong"][0] == ""
    report = json.loads((tmp_path / "eval_report.json").read_text())
    expected = entity_metrics([s.tags for s in SENTENCES], PREDICTED)
    assert report["micro"]["f1"] == pytest.approx(expected["f1"])
    assert report["accuracy"] == expected["accuracy"]
    assert report["types"]["LOC"]["recall"] == expected["recall_LOC"] == 0.5
    assert report["types"]["LOC"]["support"] == 2


def test_test_files_with_and_without_tags(tmp_path):
    write_tables(f"{tmp_path}", "predictions", SENTENCES, PREDICTED, LOSSES)
    names = {"predictions.tsv", "test_errors.tsv", "test_report.txt", "test_report.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    untagged = [Sentence(sentence.words, None, 0) for sentence in SENTENCES]
    write_tables(f"{tmp_path}", "predictions", untagged, PREDICTED, LOSSES)
    found = read_table(f"{tmp_path}/predictions.tsv")
    assert list(found) == ["id", "text", "prediction"] and found["prediction"][2] == "B-LOC O"


def test_counts_of_no_entities():
    assert entity_counts([["O"]], [["O"]]) == ({}, 1.0)
    assert entity_metrics([["O"]], [["O"]])["f1"] == 0.0
