"""Tests of tools/goodput.py."""

import datetime
import re

import pytest

from bert_tf.runs.folder.goodput import PARTS
from tests.runs.folder.goodput_test import Start, Time
from tests.support.pretraining_runs import run
from tests.support.refusals import refuses
from tools import goodput


@pytest.fixture
def folder(tmp_path):
    """A run of 200 seconds, started twice."""
    time = Time()
    for start_up, steps in ((10, 60), (12, 70)):
        start = Start(tmp_path, time)
        time.now += start_up
        for part, seconds in (("steps", steps), ("saving", 4), ("input", 8)):
            start.spend(part, seconds)
        start.goodput.write("ended")
        time.now += 24
    return tmp_path


def test_the_table_and_the_picture_have_every_part(folder):
    record = goodput.read_run(str(folder))
    lines = goodput.table(record).splitlines()
    assert re.fullmatch(r"first started \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, started 2 times", lines[0])
    rows = {line[:24].strip(): line[24:].split() for line in lines[1:12]}
    assert [*rows] == [*PARTS.values(), "sum", "wall time"]
    assert rows["steps that count"] == ["130.0", "s", "65.0%"]
    assert rows["start-up"] == ["22.0", "s", "11.0%"]
    assert rows["not running"] == ["24.0", "s", "12.0%"]
    assert rows["sum"] == rows["wall time"] == ["200.0", "s", "100.0%"]
    assert lines[12:] == [
        "goodput: 65.0% of all time",
        "goodput beyond start-up: 84.4%",  # 130 of 154
    ]
    figure = goodput.draw(goodput.read_run(str(folder)), "base")
    (axes,) = figure.axes
    assert axes.get_title() == "base: goodput 65.0%, 84.4% beyond start-up"
    assert [label.get_text() for label in axes.get_yticklabels()] == [*PARTS.values()]
    assert [bar.get_width() for bar in axes.patches][:2] == [130.0, 22.0]
    assert axes.get_xlabel() == "seconds"


def test_the_other_processes_have_a_line_each(folder):
    assert goodput.describe_others(str(folder)) == []
    time = Time()
    for process, (steps, waits) in enumerate([(60, 20), (30, 50)], 1):
        start = Start(folder, time, process=process)
        for part, seconds in (("start_up", 20), ("steps", steps), ("input", waits)):
            start.spend(part, seconds)
        start.goodput.write("ended")
    assert goodput.describe_others(str(folder)) == [
        f"process 1, until {datetime.datetime.fromtimestamp(1100)}: goodput 60.0%, 75.0% beyond"
        " start-up, 20.0% waiting for input",
        f"process 2, until {datetime.datetime.fromtimestamp(1200)}: goodput 30.0%, 37.5% beyond"
        " start-up, 50.0% waiting for input",
    ]
    assert sorted(path.name for path in folder.iterdir()) == [
        *("goodput-1.json", "goodput-2.json", "goodput.json")
    ]


def test_a_directory_without_an_account(tmp_path):
    message = f"^{tmp_path} must be the --output_dir of a run that trained, but it has no goodput"
    refuses(message, goodput.read_run, str(tmp_path))
    (tmp_path / "goodput.json").write_text("{")
    refuses("goodput.json is not JSON", goodput.read_run, str(tmp_path))


@pytest.mark.slow
def test_the_program(folder):
    program = "tools.goodput"
    for more in ([], ["--output", str(folder / "other.png")]):
        assert "goodput: 65.0% of all time" in run(*more, str(folder), program=program)
    for name in ("goodput.png", "other.png"):
        assert (folder / name).read_bytes()[:4] == b"\x89PNG"
    for words, message in (
        ([], "name the output directory of one run"),
        (["--outptu=x", str(folder)], "Unknown command line flag 'outptu'"),
    ):
        assert message in run(*words, program=program, status=1)
