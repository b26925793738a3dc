"""Tests of run_squad: the original's figures, the files it writes, evaluation during training."""

import functools
import json
import re
import shutil

import numpy as np
import pytest

from bert_tf.runs.folder.reporting import read_results
from bert_tf.runs.results import tables
from tests.support.golden import needs_golden
from tests.support.pretraining_runs import run, variables, write_config
from tests.support.refusals import refuses
from tests.support.registered_tasks import run_in
from tests.support.squad_files import (
    GOLDEN,
    RELEASED_VOCAB,
    VOCAB,
    golden_run,
    question,
    write_squad,
    write_vocab,
)

PROGRAMS = GOLDEN / "programs"

run_program = functools.partial(run, program="run_squad.py")
run_in_process = functools.partial(run_in, name="squad")


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def results_of(folder):
    return read_results(f"{folder}/eval_results.txt")


# --- the original's figures -----------------------------------------------------------------------


@needs_golden
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_original_s_run(tmp_path, version):
    """For v1, also trains, with learning rate 0, which does not change the weights."""
    flags = golden_run(f"squad_{version}.json")["flags"]
    flags |= {
        "vocab_file": str(RELEASED_VOCAB),
        "init_checkpoint": f"{PROGRAMS}/bert_model.ckpt",
        "do_predict": True,
        "predict_file": f"{PROGRAMS}/{flags.pop('file')}",
        "output_dir": str(tmp_path),
    }
    if version == "v1":
        run_program(
            f"--bert_config_file={PROGRAMS}/bert_config.json",
            "--do_train=True",
            f"--train_file={PROGRAMS}/squad_v1_train.json",
            *(f"--{name}={value}" for name, value in flags.items()),
        )
        before, after = variables(PROGRAMS / "bert_model.ckpt"), variables(tmp_path)
        for name in ("bert/encoder/layer_1/output/dense/kernel", "cls/squad/output_weights"):
            np.testing.assert_array_equal(before[name], after[name])
        assert after["global_step"] == 54 // flags["train_batch_size"]
        assert results_of(tmp_path)["f1"] == pytest.approx(5.477748, rel=1e-5)
    else:
        results = run_in_process(PROGRAMS, **flags)
        assert results["HasAns_f1"] == pytest.approx(8.86818, rel=1e-5)
    names = ["predictions", "nbest_predictions"] + ["null_odds"] * flags["version_2_with_negative"]
    for name in names:
        expected = (PROGRAMS / f"squad_{version}_{name}.json").read_text()
        found = (tmp_path / f"{name}.json").read_text()
        number = r'(?<!")-?\d+\.\d+(?:e-?\d+)?(?=,?\n)'
        assert re.sub(number, "#", found) == re.sub(number, "#", expected)
        lines = [line for line in expected.splitlines() if re.search(number, line + "\n")]
        theirs, ours = (np.float64(re.findall(number, text)) for text in (expected, found))
        tolerance = np.where(abs(theirs) < 1e-6, 1e-3, 1e-4) * abs(theirs)
        # A logit is a sum of terms of size 1. Where they cancel, a CPU's order of adding shows.
        is_logit = np.array(["_logit" in line for line in lines])
        tolerance = np.where(is_logit, np.maximum(tolerance, 1e-6), tolerance)
        assert (abs(ours - theirs) <= tolerance).all()


@needs_golden
def test_the_original_s_training(tmp_path):
    folder = GOLDEN / "squad_training"
    run_in_process(
        folder,
        vocab_file=str(RELEASED_VOCAB),
        init_checkpoint=f"{PROGRAMS}/bert_model.ckpt",
        train_file=f"{folder}/train.json",
        output_dir=str(tmp_path),
        **read(folder, "flags"),
    )
    ours, theirs = variables(tmp_path), np.load(folder / "final.npz")
    assert ours["global_step"] == theirs["global_step"] == 12
    scale = {name: abs(theirs[name]).max() for name in theirs.files}
    # These variables add the same to the logits of all positions, or to all attention scores of a
    # query, which changes no probability. So their gradients are rounding errors: below 1e-8 in the
    # original.
    noise = {name for name in theirs.files if scale.get(f"{name}|adam_m", 1.0) < 1e-7}
    assert noise == {
        "cls|squad|output_bias",
        "bert|encoder|layer_1|output|LayerNorm|beta",
        "bert|encoder|layer_0|attention|self|key|bias",
        "bert|encoder|layer_1|attention|self|key|bias",
    }
    assert ours.keys() == {name.replace("|", "/") for name in theirs.files}
    for name in theirs.files:
        variable = re.sub(r"\|adam_[mv]$", "", name)
        difference = abs(ours[name.replace("|", "/")] - theirs[name]).max()
        if variable in noise:  # Adam makes steps of it that differ from CPU to CPU
            assert difference < (1e-7 if variable != name else 2e-5), name
        else:
            assert difference <= 2e-5 * scale[name], name


# --- a run from nothing ---------------------------------------------------------------------------

# The answer to "who" is the word after "was".
NAMES = ("john", "smith", "man", "leader", "river", "cafe")


