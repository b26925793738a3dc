"""Tests of tools.try_devices. docs_test runs all of it."""

import sys
from types import SimpleNamespace

import pytest

from bert_tf.errors import UserError
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
    code = f"import sys; print('no TPU found'); sys.exit({status})"
    assert run_main(monkeypatch, tmp_path / "report.md", code) == status
    report = (tmp_path / "report.md").read_text()
    assert f"The run ended with status {status}.\n" in report and "no TPU found\n" in report
    assert "XLA_FLAGS=--xla_of_mine" in report and f"Python {sys.version.split()[0]}" in report
    assert "\nkeras 3." in report


def test_the_first_report_is_there_while_the_run_goes_on(tmp_path, monkeypatch):
    code = f"print(open({str(tmp_path / 'report.md')!r}).read().count('has not ended'))"
    run_main(monkeypatch, tmp_path / "report.md", code)
    assert (tmp_path / "report.md").read_text().endswith("\n1\n\n")


def test_a_place_that_cannot_be_written_ends_it_before_the_run(tmp_path, monkeypatch):
    with pytest.raises(
        UserError, match="^--output_file=.* must name a file, but it is a directory"
    ):
        run_main(monkeypatch, tmp_path, "open('run', 'w')")


def test_without_the_text_of_the_quickstart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="^flags/quickstart has the text, but does not exist in"):
        try_devices.stages("folder", [])
