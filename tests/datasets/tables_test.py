"""Messages about tables name the cause, and the flag."""

import math

import pytest

from bert_tf.datasets import tables
from tests.support.refusals import refusal, refuses

COLUMNS = {"text_a_column": "text", "label_column": "label"}


def read(folder, text, name="train.csv", delimiter=None, has_header=True):
    (folder / name).write_text(text, encoding="utf-8")
    path = str(folder / name)
    rows = tables.read_table(path, delimiter, has_header)
    return tables.column_numbers(rows, path, has_header, COLUMNS)


def test_a_table_that_does_not_fit_is_refused(tmp_path):
    for text, options, message in (
        ("text,label;\na,b,1\n", {}, "line 2: the line has 3 columns"),
        ('text,"a;b",c\n"a,1,2\n', {}, "line 2: unexpected end of data"),
        ("a;b,1\nc\n", {"has_header": False}, "line 2: the line has 1 columns, but line 1 has 2"),
        ("text;label\na;1;2\n", {"delimiter": ";"}, "line 2: the line has 3 columns"),
        ("text;x\na;1\n", {"delimiter": ";"}, "--label_column=label: .* has no such column"),
        ("text;label\na;1\n", {}, "=text: .*--delimiter what .* columns named 'text;label'"),
    ):
        refuses(message, read, tmp_path, text, **options)


def test_where_the_tables_should_be(tmp_path):
    def message(data_dir):
        return refusal(tables.table_path, "train", str(data_dir))

    begin = "--data_dir must hold train.tsv or train.csv; "
    assert message(tmp_path / "no") == f"{begin}there is no folder {tmp_path}/no"
    assert message(tmp_path) == f"{begin}{tmp_path} holds nothing"
    for name in ("train.txt", "readme"):
        (tmp_path / name).touch()
    assert message(tmp_path) == f"{begin}{tmp_path} holds 'readme', 'train.txt'"
    (tmp_path / "train.XLSX").touch()
    assert message(tmp_path).endswith("""'train.txt'. Save a spreadsheet as "CSV UTF-8\"""")
    file = tmp_path / "train.csv"
    file.touch()
    assert message(file) == f"{begin}{file} is a file; give the folder that it is in"


@pytest.mark.parametrize("name", ["train.CSV", "train.TSV", "train.Csv"])
def test_the_case_of_an_ending_does_not_matter(tmp_path, name):
    path = tmp_path / name
    path.write_text("a,b\n1,2\n".replace(",", "," if "c" in name.lower() else "\t"))
    assert tables.table_path("train", str(tmp_path)) == str(path)
    assert tables.read_table(str(path), None, True)[1] == (1, ["1", "2"])
    (tmp_path / "train.csv").touch()
    refuses("but only one of them can be read", tables.find_table, "train", str(tmp_path))


def test_the_number_of_a_cell():
    cells = {"4.5": 4.5, " -1e2\t": -100, "3\u00a0": 3, "\u30003.5": 3.5, "+.5": 0.5}
    assert {cell: tables.number_in(cell) for cell in cells} == cells
    for cell in ("", " ", "1_000", "٣", "３.5", "4,5", "0x10", "3\u00a05", "nan"):
        assert math.isnan(tables.number_in(cell))
