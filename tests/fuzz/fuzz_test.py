"""Every fuzzer for a moment, the same cases each time; for a minute where slow tests run."""

import pytest

from tests.fuzz.cases import fuzzers, run_cases

FUZZERS = fuzzers()


@pytest.mark.parametrize("name", FUZZERS)
def test_a_few_cases(name, tmp_path):
    assert run_cases(name, FUZZERS[name], tmp_path, num_cases=200, seconds=2.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUZZERS)
def test_many_cases(name, tmp_path):
    assert run_cases(name, FUZZERS[name], tmp_path, first_case=200, seconds=30.0) > 10
