"""What is said of a model's folder: of one that an earlier version wrote, of one with links."""

import json
import os
import shutil
from pathlib import Path

import pytest

from bert_tf.pretrained.folder import read_folder
from tests.support.model_folders import random_weights, write_model
from tests.support.refusals import refusal

FINE_TUNED = {"classifier": ["no", "maybe", "yes"], "regressor": [], "squad": None}
FINE_TUNED["tagger"] = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@pytest.mark.parametrize("flag, argument", [(None, " max_seq"), ("input", " --max_seq")])
@pytest.mark.parametrize("head", FINE_TUNED)
def test_a_length_that_nothing_tells_is_told_once(tmp_path, warnings, head, flag, argument):
    path = write_model(tmp_path, random_weights(head), FINE_TUNED[head])
    assert read_folder(path, flag=flag).max_seq_length == 32
    (warning,) = warnings
    assert warning == (
        f"{path} does not tell the --max_seq_length that the model was fine-tuned with: earlier"
        " versions wrote no model_input.json. Texts are cut at 32 word pieces, the model's limit."
        f" If it was trained with 128, set{argument}_length=128"
    )
    assert read_folder(path, max_seq_length=16, flag=flag).max_seq_length == 16
    (tmp_path / "model_input.json").write_text('{"max_seq_length": 20}')
    assert read_folder(path, flag=flag).max_seq_length == 20
    assert len(warnings) == 1


def test_the_limit_is_right_for_a_model_that_was_only_pretrained(tmp_path, warnings):
    assert read_folder(write_model(tmp_path, random_weights())).max_seq_length == 32
    assert not warnings


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    weights = random_weights("classifier")
    return write_model(tmp_path_factory.mktemp("model"), weights, FINE_TUNED["classifier"])


def test_values_of_another_type_are_refused(path):
    for rule, *pairs in (
        ("a whole number above 0", ("max_seq_length", "16"), ("max_seq_length", True)),
        ("a whole number above 0", ("window_stride", 7.5), ("window_stride", 0)),
        ("one of texts, pairs, choices", ("reads", "pair"), ("reads", ["texts"])),
        ("one of mean, max", ("long_text", "true"), ("long_text", False)),
    ):
        for name, value in pairs:
            Path(path, "model_input.json").write_text(json.dumps({name: value}))
            message = f"/model_input.json: {name} must be {rule}; it is {value!r}; correct it, or"
            assert f"{path}{message}" in refusal(read_folder, path)


SECRET = ["root:x:0:0", "daemon:x:1:1", "alice:x:1000:1000", "mail:x:8:8"]


KEYS = json.dumps(dict.fromkeys(SECRET, "key"))


def test_a_message_has_at_most_a_line_of_a_file(path, tmp_path):
    """The file may be a link to another one."""
    for number, (name, content, message) in enumerate(
        [
            ("labels.txt", "\n".join(SECRET), "it names 4: 'root:x:0:0' and 3 more"),
            ("labels.txt", "\n".join(SECRET[:2]), "it names 2: 'root:x:0:0' and 1 more"),
            ("vocab.txt", "\n".join(SECRET), "It has 4 tokens, the first is 'root:x:0:0'"),
            ("model_input.json", KEYS, "it has 'root:x:0:0' and 3 more"),
            ("model_input.json", json.dumps(SECRET), "received a list"),
            ("labels.txt", "x" * 5000 + "\n" + "\n".join(SECRET), "'xxx"),
        ]
    ):
        folder = shutil.copytree(path, tmp_path / f"{number}")
        (folder / "model_input.json").unlink(missing_ok=True)
        (tmp_path / "elsewhere").write_text(content + "\n")
        (folder / name).unlink(missing_ok=True)
        os.symlink("../elsewhere", folder / name)
        told = refusal(read_folder, str(folder))
        assert message in told and len(told) < 500
        assert sum(line in told for line in SECRET) <= 1
