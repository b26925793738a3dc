"""Tests of tools/search_hyperparameters.py with a short program in place of a real one."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_tf.engine import interrupts
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from tests.support import small_classification
from tests.support.pretraining_runs import ROOT
from tests.support.refusals import refusal, refuses
from tools import search_hyperparameters as tool
from tools.search_hyperparameters import folder_name, read_trials

# It records each start and leaves checkpoints. With --behaviour=HOW@RATE that rate's run fails.
STAND_IN = """
import os, signal, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
folder = flags["output_dir"]
os.makedirs(folder + "/best", exist_ok=True)
with open(flags["starts"], "a") as starts:
    starts.write(os.path.basename(folder) + "\\n")
behaviour, _, rate = flags.get("behaviour", "").partition("@")
if behaviour and flags["learning_rate"] == rate and not os.path.exists(flags["starts"] + ".fixed"):
    if behaviour == "wait":
        def end(number, frame):
            open(folder + "/signals", "a").write(f"{number}\\n")
            time.sleep(0.3)
            sys.exit(130 if number == signal.SIGINT else 75)
        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        open(folder + "/waiting", "w").close()
        time.sleep(60)
    sys.exit(int(behaviour))
for path in ("model.ckpt-7.index", "checkpoint", "best/model.ckpt-3.index", "best/checkpoint"):
    open(f"{folder}/{path}", "w").close()
score = float(flags["learning_rate"]) * 1000 + int(flags.get("random_seed", 0)) % 3 / 1000
score += float(flags.get("num_train_epochs", 0)) / 10000
with open(folder + "/eval_results.txt", "w") as results:
    results.write(f"eval_accuracy = {score}\\neval_loss = {1 - score}\\nglobal_step = 7\\n")
    results.write(flags.get("more_results", ""))
