"""Tests of bert_tf.datasets.tables and bert_tf.tasks.classification.table: own tasks in tables."""

import dataclasses
import math

import pytest

from bert_tf.datasets import tables
from bert_tf.errors import UserError
from bert_tf.tasks.classification import processors, table
from bert_tf.tasks.classification.settings import TableColumns
from tests.support.refusals import refusal, refuses


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def processor(folder, columns):
    return processors.get_processor("table", str(folder), columns=columns)


def read(which, folder, columns):
    found = processor(folder, columns).read(which, str(folder))
    return [(e.guid, e.text_a, e.text_b, e.label) for e in found]


CSV = (
    'id,title,"the body",stars\n1,"Good, really","He said ""yes"".\nThen left.",10\n\n2,Bad,No,9\n'
)
NO_HEADER = dict(text_a_column="0", text_b_column=None, label_column="1", has_header=False)
UNEXPECTED_HEADER = "train.csv, line 1: the label 'stars' is the only one that occurs just once"
NO_LABEL = (
    "^--data_dir: .*/train.csv, line 6: the line has no label; fill it in, or delete the line$"
)
BETWEEN = r"must be a number from -1e\+16 to 1e\+16; "
BY_NAME = TableColumns(text_a_column="title", text_b_column="the body", label_column="stars")


def test_a_csv_file_by_its_columns_names(tmp_path):
    write(tmp_path, {"train.csv": CSV, "dev.csv": CSV, "test.csv": "the body,title\nx,y\n"})
    assert read("train", tmp_path, BY_NAME) == [
        ("train-1", "Good, really", 'He said "yes".\nThen left.', "10"),
        ("train-4", "Bad", "No", "9"),
    ]
    assert read("test", tmp_path, BY_NAME) == [("test-1", "y", "x", "9")]
    task = processor(tmp_path, BY_NAME)
    assert task.get_labels() == ["9", "10"]
    assert task.metrics == ("accuracy", "f1", "matthews_correlation")
    assert task.has("dev", str(tmp_path)) and task.submission_file is None


@pytest.mark.parametrize(
    ("test", "known"),
    [
        ("text,label\nx,b\ny,a\n", ["b", "a"]),
        ("label,text\n?,x\n,y\n", ["?", None]),  # only shown, so anything will do
        ("text\nx\ny\n", [None, None]),
        ("text,label,label\nx,a,b\ny,a,b\n", [None, None]),  # which one?
    ],
)
def test_labels_of_a_test_file_are_known_but_not_read(tmp_path, test, known):
    write(tmp_path, {"train.csv": "text,label\nx,a\ny,b\n", "test.csv": test})
    columns = TableColumns(text_a_column="text", label_column="label")
    found = processor(tmp_path, columns).read("test", str(tmp_path))
    assert [example.known_label for example in found] == known
    assert [example.label for example in found] == ["a", "a"]


def test_a_table_without_header_by_number(tmp_path):
    write(tmp_path, {"train.tsv": 'b|x"y\na|z\nc|z\n'.replace("|", "\t"), "test.tsv": "b\tz\n"})
    columns = TableColumns(text_a_column="1", label_column="0", has_header=False)
    assert read("train", tmp_path, columns) == [
        ("train-0", 'x"y', None, "b"),
        ("train-1", "z", None, "a"),
        ("train-2", "z", None, "c"),
    ]
    task = processor(tmp_path, columns)
    assert task.get_labels() == ["a", "b", "c"] and task.metrics == ("accuracy",)
    (example,) = task.read("test", str(tmp_path))
    assert (example.text_a, example.label, example.known_label) == ("z", "a", "b")


def test_a_table_with_a_delimiter_and_labels_and_one_of_numbers(tmp_path):
    write(tmp_path, {"dev.csv": 'text;y\n"a;b";no\n'})
    columns = TableColumns("text", label_column="y", delimiter=";", labels=["yes", "no"])
    # Without a training file, since the classes are given.
    assert read("dev", tmp_path, columns) == [("dev-1", "a;b", None, "no")]
    assert processor(tmp_path, columns).get_labels() == ["yes", "no"]
    write(tmp_path, {"train.csv": "text,y\na,-1.5\nb,1e3\n"})
    columns = TableColumns("text", label_column="y", regression=True)
    assert [row[3] for row in read("train", tmp_path, columns)] == [-1.5, 1000.0]
    task = processor(tmp_path, columns)
    assert task.get_labels() is None and task.best_metric == "eval_pearson_and_spearman"


