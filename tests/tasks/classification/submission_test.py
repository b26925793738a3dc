"""Tests of bert_tf.tasks.classification.submission: GLUE's submission files."""

import os

import numpy as np
import pytest

from bert_tf.tasks.classification import processors, submission

# The files that https://gluebenchmark.com asks for, and their classes.
FILES = {
    "AX": ("AX.tsv", "contradiction entailment neutral"),
    "CoLA": ("CoLA.tsv", "0 1"),
    "MNLI": ("MNLI-m.tsv", "contradiction entailment neutral"),
    "MNLI-mm": ("MNLI-mm.tsv", "contradiction entailment neutral"),
    "MRPC": ("MRPC.tsv", "0 1"),
    "QNLI": ("QNLI.tsv", "entailment not_entailment"),
    "QQP": ("QQP.tsv", "0 1"),
    "RTE": ("RTE.tsv", "entailment not_entailment"),
    "SST-2": ("SST-2.tsv", "0 1"),
    "WNLI": ("WNLI.tsv", "0 1"),
}


@pytest.mark.parametrize("task", FILES)
def test_classes_by_name(tmp_path, task):
    name, labels = FILES[task][0], FILES[task][1].split()
    classes = [0, len(labels) - 1, 1]
    outputs = np.eye(len(labels), dtype=np.float32)[classes]
    processor = processors.get_processor(task)
    assert submission.write_submission(str(tmp_path), processor, outputs) == str(tmp_path / name)
    expected = [f"{i}\t{labels[label]}\n" for i, label in enumerate(classes)]
    assert (tmp_path / name).read_text() == "index\tprediction\n" + "".join(expected)
    assert os.listdir(tmp_path) == [name]


def test_numbers_within_the_range(tmp_path):
    outputs = np.array([2.34567, -0.2, 5.4, 5.0], np.float32)
    submission.write_submission(str(tmp_path), processors.get_processor("STS-B"), outputs)
    text = (tmp_path / "STS-B.tsv").read_text()
    assert text == "index\tprediction\n0\t2.346\n1\t0.000\n2\t5.000\n3\t5.000\n"


def test_tasks_outside_glue_have_none(tmp_path):
    processor = processors.get_processor("IMDB")
    assert submission.write_submission(str(tmp_path), processor, np.eye(2)) is None
    assert os.listdir(tmp_path) == []
    assert submission.predicted(processor, np.eye(2)) == ["neg", "pos"]
