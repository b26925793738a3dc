"""What is said of a model's folder: of one that an earlier version wrote, of one with links."""

import json
import os
import re

import pytest

from bert_tf.errors import UserError
from bert_tf.pretrained.folder import read_folder
from tests.support.model_folders import random_weights, write_model

FINE_TUNED = {
    "classifier": ["no", "maybe", "yes"],
    "regressor": [],
    "tagger": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
    "squad": None,
}


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


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("max_seq_length", "16", "a whole number above 0"),
        ("max_seq_length", True, "a whole number above 0"),
        ("window_stride", 7.5, "a whole number above 0"),
        ("window_stride", 0, "a whole number above 0"),
        ("reads", "pair", "one of texts, pairs, choices"),
        ("reads", ["texts"], "one of texts, pairs, choices"),
        ("long_text", "true", "one of mean, max"),
        ("long_text", False, "one of mean, max"),
    ],
)
def test_values_of_another_type_are_refused(tmp_path, name, value, rule):
    path = write_model(tmp_path, random_weights("classifier"), FINE_TUNED["classifier"])
    (tmp_path / "model_input.json").write_text(json.dumps({name: value}))
    message = f"{path}/model_input.json: {name} must be {rule}; it is {value!r}; correct it, or"
    with pytest.raises(UserError, match=re.escape(message)):
        read_folder(path)


SECRET = ["root:x:0:0", "daemon:x:1:1", "alice:x:1000:1000", "mail:x:8:8"]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("labels.txt", "\n".join(SECRET), "it names 4: 'root:x:0:0' and 3 more"),
        ("labels.txt", "\n".join(SECRET[:2]), "it names 2: 'root:x:0:0' and 1 more"),
        ("vocab.txt", "\n".join(SECRET), "It has 4 tokens, the first is 'root:x:0:0'"),
        (
            "model_input.json",
            json.dumps(dict.fromkeys(SECRET, "key")),
            "it has 'root:x:0:0' and 3 more",
        ),
        ("model_input.json", json.dumps(SECRET), "received a list"),
        ("labels.txt", "x" * 5000 + "\n" + "\n".join(SECRET), "'xxx"),
    ],
)
def test_a_message_has_at_most_a_line_of_a_file(tmp_path, name, content, message):
    """The file may be a link to another one."""
    path = write_model(tmp_path / "model", random_weights("classifier"), FINE_TUNED["classifier"])
    (tmp_path / "elsewhere").write_text(content + "\n")
    (tmp_path / "model" / name).unlink(missing_ok=True)
    os.symlink("../elsewhere", tmp_path / "model" / name)
    with pytest.raises(UserError) as info:
        read_folder(path)
    assert message in str(info.value) and len(str(info.value)) < 500
    assert sum(line in str(info.value) for line in SECRET) <= 1
