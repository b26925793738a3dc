"""Tests of the course of fine-tuning with classification; whole runs: run_classifier_test."""

import dataclasses
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import distribution
from bert_tf.engine.prediction import Predictor
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model import heads
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.processors import get_processor
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns
from bert_tf.tasks.classification.task import run_classifier
from bert_tf.tasks.fine_tuner import training_schedule
from tests.support.pretraining_runs import run_code, variables, write_config
from tests.support.small_classification import SIZES, write_reviews

QUIET = {**SIZES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("reviews"))


@pytest.fixture
def settings(reviews, tmp_path):
    return ClassifierSettings(
        data_dir=str(reviews),
        output_dir=str(tmp_path / "out"),
        vocab_file=f"{reviews}/vocab.txt",
        max_seq_length=24,
    )


def classify(reviews, settings, strategy=None, config_file="bert_config.json", **changes):
    """Returns the results of run_classifier, run in this process on the reviews."""
    config = BertConfig.from_json_file(f"{reviews}/{config_file}")
    config.vocab_size = changes.pop("vocab_size", config.vocab_size)
    config.hidden_size = changes.pop("hidden_size", config.hidden_size)
    columns = TableColumns("review", label_column="stars", **changes.pop("columns", {}))
    return run_classifier(
        config,
        get_processor("table", str(reviews), columns=columns),
        strategy or tf.distribute.get_strategy(),
        dataclasses.replace(settings, **changes),
    )


