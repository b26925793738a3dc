"""run_pretraining.py as its users run it: the schedule, evaluation, wrong input."""

import glob
import os
import resource
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.support.pretraining_runs import run, variables, write_config, write_records


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Records of lengths 12 and 20, a configuration, in one folder."""
    folder = tmp_path_factory.mktemp("inputs")
    for length, predictions in ((12, 2), (20, 3)):
        for i, count in enumerate((31, 45, 18)):
            path = folder / f"train_{length}_{i}.tfrecord"
            write_records(path, count, length, predictions, seed=length + i)
        write_records(folder / f"dev_{length}.tfrecord", 27, length, predictions, seed=length + 9)
    write_config(folder / "bert_config.json")
    return folder


def flags(inputs, output_dir, *more):
    return [
        f"--input_file={inputs}/train_{{max_seq_length}}_*.tfrecord",
        f"--bert_config_file={inputs}/bert_config.json",
        f"--output_dir={output_dir}",
        "--learning_rate=1e-2",
        "--num_warmup_steps=4",
        *more,
    ]


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """The output directory and the log of a run through two phases, and evaluation."""
    output_dir = tmp_path_factory.mktemp("trained")
    log = run(
        *flags(inputs, output_dir, "--do_train", "--do_eval", "--phases=12:14:8:2,20:6:4:3"),
        f"--eval_input_file={inputs}/dev_{{max_seq_length}}.tfrecord",
        "--eval_batch_size=5",
        "--max_eval_steps=0",
        "--save_checkpoints_steps=3",
        "--evaluate_every_steps=10",
    )
    return output_dir, log


def test_the_schedule_runs_through_both_phases(trained):
    output_dir, log = trained
    assert "Phase 1 of 2: steps 0 to 14, batches of 8" in log
    assert "Phase 2 of 2: steps 14 to 20, batches of 4" in log
    assert variables(output_dir / "model.ckpt-20")["global_step"] == 20
    kept = {path.split("-")[-1] for path in glob.glob(f"{output_dir}/model.ckpt-*[0-9].index")}
    assert kept == {"9.index", "12.index", "15.index", "18.index", "20.index"}


def test_eval_results_are_in_the_original_s_form(trained):
    output_dir, log = trained
    lines = (output_dir / "eval_results.txt").read_text().splitlines()
    results = dict(line.split(" = ") for line in lines)
    assert list(results) == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "next_sentence_accuracy",
        "next_sentence_loss",
    ]
    assert results["global_step"] == "20"
    losses = float(results["masked_lm_loss"]) + float(results["next_sentence_loss"])
    assert abs(float(results["loss"]) - losses) < 0.3  # means over batches and over tokens differ
    assert log.count("Evaluating on 27 examples, batches of 5") == 2  # steps 10 and 20, the end


def test_curves_for_tensorboard(trained):
    output_dir, _ = trained
    tags = set()
    for path in glob.glob(f"{output_dir}/events.*"):
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            tags |= {v.tag for v in tf.compat.v1.Event.FromString(record).summary.value}
    assert tags == {
        "loss",
        "masked_lm_loss",
        "masked_lm_accuracy",
        "next_sentence_loss",
        "next_sentence_accuracy",
        "learning_rate",
        "gradient_norm",
        "examples_per_second",
    }
    assert glob.glob(f"{output_dir}/eval/events.*")


@pytest.mark.slow
def test_a_truncated_newest_checkpoint_leads_to_the_one_before(trained, inputs, tmp_path):
    output_dir = tmp_path / "out"
    shutil.copytree(trained[0], output_dir)
    os.truncate(output_dir / "model.ckpt-20.data-00000-of-00001", 1000)
    phases = "--phases=12:14:8:2,20:6:4:3"
    log = run(*flags(inputs, output_dir, "--do_train", phases))
    warned = [line for line in log.splitlines() if "Looking for the checkpoint before it" in line]
    assert len(warned) == 1 and "model.ckpt-20" in warned[0]
    assert f"Resumed from {output_dir}/model.ckpt-18" in log and "Saved step 20" in log
    expected = variables(trained[0] / "model.ckpt-20")
    for name, value in variables(output_dir / "model.ckpt-20").items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.slow
def test_a_finished_run_says_so_and_one_with_more_steps_goes_on(trained, inputs, tmp_path):
    """Also from another place: the checkpoints are named relative to their directory."""
    output_dir = tmp_path / "moved"
    shutil.copytree(trained[0], output_dir)
    phases = "--phases=12:14:8:2,20:6:4:3"
    log = run(*flags(inputs, output_dir, "--do_train", phases))
    assert "Nothing to train" in log and "at step 20 of 20 already" in log
    log = run(*flags(inputs, output_dir, "--do_train", phases, "--phases=12:14:8:2,20:9:4:3"))
    assert "Resumed from" in log and "model.ckpt-20" in log
    assert variables(output_dir / "model.ckpt-23")["global_step"] == 23


def test_weights_of_an_init_checkpoint_are_the_first_ones(trained, inputs, tmp_path):
    output_dir, _ = trained
    log = run(
        *flags(inputs, tmp_path, "--do_train", "--phases=12:1:8:2"),
        f"--init_checkpoint={output_dir}/model.ckpt-18",
    )
    assert "Initialised 30 variables from" in log
    before, after = variables(output_dir / "model.ckpt-18"), variables(tmp_path / "model.ckpt-0")
    assert after["global_step"] == 0
    for name, value in after.items():
        expected = np.zeros_like(value) if "/adam_" in name else before[name]
        if name != "global_step":
            np.testing.assert_array_equal(value, expected, err_msg=name)


def test_the_original_s_way_of_evaluating_alone(trained, inputs, tmp_path):
    """Without phases, 100 batches that repeat the 94 records, from an initial checkpoint."""
    output_dir, _ = trained
    log = run(
        *flags(inputs, tmp_path, "--do_eval=True", "--max_seq_length=12"),
        "--max_predictions_per_seq=2",
        f"--init_checkpoint={output_dir}",
    )
    assert "Evaluating on 800 examples, batches of 8" in log
    assert "global_step = 0" in (tmp_path / "eval_results.txt").read_text()


def test_evaluation_on_the_records_of_an_earlier_phase(trained, inputs, tmp_path):
    """A length that a phase has brings that phase's predictions along."""
    output_dir, _ = trained
    run(
        *flags(inputs, tmp_path, "--do_eval", "--phases=12:14:8:2,20:6:4:3", "--max_seq_length=12"),
        f"--init_checkpoint={output_dir}",
        "--max_eval_steps=1",
    )
    assert (tmp_path / "eval_results.txt").exists()


