"""Tests of run_pretraining on packed records: batches, figures, resuming, wrong input."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.training import phase_steps
from bert_tf.tasks.pretraining.records.packing import pack_row, split_row
from bert_tf.tasks.pretraining.schema import MLM_NSP, pretraining_schema
from bert_tf.tasks.pretraining.training.run import run_pretraining
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings
from tests.support.packed_batches import make_sequences, plain_record
from tests.support.pretraining_runs import (
    CONFIG,
    VOCAB_SIZE,
    assert_same_variables,
    run_forked,
    settings_of_flags,
    write_config,
)

LENGTH, PREDICTIONS, PLACES = 20, 5, 3
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


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
    """The records, a configuration, and the number of sequences of each file."""
    folder = tmp_path_factory.mktemp("inputs")
    counts = {"20_a": write(folder, "20_a", 31, 1), "20_b": write(folder, "20_b", 23, 2)}
    counts["dev"] = write(folder, "dev", 17, 3)
    write(folder, "12_a", 40, 4, length=12, predictions=4, places=2)
    write_config(folder / "bert_config.json", **QUIET)
    return folder, counts


def pretrain(inputs, output_dir, input_file, strategy=None, config=None, **changes):
    """Returns the results of the library call that the program makes."""
    flags = {
        "input_file": f"{inputs[0]}/{input_file}",
        "output_dir": str(output_dir),
        "learning_rate": 1e-2,
        "num_warmup_steps": 4,
        **changes,
    }
    if "phases" not in flags:
        flags = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS, **flags}
    settings = settings_of_flags(PretrainingSettings, **flags)
    config = config or BertConfig.from_dict({**CONFIG, **QUIET})
    return run_pretraining(config, strategy or tf.distribute.get_strategy(), settings)


TWO_PHASES = {
    "input_file": "packed_{max_seq_length}_*",
    "do_train": True,
    "phases": "12:4:6:4,20:8:9:5",
    "save_checkpoints_steps": 3,
    "gradient_accumulation_steps": 2,
    "recompute_activations": True,
}


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """The output directory of a run on packed records, through two phases."""
    output_dir = tmp_path_factory.mktemp("trained")
    pretrain(inputs, output_dir, **TWO_PHASES)
    return output_dir


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


@pytest.mark.slow
def test_a_resumed_run_is_the_same_to_the_bit(inputs, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "out")
    for path in (tmp_path / "out").glob("model.ckpt-12*"):
        path.unlink()
    pretrain(inputs, tmp_path / "out", **TWO_PHASES)
    assert_same_variables(tmp_path / "out" / "model.ckpt-12", trained / "model.ckpt-12")


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
        init_checkpoint=sys.argv[4], eval_batch_size=200, max_eval_steps=0,
    )
    print(kind, results[kind])
for name, value in results["plain"].items():
    assert abs(results["packed"][name] - value) <= 1e-5 * abs(value), name
test.pretrain(
    (folder, counts), output / "trained", "packed_20_*", strategy, do_train=True,
    num_train_steps=2, train_batch_size=12, gradient_accumulation_steps=2,
)
assert variables(output / "trained")["global_step"] == 2
"""


@pytest.mark.slow
def test_two_replicas(inputs, trained, tmp_path):
    folder, counts = inputs
    run_forked(REPLICAS, folder, tmp_path, counts, trained)


def refused(inputs, tmp_path, input_file, **changes):
    with pytest.raises(UserError) as error:
        pretrain(inputs, tmp_path, input_file, do_train=True, num_train_steps=1, **changes)
    return str(error.value)


def test_records_with_other_places_are_refused(inputs, tmp_path):
    write(tmp_path, "20_b", 9, 5, places=4)
    first = shutil.copy(inputs[0] / "packed_20_a", tmp_path / "packed_20_a")
    message = refused((tmp_path, {}), tmp_path, "packed_20_*")
    assert message.startswith(
        f"--input_file: {tmp_path}/packed_20_b was made with other settings: length of"
        " cls_positions, next_sentence_labels, next_sentence_weights is 4 in the file, 3 in the"
        " first file (--max_sequences_per_pack=4 would fit)"
    )
    shutil.copy(inputs[0] / "plain_20_a", first)
    message = refused((tmp_path, {}), tmp_path, "packed_20_*")
    assert f"{tmp_path}/packed_20_b was made with other settings" in message
    assert "next_sentence_labels is 4 in the file, 1 by the flags" in message


def test_other_predictions_are_refused(inputs, tmp_path):
    message = refused(inputs, tmp_path, "packed_20_*", max_predictions_per_seq=9)
    assert message == (
        f"--input_file: {inputs[0]}/packed_20_a was made with different settings: its packed"
        " records have 6 masked positions. Give --max_predictions_per_seq=5, which fits,"
        " instead of 9"
    )
    message = refused(inputs, tmp_path, "packed_20_*", max_seq_length=22)
    assert "is 20 in the file, 22 by the flags (--max_seq_length=20 would fit)" in message


def test_a_sequence_number_beyond_the_places_is_found(inputs, tmp_path):
    schema = pretraining_schema(LENGTH, PREDICTIONS, MLM_NSP, PLACES)
    (row,) = make_sequences([(4, 5)], PREDICTIONS, MLM_NSP, VOCAB_SIZE)
    record = pack_row(row, schema)
    record["input_mask"][6] = 4
    with tf.io.TFRecordWriter(f"{tmp_path}/packed_20_a") as writer:
        writer.write(records.serialize(record, schema))
    message = refused((tmp_path, {}), tmp_path, "packed_20_*")
    assert "record 0: input_mask must be from 0 to 3; received 4" in message
