"""Tests of bert_tf.engine.steps. Golden figures: pretraining_model_test.py."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from tests.support.objectives import OtherObjective
from tests.support.small_pretraining import (
    difference,
    make_features,
    small_model,
    tensors,
    weights_of,
)


class FirstToken(OtherObjective):
    """A loss that does not reach the pooler nor the heads."""

    def __call__(self, features, training, dropout_seed):
        return self.model.bert(features["input_ids"]).sequence_output[:, 0]

    def normalizers(self, features):
        return {"rows": tf.cast(tf.shape(features["input_ids"])[0], tf.float32)}

    def loss_and_metrics(self, outputs, features, normalizers):
        return tf.reduce_sum(outputs**4) / normalizers["rows"], {}


@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_a_sum_of_losses_is_the_mean_times_their_number(accumulation_steps):
    results = []
    for sums_losses in (False, True):
        model, _ = small_model(7)
        optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
        features = {"input_ids": tf.constant(make_features(7, batch_size=6)["input_ids"])}
        objective = FirstToken(model)
        objective.sums_losses = sums_losses
        seed = tf.constant([0, 0])
        metrics = steps.train_step(objective, optimizer, features, seed, accumulation_steps)
        results.append([metrics[name].numpy() for name in ("loss", "gradient_norm")])
    np.testing.assert_allclose(results[1], 6 * np.array(results[0]), rtol=1e-5)


def test_accumulation_leaves_a_variable_without_gradient_as_it_is():
    results = []
    for accumulation_steps in (1, 3):
        model, reference = small_model(7)
        optimizer = optimization.create_optimizer(
            model.trainable_variables, optimization.linear_schedule(0.01, 9, 0)
        )
        features = {"input_ids": tf.constant(make_features(7, batch_size=6)["input_ids"])}
        metrics = steps.train_step(
            FirstToken(model), optimizer, features, tf.constant([0, 0]), accumulation_steps
        )
        results.append((metrics, {n: v.numpy() for n, v in weights_of(model).items()}))
    (whole, expected), (parts, actual) = results
    np.testing.assert_allclose(parts["loss"], whole["loss"], rtol=1e-6)
    for name, value in actual.items():
        if "key/bias" not in name:
            assert difference(value, expected[name]) < 1e-5, name
    initial = reference.weights["bert/pooler/dense/kernel"]
    # Not even decayed: the optimizer passes over it, as the original's does.
    np.testing.assert_array_equal(actual["bert/pooler/dense/kernel"], initial)


@pytest.mark.parametrize("optimizer_name", ["adamw", "lamb"])
def test_a_step_with_too_large_gradients_is_left_out(optimizer_name):
    """Four steps, of which the limit leaves out those that the norms without it are above."""
    options = optimization.AdamOptions(optimizer=optimizer_name)
    batches = [tensors(make_features(seed, batch_size=seed)) for seed in (3, 4, 5, 6)]

    def train(limit, batches):
        model, _ = small_model(10)
        schedule = optimization.linear_schedule(0.0, 9, 0)
        optimizer = optimization.create_optimizer(model.trainable_variables, schedule, options)
        seed, found = tf.constant([0, 0]), []
        for batch in batches:
            metrics = steps.train_step(model, optimizer, batch, seed, skip_above_norm=limit)
            found.append([float(metrics.get(name, -1)) for name in ("gradient_norm", "skipped")])
        values = {**weights_of(model), **optimizer.checkpoint_variables()}
        return found, {name: value.numpy() for name, value in values.items()}

    norms = [norm for norm, _ in train(None, batches)[0]]  # at a learning rate of 0
    limit = float(np.median(norms))
    kept = [batch for batch, norm in zip(batches, norms, strict=True) if norm <= limit]
    found, values = train(limit, batches)
    assert [skipped for _, skipped in found] == [float(norm > limit) for norm in norms]
    assert len(kept) == 2 and values.pop("global_step") == 4
    _, expected = train(None, kept)
    assert expected.pop("global_step") == 2
    for name, value in expected.items():
        np.testing.assert_array_equal(values[name], value, err_msg=name)


def test_accumulation_normalizes_by_the_whole_batch():
    """The parts hold unequal weights, so that a mean of their means would be another number."""
    model, reference = small_model(8)
    features = make_features(8, batch_size=4)
    features["masked_lm_weights"][:2] *= 0.125
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
    metrics = steps.train_step(
        model, optimizer, tensors(features), tf.constant([0, 0]), accumulation_steps=2
    )
    expected = reference.losses(features)
    np.testing.assert_allclose(metrics["loss"], expected["total_loss"], rtol=1e-5)
    numerator, denominator = metrics["masked_lm_loss"]
    weight = features["masked_lm_weights"].sum()
    np.testing.assert_allclose(denominator, weight, rtol=1e-6)
    np.testing.assert_allclose(
        numerator / (denominator + 1e-5), expected["masked_lm_loss"], rtol=1e-5
    )


def test_dropout_of_a_step_follows_from_seed_and_step():
    changes = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}
    model, _ = small_model(10, num_hidden_layers=1, **changes)
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
    features = tensors(make_features(10))

    @tf.function(autograph=False)
    def step_loss(seed):
        return steps.train_step(model, optimizer, features, seed)["loss"]

    def loss(seed, step):
        optimizer.global_step.assign(step)
        return float(step_loss(tf.constant(seed)))

    every = [loss([3, 4], 0), loss([3, 4], 1), loss([3, 5], 0), loss([4, 4], 0)]
    assert loss([3, 4], 0) == every[0]
    assert len({round(x, 4) for x in every}) == len(every)


def test_every_part_of_a_batch_has_its_own_dropout_seed():
    class Draws(OtherObjective):
        """Its metric holds a number drawn from the seed of each part."""

        def __call__(self, features, training, dropout_seed):
            return tf.random.stateless_uniform([], dropout_seed)

        def loss_and_metrics(self, outputs, features, normalizers):
            draws = tf.reduce_sum(features["one_hot"], axis=0) * outputs
            bias = self.model.bert.pooler.dense.bias.value
            return tf.reduce_sum(bias), {"draws": (draws, outputs)}

    model, _ = small_model(12)
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
    features = {"one_hot": tf.eye(3)}
    draws = []
    for _ in range(2):
        seed = tf.constant([3, 4])
        metrics = steps.train_step(Draws(model), optimizer, features, seed, 3)
        draws.extend(metrics["draws"][0].numpy())
    assert len(set(draws)) == 6 and 0 not in draws
