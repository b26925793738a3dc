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
    for row in json.loads((folder / "expected.json").read_text(encoding="utf-8")):
        ids = [layout.cls_id, *model.tokenizer.encode([row["text"]])[0][:126], layout.sep_id]
        assert ids == row["ids"], row["text"]
        if "outputs" not in row:
            continue
        inputs = {"input_ids": tf.constant([ids], tf.int32)}
        if "masked_lm" in model.heads:
            inputs["masked_lm_positions"] = tf.range(len(ids))[tf.newaxis]
        output = model.model(inputs)
        if not model.heads:
            output = output.sequence_output
        found = np.ravel(output[0] if isinstance(output, tuple | list) else output)
        np.testing.assert_allclose(found[: len(row["outputs"])], row["outputs"], atol=2e-5)
