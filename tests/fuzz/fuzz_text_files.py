"""Fuzzes the text for pre-training: plain text, JSON lines and Parquet, compressed or not."""

import bz2
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pyarrow
import zstandard
from pyarrow import parquet

from bert_tf.datasets.documents import split_sentences
from bert_tf.datasets.text_files import read_files
from bert_tf.datasets.wikipedia import parse, read_articles
from tests.fuzz.cases import attempt, damage

_TEXTS = (
    *("A first. A second! The third?", "", " ", "é 鶴。次の文。", "one\ntwo\u2028three", "a.. b"),
    *("\0", "x" * 3000, "." * 9000, "\ufeffMark.", "\ud800"),
    *("Mr. J. Smith went... Then he\r\ncame.", "👍"),
)
_ODD = (None, 7, True, [], {}, ["a"], 1e300, 10**400, {"text": "a"}, b"bytes", "a")
_NAMES = ("text", "text", "body", "", "\n", "é", "text\0")


def _read(path: Path, field: str) -> list[str]:
    batches = read_files([str(path)], "input_file", field, lambda *counts: None)
    return [line for _, lines in batches for line in lines]


def _write(random: random.Random, path: Path, data: bytes) -> Path:
    """Writes a file, compressed or not, and sometimes damaged."""
    ending = random.choice(["", "", ".gz", ".zst"])
    if ending == ".gz":
        data = gzip.compress(data, mtime=0)
    elif ending:
        data = zstandard.compress(data)
    if random.random() < 0.3:
        data = damage(random, data)
    path = path.with_name(path.name + ending)
    path.write_bytes(data)
    return path


