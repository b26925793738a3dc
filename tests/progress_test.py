"""Tests of bert_tf.progress."""

import sys
import time

from absl import logging

from bert_tf import progress


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


def test_bar_on_a_terminal(monkeypatch, capsys):
    lines = _logged(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.Progress("making instances", "documents", 3) as work:
        for _ in range(3):
            work.advance()
    assert "making instances" in capsys.readouterr().err
    assert lines == []
