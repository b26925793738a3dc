"""Tests of benchmarks/answers.py: what every program that it measures has in common."""

import os
import sys

import pytest

from benchmarks import answers
from bert_tf.errors import UserError

_PROGRAM = """
def encode(texts):
    assert len(os.sched_getaffinity(0)) == int(texts)
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux has it")
@pytest.mark.parametrize("threads", [1, 1000])
def test_a_program_keeps_to_as_many_cores_as_it_has_threads(tmp_path, threads):
    cores = min(threads, len(os.sched_getaffinity(0)))
    for expected in (cores, cores + 1):
        (tmp_path / f"{expected}").write_text(f'["{expected}"]')
    encode = answers.start(sys.executable, _PROGRAM, "model", "float32", f"{threads}")
    assert encode(f"{tmp_path}/{cores}") > (0, 1)
    with pytest.raises(UserError, match="with model ended with an error"):
        encode(f"{tmp_path}/{cores + 1}")
