"""Messages about tables name the cause, and the flag."""

import math

import pytest

from bert_tf.datasets import tables
from bert_tf.errors import UserError

COLUMNS = {"text_a_column": "text", "label_column": "label"}


def read(folder, text, name="train.csv", delimiter=None, has_header=True):
    (folder / name).write_text(text, encoding="utf-8")
    path = str(folder / name)
    rows = tables.read_table(path, delimiter, has_header)
    return tables.column_numbers(rows, path, has_header, COLUMNS, "Training")


@pytest.mark.parametrize(
    ("name", "text", "flag"),
    [
        # A quoted text breaks the reader before the header is looked at.
        ("train.csv", 'text;label\n"a; b";1\n"c";2\n', "';', as in the first line; give --d"),
        ("train.csv", '"text";"label"\n"a";1\n', "';'"),
        ("train.csv", "text;label\na, b;1\nc;2\n", "';'"),  # other columns in each row
        ("train.csv", "text;label\na;1\n", "';'"),  # one column, whose name is unknown
        ("train.csv", "note, mine;text;label\nx,y;a;1\n", "';'"),  # a comma in a name, too
        ("train.csv", "text\tlabel\na\t1\n", r"'\\t', as in the first line; give --delimiter=\$'"),
        ("train.csv", "text|label\na|1\n", r"'\|'"),
        ("train.tsv", "text,label\na,1\n", "','"),
        ("train.tsv", "text;label\na\t1\n", "';'"),
    ],
)
def test_another_delimiter_is_named_from_the_header(tmp_path, name, text, flag):
    message = f"^--data_dir: {tmp_path}/{name}: columns seem to be separated by {flag}"
    with pytest.raises(UserError, match=message):
        read(tmp_path, text, name)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("text,label;\na,b,1\n", {}, "line 2: the line has 3 columns"),
        ('text,"a;b",c\n"a,1,2\n', {}, "line 2: unexpected end of data"),
        ("a;b,1\nc\n", {"has_header": False}, "line 2: the line must have at least 2 columns"),
        ("text;label\na;1;2\n", {"delimiter": ";"}, "line 2: the line has 3 columns"),
        ("text;x\na;1\n", {"delimiter": ";"}, "--label_column=label: .* has no such column"),
    ],
)
def test_the_given_delimiter_is_not_blamed_without_a_reason(tmp_path, text, options, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, text, **options)


def test_where_the_tables_should_be(tmp_path):
    def message(data_dir):
        with pytest.raises(UserError) as error:
            tables.table_path("train", str(data_dir))
        return str(error.value)

    begin = "--data_dir must hold train.tsv or train.csv; "
    assert message(tmp_path / "no") == f"{begin}there is no folder {tmp_path}/no"
    assert message(tmp_path) == f"{begin}{tmp_path} holds nothing"
    for name in ("train.txt", "readme"):
        (tmp_path / name).touch()
    assert message(tmp_path) == (
        f"{begin}{tmp_path} holds 'readme', 'train.txt'. Rename 'train.txt' to train.tsv if tabs"
        " separate its columns, to train.csv if commas do"
    )
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
    with pytest.raises(UserError, match="but only one of them can be read"):
        tables.find_table("train", str(tmp_path))


@pytest.mark.parametrize("other, is_told", [(".xlsx", 1), (".XLS", 1), (".json", 1), (".md", 0)])
def test_the_same_table_in_another_format_is_told_of(tmp_path, caplog, other, is_told):
    caplog.set_level("WARNING", "absl")
    for name in ("dev.csv", f"dev{other}", f"train{other}"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    for _ in range(2):
        assert tables.table_path("dev", str(tmp_path)) == f"{tmp_path}/dev.csv"
    message = f"{tmp_path}/dev.csv is read, and not 'dev{other}' beside it. If the other is meant,"
    assert [x for x in caplog.messages if x.startswith(message)] == caplog.messages
    assert len(caplog.messages) == is_told


@pytest.mark.parametrize(
    "cell, number",
    [("4.5", 4.5), (" -1e2\t", -100), ("3\u00a0", 3), ("\u30003.5", 3.5), ("+.5", 0.5)],
)
def test_a_cell_has_a_number(cell, number):
    assert tables.number_in(cell) == number


@pytest.mark.parametrize("cell", ["", " ", "1_000", "٣", "３.5", "4,5", "0x10", "3\u00a05", "nan"])
def test_a_cell_has_no_number(cell):
    assert math.isnan(tables.number_in(cell))
