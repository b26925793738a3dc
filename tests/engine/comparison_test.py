"""Tests of steps whose loss compares the examples of a batch, with the arithmetic in numpy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.model.configuration import BertConfig
from bert_tf.seeds import fold_in
from bert_tf.tasks.sentences.model import SentenceModel
from bert_tf.tasks.sentences.settings import IN_BATCH_NEGATIVES
from tests.support.objectives import set_random_weights
from tests.support.pretraining_runs import run_forked
from tests.support.small_pretraining import SMALL
from tests.support.threads import on_replicas

ROWS, WIDTH, OUT = 12, 5, 3


class Nearest:
    """Each row's two products with a matrix must find each other among all rows of the batch."""

    compared_features = ("x",)
    layers = ()

    def __init__(self, matrix):
        self.matrix = tf.Variable(matrix)
        self.trainable_variables = [type("Variable", (), {"value": self.matrix})]

    def __call__(self, features, training, dropout_seed):
        return tf.einsum("bti,io->bto", features["x"], self.matrix)

    def normalizers(self, features):
        return {"rows": tf.reduce_sum(features["example_weight"])}

    def loss_and_metrics(self, outputs, features, normalizers):
        weights = features["example_weight"]
        logits = tf.matmul(outputs[:, 0], outputs[:, 1], transpose_b=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(len(logits)), logits)
        loss = tf.reduce_sum(weights * losses) / normalizers["rows"]
        return loss, {"weight": (loss, tf.reduce_sum(weights))}


class FixedStep:
    """What a step asks of an optimizer."""

    global_step = 7
    learning_rate = 0.5


def numpy_loss_and_gradient(x, matrix, weights):
    first, second = x[:, 0] @ matrix, x[:, 1] @ matrix
    logits = first @ second.T
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
    loss = -(weights * np.log(np.diag(softmax))).sum() / weights.sum()
    by_logits = weights[:, None] * (softmax - np.eye(len(x))) / weights.sum()
    return loss, x[:, 0].T @ by_logits @ second + x[:, 1].T @ by_logits.T @ first


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("count, parts", [(1, 3), (2, 1), (3, 2), (2, 3)])
def test_loss_and_gradient_are_those_of_the_whole_batch(count, parts, weighted):
    rng = np.random.default_rng(count + 10 * parts)
    x, matrix = rng.normal(size=(ROWS, 2, WIDTH)), rng.normal(size=(WIDTH, OUT))
    weights = rng.uniform(0.1, 2.0, ROWS) if weighted else np.ones(ROWS)
    loss, gradient = numpy_loss_and_gradient(x, matrix, weights)
    size = ROWS // count
    applied = {}

    def step(replicas):
        rows = slice(replicas.number * size, (replicas.number + 1) * size)
        features = {"x": tf.constant(x[rows], tf.float32)}
        if weighted:
            features["example_weight"] = tf.constant(weights[rows], tf.float32)
        return steps.train_step(
            *(Nearest(matrix.astype(np.float32)), FixedStep(), features, tf.constant([1, 2])),
            *(parts, "global_mean_clip", replicas, 0.0),
            update=lambda gradients: applied.update({replicas.number: gradients}),
        )

    for number, metrics in enumerate(on_replicas(count, step)):
        np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-6)
        np.testing.assert_allclose(metrics["weight"], [loss, weights.sum()], rtol=1e-6)
        np.testing.assert_allclose(applied[number][0], gradient, rtol=1e-5, atol=1e-6)


def test_rows_of_replicas_are_gathered_in_their_order_and_taken_apart():
    rows = np.float32([[1, -0.0], [np.inf, 3], [5, 6], [-7, 8], [9, 0.5], [11, 12]])

    def gather(replicas):
        number = replicas.number
        everyones = replicas.gather(tf.constant(rows[2 * number : 2 * number + 2]))
        return everyones.numpy(), replicas.own(everyones).numpy()

    for number, (everyones, own) in enumerate(on_replicas(3, gather)):
        np.testing.assert_array_equal(everyones, rows)
        np.testing.assert_array_equal(own, rows[2 * number : 2 * number + 2])


