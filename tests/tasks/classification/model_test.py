"""Tests of bert_tf.tasks.classification.model, against the numpy model."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import distribution, steps
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.classification.model import ClassificationModel
from tests.support import numpy_bert
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.pretraining_runs import run_forked
from tests.support.small_pretraining import SMALL, S, difference

B = 5


def make_features(num_labels, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, S + 1, size=(B, 1))
    labels = rng.integers(0, num_labels, B) if num_labels else rng.uniform(0, 5, B)
    return {
        "input_ids": rng.integers(0, 53, (B, S), dtype=np.int32),
        "input_mask": (np.arange(S) < lengths).astype(np.int32),
        "segment_ids": rng.integers(0, 4, (B, S), dtype=np.int32),
        "label_ids": labels.astype(np.int32 if num_labels else np.float32),
        "is_real_example": np.ones(B, np.int32),
    }


def make(num_labels, **changes):
    """Returns the model, its random weights by name and the numpy model with the same ones."""
    config = {**SMALL, **changes}
    model = ClassificationModel(BertConfig.from_dict(config), num_labels)
    weights = set_random_weights(model, 4)
    return model, weights, numpy_bert.NumpyBert(config, weights)


def pooled_output(reference, features):
    names = ("input_ids", "input_mask", "segment_ids")
    return reference.forward(*(features[name] for name in names))["pooled_output"]


def numpy_logits(weights, reference, features):
    pooled = pooled_output(reference, features)
    return pooled @ weights["output_weights"].T + weights["output_bias"]


def test_regression():
    model, weights, reference = make(1)
    features = make_features(None)
    values = numpy_logits(weights, reference, features)[:, 0]
    rows = predict(model, features)
    assert difference(rows["outputs"], values) < 1e-5
    losses = (values - features["label_ids"]) ** 2
    assert difference(rows["per_example_loss"], losses) < 1e-5
    loss, sums = compute(model, features)
    assert difference(loss, losses.mean()) < 1e-5 and sums == {}


def numpy_loss(logits, label_ids, weights, smoothing):
    """The weighted mean of cross entropies with targets (1 - smoothing) * one_hot + even share."""
    classes = logits.shape[1]
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    targets = (1 - smoothing) * np.eye(classes)[label_ids] + smoothing / classes
    losses = -(targets * log_probabilities).sum(axis=-1)
    return (weights * losses).sum() / weights.sum()


@pytest.mark.parametrize("num_labels, smoothing", [(2, 0.0), (3, 0.25), (7, 0.9)])
def test_classes_weights_and_smoothed_targets(num_labels, smoothing):
    """The loss is divided by the sum of the weights; predictions know neither of them."""
    model, weights, reference = make(num_labels)
    model.label_smoothing = smoothing
    importance = np.array([0.5, 3.0, 0.0, 1.25, 7.0], np.float32)
    plain = make_features(num_labels)
    logits, labels = numpy_logits(weights, reference, plain), plain["label_ids"]
    right = np.argmax(logits, -1) == labels
    for features in (plain, {**plain, "example_weight": importance}):
        weight = features.get("example_weight", np.ones(B))
        loss, sums = compute(model, features)
        assert difference(loss, numpy_loss(logits, labels, weight, smoothing)) < 1e-5
        assert difference(sums["accuracy"], [(weight * right).sum(), weight.sum()]) < 1e-5
    rows = predict(model, features)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    losses = -np.log(probabilities[np.arange(B), labels])
    assert difference(rows["outputs"], probabilities) < 1e-5
    assert difference(rows["per_example_loss"], losses) < 1e-5
    np.testing.assert_array_equal(rows["label_ids"], labels)
    np.testing.assert_array_equal(rows["example_weight"], importance)


def test_a_share_of_smoothing_that_cannot_be():
    for share in (-0.1, 1.0, float("nan")):
        with pytest.raises(UserError, match="label_smoothing must be at least 0 and below 1; rec"):
            ClassificationModel(BertConfig.from_dict(SMALL), 2, label_smoothing=share)


def check_replicas():
    """Each of two devices divides by the sum of its own weights; then gradients are averaged."""
    strategy = distribution.get_strategy("mirrored", num_cpu_devices=2)
    importance = np.array([0.5, 3.0, 0.25, 7.0], np.float32)
    features = {name: x[:4] for name, x in make_features(3).items()}
    features["example_weight"] = importance
    quiet = {**SMALL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    halves = [{name: x[part] for name, x in features.items()} for part in ([0, 1], [2, 3])]
    with strategy.scope():
        model = ClassificationModel(BertConfig.from_dict(quiet), 3, 0.0, label_smoothing=0.2)
        weights = set_random_weights(model, 4)
        optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 1e-2)
    reference = numpy_bert.NumpyBert(quiet, weights)
    gradients = []
    for half in halves:
        with tf.GradientTape() as tape:
            loss, _ = compute(model, half, training=True)
        gradients.append(tape.gradient(loss, model.head.output_weights.value).numpy())
    mean = sum(gradients) / 2

    def step(index):
        part = {name: tf.stack([half[name] for half in halves])[index] for name in features}
        return steps.train_step(
            *(model, optimizer, part, tf.constant([0, 0])),
            gradient_reduction="global_mean_clip",
            clip_norm=0.0,
        )

    @tf.function(autograph=False)
    def run():
        replica = tf.distribute.get_replica_context

        return strategy.run(lambda: step(replica().replica_id_in_sync_group))

    found = strategy.experimental_local_results(run()["loss"])
    for loss, half in zip(found, halves, strict=True):
        logits = numpy_logits(weights, reference, half)
        expected = numpy_loss(logits, half["label_ids"], half["example_weight"], 0.2)
        assert difference(loss, expected) < 1e-5
    (m,) = (
        v for name, v in optimizer.checkpoint_variables().items() if name == "output_weights/adam_m"
    )
    assert difference(m, 0.1 * mean) < 1e-4


@pytest.mark.slow
def test_two_replicas_divide_by_their_own_weights():
    run_forked("from tests.tasks.classification import model_test as t\nt.check_replicas()")


def test_a_tenth_of_the_pooled_output_is_dropped_whatever_the_configuration():
    """BERT's own dropout is off, so only the head's changes the logits."""
    model, weights, reference = make(2)
    features = make_features(2)
    pooled = pooled_output(reference, features)
    # Output weights of the identity's first two rows show two of the units as they are.
    chosen = np.zeros([2, 24], np.float32)
    chosen[0, 3] = chosen[1, 17] = 1.0
    model.head.output_weights.assign(chosen)
    model.head.output_bias.assign([0.0, 0.0])
    names = ("input_ids", "input_mask", "segment_ids")
    many = {name: np.tile(features[name], [60, 1]) for name in names}
    logits = model(**many, training=True, dropout_seed=tf.constant([3, 7]))
    ratios = np.asarray(logits) / np.tile(pooled[:, [3, 17]], [60, 1])
    dropped = np.abs(ratios) < 1e-6
    np.testing.assert_allclose(ratios[~dropped], 1 / 0.9, rtol=1e-4)
    assert 0.05 < dropped.mean() < 0.15
