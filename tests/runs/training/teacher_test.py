"""Tests of bert_tf/runs/training/teacher.py: where the files of a teacher are."""

import numpy as np
import pytest

from bert_tf.files import checkpoints
from bert_tf.runs.flags.settings import TeacherSettings
from bert_tf.runs.training.teacher import teacher_folder


@pytest.mark.parametrize("name", ["best", "model"])
@pytest.mark.parametrize("config", [None, "bert_config.json", "albert_config.json"])
def test_the_files_of_a_run_s_best_checkpoint_are_one_folder_up(tmp_path, name, config):
    """A model's own folder may have that name."""
    folder = tmp_path / name
    folder.mkdir()
    checkpoints.write(str(folder / "model.ckpt-3"), {"x": np.zeros(1, np.float32)})
    if config:
        (folder / config).write_text("{}")
    one_up = name == "best" and config is None
    for path in (folder, folder / "model.ckpt-3"):
        found = teacher_folder(TeacherSettings(teacher_checkpoint=str(path)))
        assert found == str(tmp_path if one_up else folder)
