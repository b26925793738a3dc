"""Tests of tools/wikipedia_text.py."""

import bz2
import random
import sys

import pytest

from bert_tf.datasets import text_files
from tests.support.dumps import dump, page
from tests.support.pretraining_runs import run
from tests.support.refusals import refuses
from tools import wikipedia_text as tool

TABLE = page("Tabelle", "{|\n| Nothing. Else.\n|}")


def pages(seed: int, count: int) -> list[str]:
    """Returns articles of several lengths."""
    rng = random.Random(seed)
    words = ["the", "[[river|rivers]]", "''bread''", "{{x|y}}", "stone.", "Größe", "(see) moon?"]
    return [
        page(f"Page {i}", "\n\n".join(" ".join(rng.choices(words, k=9)) for _ in range(i % 13 + 1)))
        for i in range(count)
    ]


def test_program(tmp_path):
    first = dump(page("Ä", "A ''river''. It\nflows.\n* no\n\nEast."), TABLE, page("T", "No.", ns=1))
    (tmp_path / "a.xml.bz2").write_bytes(bz2.compress(first.encode()))
    (tmp_path / "b.xml").write_text(dump(page("B", "#", redirect="A"), page("C", "Brot für 中.")))
    files = (f"--input_file={tmp_path}/a*,{tmp_path}/b.xml", f"--output_file={tmp_path}/out")
    printed = run(*files, "--num_workers=2", program="tools.wikipedia_text")
    assert (tmp_path / "out").read_text() == "A river.\nIt flows.\nEast.\n\nBrot für 中.\n"
    for line in (
        "a.xml.bz2: 2 articles; skipped 0 redirects and 1 pages that are not articles",
        "b.xml: 1 articles; skipped 1 redirects and 0 pages",
        "1 of 3 articles have no sentence and are left out, such as 'Tabelle'",
        "out: 2 articles, 4 sentences",
    ):
        assert line in printed
    # The next program sees the two articles.
    ((_, lines),) = text_files.read_files([str(tmp_path / "out")], "input_file")
    assert lines == ["A river.", "It flows.", "East.", "", "Brot für 中."]


def test_any_number_of_workers_writes_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "_CHARACTERS_PER_BATCH", 300)
    (tmp_path / "a.xml").write_text(dump(*pages(5, 90)))
    outputs = set()
    for count in (1, 3):
        assert tool.wikipedia_text(f"{tmp_path}/a.xml", f"{tmp_path}/out", count) == 90
        outputs.add((tmp_path / "out").read_bytes())
    assert len(outputs) == 1
    text = outputs.pop().decode()
    assert text.count("\n\n") == 89 and "rivers bread" in text


def test_articles_that_cannot_be_parsed_are_counted(tmp_path, monkeypatch, warnings):
    (tmp_path / "a.xml").write_text(dump(*pages(6, 4)))
    sentences = [None, ["\ud800a"], [], ["b"]]
    monkeypatch.setattr(tool.wikipedia, "parse", lambda batch: (sentences, {}))
    assert tool.wikipedia_text(f"{tmp_path}/a.xml", f"{tmp_path}/out") == 2
    assert (tmp_path / "out").read_text() == "a\n\nb\n"
    assert warnings == [
        "1 of 4 articles have no sentence and are left out, such as 'Page 2'",
        "1 of 4 articles cannot be parsed and are left out, such as 'Page 0'",
    ]


def test_nothing_is_written_without_text(tmp_path, monkeypatch):
    (tmp_path / "out").write_text("before")
    (tmp_path / "a.xml").write_text(dump(TABLE, page("T", "No.", ns=1)))
    (tmp_path / "bad.xml").write_text("<page>")
    dumped, out = f"{tmp_path}/a.xml", f"{tmp_path}/out"
    for source, output, message in (
        (dumped, out, "must have an article with a sentence; its 1 articles"),
        (dumped, dumped, "--output_file=.* must not be a file of --input_file"),
        (f"{dumped},{tmp_path}/bad.xml", out, "bad.xml must be a dump of MediaWiki"),
    ):
        refuses(message, tool.wikipedia_text, source, output)
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    message = "; run `pip install mwparserfromhell`, or install the ext"
    refuses(message, tool.wikipedia_text, dumped, out)
    assert (tmp_path / "out").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_templates_that_are_left_out_are_named(tmp_path, warnings, workers):
    markup = "At {{cvt|3|km}} {{foo|b}} and {{bar}} {{Foo|c}} it ends."
    (tmp_path / "a.xml").write_text(dump(page("A", markup), page("B", markup)))
    tool.wikipedia_text(f"{tmp_path}/a.xml", f"{tmp_path}/out", workers)
    assert (tmp_path / "out").read_text() == "\n".join(["At 3 km and it ends.\n"] * 2)
    assert warnings == [
        "6 templates within lines are left out, with the text that they show, most often foo (4),"
        " bar (2)"
    ]
