"""Tests of bert_tf.tasks.sentences.loss, against sentence-transformers' losses and numpy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.sentences.distillation import TaughtVectors
from bert_tf.tasks.sentences.loss import in_batch_negatives, triplet_losses, truncated
from bert_tf.tasks.sentences.model import SentenceModel
from bert_tf.tasks.sentences.schema import IN_BATCH_NEGATIVES, TRIPLET
from tests.support.objectives import set_random_weights
from tests.support.small_pretraining import SMALL

B, H = 5, 8
# Of sentence-transformers 6.2 on `unit_triplets`: MultipleNegativesSymmetricRankingLoss(scale=7)
# of pairs and of triplets, TripletLoss(COSINE, 0.5), and MatryoshkaLoss([8, 5, 2]) of the second.
SYMMETRIC, HARD, OF_TRIPLETS, MATRYOSHKA = 1.5822617, 2.5803227, 0.3856804, 8.2674856


def unit_triplets():
    """Returns float32 [B, 3, H]."""
    vectors = np.random.default_rng(11).normal(size=(3, B, H)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return tf.constant(vectors.transpose(1, 0, 2))


def model_of(loss, **options):
    config = BertConfig.from_dict({**SMALL, "hidden_size": H, "num_attention_heads": 2})
    return SentenceModel(config, loss, similarity_scale=7.0, **options)


def loss_of(model, vectors, **features):
    features = {"input_ids": tf.zeros([B, vectors.shape[1], 3], tf.int32), **features}
    return model.loss_and_metrics(vectors, features, model.normalizers(features))


@pytest.mark.parametrize(
    "loss, num_texts, sizes, expected",
    [
        (IN_BATCH_NEGATIVES, 2, (), SYMMETRIC),
        (IN_BATCH_NEGATIVES, 3, (), HARD),
        (TRIPLET, 3, (), OF_TRIPLETS),
        (IN_BATCH_NEGATIVES, 3, (8, 5, 2), MATRYOSHKA),
    ],
)
def test_losses_are_those_of_sentence_transformers(loss, num_texts, sizes, expected):
    model = model_of(loss, matryoshka_dims=sizes)
    found, _ = loss_of(model, unit_triplets()[:, :num_texts])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_accuracy_counts_hard_negatives():
    first, second, third = tf.unstack(unit_triplets(), axis=1)
    candidates = np.concatenate([second, third])
    expected = np.argmax(first.numpy() @ candidates.T, axis=1) == np.arange(B)
    _, right = in_batch_negatives(first, second, tf.ones([B]), 3.0, third)
    np.testing.assert_array_equal(right, expected)
    _, sums = loss_of(model_of(TRIPLET), unit_triplets())
    nearer = np.sum(first * (second - third), axis=1) > 0
    assert [x.numpy() for x in sums["accuracy"]] == [nearer.sum(), B]


def test_a_triplet_that_is_right_by_the_margin_has_no_loss():
    vectors = tf.constant([[[1.0, 0], [1, 0], [0, 1]], [[1, 0], [0, 1], [0, 1]]])
    losses, right = triplet_losses(vectors, 0.75)
    assert losses.numpy().tolist() == [0.0, 0.75] and right.numpy().tolist() == [1.0, 0.0]


def test_the_third_text_of_padding_is_no_negative():
    first, second, third = tf.unstack(unit_triplets(), axis=1)
    third = tf.concat([third[:3], first[:2]], axis=0)  # would be the nearest of all
    losses, right = in_batch_negatives(first, second, tf.constant([1.0, 1, 1, 0, 0]), 5.0, third)
    arguments = (first[:3], second[:3], tf.ones([3]), 5.0, third[:3])
    expected, expected_right = in_batch_negatives(*arguments)
    np.testing.assert_allclose(losses[:3], expected, rtol=1e-6)
    np.testing.assert_array_equal(right[:3], expected_right)


def test_truncated_vectors_have_length_1():
    vectors = unit_triplets()
    found = truncated(vectors, 3).numpy()
    assert found.shape == (B, 3, 3) and truncated(vectors, None) is vectors
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(found[..., 0] / found[..., 2], vectors[..., 0] / vectors[..., 2],
                               rtol=1e-5)  # fmt: skip


def test_a_student_learns_the_squared_difference_of_its_vectors():
    student, teacher = model_of("cosine"), model_of("cosine")
    teacher.trainable = False
    for model, seed in ((student, 1), (teacher, 2)):
        set_random_weights(model, seed)
    ids = tf.constant(np.random.default_rng(3).integers(1, 50, (B, 2, 6), np.int32))
    weights = tf.constant([1.0, 0.5, 2, 1, 0])
    features = {"input_ids": ids, "example_weight": weights}
    objective = TaughtVectors(student, teacher)
    with tf.GradientTape() as tape:
        outputs = objective(features, training=True, dropout_seed=tf.constant([1, 2]))
        loss, sums = objective.loss_and_metrics(outputs, features, objective.normalizers(features))
    assert not sums and not teacher.trainable_variables
    assert all(g is not None for g in tape.gradient(loss, student.trainable_variables))
    np.testing.assert_array_equal(outputs[1], teacher(features))
    each = np.mean((outputs[0].numpy() - outputs[1].numpy()) ** 2, axis=(1, 2))
    np.testing.assert_allclose(loss, np.sum(weights * each) / 4.5, rtol=1e-6)


@pytest.mark.parametrize(
    "loss, num_texts, message",
    [
        ("cosine", 3, r"input_ids \[B, 2, S\]: pairs; received 3 texts"),
        (TRIPLET, 2, r"input_ids \[B, 3, S\]: triplets; received 2 texts"),
        (IN_BATCH_NEGATIVES, 1, r"\[B, 2, S\]: pairs or \[B, 3, S\]: triplets; received 1 texts"),
    ],
)
def test_a_loss_needs_its_number_of_texts(loss, num_texts, message):
    features = {"input_ids": tf.zeros([2, num_texts, 4], tf.int32), "label_ids": tf.zeros([2])}
    with pytest.raises(UserError, match=message):
        model_of(loss).checked_labels(features)


def test_sizes_above_the_models_are_refused():
    with pytest.raises(UserError, match="--matryoshka_dims must be at most .* 8; got 9,4. Leave"):
        model_of("cosine", matryoshka_dims=[9, 4])
