"""Tests of fine-tuning, with classification; whole runs: run_classifier_test."""

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from bert_tf.engine import distribution
from bert_tf.engine.prediction import Predictor
from bert_tf.errors import UserError
from bert_tf.files import checkpoints, records
from bert_tf.model.configuration import BertConfig
from bert_tf.pretrained.folder import read_folder
from bert_tf.runs.folder import reporting
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.fine_tuner import FineTuner, training_schedule
from bert_tf.tasks.registry import TASKS
from tests.support.pretraining_runs import run_forked, variables
from tests.support.refusals import refusal, refuses
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import write_reviews

pytestmark = pytest.mark.usefixtures("eager_if_quick")

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
THREE_STEPS = {"do_train": True, "train_batch_size": 30, "num_train_epochs": 1.0}


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("reviews"))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def classify(reviews, out):
    """Returns the results of run_classifier, run in this process on the reviews."""

    def run(config=None, **flags):
        flags = {**REVIEWS, "output_dir": out, "max_seq_length": 24, **flags}
        return run_in(reviews, "classification", config, **flags)

    return run


# int(90 / 32 * 1.5) = 4 steps: the original rounds only the product.
FOUR_STEPS = {"do_train": True, "train_batch_size": 32, "num_train_epochs": 1.5}
FOUR_STEPS |= {"evaluate_every_steps": 5, "keep_best": True}


