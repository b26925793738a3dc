"""Tests of bert_tf/model_folder/reader.py: where the files of a model are."""

import numpy as np
import pytest

from bert_tf.files import checkpoints
from bert_tf.model_folder.reader import ModelFiles
from tests.support.refusals import refusal


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
            assert refusal(getattr, files, "config_file") == (
                f"--teacher_checkpoint={path} must have bert_config.json or albert_config.json,"
                f" which the model was trained with; {files.home} has none. Copy the file there,"
                " or give --teacher_config_file"
            )


def test_of_two_files_neither_is_chosen(tmp_path):
    for number, (argument, *names) in enumerate(
        [
            ("vocab_file", "vocab.txt", "spiece.model"),
            ("vocab_file", "30k-clean.model", "spiece.model"),
            ("vocab_file", "vocab.txt", "vocab.json", "spiece.model"),
            ("config_file", "bert_config.json", "albert_config.json"),
        ]
    ):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        for name in names:
            (folder / name).touch()
        checkpoints.write(str(folder / "model.ckpt-3"), {"x": np.zeros(1, np.float32)})
        told = refusal(getattr, ModelFiles(str(folder), "init_checkpoint"), argument)
        listed = ", ".join(map(repr, names))
        kind = "vocabulary" if argument == "vocab_file" else "configuration"
        assert told.startswith(
            f"{folder} has {listed}, but only one of them can be read. Name the model's {kind} with"
        )
        chosen = str(folder / names[-1])
        files = ModelFiles(str(folder), "init_checkpoint", **{argument: chosen})
        assert getattr(files, argument) == chosen