@pytest.mark.parametrize(
    "text, columns, message",
    [
        (
            *(CSV, {"text_a_column": "headline"}),
            r"--text_a_column=headline: .*/train.csv has no such column \(--has_header says whether"
            r" line 1 .*, --delimiter what separates them\); it has columns named 'id', 'title', "
            "'the body', 'stars': name one of these$",
        ),
        (
            *(CSV, {"has_header": False}),
            "--text_a_column=title: .* it has no header, but columns '0', '1', '2', '3': name one",
        ),
        (CSV, {"text_a_column": None}, "--text_a_column must be given: .* 'title', .*: name one"),
        (CSV, {"label_column": None}, "--label_column must be given: .* 'title'"),
        ("title;x\na;1\n", {}, "=title: .*--delimiter what .* columns named 'title;x'"),
        ("title;stars\na;1;2\n", {"delimiter": ";"}, "line 2: the line has 3 columns, but the he"),
        (" \n", {}, "/train.csv is empty; it must hold a header line, then its examples$"),
        ("", NO_HEADER, "/train.csv is empty; it must hold the text of its examples$"),
        (
            *("title,stars,the body\n\n", {}),
            "/train.csv has no examples; it must have one on each line after the header$",
        ),
        (
            *(CSV, {"labels": ["1", "9"]}),
            "/train.csv, line 2: label '10' must be one of '1', '9'; correct or delete the line, "
            "or change --label_column or --labels$",
        ),
        (
            *(CSV, {"regression": True, "text_a_column": "the body", "label_column": "title"}),
            "line 2: label 'Good, .* a number; .*, or change --label_column or --regression$",
        ),
        (
            *(CSV + '3,"unfinished,x,9\n', {}),
            "/train.csv, line 6: unexpected end of data; write a quote inside a quoted column "
            "twice, and close every quote",
        ),
        (
            *(CSV + "3,x,y, and z,9\n", {}),
            "/train.csv, line 6: the line has 5 columns, but the header names 4. Put quotes around "
            "a text with ',' in it. Or change --delimiter",
        ),
        *(
            (text.replace("|", "\t"), {"text_b_column": None, "file": "train.tsv"}, message)
            for text, message in (
                # A tab in a text, in quotes or not; the cut text would be used.
                ("title|stars\na|1\na|not good|2\n", "line 3: the line has 3 columns, but the hea"),
                (
                    'stars|title\n1|"a|b"\n',
                    "line 2: .* the header names 2. Quotes do not protect tabs and line ends",
                ),
            )
        ),
        ("a,1\nb,1\nc,d,2\n", NO_HEADER, "line 3: the line has 3 columns, but line 1 has 2. Put"),
        (CSV, {"labels": []}, "--labels must list at least two classes; got ''"),
        (CSV, {"labels": ["a", "b\nc"]}, r"--labels: the class 'b\\nc' must be text on one line"),
        (
            *(CSV + '3,x,y,"1\n0"\n', {}),
            r"/train.csv, line 6: the class '1\\n0' must be text on one line, .* --label_column",
        ),
        *(
            (CSV + f"{row}\n4,z,z,9\n", options, NO_LABEL)
            for row, options in (
                *((",,,", {}), (" , , , ", {}), ("3,x,y,", {})),
                *((",,,", {"labels": ["10", "9"]}), ("3,x,y, ", {"regression": True})),
            )
        ),
        (CSV.replace("id", "title"), {}, "/train.csv must have one column named 'title'; it has 2"),
        *(
            (CSV.replace(",10", f",{number}"), {"regression": True}, f"label '{number}' {BETWEEN}")
            for number in ("1e39", "3e38", "-inf", "-2e17")
        ),
        ("text,stars\na,1\nb,2\nc,1\nd,2\n", NO_HEADER, UNEXPECTED_HEADER),
    ],
)
def test_bad_tables(tmp_path, text, columns, message):
    columns = dict(columns)
    write(tmp_path, {columns.pop("file", "train.csv"): text})
    with pytest.raises(UserError, match=message):
        read("train", tmp_path, dataclasses.replace(BY_NAME, **columns))


