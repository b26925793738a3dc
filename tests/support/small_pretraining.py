"""A small model for pre-training and a batch for it, of sizes that all differ."""

import numpy as np
import tensorflow as tf

from bert_tf.modeling import BertConfig
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert
from tests.support.objectives import set_random_weights

B, S, P = 2, 7, 5
SMALL = {
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 11,
    "type_vocab_size": 4,
}


def difference(actual, expected):
    """Returns the largest difference as a share of the largest expected value."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    return np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-30)


def weights_of(model):
    return {variable.path: variable.value for variable in model.variables}


def make_features(seed=0, batch_size=B):
    """Returns the numpy features of a batch, with padding and fractional weights."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, S + 1, size=(batch_size, 1))
    weights = rng.choice([0.0, 0.25, 1.0], size=(batch_size, P)).astype(np.float32)
    weights[:, 0] = 0.5
    return {
        "input_ids": rng.integers(0, 53, (batch_size, S), dtype=np.int32),
        "input_mask": (np.arange(S) < lengths).astype(np.int32),
        "segment_ids": rng.integers(0, 4, (batch_size, S), dtype=np.int32),
        "masked_lm_positions": rng.integers(0, S, (batch_size, P), dtype=np.int32),
        "masked_lm_ids": rng.integers(0, 53, (batch_size, P), dtype=np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, (batch_size, 1), dtype=np.int32),
    }


def make_inputs(seed=0, batch_size=B):
    """Returns the numpy features of a batch that BERT reads, with padding."""
    features = make_features(seed, batch_size)
    return {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}


def tensors(features):
    return {name: tf.constant(x) for name, x in features.items()}


def small_model(seed=0, objective=None, **changes):
    """Returns the model and the numpy model of the same random weights."""
    config = {**SMALL, **changes}
    model = PretrainingModel(BertConfig.from_dict(config), objective)
    return model, numpy_bert.NumpyBert(config, set_random_weights(model, seed))