@pytest.mark.slow
def test_memory_savers_change_nothing_but_rounding(inputs, tmp_path):
    """Dropout off: parts of a batch have masks of their own."""
    config = write_config(
        tmp_path / "quiet.json", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    ends = []
    for name, more in (
        ("plain", []),
        ("saving", ["--gradient_accumulation_steps=4", "--recompute_activations"]),
    ):
        run(
            *flags(inputs, tmp_path / name, "--do_train", "--phases=12:5:8:2"),
            f"--bert_config_file={config}",
            *more,
        )
        ends.append(variables(tmp_path / name / "model.ckpt-5"))
    for name, value in ends[0].items():
        if "key/bias" not in name:  # nothing but rounding noise, which Adam blows up
            np.testing.assert_allclose(value, ends[1][name], atol=2e-5, rtol=1e-4, err_msg=name)


@pytest.mark.slow
def test_each_phase_can_have_a_schedule_of_its_own(inputs, tmp_path):
    log = run(
        *flags(inputs, tmp_path, "--do_train", "--phases=12:6:8:2,20:6:4:3", "--restart_schedule"),
        "--iterations_per_loop=1",
        "--num_warmup_steps=2",
    )
    rates = [
        float(line.split("learning_rate = ")[1].split(",")[0])
        for line in log.splitlines()
        if "learning_rate = " in line
    ]
    one = [0.0, 5e-3, 1e-2 * 4 / 6, 1e-2 * 3 / 6, 1e-2 * 2 / 6, 1e-2 / 6]
    np.testing.assert_allclose(rates, one + one, rtol=1e-4)


# Wrong input: (flags that replace the right ones, what the message must hold).
TRAIN = ["--do_train", "--max_seq_length=12", "--max_predictions_per_seq=2"]
WRONG = {
    "nothing to do": (["--nodo_train"], "At least one of --do_train and --do_eval"),
    "no match": (["--input_file={inputs}/none*.tfrecord"], "none*.tfrecord matches no file"),
    "missing": (["--input_file={inputs}/none.tfrecord"], "none.tfrecord does not exist"),
    "length": (
        ["--input_file={inputs}/train_12_0.tfrecord", "--max_seq_length=20"],
        "is 12 in the file, 20 by the flags (--max_seq_length=12 would fit)",
    ),
    "predictions": (["--max_predictions_per_seq=5"], "--max_predictions_per_seq=2 would fit"),
    "positions": (["--max_seq_length=512"], "must be at most max_position_embeddings (24)"),
    "config": (["--bert_config_file={inputs}/none.json"], "none.json cannot be read"),
    "phases": (["--phases=128:100"], "list of length:steps:batch:predictions"),
    "sum": (["--phases=12:6:8:2", "--num_train_steps=7"], "must equal the sum of the steps"),
    "batch": (["--phases=12:6:8:2", "--train_batch_size=7"], "--train_batch_size is in --phases"),
    "rate": (["--learning_rate=nan"], "a finite number of at least 0"),
    "seed": (["--random_seed=-1"], "random_seed"),
    "no use": (["--eval_input_file={inputs}/dev_12.tfrecord"], "--eval_input_file needs --do_eval"),
    "no training": (["--nodo_train", "--do_eval", "--evaluate_every_steps=2"], "needs --do_train"),
    "parts": (["--gradient_accumulation_steps=3"], "(3) must divide the examples"),
    "checkpoint": (["--init_checkpoint={inputs}/none.ckpt"], "PREFIX.index"),
    "bucket": (["--output_dir=gs://nobody/out"], "Google Cloud Storage needs"),
    "bucket of records": (["--input_file=gs://nobody/x"], "Google Cloud Storage needs"),
    "file system": (["--output_dir=abc://out"], "knows no file system abc://"),
    "tpu": (["--tpu=local"], "--tpu=local: no TPU can be reached"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused_before_the_first_step(inputs, tmp_path, name):
    changes, message = WRONG[name]
    changes = [change.format(inputs=inputs) for change in changes]
    log = run(*flags(inputs, tmp_path / "out", *TRAIN), *changes, status=1)
    assert message in log
    assert "Traceback" not in log
    assert not glob.glob(f"{tmp_path}/out/*ckpt*")


def test_stray_words_are_refused(inputs, tmp_path):
    log = run(*flags(inputs, tmp_path, "--do_train", "False"), status=1)
    assert "received the stray words 'False'" in log


def test_a_configuration_that_does_not_fit_the_checkpoint(trained, inputs, tmp_path):
    output_dir, _ = trained
    config = write_config(tmp_path / "other.json", vocab_size=41)
    more = [*TRAIN, f"--bert_config_file={config}"]
    log = run(*flags(inputs, tmp_path / "out", *more), f"--init_checkpoint={output_dir}", status=1)
    assert "does not fit the configuration" in log
    assert (
        "bert/embeddings/word_embeddings: float32 [37, 8] in the checkpoint, float32 [41, 8] in the"
        " model" in log
    )
    log = run(*flags(inputs, output_dir, *more), status=1)
    assert "in --output_dir does not fit the configuration" in log
    assert "cls/predictions/output_bias/adam_v" in log


def test_ids_beyond_the_vocabulary(inputs, tmp_path):
    path = write_records(tmp_path / "big.tfrecord", 64, 12, 2, seed=3, vocab_size=99)
    log = run(*flags(inputs, tmp_path / "out", *TRAIN, f"--input_file={path}"), status=1)
    assert "must be at least 0 and below 37 (vocab_size of --bert_config_file)" in log
    assert path in log


def test_a_damaged_file_is_named(inputs, tmp_path):
    path = write_records(tmp_path / "cut.tfrecord", 64, 12, 2, seed=3)
    os.truncate(path, os.path.getsize(path) - 7)
    log = run(*flags(inputs, tmp_path / "out", *TRAIN, f"--input_file={path}"), status=1)
    assert f"{path} is truncated at record 63" in log
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    log = run(
        *flags(inputs, tmp_path / "out2", *TRAIN),
        f"--input_file={tmp_path}/empty.tfrecord",
        status=1,
    )
    assert "empty.tfrecord is empty" in log


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_checkpoint_whole(inputs, tmp_path):
    """As if it were: no file may become larger than a part of a checkpoint."""
    more = [*TRAIN, "--num_train_steps=4", "--train_batch_size=8", "--save_checkpoints_steps=2"]
    run(*flags(inputs, tmp_path / "out", *more))
    before = sorted(os.listdir(tmp_path / "out"))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))

    log = run(
        *flags(inputs, tmp_path / "out", *more, "--num_train_steps=6"),
        status=74,
        preexec_fn=limit,
    )
    assert "The checkpoint of step 6 cannot be written to --output_dir=" in log
    assert f"The last complete one is {tmp_path}/out/model.ckpt-4" in log
    after = [name for name in sorted(os.listdir(tmp_path / "out")) if "events" not in name]
    assert after == [name for name in before if "events" not in name]
    run(*flags(inputs, tmp_path / "out", *more, "--num_train_steps=6"))
    assert variables(tmp_path / "out")["global_step"] == 6


def test_help_tells_what_the_flags_do():
    log = run("--help", status=0)
    for flag in ("--phases", "--[no]recompute_activations", "--tpu", "--max_eval_steps"):
        assert flag in log
