"""Distillation: which layers a student begins with, and its losses."""

import collections
import os
import pathlib
import re
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.model.family import DistilBertConfig
from bert_tf.model.heads import matching_layers
from bert_tf.modeling import BertConfig
from bert_tf.tasks.pretraining.schema import MLM
from bert_tf.tasks.pretraining.training.distillation import (
    DistilledPretraining,
    choose_layers,
    copy_weights,
)
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support.golden import needs_golden
from tests.support.objectives import compute
from tests.support.packed_batches import both_batches
from tests.support.refusals import refuses
from tests.support.small_pretraining import (
    SMALL,
    difference,
    make_features,
    small_model,
    tensors,
    weights_of,
)

ALPHAS = {"ce": 5.0, "mlm": 2.0, "cos": 1.0, "mse": 0.0}
NO_ALPHAS = dict.fromkeys(ALPHAS, 0.0)
Output = collections.namedtuple("Output", "sequence_output all_encoder_layers embedding_table")


def fixed_model(hidden, logits):
    """Returns a model whose vectors, [B, S, H], and logits, [B, S, V], are these."""

    def predictions(hidden, positions, table):
        flat = tf.reshape(logits, [-1, logits.shape[-1]])
        if positions is None:
            return flat
        rows = tf.range(logits.shape[0])[:, tf.newaxis] * logits.shape[1]
        return tf.gather(flat, tf.reshape(positions + rows, [-1]))

    return types.SimpleNamespace(
        bert=lambda *unused, **others: Output(hidden, (hidden,), None),
        cls=types.SimpleNamespace(predictions=predictions),
        normalizers=lambda features: PretrainingModel.normalizers(None, features),
    )


def losses_and_gradients(
    student, teacher, features, alphas, temperature=2.0, restrict=False, weights=None
):
    """Returns loss, metrics and gradients of a student's vectors and logits, pairs of arrays."""
    features = tensors(features | ({} if weights is None else {"example_weight": weights}))
    student = [tf.constant(x) for x in student]
    with tf.GradientTape() as tape:
        tape.watch(student)
        models = fixed_model(*student), fixed_model(*map(tf.constant, teacher))
        alphas = {**NO_ALPHAS, **alphas}
        loss, sums = compute(DistilledPretraining(*models, alphas, temperature, restrict), features)
    return loss.numpy(), sums, tape.gradient(loss, student)


@pytest.fixture(scope="module")
def golden():
    """The golden arrays, and the batch with their labels as masked positions."""
    path = pathlib.Path(os.environ["BERT_TF_GOLDEN"]) / "distillation" / "losses.npz"
    arrays = dict(np.load(path))
    labels = arrays["labels"]
    count = (labels >= 0).sum(axis=1).max()
    features = {
        "input_ids": np.zeros_like(labels, np.int32),
        "input_mask": arrays["attention_mask"],
        "masked_lm_positions": np.zeros([len(labels), count], np.int32),
        "masked_lm_ids": np.zeros([len(labels), count], np.int32),
        "masked_lm_weights": np.zeros([len(labels), count], np.float32),
    }
    for i, row in enumerate(labels):
        (places,) = np.nonzero(row >= 0)
        features["masked_lm_positions"][i, : len(places)] = places
        features["masked_lm_ids"][i, : len(places)] = row[places]
        features["masked_lm_weights"][i, : len(places)] = 1.0
    return arrays, features


@needs_golden
@pytest.mark.parametrize(
    "name,alphas,restrict",
    [
        *(("ce", {"ce": 1.0}, False), ("ce_restricted", {"ce": 1.0}, True)),
        *(("mlm", {"mlm": 1.0}, False), ("mlm", {"mlm": 1.0}, True)),
        *(("cos", {"cos": 1.0}, False), ("cos", {"cos": 1.0}, True)),
        *(("mse", {"mse": 1.0}, False), ("total", ALPHAS, False)),
    ],
)
def test_losses_and_gradients_are_transformers(golden, name, alphas, restrict):
    arrays, features = golden
    if name == "total":
        alphas = {key: float(arrays[f"alpha_{key}"]) for key in ("ce", "mlm", "cos")}
    loss, _, gradients = losses_and_gradients(
        (arrays["student_hidden"], arrays["student_logits"]),
        (arrays["teacher_hidden"], arrays["teacher_logits"]),
        features,
        alphas,
        float(arrays["temperature"]),
        restrict,
    )
    assert abs(loss / arrays[f"loss_{name}"] - 1) < 1e-6
    for gradient, of in zip(gradients, ("hidden", "logits"), strict=True):
        expected = arrays.get(f"grad_{name}_student_{of}")
        if expected is None:
            assert gradient is None or not gradient.numpy().any()
        else:
            assert difference(gradient, expected) < 1e-6
            assert not gradient.numpy()[arrays["attention_mask"] == 0].any()


