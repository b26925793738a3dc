"""Tests of what all tasks have in common; a new task adds a row to TASKS."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import steps
from bert_tf.modeling import BertConfig
from bert_tf.tasks.classification.model import ClassificationTask
from bert_tf.tasks.classification.schema import classification_schema
from bert_tf.tasks.extraction.model import FeaturesTask
from bert_tf.tasks.extraction.schema import OUTPUTS
from bert_tf.tasks.multiple_choice.model import MultipleChoiceTask
from bert_tf.tasks.multiple_choice.schema import multiple_choice_schema
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.tasks.pretraining.training.model import PretrainingTask
from bert_tf.tasks.sentences.model import SentenceTask
from bert_tf.tasks.sentences.schema import sentences_schema
from bert_tf.tasks.squad.model import SquadTask
from bert_tf.tasks.squad.schema import squad_schema
from bert_tf.tasks.tagging.model import TaggingTask
from bert_tf.tasks.tagging.schema import tagging_schema
from tests.support import numpy_bert
from tests.support.small_pretraining import SMALL, weights_of

S = 7

# Each: the task of a configuration, its schema, and the dropout rate of the configuration. The rate
# is 0 where the task's own head has a dropout, which is then the only one.
TASKS = {
    "pretraining": (PretrainingTask, pretraining_schema(S, 5), 0.3),
    "classification": (
        lambda config, **options: ClassificationTask(config, 3, **options),
        classification_schema(S, regression=False),
        0.0,
    ),
    "regression": (
        lambda config, **options: ClassificationTask(config, None, **options),
        classification_schema(S, regression=True),
        0.0,
    ),
    "squad": (SquadTask, squad_schema(S, is_training=True), 0.3),
    "tagging": (
        lambda config, **options: TaggingTask(config, 4, **options),
        tagging_schema(S),
        0.0,
    ),
    "tagging_with_a_frozen_bert": (
        lambda config, **options: TaggingTask(
            config, 4, feature_layers="last", lstm_size=6, **options
        ),
        tagging_schema(S),
        0.0,
    ),
    "multiple_choice": (MultipleChoiceTask, multiple_choice_schema(S), 0.0),
    "sentences": (SentenceTask, sentences_schema(S), 0.3),
    "sentences_in_batch_negatives": (
        lambda config, **options: SentenceTask(config, "in_batch_negatives", **options),
        sentences_schema(S),
        0.3,
    ),
}
PREDICTING = {"extraction": (lambda c, **o: FeaturesTask(c, [-1], OUTPUTS, **o), None, 0.0)}
every_task = pytest.mark.parametrize("name", TASKS)


def make_task(name, **options):
    """Returns a task with a small configuration."""
    task, _, rate = {**TASKS, **PREDICTING}[name]
    rates = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    return task(BertConfig.from_dict({**SMALL, "num_hidden_layers": 1, **rates}), **options)


@functools.cache
def make(name, **options):
    """Returns a task and its model with random weights."""
    task = make_task(name, **options)
    model = task.build_model()
    weights = numpy_bert.random_weights({v.path: v.shape for v in model.variables}, 0)
    for path, variable in weights_of(model).items():
        variable.assign(weights[path])
    return task, model


def make_features(name, batch_size):
    """Returns a batch of random features as the task's schema has them."""
    rng = np.random.default_rng(1)
    limits = {"input_ids": 53, "masked_lm_ids": 53, "masked_lm_positions": S, "label_ids": 3}
    limits.update(start_positions=S, end_positions=S)
    features = {}
    for feature, spec in TASKS[name][1].items():
        shape = (batch_size, *spec.shape)
        values = rng.integers(0, limits.get(feature, 2), shape)
        features[feature] = tf.constant(values, spec.dtype if spec.dtype.is_floating else tf.int32)
    # Every record has a token, and a word to tag.
    for feature in {"input_mask", "label_mask"} & features.keys():
        first = tf.range(S) == 0
        features[feature] = tf.where(first, 1, features[feature])
    return features


def compute(task, model, features, training=False, dropout_seed=None):
    """Returns loss and metrics."""
    normalizers = task.normalizers(features)
    return task.loss_and_metrics(model, features, normalizers, training, dropout_seed)


