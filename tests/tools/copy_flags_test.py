"""Tests of tools/copy_flags.py."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.support.refusals import refusal, refuses
from tools.copy_flags import copy_flags

FLAGS = Path(__file__).resolve().parents[2] / "flags"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_copy_is_complete_or_refused(tmp_path):
    copy_flags(str(tmp_path / "flags"))
    assert names(tmp_path / "flags") == names(FLAGS)
    recipe = "glue/mrpc.flags"
    assert (tmp_path / "flags" / recipe).read_text() == (FLAGS / recipe).read_text()
    refuses("--output_dir=.*/flags must not exist", copy_flags, str(tmp_path / "flags"))
    (tmp_path / "file").write_text("")
    wrong = str(tmp_path / "file" / "flags")
    refuses("--output_dir=.*/file/flags cannot be created", copy_flags, wrong)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_that_fails_leaves_nothing(tmp_path, monkeypatch, number):
    left = iter(range(20))

    def copy(source, target, *_, **__):
        if next(left, None) is None:
            raise OSError(number, os.strerror(number), target)
        Path(target).write_text("")

    monkeypatch.setattr(shutil, "copyfile", copy)
    told = refusal(copy_flags, str(tmp_path / "flags"), kind=OSError)
    assert told.startswith(f"--output_dir={tmp_path}/flags cannot be created: [Errno {number}]")
    assert os.strerror(number) in told and len(told) < 400
    assert names(tmp_path) == []
