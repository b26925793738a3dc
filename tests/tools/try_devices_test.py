"""Tests of tools.try_devices. docs_test runs all of it."""

import sys
from types import SimpleNamespace

import pytest

from tests.support.refusals import refuses
from tools import try_devices
from tools.quickstart import Stage


def test_the_run_takes_the_given_flags():
    *_, records, training = try_devices.stages("folder", ["--tpu=pjrt", "--num_train_steps=7"])
    assert records.command[-1] == "--output_file=folder/records"
    assert training.command[-2:] == ["--tpu=pjrt", "--num_train_steps=7"]
    assert "--input_file=folder/records" in training.command


def run_main(monkeypatch, output_file, code: str) -> int:
    stage = Stage("Training", ["python", "-c", code])
    monkeypatch.setattr(try_devices, "stages", lambda folder, words: [stage])
    fake = SimpleNamespace(FLAGS=SimpleNamespace(output_file=str(output_file)))
    monkeypatch.setattr(try_devices, "flags", fake)
    monkeypatch.setenv("XLA_FLAGS", "--xla_of_mine")
    with pytest.raises(SystemExit) as end:
        try_devices.main([])
    return end.value.code


@pytest.mark.parametrize("status", [0, 65])
def test_the_report_has_what_happened(tmp_path, monkeypatch, status):
    path = tmp_path / "report.md"
    code = f"import sys; print(open({str(path)!r}).read().count('has not ended'))"
    code = f"{code}; print('no TPU found'); sys.exit({status})"
    assert run_main(monkeypatch, path, code) == status
    report = path.read_text()
    assert f"The run ended with status {status}.\n" in report
    assert report.endswith("\n1\nno TPU found\n\n")  # a first one was there during the run
    assert "XLA_FLAGS=--xla_of_mine" in report and f"Python {sys.version.split()[0]}" in report
    assert "\nkeras 3." in report


def test_places_without_a_report_or_a_text(tmp_path, monkeypatch):
    message = "^--output_file=.* must name a file, but it is a directory"
    refuses(message, run_main, monkeypatch, tmp_path, "open('run', 'w')")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    message = "^flags/quickstart has the text, but does not exist in"
    refuses(message, try_devices.stages, "folder", [])