def sentence_model(**rates):
    config = BertConfig.from_dict({**SMALL, "num_hidden_layers": 1, **rates})
    model = SentenceModel(config, IN_BATCH_NEGATIVES)
    set_random_weights(model)
    return model


def pairs(count):
    ids = np.random.default_rng(5).integers(1, 50, (count, 2, 6), np.int32)
    return {"input_ids": tf.constant(ids)}


def gradients_of(model, features, parts):
    found = []
    metrics = steps.train_step(
        *(model, FixedStep(), features, tf.constant([3, 4]), parts, "global_mean_clip"),
        *(steps.Replicas(1, lambda tensors: tensors), 0.0, found.extend),
    )
    return metrics, found


def assert_all_close(found, expected):
    for mine, right in zip(found, expected, strict=True):
        mine, right = tf.convert_to_tensor(mine), tf.convert_to_tensor(right)
        np.testing.assert_allclose(mine, right, atol=1e-6 * max(3, np.abs(right).max()))


def test_parts_of_pairs_have_the_negatives_of_the_whole_batch():
    model, features = sentence_model(), pairs(8)
    whole, expected = gradients_of(model, features, 1)
    parts, found = gradients_of(model, features, 4)
    np.testing.assert_allclose(parts["loss"], whole["loss"], rtol=1e-6)
    np.testing.assert_array_equal(parts["accuracy"], whole["accuracy"])
    assert_all_close(found, expected)


def test_both_passes_over_a_part_have_the_same_dropout():
    model = sentence_model(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2)
    features = pairs(6)
    seed = fold_in(tf.constant([3, 4]), 7)
    with tf.GradientTape() as tape:
        halves = [
            model({"input_ids": half}, training=True, dropout_seed=fold_in(seed, i))
            for i, half in enumerate(tf.split(features["input_ids"], 2))
        ]
        loss, _ = model.loss_and_metrics(tf.concat(halves, 0), features, {"examples": 6.0})
    expected = tape.gradient(loss, [v.value for v in model.trainable_variables])
    metrics, found = gradients_of(model, features, 2)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-6)
    assert_all_close(found, expected)


def on_two_devices():
    """Gradients on two logical devices, compiled in a loop or not, are those of one."""
    from bert_tf.engine import distribution
    from bert_tf.engine.loops import TrainingLoop

    strategy = distribution.get_strategy("mirrored", 2)
    features = pairs(8)
    found = {}
    for of, parts in ((tf.distribute.get_strategy(), 1), (strategy, 1), (strategy, 2)):
        with of.scope():
            model = sentence_model()
            optimizer = optimization.create_optimizer(
                model.trainable_variables, lambda step: tf.constant(1e-2)
            )

        def step(batch, seed, model=model, optimizer=optimizer, parts=parts):
            # Clipped, the norm of one replica's IndexedSlices would differ: see reduce_gradients.
            reduction = {"gradient_reduction": "global_mean_clip", "clip_norm": 0.0}
            return steps.train_step(model, optimizer, batch, seed, parts, **reduction)

        batches = iter(tf.data.Dataset.from_tensors(features).repeat())
        rows = TrainingLoop(of, step).run(batches, 1, lambda _: None)
        moments = {
            name: of.experimental_local_results(value)[0].numpy()
            for name, value in optimizer.checkpoint_variables().items()
            if name.endswith("adam_m")
        }
        found[of.num_replicas_in_sync, parts] = rows, moments
    expected_rows, expected = found.pop((1, 1))
    for rows, moments in found.values():
        np.testing.assert_allclose(rows["loss"], expected_rows["loss"], rtol=2e-6)
        accuracies = [np.divide(*of["accuracy"]) for of in (rows, expected_rows)]
        np.testing.assert_allclose(*accuracies)
        for name, value in expected.items():
            bound = 1e-6 * max(1.0, np.abs(value).max())
            np.testing.assert_allclose(moments[name], value, atol=bound, err_msg=name)


@pytest.mark.slow
def test_two_devices_have_the_negatives_of_both():
    run_forked("from tests.engine import comparison_test as t; t.on_two_devices()")
