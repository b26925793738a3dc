"""Fuzzers: random and damaged inputs for every reader, from a seed.

Each module has functions `fuzz_NAME(random, folder)` that make one random case and check what must
hold: both implementations agree, or the input is accepted sensibly, or it is refused (see
`tests.fuzz.cases.attempt`). Never a traceback, never a wrong number.

    python -m tests.fuzz --seconds=600
    python -m tests.fuzz --only=fuzz_state_file --first_case=1234 --num_cases=1
"""
