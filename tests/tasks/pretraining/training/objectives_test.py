"""Tests of what a run of pre-training reads: records, objectives, Adam's flags and schedules."""

import glob
import re
import types

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.tasks.pretraining.training.dynamic_masking import DynamicMasking
from bert_tf.tasks.pretraining.training.record_files import FittingRecords, Records, fit
from bert_tf.tasks.pretraining.training.run import run_pretraining
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings, RecordBatches
from tests.support.pretraining_runs import (
    CONFIG,
    assert_same_variables,
    make_records,
    variables,
    write_records,
)
from tests.support.refusals import refuses

pytestmark = pytest.mark.usefixtures("eager_if_quick")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Records of length 12: unmasked pairs, masked pairs, unmasked sequences."""
    folder = tmp_path_factory.mktemp("inputs")
    sequences = {"mask": False, "objective": "mlm"}
    make_records(folder, 12, 2, unmasked={"mask": False}, masked={}, sequences=sequences)
    return folder


def pretrain(inputs, folder, records="unmasked", num_steps=4, **changes):
    options = {
        "dynamic_masking": records != "masked",
        "vocab_file": f"{inputs}/vocab.txt",
        "do_train": True,
        "learning_rate": 1e-2,
        "num_warmup_steps": 0,
    }
    settings = PretrainingSettings(
        input_file=f"{inputs}/{records}.tfrecord",
        output_dir=str(folder),
        phases=[RecordBatches(12, num_steps, 8, 2)],
        evaluation_batches=RecordBatches(12, 1, 8, 2),
        **{**options, **changes},
    )
    return run_pretraining(BertConfig.from_dict(CONFIG), tf.distribute.get_strategy(), settings)


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """The folder of a run on unmasked pairs, and its results."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, pretrain(inputs, folder, do_eval=True, save_checkpoints_steps=2)


