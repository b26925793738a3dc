"""Tests of bert_tf.tasks.tagging.model and head, against the numpy model and LSTM."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.modeling import BertConfig
from bert_tf.tasks.tagging.model import BidirectionalLstm, TaggingModel
from bert_tf.tasks.tagging.settings import FEATURE_LAYERS
from tests.support import numpy_bert
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.refusals import refuses
from tests.support.small_pretraining import SMALL, difference, tensors, weights_of

B, S, LABELS, UNITS = 3, 9, 5, 6
CONFIG = {**SMALL, "num_hidden_layers": 5}


def make_features():
    """Returns the numpy features of a batch, with padding."""
    rng = np.random.default_rng(0)
    mask = (np.arange(S) < np.array([[S], [4], [6]])).astype(np.int32)
    return {
        "input_ids": rng.integers(0, 53, (B, S), dtype=np.int32),
        "input_mask": mask,
        "segment_ids": np.zeros((B, S), np.int32),
        "label_ids": rng.integers(0, LABELS, (B, S), dtype=np.int32),
        "label_mask": rng.integers(0, 2, (B, S), dtype=np.int32) * mask,
    }


def make_model(num_hidden_layers=5, **options):
    """Returns the model and its random weights by name."""
    config = BertConfig.from_dict({**CONFIG, "num_hidden_layers": num_hidden_layers})
    model = TaggingModel(config, LABELS, **options)
    return model, set_random_weights(model)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_lstm(x, weights, scope):
    """Returns the outputs, [length, U], of one LSTM over the tokens of one sequence."""
    kernel, recurrent, bias = (
        weights[f"{scope}/{name}"].astype(np.float64)
        for name in ("kernel", "recurrent_kernel", "bias")
    )
    output = cell = np.zeros(len(recurrent))
    outputs = []
    for now in x:
        i, f, c, o = np.split(now @ kernel + output @ recurrent + bias, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        output = sigmoid(o) * np.tanh(cell)
        outputs.append(output)
    return np.array(outputs)


def numpy_bilstm(x, mask, weights):
    """Returns the second layer's outputs at tokens, padding left out: a list of [length, 2U]."""
    results = []
    for row, length in zip(x, mask.sum(-1), strict=True):
        row = row[:length]
        for layer in range(2):
            scope = f"lstm/layer_{layer}"
            forward = numpy_lstm(row, weights, f"{scope}/forward")
            backward = numpy_lstm(row[::-1], weights, f"{scope}/backward")[::-1]
            row = np.concatenate([forward, backward], axis=-1)
        results.append(row)
    return results


def numpy_features(outputs, feature_layers):
    layers = outputs["all_encoder_layers"]
    return {
        "embeddings": outputs["embedding_output"],
        "last": layers[4],
        "second_to_last": layers[3],
        "sum_last_four": layers[1] + layers[2] + layers[3] + layers[4],
        "concat_last_four": np.concatenate(layers[1:], axis=-1),
        "sum_all": sum(layers),
    }[feature_layers]


def expected(weights, features, feature_layers):
    """Returns the log probabilities at tokens, a list of [length, labels], in float64."""
    bert = numpy_bert.NumpyBert(CONFIG, weights)
    outputs = bert.forward(features["input_ids"], features["input_mask"], features["segment_ids"])
    if feature_layers:
        tokens = numpy_features(outputs, feature_layers)
        rows = numpy_bilstm(tokens, features["input_mask"], weights)
    else:
        lengths = features["input_mask"].sum(-1)
        rows = [row[:n] for row, n in zip(outputs["sequence_output"], lengths, strict=True)]
    return [
        numpy_bert.log_softmax(row @ weights["output_weights"].T + weights["output_bias"])
        for row in rows
    ]