"""


VARY = ["learning_rate=0.02,0.05,0.03", "num_train_epochs=2,4"]
RATES = VARY[:1]


class StandIn:
    """Searches in `folder` with the stand-in, which works once the file `fixed` is there."""

    def __init__(self, path):
        program = path / "program.py"
        program.write_text(STAND_IN)
        self._starts = path / "starts"
        self.command = [str(program), f"--starts={self._starts}"]
        self.folder = path / "out"
        self.fixed = path / "starts.fixed"

    def search(self, vary, *more, folder=None, **options):
        """Returns the best trial."""
        settings = tool.SearchSettings(output_dir=str(folder or self.folder), **options)
        return tool.search(settings, [*self.command, *more], vary)

    def started(self) -> list[str]:
        """Returns the folders of the trials that were started, in order."""
        return self._starts.read_text().split() if self._starts.exists() else []

    def table(self) -> list[dict[str, str]]:
        with open(self.folder / "trials.csv") as table:
            return list(csv.DictReader(table))

    def checkpoints(self) -> set[str]:
        """Returns the trials that have checkpoints."""
        paths = [*self.folder.glob("*/model.ckpt-*"), *self.folder.glob("*/best/*")]
        paths += self.folder.glob("*/checkpoint")
        return {path.relative_to(self.folder).parts[0] for path in paths}

    def best_trial(self) -> dict:
        return json.loads((self.folder / "best_trial.json").read_text())


def of_rates(*rates: str) -> list[str]:
    return [f"learning_rate-{rate}" for rate in rates]


@pytest.fixture
def stand_in(tmp_path):
    return StandIn(tmp_path)


def test_grids():
    points = tool.parse_grid(tool.PAPER_GRID)
    assert len(points) == 18
    first = {"train_batch_size": "16", "learning_rate": "5e-5", "num_train_epochs": "2"}
    assert points[:2] == [first, {**first, "num_train_epochs": "3"}]
    assert points[-1]["train_batch_size"] == "32"
    assert len({folder_name(point) for point in points}) == 18
    assert folder_name(first) == "train_batch_size-16_learning_rate-5e-5_num_train_epochs-2"
    for vary, message in (
        (["learning_rate"], "--vary must be a flag's name and its values, such as learning_rate=5"),
        (["learning_rate=1,,2"], "3e-5,2e-5; received 'learning_rate=1,,2'"),
        (["--learning_rate=1"], "must be a flag's name and its values"),
        (["a=1", "a=2"], "--vary='a=2': a appears twice"),
        (["random_seed=1,2"], "random_seed is set by the search itself"),
    ):
        assert message in refusal(tool.parse_grid, vary)


def test_the_best_of_a_grid_and_its_restarts(stand_in, capsys):
    best = stand_in.search(VARY, num_restarts=2)
    rates = of_rates("0.02", "0.05", "0.03")
    names = [f"{rate}_num_train_epochs-{epochs}" for rate in rates for epochs in (2, 4)]
    restarts = [f"{names[3]}_random_seed-{seed}" for seed in (1, 2)]
    assert stand_in.started() == names + restarts
    assert best.flags == {"learning_rate": "0.05", "num_train_epochs": "4", "random_seed": "2"}
    output = capsys.readouterr().out
    trial = "Trial 2 of 6: --learning_rate=0.02 --num_train_epochs=4"
    assert f"{trial}: eval_accuracy = 20; best so far: 20\n" in output
    folder = stand_in.folder / restarts[1]
    assert f"Its output: {folder}\n" in output

    table = stand_in.table()
    scores = [float(row["eval_accuracy"]) for row in table]
    assert scores == sorted(scores, reverse=True) and len(scores) == 8
    assert table[0]["random_seed"] == "2" and table[2]["random_seed"] == ""
    columns = "learning_rate num_train_epochs random_seed eval_accuracy eval_loss global_step"
    assert list(table[0]) == [*columns.split(), "status", "seconds"]
    printed = output.split("learning_rate  num_train_epochs")[1].splitlines()
    assert [line.split()[:2] for line in printed[1:9]] == [
        [row["learning_rate"], row["num_train_epochs"]] for row in table
    ]
    record = stand_in.best_trial()
    own = "--learning_rate=0.05 --num_train_epochs=4 --random_seed=2"
    command = f"python {' '.join(stand_in.command)} {own} --output_dir={folder}"
    assert record.pop("results")["eval_accuracy"] == pytest.approx(50.0024)
    assert record.pop("seconds") > 0
    expected = {"metric": "eval_accuracy", "flags": best.flags, "status": 0}
    assert record == {**expected, "output_dir": str(folder), "command": command}
    assert stand_in.checkpoints() == {*names, *restarts}


def test_less_is_better_and_only_the_best_keeps_its_checkpoints(stand_in):
    options = {"metric": "eval_loss", "minimize": True, "keep_checkpoints": "best"}
    best = stand_in.search(RATES, num_restarts=1, restart="each", **options)
    rates = of_rates("0.02", "0.05", "0.03")
    assert stand_in.started() == [f"{x}{end}" for x in rates for end in ("", "_random_seed-1")]
    assert best.flags == {"learning_rate": "0.05", "random_seed": "1"}
    assert stand_in.checkpoints() == {"learning_rate-0.05_random_seed-1"}
    assert stand_in.table()[0]["eval_loss"] == "-49.001"


def test_a_second_start_may_ask_otherwise(stand_in, warnings):
    vary = ["learning_rate=0.02,0.05"]
    stand_in.search(vary)
    best = stand_in.search(vary, metric="eval_loss", keep_checkpoints="best")
    assert len(stand_in.started()) == 2 and best.flags == {"learning_rate": "0.02"}
    record = stand_in.best_trial()
    assert (record["metric"], record["flags"]) == ("eval_loss", {"learning_rate": "0.02"})
    assert [row["learning_rate"] for row in stand_in.table()] == ["0.02", "0.05"]
    assert stand_in.checkpoints() == {*of_rates("0.02")}
    # The best by the first metric has lost its checkpoint; now nothing more is deleted.
    other = stand_in.search(vary, keep_checkpoints="best")
    assert other.flags == {"learning_rate": "0.05"} and len(stand_in.started()) == 2
    assert stand_in.checkpoints() == {*of_rates("0.02")}
    lost = "learning_rate-0.05 has no checkpoint: it was deleted while another"
    assert warnings and all(lost in text for text in warnings)


def test_of_equally_good_trials_the_first_stays_the_best(stand_in):
    options = {"metric": "global_step", "keep_checkpoints": "best"}
    for vary in ("0.05", "0.05,0.02", "0.03,0.05,0.01,0.02"):
        best = stand_in.search([f"learning_rate={vary}"], **options)
        assert best.flags == {"learning_rate": "0.05"}
        assert stand_in.checkpoints() == {*of_rates("0.05")}


def test_a_failed_trial_is_recorded_and_tried_again_next_time(stand_in):
    fails = "--behaviour=1@0.05"
    assert stand_in.search(RATES, fails).flags == {"learning_rate": "0.03"}
    assert [row["status"] for row in stand_in.table()] == ["0", "0", "1"]
    assert len(stand_in.started()) == 3
    stand_in.fixed.touch()
    assert stand_in.search(RATES, fails).flags == {"learning_rate": "0.05"}
    assert stand_in.started()[3:] == of_rates("0.05")
    assert [row["status"] for row in stand_in.table()] == ["0", "0", "0"]
    with pytest.raises(UserError, match="has trials of a different command; continue with that"):
        stand_in.search(RATES, fails, "--more=1")


def test_two_trials_of_one_folder_are_refused(stand_in):
    rate = "learning_rate=0.02"
    message = (
        f"--{rate} --init_checkpoint=models/x and --{rate} --init_checkpoint=models_x would write"
        f" to the same folder, {stand_in.folder}/learning_rate-0.02_init_checkpoint-models_x. "
    )
    assert message in refusal(stand_in.search, [rate, "init_checkpoint=models/x,models_x"])
    assert stand_in.started() == []
    # A later search must not confuse them either.
    stand_in.search([rate, "init_checkpoint=models/x"])
    assert message in refusal(stand_in.search, [rate, "init_checkpoint=models_x"])
    assert len(stand_in.started()) == 1


RECORD = {
    **{"flags": {"learning_rate": "0.02"}, "status": 0, "seconds": 1.5, "ended": 3.25},
    **{"results": {"eval_accuracy": 0.5, "loss": None}, "command": ["program.py"]},
}


def read_record(folder, content: str) -> list:
    """Returns the trials in a folder with one trial.json."""
    path = folder / "learning_rate-0.02" / "trial.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return read_trials(str(folder))


def test_damaged_records_are_refused(tmp_path, stand_in):
    for content, message in (
        ("[" * 100_000, "maximum recursion depth"),
        ("[]", "trial.json is damaged (list indices must be integers or slices, not str); delete"),
        ("{}", "trial.json is damaged ('results'); delete the folder to run the trial again"),
        ('{"results": {}}', "trial.json is damaged (Trial.__init__() missing 5 required position"),
    ):
        told = refusal(read_record, tmp_path, content)
        assert message in told and len(told) < 500 and "\n" not in told
    # The difference to another command is told in a line.
    read_record(tmp_path, json.dumps({**RECORD, "command": ["x" * 10_000]}))
    told = refusal(stand_in.search, RATES, folder=tmp_path)
    assert re.search("has trials of a different command; .* words 'x", told)
    assert len(told) < 500 and "\n" not in told


def test_results_that_are_no_numbers_are_null_in_json(stand_in):
    """JSON has no NaN and no infinity; read again, they are NaN. Neither is ever the best."""
    more = "--more_results=loss = nan\neval_perplexity = inf\n"
    stand_in.search(["learning_rate=0.02"], more)
    results = {"eval_accuracy": 20.0, "eval_loss": -19.0, "global_step": 7.0}
    for path in ("best_trial.json", "learning_rate-0.02/trial.json"):
        record = json.loads((stand_in.folder / path).read_text())
        assert record["results"] == {**results, "loss": None, "eval_perplexity": None}, path
    [trial] = read_trials(str(stand_in.folder)).values()
    nan = pytest.approx(math.nan, nan_ok=True)
    assert trial.results == {**results, "loss": nan, "eval_perplexity": nan}
    told = refusal(stand_in.search, ["learning_rate=0.05"], more, metric="eval_perplexity")
    assert told == "every trial failed; their messages are above"


def test_wrong_flags_end_the_search_at_once(tmp_path, stand_in):
    vary = ["learning_rate=0.02,0.05"]
    with pytest.raises(UserError, match="status 1 before any trial succeeded, so its flags or its"):
        stand_in.search(vary, "--behaviour=1@0.02")
    assert len(stand_in.started()) == 1
    message = "--metric=eval_f1 must be one of .* 'eval_accuracy', 'eval_"
    refuses(message, stand_in.search, vary, metric="eval_f1")
    stand_in.search(vary)
    assert stand_in.started() == of_rates("0.02", "0.02", "0.05")
    # Other failures do not end it.
    for status in (70, command_flags.DIVERGED_STATUS):
        other = tmp_path / f"other_{status}"
        best = stand_in.search(vary, f"--behaviour={status}@0.02", folder=other)
        assert best.flags == {"learning_rate": "0.05"}
    rate = ["learning_rate=0.02"]
    bad = tmp_path / "bad"
    refuses("every trial failed", stand_in.search, rate, "--behaviour=70@0.02", folder=bad)
    # One that was interrupted by itself ends it with its status.
    with pytest.raises(SystemExit, match="^75$"):
        stand_in.search(vary, "--behaviour=75@0.05", folder=tmp_path / "interrupted")
    assert [trial.flags for trial in read_trials(f"{tmp_path}/interrupted").values()] == [
        {"learning_rate": "0.02"}
    ]


def test_the_program_is_found(monkeypatch, tmp_path):
    for command, message in (
        ([], "the program to run and its flags must follow after --: -- run_classifier.py"),
        (["run_nothing.py"], "a file or a command on PATH; received 'run_nothing.py'"),
        ([__file__, "--output_dir=x"], "remove --output_dir=x after --: each trial has"),
    ):
        refuses(message, tool.find_program, command)
    (tmp_path / "run_it.py").write_text("#!/usr/bin/env python\n")
    (tmp_path / "run_it.py").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tool.find_program(["run_it.py", "--a=1"]) == [str(tmp_path / "run_it.py"), "--a=1"]
    assert tool.find_program(["-m", "run_it"]) == ["-m", "run_it"]


def wait_for(path):
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_ctrl_c_is_passed_on_once_and_the_search_goes_on_later(stand_in):
    waits = "--behaviour=wait@0.05"
    trial = stand_in.folder / "learning_rate-0.05"

    def press() -> None:
        wait_for(trial / "waiting")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(SystemExit) as end:
        stand_in.search(RATES, waits)
    thread.join()
    assert end.value.code == interrupts.INTERRUPTED_STATUS
    assert (trial / "signals").read_text() == f"{signal.SIGINT}\n"
    assert len(stand_in.table()) == 1
    stand_in.fixed.touch()
    best = stand_in.search(RATES, waits)
    assert stand_in.started() == of_rates("0.02", "0.05", "0.05", "0.03")
    assert best.flags == {"learning_rate": "0.05"}


def test_the_program_passes_sigterm_on(stand_in):
    trial = stand_in.folder / "learning_rate-0.05"
    argv = [
        *(sys.executable, "-m", "tools.search_hyperparameters", f"--output_dir={stand_in.folder}"),
        *("--vary=learning_rate=0.05", "--", *stand_in.command, "--behaviour=wait@0.05"),
    ]
    process = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_for(trial / "waiting")
    process.terminate()
    errors = process.communicate(timeout=30)[1]
    assert process.returncode == interrupts.TERMINATED_STATUS, errors
    assert (trial / "signals").read_text() == f"{signal.SIGTERM}\n"


@pytest.mark.slow
def test_a_real_search(stand_in, tmp_path):
    more = ("--do_train", "--do_eval", "--num_train_epochs=10", "--random_seed=1")
    flags = small_classification.flags(small_classification.write_reviews(tmp_path), "", *more)
    flags = [flag for flag in flags if not flag.startswith(("--output_dir", "--learning_rate"))]
    stand_in.command = [os.path.join(ROOT, "run_classifier.py"), *flags]
    best = stand_in.search(["learning_rate=1e-8,5e-3"], keep_checkpoints="best")
    assert best.flags["learning_rate"] == "5e-3" and best.results["eval_accuracy"] > 0.9
    assert len(stand_in.table()) == 2 and stand_in.checkpoints() == {folder_name(best.flags)}
