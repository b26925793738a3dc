"""Tests of what a folder records of a model's training."""

import json

import pytest

from bert_tf.errors import UserError
from bert_tf.files.model_input import ModelInput, read_model_input, write_model_input


def test_there_and_back(tmp_path):
    assert read_model_input(str(tmp_path)) == ModelInput()
    windows = ModelInput("texts", 64, "max", 20), ModelInput("texts", 64, "mean")
    for found in (ModelInput("pairs", 128), ModelInput(None, 12), ModelInput("choices"), *windows):
        write_model_input(str(tmp_path), found)
        assert read_model_input(str(tmp_path)) == found
    write_model_input(str(tmp_path), ModelInput())  # of a model that is written over it
    assert not [*tmp_path.iterdir()]
    write_model_input(str(tmp_path), ModelInput())


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "is not JSON"),
        (
            "[]",
            r"must have no keys but reads, max_seq_length, long_text, window_stride; it has \[\]",
        ),
        (json.dumps({"read": "pairs"}), "it has {'read': 'pairs'}; correct it, or delete it"),
        (json.dumps({"reads": "pair"}), "reads must be one of texts, pairs, choices; correct it"),
        (json.dumps({"reads": ["pairs"]}), "reads must be one of texts"),
        (json.dumps({"max_seq_length": 0}), "must be a positive number; it is 0"),
        (json.dumps({"max_seq_length": "128"}), "must be a positive number; it is '128'"),
        (json.dumps({"max_seq_length": True}), "must be a positive number; it is True"),
        (json.dumps({"long_text": "cut"}), "long_text must be one of mean, max; correct it"),
        (json.dumps({"long_text": 5}), "long_text must be one of mean, max; correct it"),
        (json.dumps({"window_stride": 0}), "window_stride must be a positive number; it is 0"),
        (json.dumps({"window_stride": "9"}), "window_stride must be a positive number; it is '9'"),
    ],
)
def test_another_content_is_refused(tmp_path, content, message):
    (tmp_path / "model_input.json").write_text(content)
    with pytest.raises(UserError, match=message) as info:
        read_model_input(str(tmp_path))
    assert f"{tmp_path}/model_input.json" in str(info.value)
