"""Tests of bert_tf/model_folder/reader.py: where the files of a model are."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model_folder.reader import ModelFiles


@pytest.mark.parametrize("name", ["best", "model"])
@pytest.mark.parametrize("config", [None, "bert_config.json", "albert_config.json"])
def test_the_files_of_a_run_s_best_checkpoint_are_one_folder_up(tmp_path, name, config):
    """A model's own folder may have that name."""
    folder = tmp_path / name
    folder.mkdir()
    checkpoints.write(str(folder / "model.ckpt-3"), {"x": np.zeros(1, np.float32)})
    (tmp_path / "vocab.txt").touch()
    if config:
        (folder / config).write_text("{}")
    one_up = name == "best" and config is None
    for path in (folder, folder / "model.ckpt-3"):
        files = ModelFiles(str(path), "teacher_checkpoint", config_flag="teacher_config_file")
        assert files.folder == str(folder)
        assert files.home == str(tmp_path if one_up else folder)
        assert files.vocab_file == (f"{tmp_path}/vocab.txt" if one_up else None)
        if config:
            assert files.config_file == str(folder / config)
        else:
            with pytest.raises(UserError) as error:
                _ = files.config_file
            assert str(error.value) == (
                f"--teacher_checkpoint={path} must have bert_config.json or albert_config.json,"
                f" which the model was trained with; {files.home} has none. Copy the file there,"
                " or give --teacher_config_file"
            )


@pytest.mark.parametrize(
    "names, argument",
    [
        (["vocab.txt", "spiece.model"], "vocab_file"),
        (["30k-clean.model", "spiece.model"], "vocab_file"),
        (["vocab.txt", "vocab.json", "spiece.model"], "vocab_file"),
        (["bert_config.json", "albert_config.json"], "config_file"),
    ],
)
def test_of_two_files_neither_is_chosen(tmp_path, names, argument):
    for name in names:
        (tmp_path / name).touch()
    checkpoints.write(str(tmp_path / "model.ckpt-3"), {"x": np.zeros(1, np.float32)})
    with pytest.raises(UserError) as error:
        getattr(ModelFiles(str(tmp_path), "init_checkpoint"), argument)
    listed = ", ".join(map(repr, names))
    assert str(error.value).startswith(
        f"{tmp_path} has {listed}, but only one of them can be read. Name the model's with "
    )
    chosen = str(tmp_path / names[-1])
    files = ModelFiles(str(tmp_path), "init_checkpoint", **{argument: chosen})
    assert getattr(files, argument) == chosen
