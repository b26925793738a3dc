"""Fixtures of the tests of tpu/: desks with a fresh checkout."""

import pytest

from tests.support.tpu_desk import Desk, commit_checkout


@pytest.fixture(scope="session")
def committed(tmp_path_factory):
    return commit_checkout(tmp_path_factory.mktemp("committed"))


@pytest.fixture
def desk(tmp_path, committed):
    return Desk(tmp_path, committed)


@pytest.fixture
def submitted(desk):
    """A desk whose job has been submitted."""
    desk.submit()
    return desk


@pytest.fixture
def desk_with_library(tmp_path):
    """A desk whose checkout can run the real programs."""
    (tmp_path / "committed").mkdir()
    return Desk(tmp_path, commit_checkout(tmp_path / "committed", with_library=True))