def softmax(x):
    exp = np.exp(x - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


@pytest.mark.parametrize("restrict", [False, True])
def test_losses_against_numpy_with_weights_of_examples_and_masks(restrict):
    rng = np.random.default_rng(3)
    features = make_features(3, batch_size=4)
    shape = features["input_ids"].shape
    arrays = [rng.normal(0, 2, (*shape, size)).astype("f") for size in (24, 53, 24, 53)]
    weights = np.array([1.0, 0.0, 1.0, 0.5], np.float32)
    temperature = 3.0
    alphas = {"ce": 0.7, "mlm": 0.3, "cos": 1.9, "mse": 0.01}
    loss, sums, _ = losses_and_gradients(
        arrays[:2], arrays[2:], features, alphas, temperature, restrict, weights
    )
    hidden, logits, teacher_hidden, teacher_logits = (x.astype(np.float64) for x in arrays)
    rows = np.arange(4)[:, None]
    positions, labels = features["masked_lm_positions"], features["masked_lm_ids"]
    masked = features["masked_lm_weights"] * weights[:, None]
    tokens = features["input_mask"] * weights[:, None]
    p, q = softmax(teacher_logits / temperature), softmax(logits / temperature)
    by_position = {
        "ce": temperature**2 * (p * np.log(p / q)).sum(-1),
        "mse": ((logits - teacher_logits) ** 2).sum(-1),
        "cos": 1
        - (hidden * teacher_hidden).sum(-1)
        / np.linalg.norm(hidden, axis=-1)
        / np.linalg.norm(teacher_hidden, axis=-1),
    }
    expected = {"cos_loss": ((tokens * by_position["cos"]).sum(), tokens.sum())}
    for name in ("ce", "mse"):
        values, counted = by_position[name], tokens
        if restrict:
            values, counted = values[rows, positions], masked
        expected[f"{name}_loss"] = ((counted * values).sum(), counted.sum())
    of_labels = softmax(logits)[rows, positions, labels]
    expected["masked_lm_loss"] = (-(masked * np.log(of_labels)).sum(), masked.sum() + 1e-5)
    total = 0.0
    for name, (numerator, denominator) in expected.items():
        alpha = alphas[name.removesuffix("_loss").replace("masked_lm", "mlm")]
        total += alpha * numerator / denominator
        np.testing.assert_allclose(sums[name][0], numerator, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(sums[name][1], denominator, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(loss, total, rtol=1e-5)
    assert set(sums) == {*expected, "masked_lm_accuracy"}


def test_all_layers_are_compared_with_those_of_the_same_depth():
    """Against numpy; the last ones alone differ."""
    teacher, _ = small_model(5, num_hidden_layers=5)
    student, _ = small_model(6, MLM, num_hidden_layers=2)
    features = make_features(3, batch_size=4)
    inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
    mine, theirs = (
        [np.asarray(x, np.float64) for x in model.bert(*inputs).all_encoder_layers]
        for model in (student, teacher)
    )
    weights, expected = features["input_mask"], []
    for a, b in ((mine[0], theirs[2]), (mine[1], theirs[4])):
        norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        expected.append((weights * (1 - (a * b).sum(-1) / norms)).sum() / weights.sum())
    for all_layers, value in ((True, np.mean(expected)), (False, expected[1])):
        alphas = {**NO_ALPHAS, "cos": 1.0}
        objective = DistilledPretraining(student, teacher, alphas, 2.0, cos_all_layers=all_layers)
        loss, _ = compute(objective, tensors(features))
        np.testing.assert_allclose(loss, value, rtol=1e-5)
    assert abs(expected[0] / expected[1] - 1) > 0.01


def test_a_batch_without_weight_has_no_loss():
    features = make_features(1)
    features["masked_lm_weights"] *= 0
    shape = features["input_ids"].shape
    arrays = [np.ones((*shape, size), np.float32) for size in (24, 53)]
    alphas = dict.fromkeys(ALPHAS, 1.0)
    loss, _, gradients = losses_and_gradients(
        arrays, [-x for x in arrays], features, alphas, weights=np.zeros(2, np.float32)
    )
    assert loss == 0.0 and not any(gradient.numpy().any() for gradient in gradients)


def test_without_a_loss_of_logits_the_head_stays_as_it_is():
    """Gradients of zeros would let the weight decay shrink it."""
    teacher, _ = small_model(5)
    student, _ = small_model(6, MLM, num_hidden_layers=1)
    objective = DistilledPretraining(student, teacher, {**NO_ALPHAS, "cos": 1.0}, 2.0)
    features = tensors(make_features(6, batch_size=4))
    with tf.GradientTape() as tape:
        loss, sums = compute(objective, features)
    weights = weights_of(student)
    gradients = tape.gradient(loss, weights)
    head = [name for name in weights if name.startswith("cls/predictions/")]
    assert head and all(gradients[name] is None for name in head)
    assert gradients["bert/embeddings/word_embeddings"] is not None
    assert sums["masked_lm_loss"][0] > 0 and sums["masked_lm_accuracy"][1] > 0
    before = {name: weights[name].numpy() for name in head}
    of_teacher = [variable.numpy() for variable in teacher.variables]
    optimizer = optimization.create_optimizer(student.trainable_variables, lambda step: 1e-2)
    for parts in (1, 2):
        steps.train_step(objective, optimizer, features, tf.constant([0, 0]), parts)
        for name in head:
            np.testing.assert_array_equal(weights[name], before[name], err_msg=name)
    for variable, value in zip(teacher.variables, of_teacher, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value, err_msg=variable.path)


def test_packed_rows_have_the_losses_of_their_sequences():
    # Positions up to the length of the longest row.
    teacher, _ = small_model(5, max_position_embeddings=23, type_vocab_size=2)
    student, _ = small_model(6, MLM, num_hidden_layers=1, max_position_embeddings=23)
    alphas, batches = dict.fromkeys(ALPHAS, 1.0), both_batches(objective=MLM)
    for restrict in (False, True):
        objective = DistilledPretraining(student, teacher, alphas, 2.0, restrict)
        plain, packed = (compute(objective, tensors(features))[0] for features in batches)
        np.testing.assert_allclose(packed, plain, rtol=1e-5)


def test_layers_match_are_spread_evenly_or_given():
    for student, teacher, expected in (
        (3, 6, [1, 3, 5]),
        (6, 12, [1, 3, 5, 7, 9, 11]),
        (2, 5, [2, 4]),
        (3, 2, [0, 1, 1]),
    ):
        assert matching_layers(student, teacher) == expected
    for given, student, teacher, expected in (
        (None, 6, 12, [0, 2, 4, 7, 9, 11]),  # DistilBERT's
        (None, 3, 6, [0, 3, 5]),
        (None, 1, 5, [0]),
        (None, 4, 4, [0, 1, 2, 3]),
        (None, 2, 7, [0, 6]),
        ("3, 0", 2, 4, [3, 0]),
    ):
        assert choose_layers(given, student, teacher) == expected


@pytest.mark.parametrize(
    "arguments,message",
    [
        (
            (None, 5, 4),
            "The student must have at most as many layers as the teacher to begin with its weights;"
            " num_hidden_layers of --bert_config_file is 5, and the teacher's is 4",
        ),
        (
            (None, 2, 1, "groups"),
            "The student must have at most as many groups as the teacher to begin with its weights;"
            " num_hidden_groups of --bert_config_file is 2, and the teacher's is 1. Change",
        ),
        (
            ("0,4", 2, 4),
            "--student_layers=0,4 must be none, or 2 of the teacher's layers, from 0 to 3,"
            " separated by commas: as many as the student has (num_hidden_layers of",
        ),
        (("0,1,3", 2, 4), "--student_layers=0,1,3 must be none, or 2 of the teacher's"),
        (("0,-1", 2, 4), "--student_layers=0,-1 must be none, or 2 of"),
        (("0,x", 2, 4), "--student_layers=0,x must be none, or 2 of"),
        (("", 2, 4), "--student_layers= must be none, or 2 of"),
    ],
)
def test_layers_that_do_not_fit(arguments, message):
    refuses(re.escape(message), choose_layers, *arguments)


def test_a_student_begins_with_weights_of_its_teacher():
    teacher, _ = small_model(5, num_hidden_layers=4)
    scopes, values = teacher.bert.config.layer_scopes, weights_of(teacher)
    student = PretrainingModel(BertConfig.from_dict(SMALL))
    copy_weights(student, values, scopes, [1, 3])
    for name, value in weights_of(student).items():
        source = name.replace("layer_1/", "layer_3/").replace("layer_0/", "layer_1/")
        np.testing.assert_array_equal(value, values[source], err_msg=name)
    # A teacher may lack a pooler.
    lacking = {name: x for name, x in values.items() if not name.startswith("bert/pooler/")}
    student = PretrainingModel(BertConfig.from_dict(SMALL))
    copy_weights(student, lacking, scopes, [1, 3])
    copied = weights_of(student)
    assert np.abs(copied["bert/pooler/dense/kernel"]).max() <= 0.04  # random
    name = "cls/seq_relationship/output_weights"
    np.testing.assert_array_equal(copied[name], values[name])
    # A DistilBERT has its teacher's input of a first text.
    student = PretrainingModel(DistilBertConfig.from_dict(SMALL))
    copy_weights(student, values, scopes, [0, 1])
    ids, segments = make_features()["input_ids"], make_features()["segment_ids"]
    np.testing.assert_array_equal(
        student.bert(ids, None, segments).embedding_output, teacher.bert(ids).embedding_output
    )
    student = PretrainingModel(BertConfig.from_dict({**SMALL, "intermediate_size": 21}))
    message = (
        "only where their sizes are equal: bert/encoder/layer_0/intermediate/dense/kernel is"
        " [24, 21] by --bert_config_file, and [24, 20] in the teacher"
    )
    refuses(re.escape(message), copy_weights, student, values, scopes, [1, 3])
