"""Tests of bert_tf.progress."""

import fcntl
import os
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from absl import logging

from bert_tf import progress

ROOT = Path(__file__).parents[1]


def _logged(monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda line, *values: lines.append(line % values))
    return lines


def test_log_lines_at_intervals(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    lines = _logged(monkeypatch)
    with progress.Progress("reading", "bytes", 40_000) as work:
        for now in (110.0, 129.0, 131.0, 140.0, 170.0):  # noqa: B007 (the clock reads it)
            work.advance(1000)
    assert lines == [
        "reading: 3,000 of 40,000 bytes, 96.8/s",
        "reading: 5,000 of 40,000 bytes, 71.4/s",
    ]


def test_hidden_work_shows_nothing(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    lines = _logged(monkeypatch)
    with progress.hidden(), progress.Progress("reading", "texts", 9) as work:
        now = 200.0
        work.advance()
        assert work._bar is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with progress.hidden(False), progress.Progress("reading", "texts", 9) as work:
        now = 300.0
        work.advance()
    assert lines == ["reading: 1 of 9 texts, 0.01/s"]


def test_bar_on_a_terminal(monkeypatch, capsys):
    lines = _logged(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.Progress("making instances", "documents", 3) as work:
        for _ in range(3):
            work.advance()
    assert "making instances" in capsys.readouterr().err
    assert lines == []


def test_log_lines_appear_above_the_bar_of_a_terminal():
    code = """if True:
        from absl import app, logging
        from bert_tf.progress import Progress

        def main(argv):
            logging.set_verbosity(logging.INFO)
            with Progress("counting", "sheep", 50, 10) as work:
                logging.info("a line of the log")
            logging.info("the end")

        app.run(main)
    """
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    subprocess.run([sys.executable, "-c", code], stderr=follower, cwd=ROOT, check=True)
    os.close(follower)
    text = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "counting:  20%" in text and "10/50" in text
    for line in ("a line of the log", "the end"):
        # Between the bar before it and the line stands a carriage return that blanks the bar.
        before = text[: text.index(line)].rsplit("\r", 1)[1]
        assert "|" not in before and before.startswith("I"), repr(text)