def test_a_resumed_run_draws_the_masks_of_one_left_alone(trained, inputs, tmp_path):
    folder, results = trained
    for path in folder.glob("model.ckpt-2*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert pretrain(inputs, tmp_path, do_eval=True) == results
    assert_same_variables(tmp_path / "model.ckpt-4", folder / "model.ckpt-4")


def test_the_vocabulary_is_beside_the_checkpoints(trained, inputs):
    """So `bert_tf.load` reads the folder."""
    assert (trained[0] / "vocab.txt").read_bytes() == (inputs / "vocab.txt").read_bytes()
    assert bert_tf.load(str(trained[0])).tokenizer.vocab["[MASK]"] == 4


def test_masked_records_may_be_evaluated_on(trained, inputs):
    masked = f"{inputs}/masked.tfrecord"
    results = pretrain(inputs, trained[0], do_train=False, do_eval=True, eval_input_file=masked)
    assert results["next_sentence_loss"] > 0.0


ADAM = {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 1e-5, "weight_decay_rate": 0.125}


@pytest.fixture(scope="module")
def of_sequences(trained, inputs, tmp_path_factory):
    """The checkpoints before and after a step without next sentences, and the results."""
    folder = tmp_path_factory.mktemp("of_sequences")
    init = f"{trained[0]}/model.ckpt-4"
    options = {"init_checkpoint": init, "objective": "mlm", "num_steps": 1, "do_eval": True}
    results = pretrain(inputs, folder, "sequences", **options, **ADAM)
    return variables(init), variables(folder / "model.ckpt-1"), results


def test_without_next_sentences_what_predicts_them_stays(of_sequences):
    before, after, results = of_sequences
    assert results.keys() == {"global_step", "loss", "masked_lm_loss", "masked_lm_accuracy"}
    assert np.isclose(results["loss"], results["masked_lm_loss"], rtol=1e-4)
    assert before.keys() == after.keys()
    same = {name for name, value in before.items() if np.array_equal(value, after[name])}
    weights = {name for name in same if "adam" not in name and name != "global_step"}
    assert weights == {
        *("bert/pooler/dense/kernel", "bert/pooler/dense/bias"),
        *("cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"),
    }


def test_adam_s_flags_reach_the_update(of_sequences):
    """The first moments from zero are m = (1 - beta_1) g and (1 - beta_2) g^2, here m^2."""
    before, after, _ = of_sequences
    name = "bert/encoder/layer_0/attention/self/query/kernel"
    m, v = (after[f"{name}/adam_{x}"] for x in "mv")
    np.testing.assert_allclose(v, m**2, rtol=1e-4)
    update = m / (np.sqrt(v) + ADAM["epsilon"]) + ADAM["weight_decay_rate"] * before[name]
    np.testing.assert_allclose(after[name], before[name] - 1e-2 * update, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "records, changes, message",
    [
        ("unmasked", {"dynamic_masking": False}, "are unmasked (create_pretraining_data.py"),
        ("masked", {"dynamic_masking": True}, "--dynamic_masking needs unmasked records"),
        ("sequences", {}, "feature next_sentence_labels is missing"),
        ("unmasked", {"objective": "nsp"}, "--objective=nsp must be one of mlm_nsp, mlm"),
        ("unmasked", {"beta_2": 1.5}, "--beta_2=1.5 must be a finite number of at least 0"),
    ],
)
def test_flags_that_do_not_fit(inputs, tmp_path, records, changes, message):
    refuses(re.escape(message), pretrain, inputs, tmp_path, records, **changes)
    assert not glob.glob(f"{tmp_path}/*ckpt*")


PHASES = [RecordBatches(128, 70, 64, 20), RecordBatches(512, 15, 32, 77)]


def scheduled(phases=PHASES, **changes):
    evaluation = RecordBatches(128, 1, 8, 20)
    return PretrainingSettings(
        **{"phases": phases, "evaluation_batches": evaluation, "input_file": "x", "output_dir": "y"}
        | changes
    )


def schedules(**changes):
    """Returns the number of steps and the configuration of each schedule."""
    made = scheduled(**changes).schedules()
    assert not any(schedule.scales_decay for _, schedule in made)  # only ELECTRA's
    return [(steps, *list(schedule.get_config().values())[:-1]) for steps, schedule in made]


def test_one_schedule_or_one_for_each_phase():
    assert schedules() == [(85, 5e-5, 85, 10000, 1.0, 0)]
    shape = {"num_warmup_steps": 9, "decay_power": 0.5, "start_warmup_step": -8}
    assert schedules(learning_rate=0.25, **shape) == [(85, 0.25, 85, 9, 0.5, -8)]
    assert schedules(restart_schedule=True, **shape) == [
        (70, 5e-5, 70, 9, 0.5, -8),
        (15, 5e-5, 15, 9, 0.5, -8),
    ]
    rates = {"phase_learning_rates": "6e-3, 4e-3"}
    assert schedules(**rates) == [(70, 6e-3, 70, 10000, 1.0, 0), (15, 4e-3, 15, 10000, 1.0, 0)]
    warmups = {"phase_warmup_steps": "20,0", "learning_rate": 0.5}
    assert schedules(**warmups) == [(70, 0.5, 70, 20, 1.0, 0), (15, 0.5, 15, 0, 1.0, 0)]
    assert schedules(phases=PHASES[1:], phase_learning_rates="1") == [(15, 1.0, 15, 10000, 1.0, 0)]


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"phase_learning_rates": "6e-3"},
            "--phase_learning_rates must have a number for each phase, 2 in all (see --phases),"
            " separated by commas; got '6e-3'",
        ),
        ({"phase_learning_rates": "6e-3,"}, "2 in all (see --phases), separated by commas; got '6"),
        ({"phase_learning_rates": "1,2,3"}, "2 in all"),
        ({"phase_learning_rates": "6e-3,nan"}, "each value must be a finite number of at least 0"),
        ({"phase_warmup_steps": "20,2.5"}, "--phase_warmup_steps must have a number for each"),
        ({"phase_warmup_steps": "20,-1"}, "--phase_warmup_steps=20,-1: each value must be at lea"),
        (
            {"start_warmup_step": -10000},
            "--start_warmup_step=-10000 is beyond the warm-up of 10000 steps (--num_warmup_steps or"
            " --phase_warmup_steps): it must be at most 0 and above -10000. Leave it out",
        ),
        ({"start_warmup_step": 1}, "--start_warmup_step=1 is beyond the warm-up of 10000 steps"),
        ({"start_warmup_step": -1, "num_warmup_steps": 0}, "beyond the warm-up of 0 steps"),
        ({"start_warmup_step": -8, "phase_warmup_steps": "9,8"}, "beyond the warm-up of 8 steps"),
        (
            {"phase_learning_rates": "6e-3,4e-3", "learning_rate": 1.0},
            "--phase_learning_rates=6e-3,4e-3 excludes --learning_rate=1.0",
        ),
        (
            {"phase_warmup_steps": "20,2", "num_warmup_steps": 3},
            "--phase_warmup_steps=20,2 excludes --num_warmup_steps=3",
        ),
        ({"decay_power": 0.0}, "--decay_power=0.0 must be a finite number above 0"),
        ({"optimizer": "adam"}, "--optimizer=adam must be one of adamw, lamb"),
        ({"clip_norm": -1.0}, "--clip_norm=-1.0 must be a finite number of at least 0"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(changes, message):
    refuses(re.escape(message), scheduled, **changes)


SCHEMA = pretraining_schema(12, 2)


def opened(*files):
    ends = record_checks.check_ends(files)
    batches = RecordBatches(12, 0, 8, 2)
    return FittingRecords({"files": list(files), "batch_size": 8}, 1.0, ends, batches)


def check_content(files, schema, flag):
    Records(flag, files, {}).sample(schema)


def write_changed(path, source, **values):
    """Writes the records of a file with other values of some features, the same in every place."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in tf.data.TFRecordDataset(source).as_numpy_iterator():
            example = tf.train.Example.FromString(record)
            for name, value in values.items():
                feature = example.features.feature[name]
                numbers = getattr(feature, feature.WhichOneof("kind")).value
                numbers[:] = [value] * len(numbers)
            writer.write(example.SerializeToString(deterministic=True))
    return str(path)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"input_mask": 0}, "must have tokens; input_mask is 0 everywhere in the first 7 rec"),
        ({"masked_lm_weights": 0.0}, "must have masked tokens to predict; masked_lm_weights is 0"),
        (
            {"input_ids": 0, "input_mask": 0, "masked_lm_weights": 0.0, "masked_lm_positions": 0},
            "must have tokens; input_mask is 0 everywhere",
        ),
    ],
)
@pytest.mark.parametrize("flag", ["input_file", "eval_input_file"])
def test_records_that_teach_nothing_are_refused(values, message, flag, tmp_path):
    good = write_records(tmp_path / "good", 7, 12, 2, seed=1)
    bad = write_changed(tmp_path / "bad", good, **values)
    with pytest.raises(UserError) as error:
        check_content([bad], SCHEMA, flag)
    assert str(error.value).startswith(f"--{flag}: the records of {bad} {message}")
    check_content([good], SCHEMA, flag)
    check_content([bad, good], SCHEMA, flag)  # some records are good


def test_unmasked_records_have_no_weights_to_look_at(tmp_path):
    schema = pretraining_schema(12, None, "mlm")
    path = tmp_path / "unmasked"
    with tf.io.TFRecordWriter(str(path)) as writer:
        values = {name: [1] * 12 for name in schema}
        writer.write(records.serialize(values, schema))
    check_content([str(path)], schema, "input_file")


@pytest.mark.parametrize(
    "words, whole, is_warned",
    [
        ([0, 1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0], True, True),
        ([0, 1, 0, 0, 2, 3, 4, 5, 6, 7, 8, 0], True, True),
        ([0, 1, 2, 2, 0, 3, 4, 0, 0, 0, 0, 0], True, False),
        ([0, 1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0], False, False),
    ],
)
def test_whole_words_of_one_token_are_warned_of(tmp_path, warnings, words, whole, is_warned):
    schema = pretraining_schema(12, None, "mlm")
    path = str(tmp_path / "unmasked")
    with tf.io.TFRecordWriter(path) as writer:
        values = {name: [1] * 12 for name in schema} | {"word_ids": words}
        for _ in range(5):
            writer.write(records.serialize(values, schema))
    sizes = {"max_seq_length": 12, "max_predictions_per_seq": 2, "batch_size": 3, "num_steps": 1}
    made_for = types.SimpleNamespace(objective="mlm", check=lambda files, flag: None)
    found = Records("input_file", [path], {"word_ids": 12})
    masking = DynamicMasking(4, 30, 2, 0.15, whole)
    fit(found, RecordBatches(**sizes), made_for, {}, masking, 1, "train_batch_size")
    expected = f"--do_whole_word_mask changes nothing in the first 5 records of {path}: each word"
    assert sum(text.startswith(expected) for text in warnings) == is_warned


def test_evaluation_on_records_of_training_is_told_whatever_their_names(tmp_path, caplog):
    train = write_records(tmp_path / "train", 9, 12, 2, seed=1)
    held_out = write_records(tmp_path / "held", 9, 12, 2, seed=2)
    copied = write_changed(tmp_path / "copied", train)
    assert record_checks.check_ends([train])[0][:2] == record_checks.check_ends([copied])[0][:2]
    opened(held_out).warn_of_training([opened(train)], None)
    assert caplog.text == ""
    opened(held_out, copied).warn_of_training([opened(held_out[:-4] + "held")], None)
    assert f"evaluated on records that it is trained on ({held_out})" in caplog.text
    caplog.clear()
    opened(copied, train).warn_of_training([opened(held_out), opened(train)], None)
    assert f"evaluated on records that it is trained on ({copied}, ...)" in caplog.text
    assert "Name held-out records with --eval_input_file" in caplog.text
