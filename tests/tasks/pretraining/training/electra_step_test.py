"""Tests of ELECTRA's models in training and evaluation: bfloat16, metrics by numpy, samples.

Parts of a batch and replicas: tests/engine/replicas_test.py; kills: runs/training/resume_test.py.
"""

import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.engine.evaluator import means
from bert_tf.model.family import ElectraConfig
from bert_tf.seeds import hash_numbers
from bert_tf.tasks.pretraining.training.dynamic_masking import ElectraMasking
from bert_tf.tasks.pretraining.training.electra import ElectraPretrainingModel
from bert_tf.tasks.pretraining.training.electra_settings import MODEL_ARGUMENTS, ElectraSettings
from tests.support.objectives import set_random_weights
from tests.support.small_pretraining import SMALL, difference, tensors

LENGTH, ROWS, WORDS = 11, 6, range(5, 9)
CONFIG = ElectraConfig.from_dict({**SMALL, "embedding_size": 10})


class WithoutNoise(ElectraPretrainingModel):
    """Samples the likeliest token."""

    def uniform_noise(self, shape, seed):
        return tf.fill(shape, 0.5)


@functools.cache
def small_electra(kind=WithoutNoise, **options):
    """Returns a model with random weights, of which each part is right here and there."""
    model = kind(CONFIG, generator_hidden_size=0.5, **options)
    set_random_weights(model, 3)
    head = model.discriminator_predictions.output_layer
    head.kernel.assign(6 * head.kernel)
    head.bias.assign([2.0])
    model.generator_predictions.output_bias.assign(5.0 * np.isin(np.arange(53), WORDS))
    return model


@functools.cache
def batch():
    """A masked batch, with padding."""
    rng = np.random.default_rng(5)
    mask = (np.arange(LENGTH) < rng.integers(5, LENGTH + 1, [ROWS, 1])).astype(np.int32)
    ids = rng.choice(WORDS, [ROWS, LENGTH]).astype(np.int32) * mask
    features = tensors({"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)})
    masking = ElectraMasking(4, (2, 3, 4), 4, 0.3)
    return masking(features, hash_numbers(7, tf.range(ROWS)))


def step_metrics(model):
    """Returns the metrics of a step that changes no weight."""
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
    return steps.train_step(model, optimizer, batch(), tf.constant([0, 0]))


@pytest.mark.slow
def test_bfloat16_is_near_and_its_losses_are_float32():
    half = small_electra(dtype="bfloat16")
    features = batch()
    found, expected = (model(features) for model in (half, small_electra()))
    same = found.fake_input_ids == expected.fake_input_ids
    assert 0.9 < np.mean(same) <= 1.0
    for name in ("masked_lm_logits", "logits"):
        value = getattr(found, name)
        assert value.dtype == tf.float32
        rows = tf.reduce_all(same, axis=1) if name == "logits" else slice(None)
        assert difference(value[rows], getattr(expected, name)[rows]) < 0.1, name
    metrics, of_float32 = step_metrics(half), step_metrics(small_electra())
    for name in ("loss", "gradient_norm"):
        assert metrics[name].dtype == tf.float32
        assert difference(metrics[name], of_float32[name]) < 0.1, name


def metrics_of_numpy(outputs, features):
    """Returns the original's metrics of a batch, and the loss, in float64."""
    weight = np.float64(features["example_weight"])[:, None]
    right_ids, sampled = (x.numpy() for x in (features["masked_lm_ids"], outputs.sampled_ids))
    logits = outputs.masked_lm_logits.numpy().astype(np.float64).reshape(*right_ids.shape, -1)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_probs, right_ids[..., None], -1)[..., 0]
    places = features["masked_lm_weights"].numpy() * weight
    found, labels = outputs.logits.numpy().astype(np.float64), outputs.labels.numpy()
    tokens = features["input_mask"].numpy() * weight
    by_token = np.log1p(np.exp(found)) - labels * found
    rows = (by_token * tokens).sum(1) / (tokens.sum(1) + 1e-6)
    replaced = found > 0

    def average(values, weights):
        return (values * weights).sum() / weights.sum()

    probs, labels = np.float32(1 / (1 + np.exp(-found))) * tokens, labels * tokens
    thresholds = np.float32([-1e-7, *(np.arange(1, 199) / 199), 1 + 1e-7])
    above = (probs[..., None] > thresholds) * weight[..., None]
    true = (above * labels[..., None]).sum((0, 1)) / labels.sum()
    negatives = (1 - labels) * weight  # padding, too
    false = (above * negatives[..., None]).sum((0, 1)) / negatives.sum()
    return {
        "masked_lm_loss": average(losses, places),
        "masked_lm_accuracy": average(logits.argmax(-1) == right_ids, places),
        "sampled_masked_lm_accuracy": average(sampled == right_ids, places),
        "disc_loss": average(rows, weight[:, 0]),
        "disc_accuracy": average(replaced == labels, tokens),
        "disc_precision": average(labels, tokens * replaced),
        "disc_recall": average(replaced, tokens * labels),
        "disc_auc": ((true[:-1] + true[1:]) / 2 * (false[:-1] - false[1:])).sum(),
        "loss": (losses * places).sum() / (places.sum() + 1e-6)
        + 50 * (by_token * tokens).sum() / (tokens.sum() + 1e-6),
    }


def test_settings_and_model_have_the_same_defaults():
    parameters = inspect.signature(ElectraPretrainingModel.__init__).parameters
    for name in MODEL_ARGUMENTS:
        assert parameters[name].default == getattr(ElectraSettings, name), name


@pytest.mark.parametrize("weights", [[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0]], ids=str)
def test_the_metrics_of_an_evaluation_are_those_of_numpy(weights):
    model = small_electra(ElectraPretrainingModel)
    features = {**batch(), "example_weight": tf.constant(weights, tf.float32)}
    sums = tf.nest.map_structure(
        lambda x: x.numpy()[np.newaxis], steps.evaluation_step(model, features)
    )
    found = model.finish(means(sums))
    expected = metrics_of_numpy(model(features), features)
    assert all(0 < value < 1 for name, value in expected.items() if "loss" not in name)
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_row_has_its_samples_in_any_batch_of_an_evaluation():
    model = small_electra(ElectraPretrainingModel)
    features = batch()
    whole = model(features).fake_input_ids.numpy()
    for begin, end in ((0, 1), (2, 5)):
        part = model({n: x[begin:end] for n, x in features.items()})
        np.testing.assert_array_equal(part.fake_input_ids, whole[begin:end])
    # In training they follow from the seed.
    seeds = (tf.constant([1, seed]) for seed in (2, 2, 3))
    first, again, other = (model(features, training=True, dropout_seed=seed) for seed in seeds)
    np.testing.assert_array_equal(first.sampled_ids, again.sampled_ids)
    assert np.any(first.sampled_ids != other.sampled_ids)
