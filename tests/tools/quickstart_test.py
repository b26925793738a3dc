"""How tools.quickstart and tools.try_devices run their stages. docs_test runs all of them."""

import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tests.support.refusals import refuses
from tools import quickstart, try_devices
from tools.quickstart import Stage, run_stages

SAY = "import sys; print('{0} one'); print('{0} two', file=sys.stderr); sys.exit({1})"


def stage(name: str, status: int = 0) -> Stage:
    return Stage(f"Doing {name}", ["python", "-c", SAY.format(name, status)])


def test_one_line_for_a_stage_and_the_rest_in_the_log(tmp_path, capfd):
    with open(tmp_path / "log", "w") as log:
        run_stages([stage("a"), stage("b")], log)
    output, errors = capfd.readouterr()
    lines = output.splitlines()
    assert [line.split(" ...")[0] for line in lines] == ["1 of 2: Doing a", "2 of 2: Doing b"]
    assert all(line.endswith(" s") for line in lines) and not errors
    log = (tmp_path / "log").read_text().splitlines()
    said = [line for line in log if line and line[0] != "$"]
    assert [sorted(said[:2]), sorted(said[2:])] == [["a one", "a two"], ["b one", "b two"]]
    commands = [line for line in log if line[:1] == "$"]
    assert commands[0].startswith("$ python -c 'import sys; ") and len(commands) == 2


def test_a_failure_ends_it_and_shows_the_end_of_the_log(tmp_path, capfd):
    with open(tmp_path / "log", "w") as log, pytest.raises(SystemExit) as end:
        run_stages([stage("a"), stage("b", 74), stage("c")], log)
    assert end.value.code == 74
    output, errors = capfd.readouterr()
    assert f"Doing b ... failed with status 74. The end of {tmp_path}/log:" in output
    assert "b two" in errors and "Doing c" not in output


# The file is AutoGraph's kind, which is deleted at the end of the process.
WAITS = """
import atexit, os, signal, sys, tempfile, time
atexit.register(os.remove, tempfile.mkstemp(prefix="__autograph_generated_file")[1])
def stop(number, frame):
    print("saving", flush=True); time.sleep(0.6); print("saved", flush=True)
    sys.exit({status})
signal.signal({number}, stop)
print("step 7: loss = 4.2 (35% done, about 2 min left)", flush=True)
time.sleep(30)
"""


@pytest.fixture
def ctrl_c():
    """Python's own handler: what a shell starts in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGINT, 0)]
)
def test_a_signal_lets_the_stage_save_its_work(tmp_path, monkeypatch, capfd, number, status):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    code = WAITS.format(number=int(number), status=status)

    def send() -> None:
        while "\nstep 7" not in (tmp_path / "log").read_text():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    ends = SystemExit if status else KeyboardInterrupt
    with open(tmp_path / "log", "w") as log, pytest.raises(ends) as end:
        threading.Thread(target=send).start()
        run_stages([Stage("Waiting", ["python", "-c", code]), stage("b")], log)
    assert getattr(end.value, "code", 0) == status and not list((tmp_path / "temporary").iterdir())
    assert (tmp_path / "log").read_text().endswith("saving\nsaved\n")
    output, _ = capfd.readouterr()
    stopped = " stopped. The same command continues from here.\n" if status else ""
    assert output == f"1 of 2: Waiting ...{stopped}"


def test_a_terminal_shows_how_far_a_training_run_is(tmp_path, monkeypatch, capfd):
    code = "print('step 7: loss = 4.2 (35% done, about 2 min left)')"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with open(tmp_path / "log", "w") as log:
        run_stages([Stage("Training", ["python", "-c", code])], log)
    start, shown, end = capfd.readouterr()[0].split("\r")
    assert start == "1 of 1: Training ..."
    assert shown.rstrip() == "1 of 1: Training ... 35% done, about 2 min left"
    assert end.rstrip().endswith(" s") and len(end) > len(shown) - 2


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


def test_folders_that_do_not_fit(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(quickstart.flags, "FLAGS", SimpleNamespace(output_dir=f"{tmp_path}/file/x"))
    refuses(
        r"--output_dir=.*/file/x must be a writable .*/file is not a directory", quickstart.main
    )
    monkeypatch.undo()
    message = "^--output_file=.* must name a file, but it is a directory"
    refuses(message, run_main, monkeypatch, tmp_path, "open('run', 'w')")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    message = "^flags/quickstart has the text, but does not exist in"
    refuses(message, try_devices.stages, "folder", [])
