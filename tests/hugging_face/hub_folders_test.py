"""Folders as the Hub has them: ids and outputs of transformers, or a refusal."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf

HUB = Path(os.environ.get("BERT_TF_HUB_FOLDERS", Path(__file__).parent / "hub"))
FOLDERS = sorted(HUB.iterdir())


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_ids_and_outputs_are_those_of_transformers(folder):
    model = bert_tf.load(folder)
    layout = model.tokenizer.layout
    rows = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    for row in rows:
        ids = [layout.cls_id, *model.tokenizer.encode([row["text"]])[0][:126], layout.sep_id]
        assert ids == row["ids"], row["text"]
    rows = [row for row in rows if "outputs" in row]
    ids = tf.ragged.constant([row["ids"] for row in rows], tf.int32)
    inputs = {"input_ids": ids.to_tensor(model.config.pad_token_id or 0)}
    inputs["input_mask"] = tf.ones_like(ids).to_tensor()
    if "masked_lm" in model.heads:
        inputs["masked_lm_positions"] = tf.ragged.range(ids.row_lengths()).to_tensor()
    output = model.model(inputs)
    if not model.heads:
        output = output.sequence_output
    output = np.asarray(output[0] if isinstance(output, tuple | list) else output)
    for row, found in zip(rows, output.reshape(len(rows), -1), strict=True):
        np.testing.assert_allclose(found[: len(row["outputs"])], row["outputs"], atol=2e-5)
