"""Tests of tools/search_hyperparameters.py with a program of a few lines in place of a real one."""

import csv
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_tf.engine import interrupts
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from tests.support.pretraining_runs import ROOT, write_config
from tools import search_hyperparameters as tool
from tools.trials import Search, Trial

# It writes down each start, leaves checkpoints, and ends as --behaviour tells it for some rates.
STAND_IN = """
import os, signal, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
folder = flags["output_dir"]
os.makedirs(folder + "/best", exist_ok=True)
with open(flags["starts"], "a") as starts:
    starts.write(os.path.basename(folder) + "\\n")
behaviour, _, rate = flags.get("behaviour", "").partition("@")
if behaviour and flags["learning_rate"] == rate and not os.path.exists(flags["starts"] + ".mended"):
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
"""


@pytest.fixture
def stand_in(tmp_path):
    """The command of the stand-in, and the trials that it was started for."""
    program = tmp_path / "program.py"
    program.write_text(STAND_IN)
    starts = tmp_path / "starts"

    def started() -> list[str]:
        return starts.read_text().split() if starts.exists() else []

    return [str(program), f"--starts={starts}"], started


VARY = ["learning_rate=0.02,0.05,0.03", "num_train_epochs=2,4"]


def read_table(folder) -> list[dict[str, str]]:
    with open(folder / "trials.csv") as table:
        return list(csv.DictReader(table))


def checkpoints_in(folder) -> set[str]:
    """Returns the trials that have checkpoints."""
    paths = [*folder.glob("*/model.ckpt-*"), *folder.glob("*/best/*"), *folder.glob("*/checkpoint")]
    return {path.relative_to(folder).parts[0] for path in paths}


def test_the_grid_of_the_paper():
    points = tool.parse_grid(tool.PAPER_GRID)
    assert len(points) == 18
    assert points[0] == {
        "train_batch_size": "16",
        "learning_rate": "5e-5",
        "num_train_epochs": "2",
    }
    assert points[1]["num_train_epochs"] == "3" and points[-1]["train_batch_size"] == "32"
    assert len({Trial(point).name for point in points}) == 18
    name = "train_batch_size-16_learning_rate-5e-5_num_train_epochs-2"
    assert Trial(points[0]).name == name


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (
            ["learning_rate"],
            "--vary must be a flag's name and its values, such as learning_rate=5e-5",
        ),
        (["learning_rate=1,,2"], "3e-5,2e-5; received 'learning_rate=1,,2'"),
        (["--learning_rate=1"], "must be a flag's name and its values"),
        (["a=1", "a=2"], "--vary='a=2': a appears twice"),
        (["random_seed=1,2"], "random_seed is set by the search itself"),
    ],
)
def test_a_grid_that_is_none(vary, message):
    with pytest.raises(UserError) as error:
        tool.parse_grid(vary)
    assert message in str(error.value)


def test_the_best_of_a_grid_and_its_restarts(tmp_path, stand_in, capsys):
    command, started = stand_in
    folder = tmp_path / "out"
    best = tool.search(command, str(folder), VARY, num_restarts=2)
    names = [
        f"learning_rate-{rate}_num_train_epochs-{epochs}"
        for rate in ("0.02", "0.05", "0.03")
        for epochs in ("2", "4")
    ]
    restarts = [f"{names[3]}_random_seed-{seed}" for seed in (1, 2)]
    assert started() == names + restarts
    assert best.name == restarts[1]
    output = capsys.readouterr().out
    assert (
        "Trial 2 of 6: --learning_rate=0.02 --num_train_epochs=4: eval_accuracy = 20; best so"
        " far: 20\n" in output
    )
    assert f"Its output: {folder / restarts[1]}\n" in output

    table = read_table(folder)
    scores = [float(row["eval_accuracy"]) for row in table]
    assert scores == sorted(scores, reverse=True) and len(scores) == 8
    assert table[0]["random_seed"] == "2" and table[2]["random_seed"] == ""
    assert list(table[0]) == [
        *("learning_rate", "num_train_epochs", "random_seed"),
        *("eval_accuracy", "eval_loss", "global_step", "status", "seconds"),
    ]
    printed = output.split("learning_rate  num_train_epochs")[1].splitlines()
    assert [line.split()[:2] for line in printed[1:9]] == [
        [row["learning_rate"], row["num_train_epochs"]] for row in table
    ]
    record = json.loads((folder / "best_trial.json").read_text())
    assert record["flags"] == {
        "learning_rate": "0.05",
        "num_train_epochs": "4",
        "random_seed": "2",
    }
    assert record["output_dir"] == str(folder / restarts[1])
    own = "--learning_rate=0.05 --num_train_epochs=4 --random_seed=2"
    assert (
        record["command"] == f"python {' '.join(command)} {own} --output_dir={folder / restarts[1]}"
    )
    assert record["results"]["eval_accuracy"] == pytest.approx(50.0024)
    assert checkpoints_in(folder) == {*names, *restarts}