def test_quotes_between_tabs_are_part_of_the_text(tmp_path, warnings):
    write(tmp_path, {"train.tsv": 'text\ty\n"a"\t0\nb "c"\t1\n"d\t0\n"e ""f"""\t1\n'})
    found = read("train", tmp_path, TableColumns("text", label_column="y"))
    assert [text for _, text, _, _ in found] == ['"a"', 'b "c"', '"d', '"e ""f"""']
    # The file is read for the classes and for the examples.
    assert set(warnings) == {
        f"{tmp_path}/train.tsv: lines with a column in quotes: 2; the first is line 2. Between tabs"
        " quotes are ordinary characters and become part of the text. If they only enclose it, save"
        " the table without them, or as .csv"
    }


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_one_table_for_a_set(tmp_path, name):
    write(tmp_path, {"train.csv": "text,y\na,0\nb,1\n"})
    write(tmp_path, {f"{name}.csv": "text,y\na,0\n", f"{name}.tsv": "text\ty\nb\t1\n"})
    assert refusal(read, name, tmp_path, TableColumns("text", label_column="y")) == (
        f"{tmp_path} has '{name}.csv', '{name}.tsv', but only one of them can be read. Delete,"
        " rename or move the one in --data_dir that you do not want"
    )


def test_a_byte_order_mark_is_not_part_of_a_column(tmp_path):
    write(tmp_path, {"train.csv": "\ufefftext,y\na,0\nb,1\n"})
    found = [row[1:] for row in read("train", tmp_path, TableColumns("text", label_column="y"))]
    assert found == [("a", None, "0"), ("b", None, "1")]
    write(tmp_path, {"train.csv": '\ufeff"a, b",0\nc,1\n'})
    assert read("train", tmp_path, TableColumns(**NO_HEADER))[0][1:] == ("a, b", None, "0")


def test_an_empty_line_before_the_end_of_a_test_file(tmp_path):
    """Skipping it would shift the numbers of the predictions after it."""
    csv_columns = dataclasses.replace(BY_NAME, labels=["9", "10"])
    tsv_columns = TableColumns("text", labels=["a", "b"])
    tsv = "\ntext\none\n\ntwo\n\n"
    write(tmp_path, {"test.csv": CSV, "train.csv": CSV})
    assert len(read("train", tmp_path, csv_columns)) == 2
    for name, columns in (("test.csv", csv_columns), ("test.tsv", tsv_columns)):
        message = f"{name}, line 4: the line is empty, but examples follow"
        refuses(message, read, "test", tmp_path, columns)
        (tmp_path / name).unlink()
        write(tmp_path, {"test.tsv": tsv})
    write(tmp_path, {"test.tsv": tsv.replace("one\n\n", "one\n")})
    found = [row[:2] for row in read("test", tmp_path, tsv_columns)]
    assert found == [("test-2", "one"), ("test-3", "two")]


def test_without_a_training_file_the_classes_must_be_named(tmp_path):
    write(tmp_path, {"train.txt": "text,y\na,1\n"})
    message = f"^--data_dir must hold train.tsv or .*; {tmp_path} holds"  # is the first cause
    refuses(message, processor, tmp_path, BY_NAME)
    write(tmp_path, {"test.csv": CSV.replace("\n\n", "\n")})
    message = "The classes must be known: .* or --labels .* 'test.csv'"
    refuses(message, read, "test", tmp_path, BY_NAME)
    named = dataclasses.replace(BY_NAME, labels=["1", "10"])
    assert read("test", tmp_path, named)
    refuses("--data_dir must hold dev.tsv or dev.csv; .* 'test.csv'", read, "dev", tmp_path, named)


