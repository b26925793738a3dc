"""The mark of tests that need the original's figures, in the folder that BERT_TF_GOLDEN names."""

import os

import pytest

needs_golden = pytest.mark.skipif(
    "BERT_TF_GOLDEN" not in os.environ, reason="BERT_TF_GOLDEN names no golden folder"
)
