"""Tests of what an export says of a table's labels, before and after."""

import re

import numpy as np
import pytest
from scipy import stats

import bert_tf
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from tests.support.exported_heads import LABELS, write_head
from tests.support.refusals import refusal

pytestmark = pytest.mark.usefixtures("eager")

WORDS = "the man went to a store and bought milk".split()
COLUMNS = {"text_a_column": "first", "label_column": "what"}


def table(folder, labels, ending="csv"):
    """Writes a table of pairs of texts; returns them."""
    rng = np.random.default_rng(len(labels))
    pairs = [tuple(" ".join(rng.choice(WORDS, n)) for n in rng.integers(1, 9, 2)) for _ in labels]
    rows = [("first", "other", "what"), *((*x, str(y)) for x, y in zip(pairs, labels, strict=True))]
    sign = {"csv": ",", "tsv": "\t"}[ending]
    (folder / f"dev.{ending}").write_text("".join(sign.join(row) + "\n" for row in rows))
    return pairs


def exported(head, tmp_path, caplog, **options):
    """Exports a model with a head; returns the measures that are logged, and both models."""
    source = write_head(tmp_path / "model", head, num_layers=1)
    output = str(tmp_path / "exported")
    options = {"format": "onnx", "data_dir": str(tmp_path), **COLUMNS, **options}
    with caplog.at_level("INFO", logger="absl"):
        export(ExportSettings(input=source, output=output, **options))
    line = r"(Acc\w+|Pearson|Spearman).* of (\d+) examples: (\S+) before the export, (\S+) after"
    found = re.findall(line, caplog.text)
    assert {int(count) for _, count, *_ in found} == {17}
    measures = {name: tuple(map(float, values)) for name, _, *values in found}
    return measures, bert_tf.load(source), bert_tf.load(output)


@pytest.mark.parametrize("options", [{}, {"quantize": "int8", "text_b_column": "other"}])
def test_classes(tmp_path, caplog, options):
    labels = np.random.default_rng(3).choice(LABELS["classification"], 17)
    pairs = table(tmp_path, labels)
    texts = pairs if "text_b_column" in options else [first for first, _ in pairs]
    measures, *models = exported("classification", tmp_path, caplog, **options)
    answers = [[x.label for x in model.classify(texts)] for model in models]
    expected = tuple(round(float(np.mean(np.array(x) == labels)), 4) for x in answers)
    assert measures == {"Accuracy": expected}


@pytest.mark.parametrize("head", ["regression", "encoder"])
def test_numbers_and_cosines(tmp_path, caplog, head):
    labels = np.random.default_rng(5).normal(size=17).round(3)
    pairs = table(tmp_path, labels, "tsv")
    options = {"text_b_column": "other", "quantize": "int8"}
    measures, *models = exported(head, tmp_path, caplog, **options)
    for model, i in zip(models, (0, 1), strict=True):
        if head == "encoder":
            found = model.similarity(*map(list, zip(*pairs, strict=True)))
        else:
            found = model.classify(pairs)
        expected = {"Pearson": stats.pearsonr(labels, found)[0]}
        expected["Spearman"] = stats.spearmanr(labels, found)[0]
        for name, value in expected.items():
            assert measures[name][i] == pytest.approx(value, abs=1e-4)


WRONG = [
    ("tagging", {}, "is for classes, numbers and sentence vectors, not for --head=tagging"),
    ("encoder", {}, "--data_dir needs --text_b_column for sentence vectors"),
    ("classification", {"label_column": "why"}, "--label_column=why: .* has no such column"),
    ("classification", {"text_a_column": None}, "--data_dir=.* needs --text_a_column"),
    ("classification", {"format": "litert"}, "needs --format=onnx"),
    ("classification", {"seq_length": 8}, "--data_dir=.* excludes --seq_length"),
    ("regression", {}, "label 'maybe' must be a number"),
]


def test_what_no_export_can_measure(tmp_path, caplog):
    table(tmp_path, ["maybe"] * 3)
    for head, options, message in WRONG:
        assert re.search(message, refusal(exported, head, tmp_path, caplog, **options))
    assert not (tmp_path / "exported").exists()
