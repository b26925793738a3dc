"""Tests of tools/convert_checkpoint.py: the casing, and folders that a fine-tuning run wrote."""

import json
import os

import pytest
import safetensors.numpy

from bert_tf.files.model_notes import ModelInput, read_model_input
from bert_tf.text import casing
from tests.support.hugging_face_folders import ENCODER, assert_same_bits, make_tensors, write_folder
from tests.support.pretraining_runs import variables
from tests.support.refusals import refusal, refuses
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import write_reviews
from tools import convert_checkpoint

CASED_VOCAB = "\n".join(["[PAD]", "a", "b", "##A", *"ABCDEFGHIJ"]) + "\n"


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_the_recorded_casing_goes_both_ways(tmp_path, do_lower_case):
    source = write_folder(tmp_path / "hf", make_tensors(ENCODER), vocab=CASED_VOCAB)
    record = {"do_lower_case": do_lower_case, "model_max_length": 7}
    (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps(record))
    checkpoint, copy, back = (str(tmp_path / name) for name in ("tf", "copy", "back"))
    convert_checkpoint.convert(source, checkpoint, "checkpoint")
    convert_checkpoint.convert(checkpoint, copy, "checkpoint")
    convert_checkpoint.convert(f"{copy}/bert_model.ckpt", back, "safetensors")
    for folder in (checkpoint, copy, back):
        assert casing.read_casing(folder) is do_lower_case


@pytest.mark.parametrize(
    ("vocab", "beside", "before", "expected"),
    [
        (CASED_VOCAB, False, None, False),
        ("[PAD]\nb\n", True, None, True),
        ("[PAD]\nb\n", None, False, None),
    ],
    ids=["cased", "beside the vocabulary", "unknown, another model's record before"],
)
def test_the_casing_that_is_recorded(tmp_path, vocab, beside, before, expected):
    source = write_folder(tmp_path / "hf", make_tensors(ENCODER), vocab=None)
    for name, record in (("words", beside), ("tf", before)):
        os.mkdir(tmp_path / name)
        casing.write_casing(str(tmp_path / name), record)
    (tmp_path / "words" / "vocab.txt").write_text(vocab)
    (tmp_path / "tf" / "bert_config.json").write_text("{}")  # so the folder is an earlier model's
    checkpoint, words = str(tmp_path / "tf"), str(tmp_path / "words" / "vocab.txt")
    convert_checkpoint.convert(source, checkpoint, "checkpoint", None, words)
    assert casing.read_casing(checkpoint) is expected
    if expected is False:
        os.remove(f"{checkpoint}/tokenizer_config.json")
        convert_checkpoint.convert(checkpoint, str(tmp_path / "back"), "safetensors")
        assert casing.read_casing(str(tmp_path / "back")) is False


@pytest.mark.parametrize("place", ["hf", "words", None])
def test_a_damaged_or_missing_record_is_refused_before_anything_is_written(tmp_path, place):
    vocab = CASED_VOCAB if place is None else "[PAD]\nb\n"
    source = write_folder(tmp_path / "hf", make_tensors(ENCODER), vocab=None)
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "vocab.txt").write_text(vocab)
    if place is None:  # transformers would lower-case its texts
        message = "vocab.txt is a cased vocabulary, but no file sets"
    else:
        (tmp_path / place / "tokenizer_config.json").write_text("{")
        message = f"{place}/tokenizer_config.json is not JSON.*correct or delete it"
    arguments = source, str(tmp_path / "tf"), "checkpoint", None, f"{tmp_path}/words/vocab.txt"
    refuses(message, convert_checkpoint.convert, *arguments)
    assert not (tmp_path / "tf").exists()


def test_a_checkpoint_in_the_current_folder(tmp_path, monkeypatch):
    source = write_folder(tmp_path / "hf", make_tensors(ENCODER))
    convert_checkpoint.convert(source, str(tmp_path / "tf"), "checkpoint")
    monkeypatch.chdir(tmp_path / "tf")
    convert_checkpoint.convert("bert_model.ckpt", str(tmp_path / "copy"), "checkpoint")
    assert sorted(os.listdir(tmp_path / "copy")) == sorted(os.listdir())
    os.remove("bert_config.json")
    told = refusal(
        convert_checkpoint.convert, "bert_model.ckpt", str(tmp_path / "new"), "checkpoint"
    )
    assert told == (
        "--input=bert_model.ckpt must have bert_config.json or albert_config.json, which the model"
        " was trained with; this folder has none. Copy the file there, or give --bert_config_file"
    )


@pytest.mark.usefixtures("eager_if_quick")
def test_what_a_fine_tuning_run_wrote_is_converted(tmp_path):
    """Its --export_dir, and its --output_dir with the configuration and the vocabulary."""
    out, export = str(tmp_path / "out"), str(tmp_path / "export")
    options = {"max_seq_length": 24, "num_train_epochs": 0.5, "do_train": True}
    run_in(write_reviews(tmp_path), "classification", **REVIEWS, **options, export_dir=export)
    from_export, from_run, copy = (str(tmp_path / name) for name in ("hf1", "hf2", "copy"))
    convert_checkpoint.convert(export, from_export, "safetensors")
    files = (f"{export}/bert_config.json", f"{export}/vocab.txt")
    convert_checkpoint.convert(out, from_run, "safetensors", *files)
    names = "config.json model.safetensors model_input.json tokenizer_config.json vocab.txt".split()
    for folder in (from_export, from_run):
        assert sorted(os.listdir(folder)) == names
        with open(f"{folder}/config.json") as reader:
            assert json.load(reader)["id2label"] == {"0": "bad", "1": "good"}
        assert casing.read_casing(folder) is True
        assert read_model_input(folder) == ModelInput("texts", 24)
    tensors = safetensors.numpy.load_file(f"{from_export}/model.safetensors")
    assert_same_bits(safetensors.numpy.load_file(f"{from_run}/model.safetensors"), tensors)
    convert_checkpoint.convert(export, copy, "checkpoint")
    assert read_model_input(copy) == ModelInput("texts", 24)
    assert_same_bits(variables(f"{copy}/bert_model.ckpt"), variables(f"{export}/bert_model.ckpt"))
