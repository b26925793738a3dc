"""Tests of bert_tf/files/weight_files.py: shards are read; other formats are named."""

import json
import os

import pytest
import safetensors.numpy

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model_folder.hugging_face.conversion import ConvertedModel
from tests.support.hugging_face_folders import (
    ENCODER,
    POOLER,
    assert_same_bits,
    make_tensors,
    write_folder,
)
from tests.support.refusals import refusal, refuses
from tools import convert_checkpoint

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n"


def write_shards(folder, count=3):
    """Moves the weights of a folder into shards; returns the content of their index."""
    whole = f"{folder}/model.safetensors"
    tensors = safetensors.numpy.load_file(whole)
    os.remove(whole)
    names, files = sorted(tensors), {}
    for i in range(count):
        file = f"model-{i + 1:05}-of-{count:05}.safetensors"
        part = {name: tensors[name] for name in names[i::count]}
        safetensors.numpy.save_file(part, f"{folder}/{file}")
        files |= dict.fromkeys(part, file)
    write_index(folder, files)
    return files


def write_index(folder, files):
    index = {"metadata": {"total_size": 7}, "weight_map": files}
    with open(f"{folder}/model.safetensors.index.json", "w") as writer:
        json.dump(index, writer)


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "hf", make_tensors(ENCODER | POOLER))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_shards_are_one_model(folder, tmp_path, count):
    expected = ConvertedModel(folder).weights
    write_shards(folder, count)
    assert_same_bits(ConvertedModel(folder).weights, expected)
    convert_checkpoint.convert(folder, str(tmp_path / "tf"), "checkpoint")
    assert_same_bits(checkpoints.CheckpointReader(str(tmp_path / "tf")).read_weights(), expected)


WRONG_MAP = "must have a weight_map with the name of each weight's file in this"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pooler.dense.bias": None}, "names; they differ in"),
        ({"x": "model-00001-of-00003.safetensors"}, "they differ in 'x'. Download"),
        ({"x": "model-7.safetensors"}, "model-7.safetensors cannot be read"),
        *(({"x": name}, WRONG_MAP) for name in ("../hf2/a.safetensors", "a\udcff", "a\0")),
        ([3], WRONG_MAP),
    ],
)
def test_shards_that_do_not_fit_are_refused(folder, change, message):
    files = write_shards(folder)
    if isinstance(change, dict):
        change = {name: file for name, file in {**files, **change}.items() if file}
    write_index(folder, change)
    told = refusal(ConvertedModel, folder)
    assert message in told and len(told) < 400


CKPT = "checkpoint"
OTHER = {
    "pytorch_model.bin": "from_pretrained(f).save_pretrained(f)",
    "pytorch_model.bin.index.json": "from_pretrained(f).save_pretrained(f)",
    "tf_model.h5": "from_tf=True).save_pretrained(f)",
    "flax_model.msgpack": "from_flax=True).save_pretrained(f)",
}


@pytest.mark.parametrize("name", OTHER)
def test_other_formats_are_named_with_a_command(folder, name):
    os.rename(f"{folder}/model.safetensors", f"{folder}/{name}")
    converter = (
        f"python -m tools.convert_checkpoint --input={folder} --output_dir=FOLDER`, and give"
    )
    for call, parts in (
        (bert_tf.load, ()),
        (checkpoints.find_prefix, ("--init_checkpoint", converter)),
    ):
        told = refusal(call, folder)
        for part in (f"has its weights in {name}, but model.safetensors is", OTHER[name], *parts):
            assert part in told


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize("name", ["", "/model.safetensors"])
def test_a_checkpoint_is_needed(folder, name, shards):
    if shards:
        write_shards(folder)
    for flag, place in (("init_checkpoint", "--init_checkpoint="), (None, "")):
        assert refusal(checkpoints.find_prefix, folder + name, flag) == (
            f"{place}{folder}{name} must be a checkpoint; it is a model in Hugging Face's format."
            f" Convert it with `python -m tools.convert_checkpoint --input={folder}"
            " --output_dir=FOLDER`, and give FOLDER/bert_model.ckpt"
        )


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "pytorch_model.bin"])
def test_pointers_are_named(folder, name):
    if name == "pytorch_model.bin":
        os.remove(f"{folder}/model.safetensors")
    with open(f"{folder}/{name}", "w") as writer:
        writer.write(POINTER)
    message = f"{name} is a Git LFS pointer instead .* `git lfs pull` in {folder}"
    refuses(message, bert_tf.load, folder)


@pytest.mark.parametrize("end", ["index", "data-00000-of-00001"])
def test_a_pointer_in_place_of_a_checkpoint(folder, tmp_path, end):
    convert_checkpoint.convert(folder, str(tmp_path / "tf"), "checkpoint")
    (tmp_path / "tf" / f"bert_model.ckpt.{end}").write_text(POINTER)
    with pytest.raises(UserError, match=f"ckpt.{end} is a Git LFS pointer instead of the file"):
        checkpoints.CheckpointReader(str(tmp_path / "tf"))


@pytest.mark.parametrize("weights", ["model.safetensors", "adapter_model.safetensors", None])
def test_an_adapter_is_refused(folder, tmp_path, weights):
    source = f"{folder}/model.safetensors"
    if weights is None:
        os.remove(source)
    else:
        os.rename(source, f"{folder}/{weights}")
    with open(f"{folder}/adapter_config.json", "w") as writer:
        writer.write('{"peft_type": "LORA"}')
    for call in (bert_tf.load, lambda x: convert_checkpoint.convert(x, str(tmp_path / "o"), CKPT)):
        assert refusal(call, folder) == (
            f"{folder}/adapter_config.json says that the model has an adapter (LoRA or the like),"
            " which changes what the weights compute and is not supported. Merge it into the"
            " weights with:"
            f" python -c \"import peft; peft.AutoPeftModel.from_pretrained('{folder}')"
            ".merge_and_unload().save_pretrained('MERGED')\", and copy the tokenizer's files to"
            " MERGED. If it is merged already, delete adapter_config.json"
        )
    if weights == "model.safetensors":
        os.remove(f"{folder}/adapter_config.json")
        ConvertedModel(folder)
