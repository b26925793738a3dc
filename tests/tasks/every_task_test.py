"""Tests of what all tasks have in common."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import steps
from bert_tf.modeling import BertConfig
from bert_tf.tasks import registry
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.extraction.settings import OUTPUTS
from bert_tf.tasks.fine_tuning import run_fine_tuning
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support.objectives import compute, set_random_weights
from tests.support.refusals import refuses
from tests.support.registered_tasks import VARIANTS, make_task, prepare
from tests.support.small_pretraining import SMALL

S = 7
TASKS = ["pretraining", *VARIANTS]
# Without a dropout in the model's own head, BERT must have some; else the head's is the only one.
BERT_DROPOUT = {*("pretraining", "squad", "sentences", "sentences_in_batch_negatives")}
every_task = pytest.mark.parametrize("name", TASKS)


def every_task_but(name):
    return pytest.mark.parametrize("name", [other for other in TASKS if other != name])


def schema_of(name):
    return pretraining_schema(S, 5) if name == "pretraining" else prepare(name, S).schema


def new_model(name, **options):
    """Returns a model with a small configuration."""
    rate = 0.3 if name in BERT_DROPOUT else 0.0
    rates = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    config = BertConfig.from_dict({**SMALL, "num_hidden_layers": 1, **rates})
    if name == "pretraining":
        return PretrainingModel(config, **options)
    if name == "extraction":
        return FeaturesModel(config, [-1], OUTPUTS, **options)
    return prepare(name, S).build(config, **options)


@functools.cache
def make(name, **options):
    """Returns a model with random weights, the same one at each call."""
    model = new_model(name, **options)
    set_random_weights(model)
    return model


def make_features(name, batch_size):
    """Returns a batch of random features as the schema has them."""
    rng = np.random.default_rng(1)
    limits = {"input_ids": 53, "masked_lm_ids": 53, "masked_lm_positions": S}
    limits.update(start_positions=S, end_positions=S)
    labels = None if name == "pretraining" else prepare(name, S).labels
    limits["label_ids"] = len(labels) if labels else 6  # scores from 0 to 5
    schema = schema_of(name)
    if name == "multiple_choice":
        limits["label_ids"] = schema["input_ids"].shape[0]
    features = {}
    for feature, spec in schema.items():
        shape = (batch_size, *spec.shape)
        values = rng.integers(0, limits.get(feature, 2), shape)
        dtype = tf.float32 if spec.dtype is np.float32 else tf.int32
        features[feature] = tf.constant(values, dtype)
    # Every record has a token, and a word to tag.
    for feature in {"input_mask", "label_mask"} & features.keys():
        first = tf.range(S) == 0
        features[feature] = tf.where(first, 1, features[feature])
    return features


@functools.cache
def computed(name):
    """Returns a batch of three, its loss and its metrics."""
    features = make_features(name, 3)
    return features, *compute(make(name), features)


@every_task
def test_padding_of_weight_0_changes_neither_loss_nor_metrics(name):
    model = make(name)
    padded = make_features(name, 6)
    real = {feature: x[:4] for feature, x in padded.items()}
    expected, expected_sums = compute(model, real)
    weighted = {**padded, "example_weight": tf.constant([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])}
    loss, sums = compute(model, weighted)
    found = steps.evaluation_step(model, weighted)
    total, count = found.pop("loss")
    assert count == 4
    assert sums.keys() == found.keys() == expected_sums.keys()
    np.testing.assert_allclose([loss, total / count], [expected] * 2, rtol=1e-5)
    for each in (sums, found):
        np.testing.assert_allclose(list(each.values()), list(expected_sums.values()), rtol=1e-5)
    # Without the feature every example has weight 1, the last two too.
    unweighted, unweighted_sums = compute(model, padded)
    loss, sums = compute(model, {**padded, "example_weight": tf.ones([6])})
    np.testing.assert_array_equal(loss, unweighted)
    np.testing.assert_array_equal(list(sums.values()), list(unweighted_sums.values()))
    assert abs(loss - expected) > 1e-3 * expected
    assert all(pair[1] > expected_sums[metric][1] for metric, pair in sums.items())
    # A batch of nothing but padding has loss and metrics 0.
    loss, sums = compute(model, {**real, "example_weight": tf.zeros([4])})
    assert [loss.numpy(), *np.ravel(list(sums.values()))] == [0.0] * (1 + 2 * len(sums))


@every_task_but("sentences_in_batch_negatives")  # a part has fewer negatives
def test_losses_of_parts_add_up(name):
    model, (features, loss, _) = make(name), computed(name)
    normalizers = model.normalizers(features)
    rows = [{feature: x[i : i + 1] for feature, x in features.items()} for i in range(3)]
    parts = [model.loss_and_metrics(model(row), row, normalizers)[0] for row in rows]
    np.testing.assert_allclose(sum(parts), loss, rtol=1e-5)


@every_task_but("squad")  # the positions of padding compete, too, as in the original
def test_the_padding_of_a_row_changes_nothing(name):
    model, features = make(name), make_features(name, 3)
    for feature in {"input_mask", "label_mask"} & features.keys():
        features[feature] *= tf.cast(tf.range(S) < S - 2, tf.int32)
    if "masked_lm_positions" in features:
        features["masked_lm_positions"] %= S - 2
    short = {n: x[..., : S - 2] if x.shape[-1] == S else x for n, x in features.items()}
    expected, sums = compute(model, features)
    loss, short_sums = compute(model, short)
    np.testing.assert_allclose(loss, expected, rtol=2e-6)
    np.testing.assert_allclose(list(short_sums.values()), list(sums.values()), rtol=2e-6)


@every_task
def test_a_dropout_seed_repeats_its_masks_in_training_only(name):
    model, (features, without, _) = make(name), computed(name)
    seeds = [tf.constant([1, seed]) for seed in (3, 3, 4)]
    losses = [float(compute(model, features, True, seed)[0]) for seed in (*seeds, None, None)]
    assert losses[0] == losses[1] and len({float(without), *losses}) == 5
    assert compute(model, features, dropout_seed=seeds[0])[0] == without


HEADS = {
    "classification": {"output_weights": (2, 24), "output_bias": (2,)},
    "regression": {"output_weights": (1, 24), "output_bias": (1,)},
    "multiple_choice": {"output_weights": (1, 24)},
    "tagging": {"output_weights": (5, 24), "output_bias": (5,)},
    "squad": {"cls/squad/output_weights": (2, 24), "cls/squad/output_bias": (2,)},
    "sentences": {},
    "sentences_in_batch_negatives": {},
}


@pytest.mark.parametrize("name", HEADS)
def test_the_head_has_the_original_s_names_and_is_trained_with_bert(name):
    model = new_model(name)
    head = {v.path: v for v in model.variables if not v.path.startswith("bert/")}
    assert {path: tuple(variable.shape) for path, variable in head.items()} == HEADS[name]
    for path, variable in head.items():
        is_bias = path.endswith("bias")  # weights are truncated at two standard deviations
        assert (np.abs(variable).max() == 0) if is_bias else (0 < np.abs(variable).max() <= 0.04)
    frozen = {v.path for v in model.variables} - {v.path for v in model.trainable_variables}
    pooler = {"bert/pooler/dense/bias", "bert/pooler/dense/kernel"}
    reads_tokens = name in ("tagging", "squad") or name.startswith("sentences")
    assert frozen == (pooler if reads_tokens else set())


@every_task
def test_gradients_reach_every_weight_that_is_trained(name):
    model = make(name)
    variables = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss, _ = compute(model, make_features(name, 3), True)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert gradient is not None, variable.name
        norm = tf.norm(tf.convert_to_tensor(gradient))
        assert 0 < norm < np.inf, variable.name


@pytest.mark.parametrize("name", [*TASKS, "extraction"])
def test_options_reach_bert_and_what_is_float32_in_bfloat16(name):
    model = make(name, use_one_hot_embeddings=True, recompute_activations=True, dtype="bfloat16")
    bert = model.bert
    assert bert.embeddings.use_one_hot_embeddings and bert.encoder.recompute_activations
    assert bert.compute_dtype == "bfloat16"
    assert {v.dtype for v in model.variables} == {"float32"}
    with pytest.raises(TypeError, match="use_one_hot"):
        make(name, use_one_hot=True)
    if name == "extraction":
        return
    features, exact, _ = computed(name)
    arguments = ["input_ids", "input_mask", "segment_ids"]
    arguments += ["masked_lm_positions"] * (name == "pretraining")
    output = model(*(features[argument] for argument in arguments))
    loss, sums = compute(model, features)
    assert {x.dtype for x in tf.nest.flatten([output, loss, sums])} == {tf.float32}
    assert 0 < abs(loss - exact) < 0.1 * exact


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", registry.TASKS)
def test_what_belongs_to_a_task(name):
    message = "^At least one of --do_train(, --do_eval)? and --do_predict must be given.$"
    refuses(message, run_fine_tuning, make_task(name), BertConfig(99), tf.distribute.get_strategy())
    task = registry.TASKS[name]
    program = (ROOT / f"{task.program}.py").read_text()
    assert f'\nmain = program.main_of("{name}")\n' in program
    assert (ROOT / "docs" / f"{task.page}.md").is_file()
    assert list((ROOT / "flags" / task.recipes).glob("*.flags"))
    for value in map(str, task.example.values()):
        assert not value.startswith("flags/") or (ROOT / value).exists(), value
    row = rf"^\| \[.*\]\({task.page}\.md\) \| `{task.program}\.py` \| .* \| `flags/quickstart/.*` "
    assert re.search(row, (ROOT / "docs/own-data.md").read_text(), re.MULTILINE), (
        f"the table of docs/own-data.md needs a row of {task.page}.md and {task.program}.py"
    )


def test_every_program_of_fine_tuning_is_registered():
    found = {path.stem for path in ROOT.glob("*.py") if "main_of" in path.read_text()}
    assert found == {task.program for task in registry.TASKS.values()}
