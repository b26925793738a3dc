"""Tests of bert_tf.tasks.classification.decision: the threshold that a run starts from."""

import types

import pytest

from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.writer import write_config
from bert_tf.tasks.classification import decision
from tests.support.small_pretraining import SMALL


@pytest.mark.parametrize(
    ("changes", "warns", "threshold"),
    [
        ({}, True, 0.3),
        ({"find_threshold": True}, False, 0.3),
        ({"threshold": 0.3}, False, 0.3),
        ({"threshold": 0.9}, False, 0.9),
        ({"do_train": False}, False, 0.3),
    ],
)
def test_a_threshold_of_earlier_weights_is_told(
    tmp_path, caplog, monkeypatch, changes, warns, threshold
):
    config = BertConfig.from_dict(SMALL | {"problem_type": "multi_label_classification"})
    config.threshold = 0.3
    write_config(str(tmp_path), config)
    path = str(tmp_path / "bert_config.json")
    monkeypatch.setattr(decision, "_learned_config", lambda settings: path)
    given = {"threshold": None, "find_threshold": False, "do_train": True, "do_eval": True}
    settings = types.SimpleNamespace(**given | changes, class_weights=None, temperature_scaling=0)
    found = decision.configured(BertConfig.from_dict(SMALL), settings, multi_label=True)
    assert found.threshold == threshold and found.is_multi_label
    message = f"threshold is 0.3 in {path}, found or given for the weights that training goes on"
    assert (message in caplog.text) == warns
