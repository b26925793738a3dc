"""Tests that need the original's figures, in the folder that BERT_TF_GOLDEN names."""

import json
import os
import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest

needs_golden = pytest.mark.skipif(
    "BERT_TF_GOLDEN" not in os.environ, reason="BERT_TF_GOLDEN names no golden folder"
)


def golden_cases(name: str, **chosen: str) -> list:
    """Returns the cases with the chosen values in a file of the folder, to parametrize a test.

    Without a folder there is one case, which is skipped.
    """
    folder = os.environ.get("BERT_TF_GOLDEN")
    if folder is None:
        return [pytest.param(None, marks=needs_golden)]
    cases = json.loads(Path(folder, name).read_text())
    return [case for case in cases if chosen.items() <= case.items()]


def digests(paths: Iterable[str]) -> list[str]:
    """Returns the digests of files of records, as the folder's program computes them."""
    program = runpy.run_path(os.path.join(os.environ["BERT_TF_GOLDEN"], "records_digest.py"))
    return [program["digest"](path) for path in paths]
