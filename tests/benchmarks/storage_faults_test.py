"""The trials of kills and failing disks: where faults begin, and a short round of them."""

import os
import shutil

import pytest

from benchmarks import storage_faults
from tests.support.pretraining_runs import ROOT, run

PAGE = f"{ROOT}/docs/reliability.md"


@pytest.mark.parametrize(
    ("writes", "count", "expected"),
    [(9, 3, [1, 5, 9]), (2, 24, [1, 2]), (571, 2, [1, 571]), (7, 1, [1]), (1, 60, [1])],
)
def test_faults_begin_from_the_first_write_to_the_last(writes, count, expected):
    assert storage_faults.places(writes, count) == expected


def test_the_page_has_a_row_of_each_program(tmp_path):
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    known = storage_faults.programs(tmp_path)
    assert {*known} == {*storage_faults.NAMES}
    for name, program in known.items():
        assert f"\n| {program.title} | " in page, name


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_short_round():
    options = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": ROOT}}
    words = ("--programs=conversion", "--kills=3", "--places=2")
    printed = run(*words, program="benchmarks.storage_faults", **options)
    row = printed.splitlines()[-1]
    assert "| 3 same bits | 2 same bits (" in row and "other" not in row and "left" not in row
