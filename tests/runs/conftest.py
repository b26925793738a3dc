"""Fixtures of runs."""

import pytest

from tests.support.line_task import write


@pytest.fixture
def files(tmp_path):
    """Records of the line task: 141 in three files."""
    return [write(tmp_path / f"{i}.tfrecord", 40 + 7 * i, i) for i in range(3)]
