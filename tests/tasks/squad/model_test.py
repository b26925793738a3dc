"""Tests of bert_tf.tasks.squad.model: names of variables, logits and loss against numpy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.squad.model import SquadModel
from tests.support.numpy_bert import log_softmax
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.small_pretraining import SMALL

BATCH, LENGTH = 3, 7


CONFIG = {**SMALL, "num_hidden_layers": 1}


@pytest.fixture(scope="module")
def model():
    model = SquadModel(BertConfig.from_dict(CONFIG))
    set_random_weights(model)
    return model


def features():
    rng = np.random.RandomState(1)
    tokens = np.arange(LENGTH) < [[7], [5], [3]]
    values = {
        "unique_ids": 1000000000 + np.arange(BATCH),
        "input_ids": rng.randint(0, SMALL["vocab_size"], (BATCH, LENGTH)) * tokens,
        "input_mask": tokens,
        "segment_ids": tokens & (np.arange(LENGTH) > 1),
        "start_positions": [4, 0, 2],
        "end_positions": [6, 0, 2],
        "is_impossible": [0, 1, 0],
    }
    return {name: tf.constant(np.int32(value)) for name, value in values.items()}


def logits_by_numpy(model, batch):
    """Returns the start and end logits of the hidden states."""
    output = model.bert(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    weights, bias = model.cls.squad.output_weights.numpy(), model.cls.squad.output_bias.numpy()
    return np.moveaxis(output.sequence_output.numpy() @ weights.T + bias, -1, 0)


def test_names_and_initial_values():
    keras.utils.set_random_seed(5)
    fresh = SquadModel(BertConfig.from_dict({**CONFIG, "hidden_size": 408}))
    bert = {variable.path: variable.shape for variable in fresh.bert.variables}
    head = {"cls/squad/output_weights": (2, 408), "cls/squad/output_bias": (2,)}
    assert {v.path: v.shape for v in fresh.variables} == {**bert, **head}
    assert not fresh.cls.squad.output_bias.numpy().any()
    weights = fresh.cls.squad.output_weights.numpy()
    assert 0.015 < weights.std() < 0.02 and abs(weights).max() <= 0.04  # truncated at 2 sigma


def test_predictions(model):
    batch = features()
    found = predict(model, batch)
    assert list(found) == ["unique_ids", "start_logits", "end_logits"]
    np.testing.assert_array_equal(found["unique_ids"], batch["unique_ids"])
    for logits, name in zip(logits_by_numpy(model, batch), ("start", "end"), strict=True):
        assert found[f"{name}_logits"].dtype == tf.float32
        np.testing.assert_allclose(found[f"{name}_logits"], logits, rtol=1e-4, atol=1e-5)


def test_loss(model):
    batch = features()
    loss, sums = compute(model, batch)
    losses = []
    for logits, name in zip(logits_by_numpy(model, batch), ("start", "end"), strict=True):
        positions = batch[f"{name}_positions"].numpy()
        log_probs = log_softmax(logits.astype(np.float64))  # all positions compete, also padding
        losses.append(-log_probs[np.arange(BATCH), positions])
        right = logits.argmax(axis=1) == positions
        assert sums[f"{name}_accuracy"] == (right.sum(), BATCH)
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-5)