def fuzz_text_files(random: random.Random, folder: Path) -> None:
    texts = [text for text in random.choices(_TEXTS, k=random.randint(0, 6)) if text != "\ud800"]
    encoding = random.choice(["utf-8"] * 5 + ["utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
    data = random.choice(["\n", "\r\n"]).join(texts).encode(encoding, "replace")
    path = _write(random, folder / "x.txt", data)
    content = path.read_bytes()
    message, lines = attempt(lambda: _read(path, "text"), naming=f"--input_file: {path}")
    if message is None and path.suffix == ".txt":
        wanted = content.replace(b"\r", b"").decode("utf-8-sig").split("\n")
        assert lines == [line.strip() for line in wanted[: len(lines)]]
        assert wanted[len(lines) :] in ([], [""])


def fuzz_json_lines(random: random.Random, folder: Path) -> None:
    values: list[Any] = []
    for _ in range(random.randint(0, 6)):
        value = random.choice(_TEXTS if random.random() < 0.9 else _ODD)
        if isinstance(value, bytes):
            value = {}
        values.append({random.choice(_NAMES) if random.random() < 0.05 else "text": value, "id": 1})
    lines = [json.dumps(x, ensure_ascii=random.random() < 0.5) for x in values]
    lines += random.choices(
        ["", " ", "{", "[" * 99_000, "1", "NaN", '"a"'], k=random.random() < 0.1
    )
    path = _write(random, folder / "x.jsonl", "\n".join(lines).encode("utf-8", "surrogatepass"))
    clean = path.suffix == ".jsonl" and path.read_bytes().split(b"\n")
    message, found = attempt(lambda: _read(path, "text"), naming=f"--input_file: {path}")
    if message is None and clean:
        read = [json.loads(line.decode("utf-8-sig")) for line in clean if line.strip()]
        assert found == [y for x in read for y in (*split_sentences(x["text"]), "")]


def _column(random: random.Random, count: int) -> pyarrow.Array:
    texts = [x for x in random.choices(_TEXTS, k=count) if x != "\ud800"] + [None] * 9
    match random.choice(["string", "string", "string", "large", "binary", "view", "int", "list"]):
        case "string":
            return pyarrow.array(texts[:count], pyarrow.string())
        case "large":
            return pyarrow.array(texts[:count], pyarrow.large_string())
        case "binary":
            bytes_ = pyarrow.array([b"a", b"\xff", None] * count, pyarrow.binary())[:count]
            # Bytes that are no UTF-8, with the type of text.
            odd = [None, bytes_.buffers()[1], bytes_.buffers()[2]]
            return pyarrow.StringArray.from_buffers(count, odd[1], odd[2])
        case "view":
            return pyarrow.array(texts[:count], pyarrow.string()).dictionary_encode()
        case "int":
            return pyarrow.array(range(count))
        case _:
            return pyarrow.array([["a"]] * count, pyarrow.list_(pyarrow.string()))


def fuzz_parquet_files(random: random.Random, folder: Path) -> None:
    count = random.randint(0, 5)
    names = ["text"] + random.choices(_NAMES, k=random.choice([0, 0, 1, 2]))
    table = pyarrow.Table.from_arrays([_column(random, count) for _ in names], names)
    path = folder / "x.parquet"
    codec = random.choice(["none", "snappy", "gzip", "zstd", "brotli"])
    parquet.write_table(table, path, compression=codec, use_dictionary=random.random() < 0.5)
    damaged = random.random() < 0.6
    if damaged:
        data = path.read_bytes()
        if random.random() < 0.3:  # a name that is no UTF-8
            data = data.replace(b"text", random.choice([b"te\xfft", b"\x80\x80\x80\x80", b"TEXT"]))
        else:
            data = damage(random, data)
        path.write_bytes(data)
    message, found = attempt(lambda: _read(path, "text"), naming=f"--input_file: {path}")
    if message is None and not damaged:
        assert names.count("text") == 1
        texts = [x or "" for x in table.column("text").to_pylist()]
        assert found == [y for text in texts for y in (*split_sentences(text), "")]


_MARKUP = (
    *("'''A''' is {{lang|fr|b}}. It was.", "{{convert|1" + "0" * 400 + "|km}} x.", "[[File:a]]"),
)
_MARKUP += (
    *("{|\n|a\n|}\nText here.", "{{" * 300, "<ref>a</ref> b.", "&#xD800; &amp; c.", "== H ==\n"),
)
_ENCODINGS = (
    *("utf-8", "UTF-8", "utf-16", "latin-1", "windows-1252", "cp037", "shift_jis", "gb18030"),
)
_ENCODINGS += ("big5", "euc-jp", "utf-7", "utf-32", "nonsense", "idna", "hex", "zlib", "é", "")


def _dump(random: random.Random) -> bytes:
    encoding = random.choice(_ENCODINGS) if random.random() < 0.4 else "utf-8"
    parts = [f'<?xml version="1.0" encoding="{encoding}"?>' if random.random() < 0.7 else ""]
    parts += [random.choice(["<mediawiki>"] * 9 + ["<!DOCTYPE a>", "<html>", ""])]
    for i in range(random.randint(0, 3)):
        text = " ".join(random.choices(_MARKUP, k=2)).replace("&", "&amp;").replace("<", "&lt;")
        namespace, redirect = random.choice(["0", "0", "0", "1"]), "<redirect/>" * (i == 2)
        page = f"<title>T{i} é</title><ns>{namespace}</ns>{redirect}<revision><text>{text}</text>"
        parts.append(f"<page>{page}</revision></page>")
    text = "".join([*parts, "</mediawiki>"])
    try:
        return text.encode(random.choice([encoding, "utf-8"]), "replace")
    except (LookupError, UnicodeError):
        return text.encode()


def fuzz_wikipedia_dumps(random: random.Random, folder: Path) -> None:
    data, path = _dump(random), folder / random.choice(["x.xml", "x.xml.bz2"])
    damaged = random.random() < 0.4
    data = bz2.compress(data) if path.suffix == ".bz2" else data
    path.write_bytes(damage(random, data) if damaged else data)
    message, articles = attempt(
        lambda: list(read_articles(str(path), "input")), naming=f"--input: {path}"
    )
    if message is None:
        found, left_out = parse(articles)
        assert len(found) == len(articles) and all(left_out.values())
        assert all("\n" not in line and line for lines in found for line in lines or ())
        assert damaged or all(article.title.startswith("T") for article in articles)
