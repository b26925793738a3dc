"""Files of earlier commits (see make.py) are read by this one: models, exports, records, runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import bert_tf
from bert_tf.files import checkpoint_names
from tests.kept.make import SAVED, STEPS, TEXTS, flags_of_run
from tests.support.exported_heads import LABELS
from tests.support.pretraining_runs import run, variables

KEPT = sorted(path for path in Path(__file__).parent.iterdir() if (path / "model").is_dir())


@pytest.fixture(params=KEPT, ids=lambda path: path.name)
def kept(request):
    return request.param


def test_there_are_some():
    assert len(KEPT) == 2


def test_a_model_answers_as_it_did(kept):
    model = bert_tf.load(kept / "model")
    assert list(model.labels) == LABELS["classification"] and model.max_seq_length == 9
    found = [list(answer.probabilities.values()) for answer in model.classify(TEXTS)]
    np.testing.assert_allclose(found, json.loads((kept / "answers.json").read_text()), atol=1e-6)


def test_an_export_answers_as_it_did(kept):
    features = bert_tf.TextFeatures(kept / "export")
    session = onnxruntime.InferenceSession(kept / "export" / "model.onnx")
    (found,) = session.run(["probabilities"], features(TEXTS))
    np.testing.assert_allclose(found, json.loads((kept / "answers.json").read_text()), atol=1e-5)


def test_a_run_goes_on_where_it_was(kept, tmp_path):
    """In another folder, with the batches that the run would have drawn there."""
    folder, output = tmp_path / "moved", tmp_path / "out"
    shutil.copytree(kept / "run", folder)
    output.mkdir()
    for path in folder.glob("model.ckpt-*"):
        path.rename(output / path.name)
    checkpoint_names.write_state(str(output), [f"{output}/model.ckpt-{SAVED}"])
    log = run(*flags_of_run(folder, output))
    assert "position in the input" not in log, log
    found = variables(output / f"model.ckpt-{STEPS}")
    expected = np.load(kept / "expected.npz")
    assert found.keys() == {*expected}
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5, err_msg=name)
