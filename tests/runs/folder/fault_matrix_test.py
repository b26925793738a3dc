"""The matrix of faults is what docs/reliability.md says."""

from pathlib import Path

import pytest

from tests.support import fault_matrix
from tests.support.pretraining_runs import ROOT


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_every_instant_with_every_fault(tmp_path):
    found = fault_matrix.table(tmp_path)
    assert found.count(" same bits ") + found.count(" refused ") >= 60
    assert found in Path(ROOT, "docs/reliability.md").read_text(encoding="utf-8")
