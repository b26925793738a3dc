"""Tests of bert_tf.tasks.pretraining.training.record_files."""

import types

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.tasks.pretraining.training.dynamic_masking import DynamicMasking
from bert_tf.tasks.pretraining.training.record_files import FittingRecords, Records, fit
from bert_tf.tasks.pretraining.training.settings import RecordBatches
from tests.support.pretraining_runs import write_records

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
