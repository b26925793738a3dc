"""Packed rows: figures and gradients are those of the same sequences unpacked; whole runs."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.files import records
from bert_tf.model.configuration import BertConfig
from bert_tf.model.encoder import attention_within_sequences
from bert_tf.modeling import BertModel
from bert_tf.runs.training import phase_steps
from bert_tf.tasks.pretraining.records.packing import pack_row, split_row
from bert_tf.tasks.pretraining.schema import MLM, MLM_NSP, MLM_SOP, pretraining_schema
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.pretraining.training.run import run_pretraining
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings
from tests.support import objectives, packed_batches
from tests.support.packed_batches import ROWS, both_batches, make_sequences, plain_record
from tests.support.pretraining_runs import CONFIG, VOCAB_SIZE, run_forked, settings_of_flags
from tests.support.refusals import refusal
from tests.support.small_pretraining import SMALL, difference, tensors

LENGTH, PREDICTIONS, PLACES = 20, 5, 3


def write(folder, name, num_rows, seed, length=LENGTH, predictions=PREDICTIONS, places=PLACES):
    """Writes rows to `packed_NAME`, and the same sequences one by one to `plain_NAME`."""
    rng = np.random.RandomState(seed)
    rows = []
    while len(rows) < num_rows:
        lengths = rng.randint(3, length // 2, size=rng.randint(1, places + 1))
        if lengths.sum() <= length:
            rows.append(tuple(lengths))
    rows = make_sequences(rows, predictions, MLM_NSP, VOCAB_SIZE, seed)
    for kind, written in (
        ("plain", [plain_record(x, length, predictions) for row in rows for x in row]),
        ("packed", rows),
    ):
        packed = kind == "packed"
        schema = pretraining_schema(length, predictions, MLM_NSP, places if packed else None)
        with tf.io.TFRecordWriter(f"{folder}/{kind}_{name}") as writer:
            for row in written:
                record = pack_row(row, schema) if packed else row
                writer.write(records.serialize(record, schema))
    assert all(len(list(split_row(row, predictions + places // 2))) == 1 for row in rows)
    return sum(map(len, rows))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """The records, and the number of sequences of each file."""
    folder = tmp_path_factory.mktemp("inputs")
    counts = {"20_a": write(folder, "20_a", 31, 1), "20_b": write(folder, "20_b", 23, 2)}
    counts["dev"] = write(folder, "dev", 17, 3)
    write(folder, "12_a", 40, 4, length=12, predictions=4, places=2)
    return folder, counts


def pretrain(inputs, output_dir, input_file, strategy=None, **changes):
    """Returns the results of the library call that the program makes."""
    flags = {"input_file": f"{inputs[0]}/{input_file}", "output_dir": str(output_dir), **changes}
    if "phases" not in flags:
        flags = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS, **flags}
    settings = settings_of_flags(PretrainingSettings, **flags)
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig.from_dict({**CONFIG, **rates})
    return run_pretraining(config, strategy or tf.distribute.get_strategy(), settings)


@pytest.mark.slow
def test_a_batch_has_the_sequences_that_the_flag_says(inputs, tmp_path, caplog, monkeypatch):
    folder, counts = inputs
    monkeypatch.setattr(phase_steps, "peak_flops", lambda strategy: 1e9)
    caplog.set_level("INFO", "absl")
    pretrain(inputs, tmp_path, "packed_20_*", do_train=True, num_train_steps=3, train_batch_size=12)
    mean = (counts["20_a"] + counts["20_b"]) / 54
    rows = round(12 / mean)
    assert 5 <= rows <= 9
    assert (
        f"Packed records: --train_batch_size=12 sequences are {rows} rows of {mean:.4g} sequences"
        f" on average, {rows * mean:.5g} in all"
    ) in caplog.text
    assert f"batches of {rows}" in caplog.text
    (speed,) = re.findall(r"step 3: examples_per_second = ([\d.e+]+)", caplog.text)
    assert float(speed) > 0
    with open(tmp_path / "metrics.jsonl") as file:
        last = json.loads(file.readlines()[-1])
    assert last["tokens_per_second"] == pytest.approx(rows * LENGTH / last["seconds_per_step"])
    layer = LENGTH * (4 * 8 * 8 + 2 * 8 * 12) + 2 * LENGTH * LENGTH * 8
    flops = rows * 3 * 2 * (layer + PREDICTIONS * (8 * 8 + 8 * VOCAB_SIZE) + 8 * 8 + 8 * 2)
    assert last["mfu"] == pytest.approx(flops / last["seconds_per_step"] / 1e9)


@pytest.mark.slow
def test_evaluation_has_the_figures_of_the_sequences(inputs, tmp_path):
    """In one batch, and in several, the last of them not full, of untrained weights."""
    results = []
    for kind, batch_size in (("plain", 200), ("packed", 200), ("packed", 11)):
        settings = {"eval_batch_size": batch_size, "max_eval_steps": 0}
        output_dir = tmp_path / f"{kind}_{batch_size}"
        results.append(pretrain(inputs, output_dir, f"{kind}_dev", do_eval=True, **settings))
    assert len(results[0]) == 6 and results[1] == pytest.approx(results[0], rel=1e-6)
    # A mean over batches, and these have other sequences. All else are sums over sequences.
    losses = [result.pop("loss") for result in results]
    assert losses[2] == pytest.approx(losses[0], rel=0.05)
    assert results[2] == pytest.approx(results[0], rel=1e-6)


REPLICAS = """
import sys
import numpy as np
import tensorflow as tf
from pathlib import Path
from bert_tf.engine.distribution import get_strategy
from tests.support.pretraining_runs import variables
from tests.tasks.pretraining.training import packed_training_test as test
strategy = get_strategy("mirrored", 2)
folder, output, counts = Path(sys.argv[1]), Path(sys.argv[2]), eval(sys.argv[3])
results = {}
for kind in ("plain", "packed"):
    results[kind] = test.pretrain(
        (folder, counts), output / kind, f"{kind}_dev", strategy, do_eval=True,
        eval_batch_size=200, max_eval_steps=0,
    )
    print(kind, results[kind])
