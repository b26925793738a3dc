"""Tests of tools/copy_flags.py."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from bert_tf.errors import UserError
from tests.support.refusals import refuses
from tools.copy_flags import copy_flags

FLAGS = Path(__file__).resolve().parents[2] / "flags"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_copy_is_complete(tmp_path):
    copy_flags(str(tmp_path / "flags"))
    assert names(tmp_path / "flags") == names(FLAGS)
    recipe = "glue/mrpc.flags"
    assert (tmp_path / "flags" / recipe).read_text() == (FLAGS / recipe).read_text()


def test_a_folder_that_exists_or_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "flags").mkdir()
    refuses("--output_dir=.*/flags must not exist", copy_flags, str(tmp_path / "flags"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--output_dir=.*/file/flags cannot be created"):
        copy_flags(str(tmp_path / "file" / "flags"))
    assert names(tmp_path) == ["file", "flags"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_that_fails_leaves_nothing(tmp_path, monkeypatch, number):
    left = iter(range(20))

    def copy(source, target, *_, **__):
        if next(left, None) is None:
            raise OSError(number, os.strerror(number), target)
        Path(target).write_text("")

    monkeypatch.setattr(shutil, "copyfile", copy)
    with pytest.raises(OSError, match=os.strerror(number)) as info:
        copy_flags(str(tmp_path / "flags"))
    start = f"--output_dir={tmp_path}/flags cannot be created: [Errno {number}]"
    assert str(info.value).startswith(start) and len(str(info.value)) < 400
    assert names(tmp_path) == []