def test_every_task_says_what_it_is_for():
    kinds = (steps.Task, steps.PredictionTask, steps.FineTuningTask)
    found = {
        name: [kind for kind in kinds if isinstance(make_task(name), kind)]
        for name in {**TASKS, **PREDICTING}
    }
    assert found.pop("pretraining") == [steps.Task]
    assert found.pop("extraction") == [steps.PredictionTask]
    assert set(map(tuple, found.values())) == {kinds}


@every_task
def test_padding_of_weight_0_changes_neither_loss_nor_metrics(name):
    task, model = make(name)
    padded = make_features(name, 6)
    real = {feature: x[:4] for feature, x in padded.items()}
    expected, expected_sums = compute(task, model, real)
    weights = tf.constant([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    loss, sums = compute(task, model, {**padded, "example_weight": weights})
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert sums.keys() == expected_sums.keys()
    for metric, pair in sums.items():
        np.testing.assert_allclose(pair, expected_sums[metric], rtol=1e-5, err_msg=metric)
    # Without the feature every example has weight 1, the last two too.
    unweighted, unweighted_sums = compute(task, model, padded)
    loss, sums = compute(task, model, {**padded, "example_weight": tf.ones([6])})
    np.testing.assert_array_equal(loss, unweighted)
    np.testing.assert_array_equal(list(sums.values()), list(unweighted_sums.values()))
    assert abs(loss - expected) > 1e-3 * expected
    assert all(pair[1] > expected_sums[metric][1] for metric, pair in sums.items())


@every_task
def test_an_evaluation_step_counts_no_padding(name):
    task, model = make(name)
    padded = make_features(name, 3)
    real = {feature: x[:2] for feature, x in padded.items()}
    one = steps.Replicas(1, lambda tensors: tensors)
    expected = steps.evaluation_step(task, model, {**real, "example_weight": tf.ones([2])}, one)
    weights = tf.constant([1.0, 1.0, 0.0])
    found = steps.evaluation_step(task, model, {**padded, "example_weight": weights}, one)
    assert found.keys() == expected.keys()
    for metric, pair in found.items():
        np.testing.assert_allclose(pair, expected[metric], rtol=1e-5, err_msg=metric)


@every_task
def test_a_batch_of_nothing_but_padding_has_loss_and_metrics_0(name):
    task, model = make(name)
    features = {**make_features(name, 2), "example_weight": tf.zeros([2])}
    loss, sums = compute(task, model, features)
    assert [loss.numpy(), *np.ravel(list(sums.values()))] == [0.0] * (1 + 2 * len(sums))


@every_task
def test_training_without_a_dropout_seed_draws_other_masks_at_each_call(name):
    task, model = make(name)
    features = make_features(name, 3)
    losses = {float(compute(task, model, features, training=True)[0]) for _ in range(3)}
    assert len(losses) == 3


@every_task
def test_a_given_dropout_seed_repeats_its_masks(name):
    task, model = make(name)
    features = make_features(name, 3)
    once, again, other = (
        float(compute(task, model, features, True, tf.constant([1, seed]))[0]) for seed in (3, 3, 4)
    )
    assert once == again != other


@every_task
def test_a_bfloat16_model_has_float32_variables_logits_and_losses(name):
    task, model = make(name, dtype="bfloat16")
    features = make_features(name, 3)
    assert {v.dtype for v in model.variables} == {"float32"}
    arguments = ["input_ids", "input_mask", "segment_ids"]
    arguments += ["masked_lm_positions"] * (name == "pretraining")
    output = model(*(features[argument] for argument in arguments))
    assert {x.dtype for x in tf.nest.flatten(output)} == {tf.float32}
    loss, sums = compute(task, model, features)
    assert {x.dtype for x in tf.nest.flatten([loss, sums])} == {tf.float32}
    exact, _ = compute(*make(name), features)
    assert 0 < abs(loss - exact) < 0.1 * exact


@pytest.mark.parametrize("name", [*TASKS, *PREDICTING])
def test_options_reach_bert(name):
    _, model = make(name, use_one_hot_embeddings=True, recompute_activations=True, dtype="bfloat16")
    bert = model.bert
    assert bert.embeddings.use_one_hot_embeddings and bert.encoder.recompute_activations
    assert bert.compute_dtype == "bfloat16"
    with pytest.raises(TypeError, match="use_one_hot"):
        make(name, use_one_hot=True)
