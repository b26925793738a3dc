"""Tests of bert_tf.datasets.text_files."""

import gzip
import json
import sys

import pyarrow
import pytest
import tensorflow as tf
import zstandard
from pyarrow import parquet

from bert_tf.datasets import text_files
from tests.support.refusals import refusal, refuses

TEXT = "the moon\n\nécru\nbread \n"


def lines_of(*paths, **options) -> list[str]:
    batches = text_files.read_files([str(path) for path in paths], "input_file", **options)
    return [line for _, lines in batches for line in lines]


@pytest.fixture(params=[1, 2, 7, 1 << 20], autouse=True)
def size(request, monkeypatch):
    """Bytes to read at a time."""
    monkeypatch.setattr(text_files, "_BYTES_PER_READ", request.param)


def test_text_is_read_as_gfile_readline_reads_it(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes("one\r\ntw\ro  \n\n \t\u3000\n\ufeffé\u2028x\u0085\nlast".encode())
    second.write_bytes(b"\nnext\n\n")
    expected = []
    for path in (first, second):
        with tf.io.gfile.GFile(str(path)) as reader:
            while line := reader.readline():
                expected.append(line.strip())
    assert lines_of(first, second) == expected
    assert expected[:2] == ["one", "two"] and expected[-3:] == ["", "next", ""]


def test_byte_order_marks_and_bad_utf8(tmp_path):
    """A byte-level BPE would have pieces for the former; batches change no line's number."""
    path = tmp_path / "text"
    path.write_text("écru\n\ufeffbread\n", encoding="utf-8-sig")
    assert lines_of(path, path) == 2 * ["écru", "\ufeffbread"]
    path.write_bytes("é\r\nü\n\n".encode() * 3 + b"ok \xe2\x82\nend\n")
    refuses(f"{path}, line 10, is not UTF-8", lines_of, path)


def compressed(kind: str, text: str) -> bytes:
    """Returns text as it is in a file with this ending; .zst in two frames."""
    data = text.encode()
    if kind == ".gz":
        return gzip.compress(data)
    if kind == ".zst":
        return zstandard.compress(data[:7]) + zstandard.compress(data[7:])
    return data


@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_compressed_text_is_read_or_its_damage_named(tmp_path, kind):
    path = tmp_path / f"a.txt{kind}"
    path.write_bytes(compressed(kind, TEXT))
    assert lines_of(path) == ["the moon", "", "écru", "bread"]
    whole = compressed(kind, TEXT * 1000)
    for data in (whole[:-5], whole[: len(whole) // 2], b"the moon" * 9):
        path.write_bytes(data)
        message = refusal(lines_of, path)
        assert message.startswith(f"--input_file: {path} is cut off or damaged, so it cannot be ")
        assert len(message) < 500 and "\n" not in message


@pytest.mark.parametrize("name", ["a.TXT.GZ", "a.txt.Zst", "A.JSON", "a.JsonL.gz", "A.NDJSON"])
def test_the_case_of_an_ending_does_not_matter(tmp_path, name):
    path = tmp_path / name
    kind = path.suffix.lower()
    is_json = "json" in name.lower()
    path.write_bytes(compressed(kind, '{"text": "The moon."}\n' if is_json else TEXT))
    expected = ["The moon.", ""] if is_json else ["the moon", "", "écru", "bread"]
    assert lines_of(path) == expected
    assert text_files.is_plain_text(str(path)) != is_json
    assert not text_files.is_plain_text("A.PARQUET")


def test_line_ends_of_old_macs_are_named(tmp_path):
    path = tmp_path / "a.txt"
    for text in (b"one\rtwo", b"one\r\rtwo\r", b"\xef\xbb\xbfone\rtwo\r"):
        path.write_bytes(text)
        begin = f"--input_file: {path} has lines that end in a carriage return only, "
        assert refusal(lines_of, path).startswith(begin)
    for whole, expected in ((b"one\r", "one"), (b"o\rne\n", "one"), (b"\ro\rne\r\n", "one")):
        path.write_bytes(whole)
        assert lines_of(path) == [expected]


def test_files_of_other_formats_are_refused_by_their_names(tmp_path):
    for name in ("a.csv", "a.TSV.gz", "a.html", "a.xml.bz2", "a.txt.xz", "a.pdf"):
        path = tmp_path / name
        path.write_text("text,label\none,1\n")
        message = f"^--input_file: {path} must be text, JSON lines .* line is a text, rename it to"
        refuses(message + " .txt", lines_of, path)


@pytest.mark.parametrize("kind", ["", ".gz", ".zst"])
def test_each_json_line_is_a_document(tmp_path, warnings, kind):
    texts = ["One. Two?\nThree", " \n", "Mr. Smith.\u2028"]
    rows = "\n".join(json.dumps({"text": text, "id": 3}) for text in texts)
    path = tmp_path / f"a.{'json' if kind else 'jsonl'}{kind}"
    path.write_bytes(compressed(kind, f"{rows}\n\n"))
    assert lines_of(path) == ["One.", "Two?", "Three", "", "", "Mr. Smith.", ""]
    assert warnings == ["1 of 3 documents have no sentence and are left out"]


def test_a_line_that_is_no_such_json_is_named(tmp_path):
    for line, message in (
        ("{", "line 3, is not JSON (Expecting property name"),
        ("[" * 100_000, "line 3, is not JSON ("),
        ("[1]", "line 3, must be an object in which 'body' (--text_field) is a string; it is "),
        ('{"text": "a"}', "is a string; it is {'text': 'a'}"),
        ('{"body": 7}', "line 3, must be an object in which 'body'"),
        ('{"body": "a"} x', "line 3, is not JSON (Extra data"),
    ):
        path = tmp_path / "a.jsonl"
        path.write_text(f'{{"body": "a"}}\n\n{line}\n{{"body": "b"}}\n')
        refused = refusal(lines_of, path, text_field="body")
        assert refused.startswith(f"--input_file: {path}, ") and message in refused
        assert len(refused) < 500 and "\n" not in refused


def test_each_row_of_parquet_is_a_document(tmp_path, monkeypatch, warnings):
    monkeypatch.setattr(text_files, "_ROWS_PER_BATCH", 2)
    path = tmp_path / "a.parquet"
    texts = ["One. Two?", None, "Three", ""]
    parquet.write_table(pyarrow.table({"id": [1, 2, 3, 4], "body": texts}), path)
    assert lines_of(path, text_field="body") == ["One.", "Two?", "", "", "Three", "", ""]
    assert warnings == ["2 of 4 documents have no sentence and are left out"]
    for field in ("text", "id"):
        rule = f"have one column '{field}' of text, .*he file's columns are 'i"
        refuses(rule, lines_of, path, text_field=field)
    path.write_bytes(path.read_bytes()[:-9])
    refuses(f"{path} is damaged or not a Parquet file: ", lines_of, path, text_field="body")


def test_text_of_parquet_has_several_types(tmp_path):
    path = tmp_path / "a.parquet"
    texts = pyarrow.array(["One.", "Two.", None])
    types = [texts.cast(kind) for kind in (pyarrow.large_string(), pyarrow.string_view())]
    for column in (texts.dictionary_encode(), *types):
        parquet.write_table(pyarrow.table({"text": column}), path)
        assert lines_of(path) == ["One.", "", "Two.", "", ""]
    for values in ([["One."]], [b"One."], [1.5]):
        texts = pyarrow.array(values)
        parquet.write_table(pyarrow.table({"text": texts}), path)
        kind = str(texts.type).replace("item:", "element:")
        told = f"--text_field names; that column is '{kind}'. The file's columns are 'text'"
        assert told in refusal(lines_of, path)


def test_parquet_text_must_be_utf_8(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_ROWS_PER_BATCH", 2)
    path = tmp_path / "a.parquet"
    texts = pyarrow.array([b"One.", None, "Zwei \u00fc.".encode(), b"Drei \xfc.", b"Vier."])
    parquet.write_table(pyarrow.table({"body": texts.view(pyarrow.string())}), path)
    message = (
        f"^--input_file: {path} is not UTF-8 in row 4 of column 'body', or .*; write the file aga"
    )
    refuses(message, lines_of, path, text_field="body")


def test_names_of_parquet_columns(tmp_path):
    """The column must be the only one of its name, and names must be UTF-8."""
    path = tmp_path / "a.parquet"
    columns = [pyarrow.array(["One."]), pyarrow.array([[1]]), *[pyarrow.array(["x"])] * 2]
    for names in (["body", "body"], ["x", "body", "body", "y"]):
        parquet.write_table(pyarrow.Table.from_arrays(columns[: len(names)], names), path)
        message = f"{path} must have one column 'body' of text, .* 'body', "
        refuses(message, lines_of, path, text_field="body")
    for name in (b"bo\xffy", b"\x80\x81\x82\x83"):
        parquet.write_table(pyarrow.table({"body": ["One."]}), path, store_schema=False)
        path.write_bytes(path.read_bytes().replace(b"body", name))
        message = f"{path} is not UTF-8 in row 0 .*, or in the names of col"
        refuses(message, lines_of, path, text_field="body")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    for name, package in (("a.parquet", "pyarrow"), ("a.txt.zst", "zstandard")):
        (tmp_path / name).write_bytes(b"x")
        monkeypatch.setitem(sys.modules, package, None)
        message = f"needs {package}; run `pip install {package}`, or instal"
        refuses(message, lines_of, tmp_path / name)
