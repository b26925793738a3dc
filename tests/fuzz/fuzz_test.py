"""Every fuzzer for a moment, for a while longer where slow tests run.

On any machine these are among the first 10,000 cases; `python -m tests.fuzz` runs more.
"""

import pytest

from tests.fuzz.cases import fuzzers, run_cases

FUZZERS = fuzzers()


@pytest.mark.parametrize("name", FUZZERS)
def test_a_few_cases(name, tmp_path):
    assert run_cases(name, FUZZERS[name], tmp_path, num_cases=200, seconds=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUZZERS)
def test_many_cases(name, tmp_path):
    assert run_cases(name, FUZZERS[name], tmp_path, 200, num_cases=11) == 11
    run_cases(name, FUZZERS[name], tmp_path, 211, num_cases=9_789, seconds=10.0)