for name, value in results["plain"].items():
    assert abs(results["packed"][name] - value) <= 1e-5 * abs(value), name
test.pretrain(
    (folder, counts), output / "trained", "packed_{max_seq_length}_*", strategy, do_train=True,
    phases="12:2:12:4,20:1:12:5", gradient_accumulation_steps=2, recompute_activations=True,
)
assert variables(output / "trained")["global_step"] == 3
"""


@pytest.mark.slow
def test_two_replicas(inputs, tmp_path):
    folder, counts = inputs
    run_forked(REPLICAS, folder, tmp_path, counts)


def refused(folder, tmp_path, **changes):
    flags = {"do_train": True, "num_train_steps": 1, **changes}
    return refusal(pretrain, (folder, {}), tmp_path, "packed_20_*", **flags)


def test_records_with_other_places_are_refused(inputs, tmp_path):
    write(tmp_path, "20_b", 9, 5, places=4)
    first = shutil.copy(inputs[0] / "packed_20_a", tmp_path / "packed_20_a")
    message = refused(tmp_path, tmp_path)
    assert message.startswith(
        f"--input_file: {tmp_path}/packed_20_b was made with other settings: length of"
        " cls_positions, next_sentence_labels, next_sentence_weights is 4 in the file, 3 in the"
        " first file (--max_sequences_per_pack=4 would fit)"
    )
    shutil.copy(inputs[0] / "plain_20_a", first)
    message = refused(tmp_path, tmp_path)
    assert f"{tmp_path}/packed_20_b was made with other settings" in message
    assert "next_sentence_labels is 4 in the file, 1 by the flags" in message


def test_other_predictions_are_refused(inputs, tmp_path):
    message = refused(inputs[0], tmp_path, max_predictions_per_seq=9)
    assert message == (
        f"--input_file: {inputs[0]}/packed_20_a was made with different settings: its packed"
        " records have 6 masked positions. Give --max_predictions_per_seq=5, which fits,"
        " instead of 9"
    )
    message = refused(inputs[0], tmp_path, max_seq_length=22)
    assert "is 20 in the file, 22 by the flags (--max_seq_length=20 would fit)" in message


def test_a_sequence_number_beyond_the_places_is_found(inputs, tmp_path):
    schema = pretraining_schema(LENGTH, PREDICTIONS, MLM_NSP, PLACES)
    (row,) = make_sequences([(4, 5)], PREDICTIONS, MLM_NSP, VOCAB_SIZE)
    record = pack_row(row, schema)
    record["input_mask"][6] = 4
    with tf.io.TFRecordWriter(f"{tmp_path}/packed_20_a") as writer:
        writer.write(records.serialize(record, schema))
    message = refused(tmp_path, tmp_path)
    assert "record 0: input_mask must be from 0 to 3; received 4" in message


SIZES = {"max_position_embeddings": packed_batches.ROW_LENGTH + 2}
SEQUENCES = sum(map(len, ROWS))


def make_model(seed=1, objective=MLM_NSP, **options):
    """Returns a model with random weights."""
    model = PretrainingModel(BertConfig.from_dict({**SMALL, **SIZES}), objective, **options)
    objectives.set_random_weights(model, seed)
    return model


def compute(model, features):
    """Returns loss, metrics and dense gradients of a batch without dropout."""
    features = tensors(features)
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss, sums = objectives.compute(model, features, True, tf.constant([1, 2]))
    gradients = tape.gradient(loss, variables)
    named = zip(model.trainable_variables, gradients, strict=True)
    dense = {v.path: tf.convert_to_tensor(g).numpy() for v, g in named if g is not None}
    return loss.numpy(), {name: np.array(pair) for name, pair in sums.items()}, dense


def assert_equal_gradients(actual, expected, bound=1e-6):
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        if "key/bias" in name:  # 0 but for rounding: softmax does not change by it
            assert np.abs(actual[name]).max() < bound and np.abs(gradient).max() < bound
        else:
            assert difference(actual[name], gradient) < bound, name


OPTIONS = {"recompute_activations": True}, {"use_one_hot_embeddings": True}


@pytest.mark.parametrize(
    "objective,options", [(MLM_NSP, {}), (MLM, {}), *((MLM_NSP, options) for options in OPTIONS)]
)
def test_loss_metrics_and_gradients_are_those_of_the_sequences_unpacked(objective, options):
    plain, packed = both_batches(objective=objective)
    assert len(plain["input_ids"]) == SEQUENCES and len(packed["input_ids"]) == len(ROWS)
    model = make_model(objective=objective, **options)
    loss, sums, gradients = compute(model, plain)
    packed_loss, packed_sums, packed_gradients = compute(model, packed)
    assert packed_loss == pytest.approx(loss, rel=1e-6)
    assert packed_sums.keys() == sums.keys() and len(sums) == 2 * len(objective.split("_n"))
    for name, pair in sums.items():
        np.testing.assert_allclose(packed_sums[name], pair, rtol=1e-6, err_msg=name)
    assert_equal_gradients(packed_gradients, gradients)


def test_each_vector_is_that_of_the_sequence_alone():
    plain, packed = both_batches()
    model = make_model()
    names = ("input_ids", "input_mask", "segment_ids")
    alone = model.bert(*(tf.constant(plain[name]) for name in names))
    together = model.bert(
        *(tf.constant(packed[name]) for name in names),
        position_ids=tf.constant(packed["position_ids"]),
        cls_positions=tf.constant(packed["cls_positions"]),
    )
    pooled = together.pooled_output.numpy().reshape(len(ROWS), packed_batches.PLACES, -1)
    number = 0
    for row, lengths in enumerate(ROWS):
        begin = 0
        for place, length in enumerate(lengths):
            end = begin + length
            layers = together.all_encoder_layers, alone.all_encoder_layers
            for ours, theirs in zip(*layers, strict=True):
                assert difference(ours[row, begin:end], theirs[number, :length]) < 1e-6
            assert difference(pooled[row, place], alone.pooled_output[number]) < 1e-6
            probs = together.attention_probs[0][row, :, begin:end].numpy()
            assert probs[:, :, begin:end].sum(-1) == pytest.approx(1.0, abs=1e-6)
            begin, number = end, number + 1


def test_a_token_attends_to_its_own_sequence():
    mask = attention_within_sequences(tf.constant([[1, 1, 2, 0], [1, 2, 2, 3]]))
    assert mask.dtype == tf.int32
    assert mask.numpy().tolist() == [
        [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]],
        [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]],
    ]


def test_a_row_with_one_sequence_is_the_model_of_old():
    """To the bit: the same operations, but for a mask and positions that are given."""
    bert = BertModel(BertConfig.from_dict({**SMALL, **SIZES}))
    ids = tf.constant(np.random.RandomState(4).randint(0, 53, (3, 9)), tf.int32)
    positions = tf.tile(tf.range(9)[tf.newaxis], [3, 1])
    packed = bert(ids, position_ids=positions, cls_positions=tf.zeros([3, 1], tf.int32))
    plain = bert(ids)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(getattr(packed, name), getattr(plain, name))


def test_a_training_step_is_that_of_the_sequences_unpacked():
    """The norm, too, by which gradients are clipped: every gradient is dense in both."""
    plain, packed = both_batches()
    results = []
    for features, parts in ((plain, 1), (packed, 1), (packed, 2)):
        model = make_model()
        optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 1e-3)
        metrics = steps.train_step(model, optimizer, tensors(features), tf.constant([3, 4]), parts)
        slots = optimizer.checkpoint_variables().items()
        moments = {name: x.numpy() for name, x in slots if name.endswith("adam_m")}
        results.append(({name: np.array(x) for name, x in metrics.items()}, moments))
    (metrics, moments), *of_packed = results
    for packed_metrics, packed_moments in of_packed:
        for name, value in metrics.items():
            np.testing.assert_allclose(packed_metrics[name], value, rtol=2e-6, err_msg=name)
        assert_equal_gradients(packed_moments, moments, bound=5e-6)


@pytest.mark.parametrize("objective", [MLM_NSP, MLM, MLM_SOP])
def test_an_evaluation_counts_sequences(objective):
    """Without the last row, which fills up the batch, and summed over two replicas."""
    plain, packed = both_batches(objective=objective)
    left_out = len(ROWS[-1])
    plain["example_weight"] = np.float32([1.0] * (SEQUENCES - left_out) + [0.0] * left_out)
    packed["example_weight"] = np.float32([1.0] * (len(ROWS) - 1) + [0.0])
    model = make_model(objective=objective)
    expected, found = (steps.evaluation_step(model, tensors(x)) for x in (plain, packed))
    assert found.keys() == expected.keys() and found["loss"][1] == SEQUENCES - left_out
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, err_msg=name)
    # One of two replicas with the same rows: what it has is half of the whole.
    two = steps.Replicas(2, lambda tensors: [2.0 * x for x in tensors])
    with steps.replicas_are(two):
        total, count = steps.evaluation_step(model, tensors(packed))["loss"]
    assert count == SEQUENCES - left_out
    expected_total, expected_count = expected["loss"]
    assert float(total / count) == pytest.approx(float(expected_total / expected_count), rel=1e-5)


@pytest.mark.slow
def test_keras_evaluates_packed_features():
    results = []
    for features in both_batches():
        model = make_model()
        model.compile()
        results.append(model.evaluate(features, batch_size=SEQUENCES, verbose=0, return_dict=True))
    assert results[1] == pytest.approx(results[0], rel=1e-5)
