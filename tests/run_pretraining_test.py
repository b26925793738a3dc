"""Tests of run_pretraining: the schedule, evaluation, wrong input."""

import glob
import itertools
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.files import records
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.tasks.pretraining.training.run import run_pretraining
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings
from tests.support.line_task import curves, steps_of
from tests.support.numpy_bert import NumpyBert, learning_rate
from tests.support.pretraining_runs import (
    CONFIG,
    run,
    settings_of_flags,
    variables,
    write_config,
    write_records,
)
from tests.support.refusals import refusal, refuses

pytestmark = pytest.mark.usefixtures("uncompiled")

PHASES = "12:14:8:2,20:6:4:3"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Records of lengths 12 and 20, damaged files, a configuration, in one folder."""
    folder = tmp_path_factory.mktemp("inputs")
    for length, predictions in ((12, 2), (20, 3)):
        for i, count in enumerate((31, 45, 18)):
            path = folder / f"train_{length}_{i}.tfrecord"
            write_records(path, count, length, predictions, seed=length + i)
        write_records(folder / f"dev_{length}.tfrecord", 27, length, predictions, seed=length + 9)
    cut = write_records(folder / "cut.tfrecord", 64, 12, 2, seed=3)
    os.truncate(cut, os.path.getsize(cut) - 7)
    (folder / "empty.tfrecord").write_bytes(b"")
    write_config(folder / "bert_config.json")
    return folder


def flags(inputs, output_dir, *more):
    return [
        f"--input_file={inputs}/train_{{max_seq_length}}_*.tfrecord",
        *(f"--bert_config_file={inputs}/bert_config.json", f"--output_dir={output_dir}"),
        *("--learning_rate=1e-2", "--num_warmup_steps=4"),
        *more,
    ]


def pretrain(inputs, folder, **changes):
    """Returns the results of the library call that the program makes with these flags."""
    flags = {
        "input_file": f"{inputs}/train_{{max_seq_length}}_*.tfrecord",
        "bert_config_file": f"{inputs}/bert_config.json",
        **{"output_dir": str(folder), "learning_rate": 1e-2, "num_warmup_steps": 4, **changes},
    }
    config = BertConfig.from_json_file(flags.pop("bert_config_file"))
    settings = settings_of_flags(PretrainingSettings, **flags)
    return run_pretraining(config, tf.distribute.get_strategy(), settings)


def evaluate_in_numpy(prefix, files, length, predictions, batch_size, num_examples=None):
    """Returns the results of an evaluation of a checkpoint, computed by the numpy model.

    `num_examples` examples repeat the files; None is each example once.
    """
    schema = pretraining_schema(length, predictions)
    dataset = tf.data.TFRecordDataset(sorted(glob.glob(str(files)))).batch(10000)
    (parsed,) = (records.parse(serialized, schema) for serialized in dataset)
    parsed = {name: value.numpy() for name, value in parsed.items()}
    count = len(parsed["input_ids"])
    model = NumpyBert({**CONFIG, "hidden_act": "gelu"}, variables(prefix))
    numbers = list(itertools.islice(itertools.cycle(range(count)), num_examples or count))
    batches = [numbers[i : i + batch_size] for i in range(0, len(numbers), batch_size)]
    loss = 0.0
    values = {"masked_lm": [], "next_sentence": []}  # rows of weight, loss, whether it is correct
    for batch in batches:
        features = {name: value[batch] for name, value in parsed.items()}
        outputs = model.losses(features)
        loss += outputs["total_loss"] * len(batch) / len(numbers)
        for name, labels, weights in (
            ("masked_lm", features["masked_lm_ids"], features["masked_lm_weights"]),
            ("next_sentence", features["next_sentence_labels"], np.ones(len(batch))),
        ):
            log_probs, labels = outputs[f"{name}_log_probs"], labels.reshape(-1)
            losses = -log_probs[np.arange(len(labels)), labels]
            values[name].append([weights.reshape(-1), losses, log_probs.argmax(-1) == labels])
    results = {"loss": loss}
    for name, rows in values.items():
        weights, losses, correct = np.concatenate(rows, axis=1)
        results[f"{name}_loss"] = np.average(losses, weights=weights)
        results[f"{name}_accuracy"] = np.average(correct, weights=weights)
    return results


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """The output directory and the log of a run through two phases, and evaluation."""
    output_dir = tmp_path_factory.mktemp("trained")
    log = run(
        *flags(inputs, output_dir, "--do_train", "--do_eval", f"--phases={PHASES}"),
        *(f"--eval_input_file={inputs}/dev_{{max_seq_length}}.tfrecord", "--eval_batch_size=5"),
        *("--max_eval_steps=0", "--save_checkpoints_steps=3", "--evaluate_every_steps=10"),
    )
    return output_dir, log


def test_the_schedule_runs_through_both_phases(trained):
    output_dir, log = trained
    assert "Phase 1 of 2: steps 0 to 14, batches of 8" in log
    assert "Phase 2 of 2: steps 14 to 20, batches of 4" in log
    assert "Phase 1 of 2: 94 examples in the input; the 14 steps make 1.191 epochs" in log
    assert "Phase 2 of 2: 94 examples in the input; the 6 steps make 0.2553 epochs" in log
    assert variables(output_dir / "model.ckpt-20")["global_step"] == 20
    assert steps_of(output_dir) == [9, 12, 15, 18, 20]


def test_eval_results_are_those_of_numpy_in_the_original_s_form(trained, inputs):
    output_dir, log = trained
    lines = (output_dir / "eval_results.txt").read_text().splitlines()
    results = dict(line.split(" = ") for line in lines)
    names = [f"{x}_{y}" for x in ("masked_lm", "next_sentence") for y in ("accuracy", "loss")]
    assert list(results) == ["global_step", "loss", *names]
    assert results.pop("global_step") == "20"
    checkpoint = output_dir / "model.ckpt-20"
    expected = evaluate_in_numpy(checkpoint, inputs / "dev_20.tfrecord", 20, 3, 5)
    assert {name: float(x) for name, x in results.items()} == pytest.approx(expected, rel=1e-5)
    assert log.count("Evaluating on 27 examples, batches of 5") == 2  # steps 10 and 20, the end
    # Curves for TensorBoard.
    shown = "loss learning_rate gradient_norm examples_per_second seconds_per_step"
    shown = {*names, *shown.split(), "tokens_per_second"}
    assert {tag for tag in curves(output_dir) if not tag.startswith("goodput")} == shown
    assert glob.glob(f"{output_dir}/eval/events.*")


def test_weights_of_an_init_checkpoint_are_the_first_ones(trained, inputs, tmp_path, caplog):
    output_dir, _ = trained
    caplog.set_level("INFO", "absl")
    init_checkpoint = f"{output_dir}/model.ckpt-18"
    pretrain(inputs, tmp_path, do_train=True, phases="12:1:8:2", init_checkpoint=init_checkpoint)
    assert "Initialised 30 variables from" in caplog.text
    before, after = variables(output_dir / "model.ckpt-18"), variables(tmp_path / "model.ckpt-0")
    assert after["global_step"] == 0
    for name, value in after.items():
        expected = np.zeros_like(value) if "/adam_" in name else before[name]
        if name != "global_step":
            np.testing.assert_array_equal(value, expected, err_msg=name)


@pytest.mark.slow
def test_the_original_s_way_of_evaluating_alone(trained, inputs, tmp_path):
    """Without phases, 100 batches that repeat the 94 records, from an initial checkpoint."""
    output_dir, _ = trained
    log = run(
        *flags(inputs, tmp_path, "--do_eval=True", "--max_seq_length=12"),
        "--max_predictions_per_seq=2",
        f"--init_checkpoint={output_dir}",
    )
    assert "Evaluating on 800 examples, batches of 8" in log
    results = reporting.read_results(str(tmp_path / "eval_results.txt"))
    assert results.pop("global_step") == 0
    checkpoint = output_dir / "model.ckpt-20"
    expected = evaluate_in_numpy(checkpoint, inputs / "train_12_*", 12, 2, 8, 800)
    assert results == pytest.approx(expected, rel=1e-5)


def test_evaluation_on_the_records_of_an_earlier_phase(trained, inputs, tmp_path):
    """--max_seq_length chooses the phase, whose number of predictions is used, too."""
    output_dir, _ = trained
    changes = {"do_eval": True, "phases": PHASES, "max_seq_length": 12, "max_eval_steps": 1}
    results = pretrain(inputs, tmp_path, **changes, init_checkpoint=str(output_dir))
    assert results.pop("global_step") == 0
    checkpoint = output_dir / "model.ckpt-20"
    expected = evaluate_in_numpy(checkpoint, inputs / "train_12_*", 12, 2, 8, 8)
    assert results == pytest.approx(expected, rel=1e-5)


def test_a_later_evaluation_knows_what_the_model_was_trained_on(trained, inputs, tmp_path, caplog):
    shutil.copytree(trained[0], tmp_path / "out")
    changes = {"input_file": f"{inputs}/train_20_*.tfrecord", "max_eval_steps": 1}
    changes |= {"do_eval": True, "phases": PHASES, "eval_batch_size": 2}
    pretrain(inputs, tmp_path / "out", **changes)
    message = f"evaluated on records that it is trained on ({inputs}/train_20_0.tfrecord, ...)"
    assert message in caplog.text
    assert "evaluated on records that it is trained on" not in trained[1]  # on other records


@pytest.mark.slow
def test_each_phase_can_have_a_schedule_of_its_own(inputs, tmp_path):
    shared = ("--learning_rate", "--num_warmup_steps")
    log = run(
        *(flag for flag in flags(inputs, tmp_path) if not flag.startswith(shared)),
        *("--do_train", "--iterations_per_loop=1", "--phases=12:6:8:2,20:5:4:3"),
        *("--phase_learning_rates=1e-2,4e-3", "--phase_warmup_steps=3,2", "--start_warmup_step=-1"),
        *("--optimizer=lamb", "--lamb_bias_correction", "--decay_power=2", "--clip_norm=0.5"),
    )
    rates = [
        float(line.split("learning_rate = ")[1].split(",")[0])
        for line in log.splitlines()
        if "learning_rate = " in line
    ]
    first = [learning_rate(step, 1e-2, 6, 3, 2, -1) for step in range(6)]
    second = [learning_rate(step, 4e-3, 5, 2, 2, -1) for step in range(5)]
    np.testing.assert_allclose(rates, first + second, rtol=1e-4)
    assert variables(tmp_path / "model.ckpt-11")["global_step"] == 11


TRAIN = {"do_train": True, "max_seq_length": 12, "max_predictions_per_seq": 2}
# Wrong input: flags that replace the right ones, and part of the message.
WRONG = {
    "nothing to do": ({"do_train": False}, "At least one of --do_train and --do_eval"),
    "no match": ({"input_file": "{inputs}/none*.tfrecord"}, "none*.tfrecord matches no file"),
    "missing": ({"input_file": "{inputs}/none.tfrecord"}, "none.tfrecord does not exist"),
    "length": (
        {"input_file": "{inputs}/train_12_0.tfrecord", "max_seq_length": 20},
        "is 12 in the file, 20 by the flags (--max_seq_length=12 would fit)",
    ),
    "predictions": ({"max_predictions_per_seq": 5}, "--max_predictions_per_seq=2 would fit"),
    "positions": ({"max_seq_length": 512}, "must be at most max_position_embeddings (24)"),
    "config": ({"bert_config_file": "{inputs}/none.json"}, "none.json cannot be read"),
    "phases": ({"phases": "128:100"}, "list of length:steps:batch:predictions"),
    "rate": ({"learning_rate": float("nan")}, "a finite number of at least 0"),
    "seed": ({"random_seed": -1}, "random_seed"),
    "parts": ({"gradient_accumulation_steps": 3}, "(3) must divide the examples"),
    "checkpoint": ({"init_checkpoint": "{inputs}/none.ckpt"}, "no checkpoint with that prefix"),
    "bucket": ({"output_dir": "gs://nobody/out"}, "Google Cloud Storage needs"),
    "bucket of records": ({"input_file": "gs://nobody/x"}, "Google Cloud Storage needs"),
    "truncated": ({"input_file": "{inputs}/cut.tfrecord"}, "is truncated at record 63"),
    "empty": ({"input_file": "{inputs}/empty.tfrecord"}, "empty.tfrecord is empty"),
    "file system": ({"output_dir": "abc://out"}, "does not support abc://"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused_before_the_first_step(inputs, tmp_path, name):
    changes, message = WRONG[name]
    changes = {
        flag: value.format(inputs=inputs) if isinstance(value, str) else value
        for flag, value in changes.items()
    }
    refuses(re.escape(message), pretrain, inputs, tmp_path / "out", **{**TRAIN, **changes})
    assert not glob.glob(f"{tmp_path}/out/*ckpt*")


def test_the_program_reports_wrong_flags_in_one_line(inputs, tmp_path):
    for more, message in (
        (["--phases=12:6:8:2", "--num_train_steps=7"], "must equal the sum of the steps"),
        (["--phases=12:6:8:2", "--tpu=local"], "--tpu=local: no TPU can be reached"),
        (["False"], "received the stray words 'False'"),
    ):
        log = run(*flags(inputs, tmp_path / "out", "--do_train", *more), status=1)
        (line,) = [line for line in log.splitlines() if message in line]
        assert line.startswith("run_pretraining.py: ")
        assert "Traceback" not in log
        assert not glob.glob(f"{tmp_path}/out/*ckpt*")


def test_a_configuration_that_does_not_fit_the_checkpoint(trained, inputs, tmp_path):
    output_dir, _ = trained
    more = {**TRAIN, "bert_config_file": write_config(tmp_path / "other.json", vocab_size=41)}
    told = refusal(pretrain, inputs, tmp_path / "out", **more, init_checkpoint=str(output_dir))
    assert "does not fit the configuration" in told
    name = "bert/embeddings/word_embeddings"
    assert f"{name}: float32 [37, 8] in the checkpoint, float32 [41, 8] in the model" in told
    told = refusal(pretrain, inputs, output_dir, **more)
    assert "in --output_dir does not fit the configuration" in told
    assert "cls/predictions/output_bias/adam_v" in told


def test_ids_beyond_the_vocabulary(inputs, tmp_path):
    path = write_records(tmp_path / "big.tfrecord", 64, 12, 2, seed=3, vocab_size=99)
    rule = r"must be from 0 to 36 \(vocab_size of --bert_config_file is 37\)"
    refuses(f"{path}.*{rule}", pretrain, inputs, tmp_path / "out", **TRAIN, input_file=path)