def test_what_is_no_mistake(tmp_path):
    """What looks like a header may be named as a class; a column may be a whole book."""
    write(tmp_path, {"train.csv": "text,stars\na,1\nb,2\nc,1\nd,2\n"})
    assert len(read("train", tmp_path, TableColumns(**NO_HEADER, labels=["1", "2", "stars"]))) == 5
    write(tmp_path, {"train.csv": f'text,label\n"{"many words, " * 20000}",1\nfew,0\n'})
    columns = TableColumns(text_a_column="text", label_column="label")
    assert [len(text) for _, text, _, _ in read("train", tmp_path, columns)] == [240_000, 3]


def test_labels_are_sorted_as_numbers_if_all_are():
    assert table.sort_labels({"10", "9", "-1"}) == ["-1", "9", "10"]
    assert table.sort_labels({"10", "9", "b"}) == ["10", "9", "b"]
    assert table.sort_labels(["2", "1" * 5000]) == ["1" * 5000, "2"]  # too long for a number


WEIGHTED = TableColumns(text_a_column="text", label_column="label", weight_column="trust")


def test_a_column_of_weights(tmp_path):
    """The dev file may lack it; the test file's is not read, like the labels."""
    train = "text,trust,label\na,0.5,x\nb,0,y\nc,3e2,x\n"
    write(tmp_path, {"train.csv": train, "dev.csv": "text,label\na,x\n"})
    write(tmp_path, {"test.csv": "text,trust\na,?\n"})

    def weights(split, columns=WEIGHTED):
        return [e.weight for e in processor(tmp_path, columns).read(split, str(tmp_path))]

    assert weights("train") == [0.5, 0.0, 300.0]
    assert weights("dev") == weights("test") == [None]
    write(tmp_path, {"dev.csv": "trust,label,text\n2,x,a\n"})
    assert weights("dev") == [2.0]
    by_number = dict(text_a_column="0", label_column="2", weight_column="1", has_header=False)
    write(tmp_path, {"train.csv": "a,0.5,x\nb,4,y\nc,1,x\n", "dev.csv": "a,2.5,x\n"})
    assert weights("train", TableColumns(**by_number)) == [0.5, 4.0, 1.0]
    assert weights("dev", TableColumns(**by_number)) == [2.5]


@pytest.mark.parametrize("weight", ["-1", "nan", "", "much", "inf", "1e-60", "1_0", "٣"])
def test_a_weight_that_cannot_be(tmp_path, weight):
    write(tmp_path, {"train.csv": f"text,trust,label\na,1,x\nb,{weight},y\n"})
    assert refusal(read, "train", tmp_path, WEIGHTED) == (
        f"--data_dir: {tmp_path}/train.csv, line 3: the weight must be a number between 0 and"
        f" 1e+16; got {weight!r}. Correct or delete the line, or change --weight_column"
    )


def test_columns_that_are_missing_or_for_tables_only(tmp_path):
    write(tmp_path, {"train.csv": "text,label\na,x\nb,y\n"})
    message = "--weight_column=trust: .*train.csv has no such column .* it has columns named"
    refuses(message, read, "train", tmp_path, WEIGHTED)
    for flag in ("weight_column", "group_column", "labels", "has_header", "multi_label"):
        values = {"labels": ["a", "b"], "has_header": False, "multi_label": True}
        value = values.get(flag, "text")
        with pytest.raises(UserError, match=f"--{flag} is for --task_name=table.*; leave"):
            processors.get_processor("MRPC", "x", columns=TableColumns(**{flag: value}))


def test_the_labels_are_read_as_nothing_else():
    for name in ("text_a", "text_b", "weight", "group", "fold_group"):
        columns = {"text_a_column": "title", f"{name}_column": "stars"}
        message = f"^--{name}_column=stars is the column of the labels, which a model must find"
        refuses(f"{message} without", TableColumns, label_column="stars", **columns)
        if name != "group":  # which has no meaning with several labels
            with pytest.raises(UserError, match=f"{message} without"):
                TableColumns(multi_label=True, label_columns=["bad", "stars"], **columns)


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