def test_less_is_better_and_only_the_best_keeps_its_checkpoints(tmp_path, stand_in):
    command, started = stand_in
    best = tool.search(
        command,
        str(tmp_path / "out"),
        ["learning_rate=0.02,0.05,0.03"],
        num_restarts=1,
        restart="each",
        metric="eval_loss",
        minimize=True,
        keep_checkpoints="best",
    )
    assert started() == [
        f"learning_rate-{rate}{seed}"
        for rate in ("0.02", "0.05", "0.03")
        for seed in ("", "_random_seed-1")
    ]
    assert best.name == "learning_rate-0.05_random_seed-1"
    assert checkpoints_in(tmp_path / "out") == {best.name}
    assert read_table(tmp_path / "out")[0]["eval_loss"] == "-49.001"


def test_a_second_start_may_ask_otherwise(tmp_path, stand_in, warnings):
    command, started = stand_in
    folder = tmp_path / "out"
    tool.search(command, str(folder), ["learning_rate=0.02,0.05"])
    options = {"metric": "eval_loss", "keep_checkpoints": "best"}
    best = tool.search(command, str(folder), ["learning_rate=0.02,0.05"], **options)
    assert len(started()) == 2 and best.name == "learning_rate-0.02"
    record = json.loads((folder / "best_trial.json").read_text())
    assert (record["metric"], record["flags"]) == ("eval_loss", {"learning_rate": "0.02"})
    assert [row["learning_rate"] for row in read_table(folder)] == ["0.02", "0.05"]
    assert checkpoints_in(folder) == {best.name}
    # The best by the first metric has lost its checkpoint; now nothing more is deleted.
    vary = ["learning_rate=0.02,0.05"]
    other = tool.search(command, str(folder), vary, keep_checkpoints="best")
    assert other.name == "learning_rate-0.05" and len(started()) == 2
    assert checkpoints_in(folder) == {best.name}
    lost = "learning_rate-0.05 has no checkpoint: it was deleted while another"
    assert warnings and all(lost in text for text in warnings)


def test_of_equally_good_trials_the_first_stays_the_best(tmp_path, stand_in):
    command, _ = stand_in
    options = {"metric": "global_step", "keep_checkpoints": "best"}
    for vary in ("0.05", "0.05,0.02", "0.03,0.05,0.01,0.02"):
        best = tool.search(command, str(tmp_path / "out"), [f"learning_rate={vary}"], **options)
        assert best.flags == {"learning_rate": "0.05"}
        assert checkpoints_in(tmp_path / "out") == {best.name}


def test_a_failed_trial_is_recorded_and_tried_again_next_time(tmp_path, stand_in):
    command, started = stand_in
    folder = tmp_path / "out"
    vary = ["learning_rate=0.02,0.05,0.03"]
    command = [*command, "--behaviour=1@0.05"]
    assert tool.search(command, str(folder), vary).flags == {"learning_rate": "0.03"}
    assert [row["status"] for row in read_table(folder)] == ["0", "0", "1"]
    assert len(started()) == 3
    (tmp_path / "starts.mended").touch()
    assert tool.search(command, str(folder), vary).flags == {"learning_rate": "0.05"}
    assert started()[3:] == ["learning_rate-0.05"]
    assert [row["status"] for row in read_table(folder)] == ["0", "0", "0"]
    with pytest.raises(UserError, match="has trials of another command; continue with that"):
        tool.search([*command, "--more=1"], str(folder), vary)