@pytest.mark.parametrize("feature_layers", [None, *FEATURE_LAYERS])
def test_loss_and_predictions_are_numpys(feature_layers):
    model, weights = make_model(feature_layers=feature_layers, lstm_size=UNITS)
    features = make_features()
    log_probs = expected(weights, features, feature_layers)
    losses = np.zeros((B, S))
    predictions = np.full((B, S), -1)
    for b, s in zip(*np.nonzero(features["label_mask"]), strict=True):
        losses[b, s] = -log_probs[b][s, features["label_ids"][b, s]]
        predictions[b, s] = log_probs[b][s].argmax()
    found = predict(model, tensors(features))
    assert difference(found["losses"], losses) < 2e-6
    np.testing.assert_array_equal(found["predictions"], predictions)
    loss, sums = compute(model, tensors(features))
    words, right = features["label_mask"].sum(), (predictions == features["label_ids"]).sum()
    assert difference(loss, losses.sum() / words) < 2e-6
    assert [x.numpy() for x in sums["accuracy"]] == [right, words]


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_labels_and_examples_weigh_the_mean_loss(seed):
    model, weights = make_model()
    features = make_features()
    log_probs = expected(weights, features, None)
    rng = np.random.default_rng(seed)
    features["label_weights"] = rng.integers(0, 4, (B, S)).astype(np.float32)
    features["example_weight"] = rng.uniform(size=B).astype(np.float32)
    total = loss = right = 0.0
    for b, s in zip(*np.nonzero(features["label_mask"]), strict=True):
        label = features["label_ids"][b, s]
        weight = features["label_weights"][b, s] * features["example_weight"][b]
        total, loss = total + weight, loss - weight * log_probs[b][s, label]
        right += weight * (log_probs[b][s].argmax() == label)
    found, sums = compute(model, tensors(features))
    assert difference(found, loss / total) < 2e-6
    assert [x.numpy() for x in sums["accuracy"]] == pytest.approx([right, total])
    checked = model._features(features)
    np.testing.assert_array_equal(checked["label_weights"], features["label_weights"])
    nothing = {**features, "label_weights": np.zeros((B, S), np.float32)}
    assert compute(model, tensors(nothing))[0].numpy() == 0.0


def test_the_lstms_start_like_keras_s():
    lstm = BidirectionalLstm(7, UNITS, "lstm")
    lstm.build()
    for direction in lstm.directions:
        layer = keras.layers.LSTM(UNITS)
        layer.build((None, None, 7))
        # Only the forget gate's bias is not 0.
        np.testing.assert_array_equal(direction.bias, layer.weights[2])
        kernel = direction.recurrent_kernel
        product = np.matmul(kernel, np.transpose(kernel))
        np.testing.assert_allclose(product, np.eye(UNITS), atol=1e-5)


HEAD = {"output_weights": (LABELS, 24), "output_bias": (LABELS,)}
LSTM = {
    f"lstm/layer_{layer}/{direction}/{name}": shape
    for layer, size in ((0, 4 * 24), (1, 2 * UNITS))
    for direction in ("forward", "backward")
    for name, shape in {
        "kernel": (size, 4 * UNITS),
        "recurrent_kernel": (UNITS, 4 * UNITS),
        "bias": (4 * UNITS,),
    }.items()
}


def shapes(variables):
    return {v.path: v.shape for v in variables}


def test_names_of_variables_and_what_is_trained():
    model, _ = make_model(feature_layers="concat_last_four", lstm_size=UNITS)
    bert = shapes(model.bert.variables)
    head = {**HEAD, "output_weights": (LABELS, 2 * UNITS), **LSTM}
    assert shapes(model.variables) == {**bert, **head}
    assert shapes(model.trainable_variables) == head
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
    slots = {name.rsplit("/", 1)[0] for name in optimizer.checkpoint_variables()}
    assert slots == {*head, "global_step"}


@pytest.mark.parametrize("feature_layers, jit_compile", [(None, False), ("last", True)])
def test_a_step_trains_what_it_should(feature_layers, jit_compile):
    model, before = make_model(1, feature_layers=feature_layers, lstm_size=UNITS)
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 1e-2)
    features = tensors(make_features())
    one = steps.Replicas(1, lambda tensors: tensors)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def train():
        return steps.train_step(model, optimizer, features, tf.constant([1, 2]), replicas=one)

    losses = [train()["loss"].numpy() for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]
    changed = {name for name, x in weights_of(model).items() if (x.numpy() != before[name]).any()}
    assert changed == {v.path for v in model.trainable_variables}


def test_a_frozen_bert_has_no_dropout():
    sequence = [tensors(make_features())[x] for x in ("input_ids", "input_mask", "segment_ids")]
    config = {**CONFIG, "hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    frozen = TaggingModel(BertConfig.from_dict(config), LABELS, "last", lstm_size=UNITS)
    seen = []
    frozen.lstm.call = lambda inputs, mask: seen.append(inputs) or tf.zeros([B, S, 2 * UNITS])
    frozen(*sequence, training=True)
    np.testing.assert_array_equal(seen[0], frozen.bert(*sequence).sequence_output)
    message = "--feature_layers=concat_last_four needs a model with at"
    refuses(message, make_model, 3, feature_layers="concat_last_four")