@pytest.fixture(scope="module")
def finished(reviews, tmp_path_factory):
    """The folder of a run that trained and evaluated, and what it warned of."""
    folder, texts = tmp_path_factory.mktemp("finished"), []
    # Left by a run that has no model yet, so these classes do not count.
    (folder / "labels.txt").write_text("good\nbad\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging, "warning", lambda text, *args: texts.append(text % args))
        flags = {**REVIEWS, **FOUR_STEPS, "output_dir": folder, "max_seq_length": 24}
        run_in(reviews, "classification", do_eval=True, **flags)
    return folder, texts


@pytest.fixture
def trained(finished, out):
    """The same folder, to change."""
    return shutil.copytree(finished[0], out)


BAD = [
    (
        {"max_seq_length": 41},
        "The length 41 of --max_seq_length must be at most max_position_embeddings (40)",
    ),
    (
        {"predict_batch_size": 2**20, "max_seq_length": 40, "config": {"hidden_size": 2**16}},
        "--predict_batch_size=1048576 sequences of length 40 and hidden_size 65536 take 10,240 GiB",
    ),
    (
        {"train_batch_size": 91, "num_train_epochs": 1.0},
        "91 and --num_train_epochs=1.0 make 0 steps. Raise --num_train_epochs, or change the",
    ),
    ({"length_buckets": "25"}, "no length may be above --max_seq_length=24"),
    (
        {"length_buckets": "none", "group_by_length": True},
        "--group_by_length needs batches of several lengths; give several --length_buckets",
    ),
    ({"freeze_layers": "1"}, "encoder layers from 0 to 0"),
    (
        {"config": {"vocab_size": 18}},
        "vocab.txt has 19 tokens, and vocab_size of --bert_config_file is 18; a checkpoint needs"
        " the vocabulary that it was trained with",
    ),
]


@pytest.mark.parametrize("changes, message", BAD)
def test_what_does_not_fit_is_refused_before_anything_is_trained(changes, message, classify, out):
    refuses(re.escape(message), classify, do_train=True, **changes)
    assert not (out / "checkpoint").exists()


def test_what_is_of_no_use_or_would_do_harm_is_refused(classify, reviews, out):
    harm = "must not be --output_dir or the folder of --init_checkpoint or --vocab_file"
    for changes, message in (
        ({"init_checkpoint": "no/such"}, "--init_checkpoint=no/such: there is no such folder"),
        ({"export_dir": f"{reviews}/"}, harm),
        ({"export_dir": os.path.relpath(reviews)}, harm),
        ({"export_dir": out}, harm),
        ({"export_dir": f"{out}/x/../best"}, harm),
        ({"export_dir": f"file://{out}"}, harm),
        (
            {"export_dir": f"{reviews}/vocab.txt/x"},
            "--export_dir=.* must be a writable directory with free",
        ),
    ):
        refuses(message, classify, do_eval=True, do_train="export_dir" in changes, **changes)


def test_a_smaller_vocabulary_is_warned_about(classify, warnings):
    refuses("make 0 steps", classify, {"vocab_size": 30}, do_train=True, train_batch_size=999)
    assert [text for text in warnings if "Is it the vocabulary that" in text]


def test_a_vocabulary_of_another_model_than_the_run_s_is_refused(reviews, tmp_path, out):
    mine = tmp_path / "mine.txt"
    out.mkdir()
    lines = (reviews / "vocab.txt").read_text().split()
    (out / "vocab.txt").write_text("\n".join(lines))
    mine.write_text("\n".join([*lines[:5], *reversed(lines[5:])]))
    settings = ClassifierSettings(output_dir=str(out), vocab_file=str(mine))
    config = BertConfig.from_json_file(f"{reviews}/bert_config.json")
    make_tokenizer(config, settings, None, settings.output_dir)  # it has no checkpoint yet
    checkpoints.write(f"{out}/model.ckpt-3", {"global_step": np.int64(3)})
    told = refusal(make_tokenizer, config, settings, None, settings.output_dir)
    assert told.startswith(
        f"--vocab_file={mine} must have every token in the same line as the vocabulary of"
        f" --output_dir: '{lines[5]}' is in line 6 of {out}/vocab.txt, but in line {len(lines)} in"
        f" --vocab_file. Give --vocab_file={out}/vocab.txt; "
    )
    settings = dataclasses.replace(settings, vocab_file=f"{reviews}/vocab.txt")
    make_tokenizer(config, settings, None, settings.output_dir)


def test_steps_that_no_int32_counts_are_refused():
    values = {"num_train_epochs": 10000.0, "train_batch_size": 7}
    settings = ClassifierSettings(output_dir="unused", vocab_file="unused", **values)
    message = "at most 2147483647 steps: 2000000 examples, --train_batch_size=7 and .* 2857142857 "
    refuses(message, training_schedule, settings, 2_000_000)


@pytest.mark.slow
def test_each_layer_has_its_own_learning_rate(classify, out):
    """The step of the checkpoints by numpy."""
    flags = {**THREE_STEPS, "layerwise_lr_decay": 0.25, "warmup_proportion": 0.0}
    flags |= {"save_checkpoints_steps": 1, "learning_rate": 0.01, "weight_decay_rate": 0.0}
    config = {"num_hidden_layers": 2}
    classify(config, **flags)
    before, after = (variables(out / f"model.ckpt-{step}") for step in (0, 1))
    powers = {"bert/embeddings/": 4, "bert/encoder/layer_0/": 3, "bert/encoder/layer_1/": 2}
    powers |= {"bert/pooler/": 1, "output_": 0}
    seen = set()
    for name in [name for name in before if f"{name}/adam_m" in before]:
        (part,) = (part for part in powers if name.startswith(part))
        m, v = (after[f"{name}/adam_{slot}"].astype(np.float64) for slot in "mv")
        moved = 0.01 * 0.25 ** powers[part] * m / (np.sqrt(v) + 1e-6)
        np.testing.assert_allclose(before[name] - after[name], moved, rtol=1e-3, atol=3e-7)
        seen |= {part} if np.abs(moved).max() > 1e-5 else set()
    assert seen == powers.keys()


def test_a_trained_model_keeps_its_classes(classify, tmp_path, trained):
    assert (trained / "labels.txt").read_text() == "bad\ngood\n"
    trained_on = {"reads": "texts", "max_seq_length": 24}
    assert json.loads((trained / "model_input.json").read_text()) == trained_on
    assert read_folder(f"{trained}/best").max_seq_length == 24
    elsewhere = {"init_checkpoint": f"{trained}/best", "output_dir": tmp_path / "elsewhere"}
    for changes in ({}, elsewhere):
        message = "was trained with, in the same order: 'bad' and 1 more .*'good', 'bad'"
        refuses(message, classify, do_eval=True, labels=["good", "bad"], **changes)


def test_a_run_that_is_refused_leaves_the_files_of_the_model(classify, reviews, tmp_path, trained):
    files = ("bert_config.json", "vocab.txt", "labels.txt", "tokenizer_config.json")
    before = {name: (trained / name).read_bytes() for name in files}
    longer = tmp_path / "longer.txt"
    longer.write_text((reviews / "vocab.txt").read_text() + "more\nwords\n")
    message = "model.ckpt-4 in --output_dir does not fit the configuration; check"
    refuses(message, classify, {"vocab_size": 23}, vocab_file=longer, **FOUR_STEPS)
    assert {name: (trained / name).read_bytes() for name in files} == before


def test_the_last_weights_may_be_the_best(classify, trained):
    """The second run finds the training complete and its last weights not evaluated."""
    assert 'model_checkpoint_path: "model.ckpt-4"' in (trained / "checkpoint").read_text()
    best = trained / "best"
    for again in (False, True):
        if again:
            shutil.rmtree(best)
            classify(**FOUR_STEPS)
        assert (best / "model.ckpt-4.index").exists()
        assert reporting.read_results(f"{best}/eval_results.txt")["global_step"] == 4


@pytest.mark.parametrize(
    "place,call,changes,name",
    [
        (Run, "report", {}, "best"),
        (Predictor, "predict", {"do_predict": True, "keep_best": False}, "test_results.tsv"),
    ],
    ids=["best", "predictions"],
)
def test_nothing_is_written_over_what_another_run_has(
    classify, trained, monkeypatch, place, call, changes, name
):
    """Another run takes the directory during an evaluation, or while predictions are made."""
    shutil.rmtree(trained / "best")
    original = getattr(place, call)

    def another_begins(*arguments):
        (trained / "run.heartbeat").write_text(
            '{"id": "other", "host": "tpu-7", "pid": 11, "pid_space": "tpu-7", "beats": 1}'
        )
        return original(*arguments)

    monkeypatch.setattr(place, call, another_begins)
    with pytest.raises(OSError, match="has been taken over by process 11 on tpu-7"):
        classify(**{**FOUR_STEPS, **changes})
    assert not (trained / name).exists()


def test_the_log_says_which_weights_are_used(classify, finished, trained, tmp_path, warnings):
    assert [x for x in finished[1] if x.startswith("Training begins with random weights")]
    classify(**THREE_STEPS, init_checkpoint=trained, output_dir=tmp_path / "other")
    assert not [text for text in warnings if "random weights" in text]
    classify(do_eval=True)
    assert any("last weights; set --keep_best to use the best" in text for text in warnings)
    for path in [*trained.glob("model.ckpt-*"), trained / "checkpoint"]:
        path.unlink()
    refuses("out/best must belong to the run in --output_dir", classify, **THREE_STEPS)
    shutil.rmtree(trained / "best")
    classify(do_eval=True, keep_best=True)
    assert any(f"--keep_best: {trained}/best has no checkpoint" in text for text in warnings)


def test_a_checkpoint_without_the_head_predicts_nothing(classify, reviews, tmp_path, out):
    config = BertConfig.from_json_file(f"{reviews}/bert_config.json")
    variables = ClassificationModel(config, 2).variables
    bert = {v.path: v.value for v in variables if v.path.startswith("bert/")}
    checkpoints.write(f"{tmp_path}/bert_model.ckpt", bert)
    message = "bert_model.ckpt must have every weight that the outputs of this model depend on"
    for action in ("do_eval", "do_predict"):
        with pytest.raises(UserError, match=message) as raised:
            classify(init_checkpoint=f"{tmp_path}/bert_model.ckpt", **{action: True})
        assert "lacks 'output_weights', 'output_bias'. Train the model first" in str(raised.value)
    assert not (out / "eval_results.txt").exists()


def test_curves_of_training_and_evaluation_have_the_same_names(finished):
    training, evaluation = (
        {
            value.tag
            for path in (finished[0] / folder).glob("events.*")
            for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
            for value in tf.compat.v1.Event.FromString(record).summary.value
        }
        for folder in ("", "eval")
    )
    assert evaluation == {"accuracy", "accuracy_and_f1", "f1", "loss", "matthews_correlation"}
    assert {"accuracy", "loss", "tokens_per_second"} <= training
    lines = (finished[0] / "metrics.jsonl").read_text().splitlines()
    names = set().union(*map(json.loads, lines))
    assert names == {"step", *training, *(f"eval/{name}" for name in evaluation)}


def test_the_operations_of_a_step_are_the_encoders():
    """By hand, for 6 examples of 4 choices, cut to length 16 of 40."""
    config = BertConfig(50, 8, 3, 2, 20)
    schema = {"input_ids": records.int64_feature([4, 40])}
    settings = SimpleNamespace(train_batch_size=6, freeze_layers="")
    of = SimpleNamespace(_settings=settings, _schema=schema, _teaching={})
    of.start = SimpleNamespace(config=config)
    work = FineTuner._work(of)
    layer = 16 * (4 * 8 * 8 + 2 * 8 * 20) + 2 * 16 * 16 * 8
    assert (work.sequences, work.length, work.flops(16)) == (24, 40, 24 * 3 * 2 * 3 * layer)
    of._teaching = {"objective": None}
    assert FineTuner._work(of).flops is None
    of._teaching, settings.freeze_layers = {}, "embeddings"
    assert FineTuner._work(of).flops is None


def compare_two_replicas_with_one(reviews, folder):
    """The same steps on two devices and on one, in batches of two lengths, without dropout."""
    strategies = {
        "two": distribution.get_strategy("mirrored", num_cpu_devices=2),
        "one": tf.distribute.get_strategy(),
    }
    ClassificationModel.__init__.__defaults__ = (0.0, 0.0)  # output_dropout_prob, label_smoothing
    reviews, folder = Path(reviews), Path(folder)
    for name, strategy in strategies.items():
        flags = {**REVIEWS, "output_dir": folder / name, "do_train": True, "do_eval": True}
        flags |= {"max_seq_length": 28, "train_batch_size": 6, "num_train_epochs": 2.0}
        flags |= {"gradient_reduction": "global_mean_clip", "length_buckets": "16,28"}
        if name == "two":  # before anything is trained
            with pytest.raises(UserError, match=r"--eval_batch_size \(7\) must be a multiple of"):
                run_in(reviews, "classification", QUIET, strategy, eval_batch_size=7, **flags)
            assert not (folder / name).exists()
        results = run_in(reviews, "classification", QUIET, strategy, **flags)
        print(name, results["eval_loss"])
    one, two = (variables(folder / name) for name in strategies)
    assert one.keys() == two.keys() and one["global_step"] == 30
    for name, value in one.items():
        if "key/bias" not in name:  # its gradient is 0 but for rounding
            np.testing.assert_allclose(two[name], value, atol=2e-4 * np.abs(value).max())


@pytest.mark.slow
def test_two_replicas_make_the_steps_of_one(reviews, tmp_path):
    run_forked(
        "from tests.tasks import fine_tuning_test as t\n"
        f"t.compare_two_replicas_with_one({str(reviews)!r}, {str(tmp_path)!r})"
    )


def test_what_tasks_read():
    for second_texts, expected in (
        (["b", "c", "d"], "pairs"),
        ([None] * 3, "texts"),
        (["b", None, "d"], None),
        (["", "b"], None),
    ):
        examples = [InputExample("1", "a", text) for text in second_texts]
        assert ClassificationTask.reads(None, examples) == expected
    found = {name: TASKS[name].task_class().reads(None, [1]) for name in TASKS if name[:2] != "cl"}
    others = {"squad": "pairs", "multiple_choice": "choices"}
    assert found == {name: others.get(name, "texts") for name in found} and len(found) > 3