def test_two_trials_of_one_folder_are_refused(tmp_path, stand_in):
    command, started = stand_in
    folder = tmp_path / "out"
    vary = ["learning_rate=0.02", "init_checkpoint=models/x,models_x"]
    name = "learning_rate-0.02_init_checkpoint-models_x"
    message = (
        "each trial must have a folder of its own; --learning_rate=0.02 --init_checkpoint=models/x"
        f" and --learning_rate=0.02 --init_checkpoint=models_x both have {folder / name}, in whose"
    )
    with pytest.raises(UserError) as error:
        tool.search(command, str(folder), vary)
    assert str(error.value).startswith(message)
    assert started() == []
    # Nor may a later search take the one for the other.
    tool.search(command, str(folder), ["learning_rate=0.02", "init_checkpoint=models/x"])
    with pytest.raises(UserError) as error:
        tool.search(command, str(folder), ["learning_rate=0.02", "init_checkpoint=models_x"])
    assert str(error.value).startswith(message)
    assert started() == [name]


RECORD = {
    "flags": {"learning_rate": "0.02"},
    "status": 0,
    "seconds": 1.5,
    "results": {"eval_accuracy": 0.5, "loss": None},
    "command": ["program.py"],
    "ended": 3.25,
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[]", "must be an object with flags, status, .*; received "),
        ({"ended": None}, "`ended` must be a number; it is None"),
        ({"flags": {"learning_rate": 0.02}}, "`flags` must be an object of texts; it is {'learn"),
        ({"flags": {}}, "is of the trial '', so it must be in a folder of that name"),
        (
            {"flags": {"learning_rate": "0.03"}},
            "is of the trial 'learning_rate-0.03', so it must be",
        ),
        ({"status": "0"}, "`status` must be a whole number; it is '0'"),
        ({"results": ["x" * 10_000]}, "`results` must be an object of numbers; it is "),
        ({"command": "program.py"}, "`command` must be a list of texts; it is 'program.py'"),
        ({"command": ["x" * 10_000]}, "has trials of another command; .* only there: 'xxx"),
    ],
    ids=range(10),
)
def test_damaged_records_are_refused(tmp_path, content, message):
    path = tmp_path / "learning_rate-0.02" / "trial.json"
    path.parent.mkdir()
    if isinstance(content, dict):
        content = json.dumps({**RECORD, **content})
    path.write_text(content)
    with pytest.raises(UserError, match=message) as error:
        Search(["program.py"], str(tmp_path))
    assert len(str(error.value)) < 500 and "\n" not in str(error.value)


def test_a_result_that_is_no_number_is_kept(tmp_path):
    path = tmp_path / "learning_rate-0.02" / "trial.json"
    path.parent.mkdir()
    path.write_text(json.dumps(RECORD))
    (trial,) = Search(["program.py"], str(tmp_path)).ranking()
    assert trial.results["eval_accuracy"] == 0.5 and math.isnan(trial.results["loss"])


