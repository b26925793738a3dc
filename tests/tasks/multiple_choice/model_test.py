"""Tests of bert_tf.tasks.multiple_choice.model, against the numpy model."""

import numpy as np

from bert_tf.modeling import BertConfig
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from tests.support import numpy_bert
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.small_pretraining import SMALL, difference, tensors

B, C, S = 3, 4, 7


def make_features(seed=0):
    """Returns the numpy features of a batch, with padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, S, size=(B, C, 1))
    return {
        "input_ids": rng.integers(0, 53, (B, C, S), dtype=np.int32),
        "input_mask": (np.arange(S) < lengths).astype(np.int32),
        "segment_ids": rng.integers(0, 2, (B, C, S), dtype=np.int32),
        "label_ids": rng.integers(0, C, B, dtype=np.int32),
    }


def expected_log_probs(weights, features):
    """Returns log probabilities, float64 [B, C], each choice's sequence computed by itself."""
    bert = numpy_bert.NumpyBert(SMALL, weights)
    scores = np.zeros((B, C))
    for c in range(C):
        names = ("input_ids", "input_mask", "segment_ids")
        outputs = bert.forward(*(features[name][:, c] for name in names))
        scores[:, c] = outputs["pooled_output"] @ weights["output_weights"][0]
    return numpy_bert.log_softmax(scores)


def test_loss_and_predictions_are_numpys():
    model = MultipleChoiceModel(BertConfig.from_dict(SMALL))
    weights = set_random_weights(model)
    features = make_features()
    log_probs = expected_log_probs(weights, features)
    batch = tensors(features)
    losses = -log_probs[np.arange(B), features["label_ids"]]
    predictions = predict(model, batch)
    assert difference(predictions["outputs"], np.exp(log_probs)) < 2e-6
    assert difference(predictions["per_example_loss"], losses) < 2e-6
    np.testing.assert_array_equal(predictions["label_ids"], features["label_ids"])
    right = log_probs.argmax(-1) == features["label_ids"]
    loss, sums = compute(model, batch)
    assert difference(loss, losses.mean()) < 2e-6
    assert [x.numpy() for x in sums["accuracy"]] == [right.sum(), B]