BAD = {
    "too long": (
        {"max_seq_length": 41},
        "The length 41 of --max_seq_length must be at most max_position_embeddings (40)",
    ),
    "great batch": (
        {"predict_batch_size": 2**20, "max_seq_length": 40, "hidden_size": 2**16},
        "--predict_batch_size=1048576 sequences of length 40 and hidden_size 65536 take 10,240 GiB",
    ),
    "too few": (
        {"train_batch_size": 91, "num_train_epochs": 1.0},
        "90 examples, --train_batch_size=91 and --num_train_epochs=1.0 make 0 steps",
    ),
    "buckets": ({"length_buckets": "25"}, "no length may be above --max_seq_length=24"),
    "grouping": (
        {"length_buckets": "none", "group_by_length": True},
        "--group_by_length needs batches of several lengths; give several --length_buckets",
    ),
    "freezing": ({"freeze_layers": "1"}, "encoder layers from 0 to 0"),
    "vocabulary": (
        {"vocab_size": 18},
        "vocab.txt has 19 tokens, and vocab_size of --bert_config_file is 18; a checkpoint needs"
        " the vocabulary that it was trained with",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_before_anything_is_trained(case, reviews, settings, tmp_path):
    changes, message = BAD[case]
    with pytest.raises(UserError, match=re.escape(message)):
        classify(reviews, settings, do_train=True, **changes)
    assert not (tmp_path / "out" / "checkpoint").exists()


def test_what_is_of_no_use_or_would_do_harm_is_refused(reviews, settings):
    harm = "must not be --output_dir or the folder of --init_checkpoint or --vocab_file"
    for changes, message in (
        ({"init_checkpoint": "no/such"}, "--init_checkpoint=no/such: a checkpoint is named by"),
        ({"export_dir": f"{reviews}/", "do_train": True}, harm),
        ({"export_dir": os.path.relpath(reviews), "do_train": True}, harm),
        ({"export_dir": settings.output_dir, "do_train": True}, harm),
        ({"export_dir": f"{settings.output_dir}/x/../best", "do_train": True}, harm),
        ({"export_dir": f"file://{settings.output_dir}", "do_train": True}, harm),
        (
            {"export_dir": f"{reviews}/vocab.txt/x", "do_train": True},
            "--export_dir=.* must be a writable directory with free",
        ),
    ):
        with pytest.raises(UserError, match=message):
            classify(reviews, settings, **{"do_eval": True, **changes})


def test_a_vocabulary_that_is_smaller_is_told_of(reviews, settings, warnings):
    with pytest.raises(UserError, match="At least one of"):
        classify(reviews, settings)
    with pytest.raises(UserError, match="make 0 steps"):
        classify(reviews, settings, do_train=True, vocab_size=30, train_batch_size=999)
    assert [text for text in warnings if "Is it the vocabulary that" in text]


def test_a_vocabulary_of_another_model_than_the_run_s_is_refused(reviews, settings, tmp_path):
    out, mine = tmp_path / "out", tmp_path / "mine.txt"
    out.mkdir()
    lines = (reviews / "vocab.txt").read_text().split()
    (out / "vocab.txt").write_text("\n".join(lines))
    mine.write_text("\n".join([*lines[:5], *reversed(lines[5:])]))
    settings = dataclasses.replace(settings, vocab_file=str(mine))
    config = BertConfig.from_json_file(f"{reviews}/bert_config.json")
    make_tokenizer(config, settings, None, settings.output_dir)  # it has no checkpoint yet
    checkpoints.write(f"{out}/model.ckpt-3", {"global_step": np.int64(3)})
    with pytest.raises(UserError) as info:
        make_tokenizer(config, settings, None, settings.output_dir)
    assert str(info.value).startswith(
        f"--vocab_file={mine} must have every token in the same line as the vocabulary of"
        f" --output_dir: '{lines[5]}' is in line 6 of {out}/vocab.txt, but in line {len(lines)} in"
        f" --vocab_file. Give --vocab_file={out}/vocab.txt; "
    )
    settings = dataclasses.replace(settings, vocab_file=f"{reviews}/vocab.txt")
    make_tokenizer(config, settings, None, settings.output_dir)


def test_the_number_of_steps_is_the_original_s(reviews, settings, tmp_path):
    """int(90 / 32 * 1.5) = 4: the quotient is not rounded before."""
    classify(reviews, settings, do_train=True, num_train_epochs=1.5, train_batch_size=32)
    assert (tmp_path / "out" / "model.ckpt-4.index").exists()
    assert 'model_checkpoint_path: "model.ckpt-4"' in (tmp_path / "out/checkpoint").read_text()


def test_steps_that_no_int32_counts_are_refused(settings):
    changed = dataclasses.replace(settings, num_train_epochs=10000.0, train_batch_size=7)
    message = "at most 2147483647 steps: 2000000 examples, --train_batch_size=7 and .* 2857142857$"
    with pytest.raises(UserError, match=message):
        training_schedule(changed, 2_000_000)


def test_a_trained_model_keeps_its_classes(reviews, settings, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    # As of a run that had no model yet: its classes bind nobody.
    (out / "labels.txt").write_text("good\nbad\n")
    best = {"evaluate_every_steps": 1, "keep_best": True}
    classify(reviews, settings, do_train=True, num_train_epochs=0.4, **best)
    assert (out / "labels.txt").read_text() == "bad\ngood\n"
    elsewhere = {"init_checkpoint": f"{out}/best", "output_dir": f"{tmp_path}/elsewhere"}
    for changes in ({}, elsewhere):
        message = "was trained with, in the same order: 'bad', 'good' .*'good', 'bad'"
        with pytest.raises(UserError, match=message):
            columns = {"labels": ["good", "bad"]}
            classify(reviews, settings, do_eval=True, columns=columns, **changes)


def test_a_run_that_is_refused_leaves_the_files_of_the_model(reviews, settings, tmp_path):
    out = tmp_path / "out"
    changes = {"do_train": True, "train_batch_size": 45, "num_train_epochs": 0.5}
    classify(reviews, settings, **changes)
    files = ("bert_config.json", "vocab.txt", "labels.txt", "tokenizer_config.json")
    before = {name: (out / name).read_bytes() for name in files}
    longer = tmp_path / "longer.txt"
    longer.write_text((reviews / "vocab.txt").read_text() + "more\nwords\n")
    message = "model.ckpt-1 in --output_dir does not fit the configuration; check"
    with pytest.raises(UserError, match=message):
        classify(reviews, settings, **changes, vocab_file=str(longer), vocab_size=23)
    assert {name: (out / name).read_bytes() for name in files} == before


def test_the_last_weights_may_be_the_best(reviews, settings, tmp_path):
    """Three steps; the second run finds the training complete and its last weights unseen."""
    changes = {"do_train": True, "train_batch_size": 30, "num_train_epochs": 1.0}
    changes |= {"evaluate_every_steps": 5, "keep_best": True}
    best = tmp_path / "out" / "best"
    for _ in range(2):
        classify(reviews, settings, **changes)
        assert (best / "model.ckpt-3.index").exists()
        assert reporting.read_results(f"{best}/eval_results.txt")["global_step"] == 3
        shutil.rmtree(best)


@pytest.mark.parametrize(
    "place,call,changes,name",
    [
        (Run, "report", {"evaluate_every_steps": 2, "keep_best": True}, "best"),
        (Predictor, "predict", {"do_predict": True}, "test_results.tsv"),
    ],
    ids=["best", "predictions"],
)
def test_nothing_is_written_over_what_another_run_has(
    reviews, settings, tmp_path, monkeypatch, place, call, changes, name
):
    """Which takes the directory during an evaluation, or while predictions are made."""
    original = getattr(place, call)

    def another_begins(*arguments):
        (tmp_path / "out" / "run.heartbeat").write_text(
            '{"id": "other", "host": "tpu-7", "pid": 11, "pid_space": "tpu-7", "beats": 1}'
        )
        return original(*arguments)

    monkeypatch.setattr(place, call, another_begins)
    changes = {"do_train": True, "train_batch_size": 30, "num_train_epochs": 1.0, **changes}
    with pytest.raises(OSError, match="has been taken over by process 11 on tpu-7"):
        classify(reviews, settings, **changes)
    assert not (tmp_path / "out" / name).exists()


def test_it_is_said_which_weights_are_taken(reviews, settings, tmp_path, warnings):
    changes = {"do_train": True, "train_batch_size": 30, "num_train_epochs": 1.0}
    classify(reviews, settings, **changes, evaluate_every_steps=2, keep_best=True)
    out = tmp_path / "out"
    classify(reviews, settings, do_eval=True)
    assert any("last weights; set --keep_best to use the best" in text for text in warnings)
    for path in [*out.glob("model.ckpt-*"), out / "checkpoint"]:
        path.unlink()
    with pytest.raises(UserError, match="out/best must belong to the run in --output_dir"):
        classify(reviews, settings, **changes)
    shutil.rmtree(out / "best")
    classify(reviews, settings, do_eval=True, keep_best=True)
    assert any(f"--keep_best: {out}/best has no checkpoint" in text for text in warnings)


def test_training_of_random_weights_is_warned_of(reviews, settings, tmp_path, warnings):
    changes = {"do_train": True, "train_batch_size": 45, "num_train_epochs": 1.0}
    classify(reviews, settings, **changes)
    assert [text for text in warnings if text.startswith("Training begins with random weights")]
    warnings.clear()
    changes |= {"init_checkpoint": settings.output_dir, "output_dir": f"{tmp_path}/other"}
    classify(reviews, settings, **changes)
    assert not [text for text in warnings if "random weights" in text]


def test_a_checkpoint_without_the_head_predicts_nothing(reviews, settings, tmp_path):
    config = BertConfig.from_json_file(f"{reviews}/bert_config.json")
    bert = {
        variable.path: variable.value
        for variable in ClassificationModel(config, 2).variables
        if variable.path.startswith("bert/")
    }
    checkpoints.write(f"{tmp_path}/bert_model.ckpt", bert)
    changes = {"init_checkpoint": f"{tmp_path}/bert_model.ckpt"}
    message = "bert_model.ckpt must have every weight of this task's model to evaluate or predict"
    for action in ("do_eval", "do_predict"):
        with pytest.raises(UserError, match=message) as raised:
            classify(reviews, settings, **changes, **{action: True})
        assert "it lacks output_weights, output_bias. Train the model first" in str(raised.value)
    assert not (tmp_path / "out" / "eval_results.txt").exists()


def test_curves_of_training_and_evaluation_have_the_same_names(reviews, settings, tmp_path):
    changes = {"do_train": True, "do_eval": True, "train_batch_size": 45, "num_train_epochs": 1.0}
    classify(reviews, settings, **changes)
    training, evaluation = (
        {
            value.tag
            for path in (tmp_path / folder).glob("events.*")
            for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
            for value in tf.compat.v1.Event.FromString(record).summary.value
        }
        for folder in ("out", "out/eval")
    )
    assert {"accuracy", "loss"} <= evaluation & training
    assert not [tag for tag in evaluation if tag.startswith("eval_") or tag == "global_step"]


def compare_two_replicas_with_one(reviews, folder):
    """The same steps on two devices and on one, in batches of two lengths, without dropout."""
    strategies = {
        "two": distribution.get_strategy("mirrored", num_cpu_devices=2),
        "one": tf.distribute.get_strategy(),
    }
    heads.OUTPUT_DROPOUT_PROB = 0.0
    reviews, folder = Path(reviews), Path(folder)
    write_config(reviews / "quiet.json", **QUIET)
    for name, strategy in strategies.items():
        settings = ClassifierSettings(
            data_dir=str(reviews),
            output_dir=str(folder / name),
            vocab_file=f"{reviews}/vocab.txt",
            max_seq_length=28,
            do_train=True,
            train_batch_size=6,
            num_train_epochs=2.0,
            gradient_reduction="global_mean_clip",
            length_buckets="16,28",
        )
        if name == "two":  # before anything is trained
            with pytest.raises(UserError, match=r"--eval_batch_size \(7\) must be a multiple of"):
                changes = {"do_eval": True, "eval_batch_size": 7}
                classify(reviews, settings, strategy, "quiet.json", **changes)
            assert not (folder / name).exists()
        results = classify(reviews, settings, strategy, "quiet.json", do_eval=True)
        print(name, results["eval_loss"])
    one, two = (variables(folder / name) for name in strategies)
    assert one.keys() == two.keys() and one["global_step"] == 30
    for name, value in one.items():
        if "key/bias" not in name:  # its gradient is 0 but for rounding
            np.testing.assert_allclose(two[name], value, atol=2e-4 * np.abs(value).max())


@pytest.mark.slow
def test_two_replicas_make_the_steps_of_one(reviews, tmp_path):
    run_code(
        "from tests.tasks import fine_tuning_test as t\n"
        f"t.compare_two_replicas_with_one({str(reviews)!r}, {str(tmp_path)!r})"
    )