def test_results_that_are_no_numbers_are_null_in_json(tmp_path):
    """JSON has no NaN and no infinity."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "folder = sys.argv[-1].removeprefix('--output_dir=')\n"
        "os.makedirs(folder)\n"
        "with open(folder + '/eval_results.txt', 'w') as results:\n"
        "    results.write('eval_accuracy = 0.25\\nloss = nan\\neval_perplexity = inf\\n')\n"
    )
    tool.search([str(program)], str(tmp_path / "out"), ["learning_rate=0.02"])
    for path in ("best_trial.json", "learning_rate-0.02/trial.json"):
        record = json.loads((tmp_path / "out" / path).read_text())
        expected = {"eval_accuracy": 0.25, "loss": None, "eval_perplexity": None}
        assert record["results"] == expected, path


def test_wrong_flags_end_the_search_at_once(tmp_path, stand_in):
    command, started = stand_in
    vary = ["learning_rate=0.02,0.05"]
    with pytest.raises(UserError, match="status 1 before any trial succeeded, so its flags or its"):
        tool.search([*command, "--behaviour=1@0.02"], str(tmp_path / "out"), vary)
    assert len(started()) == 1
    with pytest.raises(
        UserError, match="--metric=eval_f1 must be one of .* 'eval_accuracy', 'eval_"
    ):
        tool.search(command, str(tmp_path / "out"), vary, metric="eval_f1")
    tool.search(command, str(tmp_path / "out"), vary)
    assert started() == [f"learning_rate-{rate}" for rate in ("0.02", "0.02", "0.05")]
    # What is not the fault of the flags does not end it, nor does a rate that is too high.
    for status in (70, command_flags.DIVERGED_STATUS):
        other = str(tmp_path / f"other_{status}")
        best = tool.search([*command, f"--behaviour={status}@0.02"], other, vary)
        assert best.flags == {"learning_rate": "0.05"}
    with pytest.raises(UserError, match="every trial failed"):
        vary = ["learning_rate=0.02"]
        tool.search([*command, "--behaviour=70@0.02"], str(tmp_path / "bad"), vary)


def test_a_trial_that_was_interrupted_by_itself_ends_the_search_with_its_status(tmp_path, stand_in):
    command, started = stand_in
    with pytest.raises(SystemExit) as ended:
        tool.search([*command, "--behaviour=75@0.05"], str(tmp_path / "out"), VARY[:1])
    assert ended.value.code == 75
    assert len(started()) == 2 and len(read_table(tmp_path / "out")) == 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "the program to run and its flags must follow after --: -- run_classifier.py"),
        (["run_nothing.py"], "a file or a command on PATH; received 'run_nothing.py'"),
        ([__file__, "--output_dir=x"], "remove --output_dir=x after --: each trial has"),
    ],
)
def test_commands_that_cannot_be(tmp_path, command, message):
    with pytest.raises(UserError) as error:
        tool.search(command, str(tmp_path / "out"))
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_program_on_path_is_found(monkeypatch, tmp_path):
    (tmp_path / "run_it.py").write_text("#!/usr/bin/env python\n")
    (tmp_path / "run_it.py").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tool.find_program(["run_it.py", "--a=1"]) == [str(tmp_path / "run_it.py"), "--a=1"]
    assert tool.find_program(["-m", "run_it"]) == ["-m", "run_it"]


def wait_for(path, seconds=60):
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_ctrl_c_is_passed_on_once_and_the_search_goes_on_later(tmp_path, stand_in):
    command, started = stand_in
    command.append("--behaviour=wait@0.05")
    folder = tmp_path / "out"
    trial = folder / "learning_rate-0.05"

    def press() -> None:
        wait_for(trial / "waiting")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        tool.search(command, str(folder), VARY[:1])
    thread.join()
    assert (trial / "signals").read_text() == f"{signal.SIGINT}\n"
    assert len(read_table(folder)) == 1
    (tmp_path / "starts.mended").touch()
    best = tool.search(command, str(folder), VARY[:1])
    assert started() == [f"learning_rate-{rate}" for rate in ("0.02", "0.05", "0.05", "0.03")]
    assert best.flags == {"learning_rate": "0.05"}


def test_the_program_passes_sigterm_on(tmp_path, stand_in):
    command, _ = stand_in
    trial = tmp_path / "out" / "learning_rate-0.05"
    argv = [
        *(sys.executable, "-m", "tools.search_hyperparameters", f"--output_dir={tmp_path}/out"),
        *("--vary=learning_rate=0.05", "--", *command, "--behaviour=wait@0.05"),
    ]
    process = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_for(trial / "waiting")
    process.terminate()
    errors = process.communicate(timeout=30)[1]
    assert process.returncode == interrupts.TERMINATED_STATUS, errors
    assert (trial / "signals").read_text() == f"{signal.SIGTERM}\n"


@pytest.mark.slow
def test_a_real_search(tmp_path):
    rng = random.Random(3)
    for name, count in (("train", 256), ("dev", 40)):
        rows = [rng.choice([("abcd", "one"), ("efgh", "two")]) for _ in range(count)]
        lines = [f"{' '.join(rng.choices(letters, k=5))},{label}" for letters, label in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,kind", *lines]))
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab))
    folder = tmp_path / "out"
    best = tool.search(
        [
            os.path.join(ROOT, "run_classifier.py"),
            *("--task_name=table", "--text_a_column=text", "--label_column=kind"),
            *("--do_train", "--do_eval", "--max_seq_length=8", "--train_batch_size=8"),
            "--random_seed=1",
            *(f"--data_dir={tmp_path}", f"--vocab_file={tmp_path}/vocab.txt"),
            f"--bert_config_file={write_config(tmp_path / 'config.json', vocab_size=len(vocab))}",
        ],
        str(folder),
        ["learning_rate=1e-8,1e-2"],
        keep_checkpoints="best",
    )
    assert best.flags["learning_rate"] == "1e-2" and best.results["eval_accuracy"] > 0.9
    assert len(read_table(folder)) == 2
    assert checkpoints_in(folder) == {best.name}