def write_questions(path, count):
    qas = []
    for i in range(count):
        name = NAMES[i % len(NAMES)]
        context = f"{'the ' * (i % 3)}store was {name} and {'here ' * (i % 11)}."
        answers = [(name, context.index(name))]
        if i % 4 == 3:
            context, answers = context.replace("was", "is"), []
        qas.append((context, [question(f"q{i}", "who ?", answers, is_impossible=not answers)]))
    return write_squad(path, *qas)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files of a small SQuAD 2.0."""
    folder = tmp_path_factory.mktemp("squad")
    write_vocab(folder)
    write_config(folder / "bert_config.json", vocab_size=len(VOCAB))
    write_questions(folder / "train.json", 48)
    write_questions(folder / "dev.json", 24)
    return folder


def flags_for(folder) -> dict:
    lengths = {"max_seq_length": 16, "max_query_length": 6, "doc_stride": 4}
    files = {"vocab_file": "vocab.txt", "output_dir": "out", "predict_file": "dev.json"}
    files = {flag: f"{folder}/{name}" for flag, name in files.items()}
    on = dict.fromkeys(("do_predict", "version_2_with_negative", "keep_best"), True)
    return files | lengths | on


@pytest.fixture(scope="module")
def trained(folder):
    """The log of a run of the program that trains, evaluates and predicts."""
    return run_program(
        *(f"--{name}={value}" for name, value in flags_for(folder).items()),
        *(f"--bert_config_file={folder}/bert_config.json", f"--train_file={folder}/train.json"),
        *("--do_train", "--train_batch_size=8", "--num_train_epochs=20", "--learning_rate=0.02"),
        "--evaluate_every_steps=60",
    )


def test_training_finds_the_answers(folder, trained):
    output = folder / "out"
    results = results_of(output)
    assert results["best_f1"] > 75.0  # all "no answer" is 25
    assert results["global_step"] in (60, 120)
    assert len(re.findall(r"\*\*\*\*\* Eval results", trained)) == 3  # two in training, one after
    assert "Num orig examples = 24" in trained
    assert "cls/squad/output_weights" in variables(output)
    records = {path.name for path in output.glob("*.tf_record")}
    assert records == {"train.tf_record", "eval.tf_record"}
    # The report has the scores.
    scores = read(output, "eval_report")["all"]["all questions"]
    assert scores["f1"] == pytest.approx(results["f1"])
    found = tables.read_table(f"{output}/predictions.tsv")
    answers = dict(zip(found["id"], found["answer"], strict=True))
    assert answers == read(output, "predictions")


def test_the_threshold_found_gives_the_f1_found(folder, trained, tmp_path):
    found = read(folder / "out", "null_threshold")
    for name, value in found.items():
        assert results_of(folder / "out")[name] == pytest.approx(value, rel=1e-6)
    again = tmp_path / "again"
    shutil.copytree(folder / "out", again)
    flags = flags_for(folder) | {"output_dir": str(again)}
    flags["null_score_diff_threshold"] = found["best_f1_thresh"]
    results = run_in_process(folder, **flags)
    assert read(again, "null_odds") == read(folder / "out", "null_odds")
    assert read(again, "null_threshold") == found
    assert results["f1"] == pytest.approx(found["best_f1"])
    assert results["f1"] == pytest.approx(results_of(again)["f1"], rel=1e-6)


UNANSWERED = ("the store was john", [question("q", "who")])


def test_questions_without_answers_are_answered(folder, tmp_path):
    path = write_squad(tmp_path / "x.json", UNANSWERED)
    flags = flags_for(folder) | {"predict_file": path, "keep_best": False}
    flags |= {"output_dir": f"{tmp_path}/out", "version_2_with_negative": False}
    assert run_in_process(folder, **flags) is None
    assert list(read(tmp_path / "out", "predictions")) == ["q"]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    tables = {"predictions.tsv", "predictions.json", "nbest_predictions.json"}
    assert names == {"eval.tf_record", *tables}


REFUSED = {
    "nothing to do": ({"do_predict": False}, "At least one of --do_train and --do_predict must be"),
    "questions that would be overwritten": (
        {"predict_file": "out/nbest_predictions.json"},
        "must not be a file of --predict_file, which it would re",
    ),
    "nothing to compare with": (
        {"do_train": True, "evaluate_every_steps": 1, "predict_file": "unanswered.json"},
        "where some are missing. Name a file with answers",
    ),
    "contexts without text": (
        {"do_train": True, "do_predict": False, "keep_best": False, "train_file": "empty.json"},
        "--train_file must have a context with text; all contexts are empty",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(folder, tmp_path, monkeypatch, case):
    changes, message = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    for file in ("unanswered.json", "out/nbest_predictions.json"):
        write_squad(tmp_path / file, UNANSWERED)
    empty = (" ", [question("q", "who", [], is_impossible=True)])
    write_squad(tmp_path / "empty.json", empty)
    flags = {**flags_for(folder), "output_dir": "out", "train_file": f"{folder}/train.json"}
    refuses(message, run_in_process, folder, **flags | changes)
