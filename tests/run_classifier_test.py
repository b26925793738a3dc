"""Tests of run_classifier.py as a program."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_tf.engine import interrupts
from bert_tf.files import checkpoints
from bert_tf.runs.flags import command_flags
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from tests.support import forked_programs
from tests.support.golden import golden_cases
from tests.support.pretraining_runs import assert_same_variables, command, run, variables
from tests.support.small_classification import flags, write_reviews

PROGRAM = "run_classifier.py"


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("reviews"))


@pytest.fixture(scope="module")
def trained(reviews, tmp_path_factory):
    """The output directory and the log of a run that trains, evaluates, predicts and exports."""
    output_dir = tmp_path_factory.mktemp("trained")
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    log = run(
        *flags(reviews, output_dir, "--do_train", "--do_eval", "--do_predict"),
        *("--num_train_epochs=8", "--length_buckets=16,28", "--evaluate_every_steps=15"),
        *("--keep_best", f"--export_dir={output_dir}/export"),
        program=PROGRAM,
        env=environment,
    )
    return output_dir, log


def test_it_learns(trained):
    output_dir, log = trained
    results = reporting.read_results(f"{output_dir}/eval_results.txt")
    assert results["eval_accuracy"] > 0.9
    metrics = ("accuracy", "accuracy_and_f1", "f1", "loss", "matthews_correlation")
    assert results.keys() == {*(f"eval_{name}" for name in metrics), "global_step", "loss"}
    assert "Num examples = 90" in log and "Num steps = 90" in log
    assert log.count("***** Eval results *****") == 7  # steps 15 to 90, and the end
    assert log.count("  Num examples = 41") == 7 and log.count("  Num examples = 7\n") == 1
    # Nothing of TensorFlow's start is in the log, and no example of the records.
    lines, own = log.splitlines(), re.compile(r"[IW]\d{4} [\d:.]+ \d+ \w+\.py:\d+\] ")
    assert [line for line in lines if not own.match(line)] == []
    assert "*** Example ***" not in log and 20 < len(lines) < 150
    # The best checkpoint is what is evaluated.
    best = reporting.read_results(f"{output_dir}/best/eval_results.txt")
    assert results == best and best["global_step"] % 15 == 0
    (index,) = Path(output_dir, "best").glob("*.index")
    assert index.name == f"model.ckpt-{int(best['global_step'])}.index"


def test_predictions_and_errors_are_in_the_order_of_the_file_beside_their_texts(trained, reviews):
    output_dir, _ = trained
    rows = np.loadtxt(output_dir / "test_results.tsv", delimiter="\t")
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-5)
    with open(reviews / "test.csv", newline="") as lines:
        wanted = list(csv.DictReader(lines))
    stars = [row["stars"] for row in wanted]
    assert [("bad", "good")[i] for i in rows.argmax(axis=1)] == stars
    found = tables.read_table(f"{output_dir}/predictions.tsv")
    assert found["text_a"] == [row["review"] for row in wanted]
    assert found["label"] == found["prediction"] == stars
    assert [float(x) for x in found["probability"]] == rows.max(axis=1).tolist()
    accuracy = reporting.read_results(f"{output_dir}/eval_results.txt")["eval_accuracy"]
    report = json.loads((output_dir / "eval_report.json").read_text())
    assert report["accuracy"] == pytest.approx(accuracy)
    every, errors = (
        tables.read_table(f"{output_dir}/{name}.tsv") for name in ("eval_predictions", "errors")
    )
    assert len(every["id"]) == 41 and len(errors["id"]) == round(41 * (1 - accuracy))
    assert errors["probability"] == sorted(errors["probability"], key=float, reverse=True)


def test_the_export_is_a_folder_that_gives_the_same_results_without_the_training_file(
    trained, reviews, tmp_path
):
    export = trained[0] / "export"
    best = variables(trained[0] / "best")
    exported = variables(export / "bert_model.ckpt")
    assert exported.keys() == {
        n for n in best if not n.endswith(("/adam_m", "/adam_v")) and n != "global_step"
    }
    for name, value in exported.items():
        np.testing.assert_array_equal(value, best[name])
    assert (export / "vocab.txt").read_text() == (reviews / "vocab.txt").read_text()
    assert (export / "labels.txt").read_text() == (trained[0] / "labels.txt").read_text()
    # It has configuration, vocabulary and classes; batches have another length here.
    data = tmp_path / "data"
    data.mkdir()
    for name in ("dev.csv", "test.csv"):
        shutil.copy(reviews / name, data)
    out = tmp_path / "out"
    log = run(
        *flags(reviews, out, "--do_eval", "--do_predict", "--length_buckets=none"),
        *(f"--data_dir={data}", f"--init_checkpoint={export}"),
        *(f"--bert_config_file={export}/bert_config.json", f"--vocab_file={export}/vocab.txt"),
        program=PROGRAM,
    )
    results = reporting.read_results(f"{out}/eval_results.txt")
    expected = reporting.read_results(f"{trained[0]}/eval_results.txt")
    assert results == pytest.approx({**expected, "global_step": 0}, rel=1e-4)
    assert f"Writing predictions to: {out}/test_results.tsv" in log
    found, expected = (np.loadtxt(path / "test_results.tsv") for path in (out, trained[0]))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_new_weights_are_listed_and_frozen_ones_stay(trained, reviews, tmp_path):
    before = variables(trained[0] / "export" / "bert_model.ckpt")
    del before["output_bias"]
    checkpoints.write(f"{tmp_path}/headless", before)
    log = run(
        *flags(reviews, tmp_path / "out", "--do_train", "--num_train_epochs=1"),
        *(f"--init_checkpoint={tmp_path}/headless", "--freeze_layers=embeddings,0"),
        *("--early_stopping_patience=1", "--evaluate_every_steps=2", "--learning_rate=0"),
        program=PROGRAM,
    )
    left = f"Not in --init_checkpoint={tmp_path}/headless, so left at their initial values: "
    assert left + "\n  output_bias\n" in log
    assert "Training ends early: eval_accuracy has not been better than" in log
    end = variables(tmp_path / "out" / "model.ckpt-4")  # the best was that of step 2
    for name, value in before.items():
        np.testing.assert_array_equal(end[name], value)
        slots = not name.startswith(("bert/embeddings", "bert/encoder"))
        assert (f"{name}/adam_m" in end) == slots, name


def test_a_wrong_column_ends_the_program_with_one_line(reviews, tmp_path):
    words = flags(reviews, tmp_path / "out", "--do_train", "--text_a_column=text")
    last = run(*words, program=PROGRAM, status=1).splitlines()[-1]
    assert last.startswith("run_classifier.py: --text_a_column=text: ")
    assert "train.csv has no such column (--has_header says whether line 1 names the" in last
    assert "it has columns named 'review', 'stars': name one of these" in last
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_diverging_run_has_its_own_status(reviews, tmp_path):
    words = flags(reviews, tmp_path / "out", "--do_train", "--learning_rate=8e37")
    log = run(*words, program=PROGRAM, status=command_flags.DIVERGED_STATUS)
    last = log.splitlines()[-1]
    assert last.startswith("run_classifier.py: loss is nan at step "), log


@pytest.mark.slow
def test_a_stopped_run_ends_like_one_left_alone(reviews, tmp_path):
    """Also if it was stopped during an evaluation. The best checkpoint is the same, too."""
    words = ["--do_train", "--num_train_epochs=4", "--evaluate_every_steps=6", "--keep_best"]
    words += ["--save_checkpoints_steps=6", "--length_buckets=16,28", "--group_by_length"]
    run(*flags(reviews, tmp_path / "alone", *words), program=PROGRAM)
    ends = []
    for sent in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, None):
        log = tmp_path / f"log{len(ends)}"
        log.touch()
        out = flags(reviews, tmp_path / "out", *words)
        process = forked_programs.start(command(*out, program=PROGRAM), log)
        if sent:
            while process.exitcode is None and not re.search("Saved step [1-9]", log.read_text()):
                time.sleep(0.01)
            os.kill(process.pid, sent)
        process.join()
        ends.append(process.exitcode)
    assert ends == [-signal.SIGKILL, interrupts.TERMINATED_STATUS, -signal.SIGKILL, 0]
    for name in ("", "best"):
        assert_same_variables(tmp_path / "out" / name, tmp_path / "alone" / name)
    best = (tmp_path / name / "best/eval_results.txt" for name in ("alone", "out"))
    assert next(best).read_text() == next(best).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("case", golden_cases("programs/golden.json", program="run_classifier"))
def test_the_original_s_files_and_figures(tmp_path, case):
    golden = os.environ["BERT_TF_GOLDEN"]
    folder = Path(golden, "programs")
    run(
        *("--do_train", "--do_eval", "--do_predict"),
        *(f"--{name}={value}" for name, value in case["flags"].items()),
        *(f"--data_dir={folder}/MRPC", f"--vocab_file={golden}/../released/vocab_uncased.txt"),
        f"--bert_config_file={folder}/bert_config.json",
        *(f"--init_checkpoint={folder}/bert_model.ckpt", f"--output_dir={tmp_path}"),
        program=PROGRAM,
    )
    files = [str(tmp_path / name) for name in case["digest"]]
    words = [sys.executable, f"{golden}/records_digest.py", *files]
    digests = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert digests[::2] == list(case["digest"].values())
    expected = reporting.read_results(str(folder / "mrpc_eval_results.txt"))
    results = reporting.read_results(f"{tmp_path}/eval_results.txt")
    assert {name: results[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    outputs = np.loadtxt(tmp_path / "test_results.tsv")
    np.testing.assert_allclose(outputs, np.loadtxt(folder / "mrpc_test_results.tsv"), rtol=1e-4)
