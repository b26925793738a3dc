"""Tests of sentence vectors and their losses, against sentence-transformers; retrieval sets."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.sentences import model as sentence_model
from bert_tf.tasks.sentences import task
from bert_tf.tasks.sentences.model import SentenceModel, in_batch_negatives
from bert_tf.tasks.sentences.settings import IN_BATCH_NEGATIVES, TRIPLET
from bert_tf.tasks.sentences.task import TaughtVectors
from tests.support import numpy_bert
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.refusals import refuses
from tests.support.small_pretraining import SMALL, difference, tensors

B, T, S, H = 5, 2, 7, 24


def make_features(seed=0, num_texts=T):
    """Returns the numpy features of a batch, with padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, S, size=(B, num_texts, 1))
    mask = (np.arange(S) < lengths).astype(np.int32)
    return {
        "input_ids": rng.integers(0, 53, (B, num_texts, S), dtype=np.int32),
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "label_ids": rng.uniform(0, 4, B).astype(np.float32),
    }


def make_model(**options):
    """Returns the model and its random weights by name."""
    model = SentenceModel(BertConfig.from_dict(SMALL), **options)
    return model, set_random_weights(model)


def expected_vectors(weights, features):
    """Returns float64 [B, T, H]: the mean of each text without its padding, of length 1."""
    bert = numpy_bert.NumpyBert(SMALL, weights)
    num_texts = features["input_ids"].shape[1]
    vectors = np.zeros((B, num_texts, H))
    for t in range(num_texts):
        names = ("input_ids", "input_mask", "segment_ids")
        hidden = bert.forward(*(features[name][:, t] for name in names))["sequence_output"]
        for b in range(B):
            size = features["input_mask"][b, t].sum()
            mean = hidden[b, :size].mean(axis=0)
            vectors[b, t] = mean / np.sqrt(np.sum(mean**2))
    return vectors


def test_vectors_cosines_and_their_loss_are_numpys():
    model, weights = make_model(score_scale=4.0)
    features = make_features()
    vectors = expected_vectors(weights, features)
    cosines = np.array([first @ second for first, second in vectors])
    losses = (cosines - features["label_ids"] / 4.0) ** 2
    batch = tensors(features)
    found = predict(model, batch)
    assert found.keys() == {"vectors", "outputs", "label_ids", "per_example_loss"}
    assert np.abs(found["vectors"] - vectors).max() < 1e-6
    assert np.abs(found["outputs"] - cosines).max() < 1e-6
    assert difference(found["per_example_loss"], losses) < 2e-6
    np.testing.assert_array_equal(found["label_ids"], features["label_ids"])
    loss, sums = compute(model, batch)
    assert difference(loss, losses.mean()) < 2e-6 and sums == {}
    features = make_features(seed=1, num_texts=1)  # single texts have only vectors
    found = predict(model, tensors(features))
    assert found.keys() == {"vectors"}
    assert np.abs(found["vectors"] - expected_vectors(weights, features)).max() < 1e-6


EXAMPLES, SIZE = 5, 8
# Of sentence-transformers 6.2 on `unit_triplets`: MultipleNegativesSymmetricRankingLoss(scale=7)
# of pairs and of triplets, TripletLoss(COSINE, 0.5), and MatryoshkaLoss([8, 5, 2]) of the second.
SYMMETRIC, HARD, OF_TRIPLETS, MATRYOSHKA = 1.5822617, 2.5803227, 0.3856804, 8.2674856


def unit_triplets():
    """Returns float32 [B, 3, SIZE]."""
    vectors = np.random.default_rng(11).normal(size=(3, EXAMPLES, SIZE)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return tf.constant(vectors.transpose(1, 0, 2))


def model_of(loss, **options):
    config = BertConfig.from_dict({**SMALL, "hidden_size": SIZE, "num_attention_heads": 2})
    return SentenceModel(config, loss, similarity_scale=7.0, **options)


def loss_of(model, vectors, **features):
    shape = [EXAMPLES, vectors.shape[1], 3]
    ids = tf.reshape(tf.range(int(np.prod(shape))), shape)  # all texts differ
    features = {"input_ids": ids, **features}
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
    expected = np.argmax(first.numpy() @ candidates.T, axis=1) == np.arange(EXAMPLES)
    _, right = in_batch_negatives(first, second, tf.ones([EXAMPLES]), 3.0, third)
    np.testing.assert_array_equal(right, expected)
    _, sums = loss_of(model_of(TRIPLET), unit_triplets())
    nearer = np.sum(first * (second - third), axis=1) > 0
    assert [x.numpy() for x in sums["accuracy"]] == [nearer.sum(), EXAMPLES]
    # A triplet that is right by the margin has no loss.
    vectors = tf.constant([[[1.0, 0], [1, 0], [0, 1]], [[1, 0], [0, 1], [0, 1]]])
    losses, right = sentence_model.triplet_losses(vectors, 0.75)
    assert losses.numpy().tolist() == [0.0, 0.75] and right.numpy().tolist() == [1.0, 0.0]


def test_the_third_text_of_padding_is_no_negative():
    first, second, third = tf.unstack(unit_triplets(), axis=1)
    third = tf.concat([third[:3], first[:2]], axis=0)  # would be the nearest of all
    losses, right = in_batch_negatives(first, second, tf.constant([1.0, 1, 1, 0, 0]), 5.0, third)
    arguments = (first[:3], second[:3], tf.ones([3]), 5.0, third[:3])
    expected, expected_right = in_batch_negatives(*arguments)
    np.testing.assert_allclose(losses[:3], expected, rtol=1e-6)
    np.testing.assert_array_equal(right[:3], expected_right)


@pytest.mark.parametrize(
    "texts",
    [
        ["ab", "ac", "bd", "ef", "ge"],  # a text with two partners, and one on both sides
        ["ab", "ba", "cd", "ab", "ee"],  # a pair in both orders, and twice
        ["abc", "dec", "afg", "hib", "jkl"],  # hard negatives: a partner, and one that is shared
    ],
)
def test_equal_texts_and_their_partners_are_no_negatives(texts):
    num_texts = len(texts[0])
    words = {
        letter: np.random.default_rng(ord(letter)).integers(1, 50, 6) for letter in "abcdefghijkl"
    }
    ids = np.array([[words[letter] for letter in row] for row in texts], np.int32)
    vectors = unit_triplets()[:, :num_texts].numpy()
    pairs = {(row[0], row[1]) for row in texts}
    pairs |= {(b, a) for a, b in pairs}

    def loss(query, partner, candidates):  # each a (letter, vector)
        others = [v for text, v in candidates if text != query[0] and (query[0], text) not in pairs]
        scores = 7.0 * np.array([query[1] @ v for v in [partner[1], *others]])
        return np.log(np.exp(scores).sum()) - scores[0]

    sides = [[(row[t], vectors[i, t]) for i, row in enumerate(texts)] for t in range(num_texts)]
    expected = [
        (loss(a, b, [*sides[1], *(sides[2] if num_texts == 3 else [])]) + loss(b, a, sides[0])) / 2
        for a, b in zip(sides[0], sides[1], strict=True)
    ]
    found, _ = loss_of(
        model_of(IN_BATCH_NEGATIVES), tf.constant(vectors), input_ids=tf.constant(ids)
    )
    np.testing.assert_allclose(found, np.mean(expected), rtol=2e-6)
    all_differ, _ = loss_of(model_of(IN_BATCH_NEGATIVES), tf.constant(vectors))
    assert abs(found - all_differ) > 1e-3


def test_texts_are_told_apart_wherever_they_differ():
    ids = np.tile(np.arange(1, 129, dtype=np.int32), (128, 2, 1))
    ids[np.arange(128), 0, np.arange(128)] += 1 << 14  # each first text, in one place
    related = sentence_model.related_texts(tf.constant(ids)).numpy()
    np.testing.assert_array_equal(related[0, :, 0], np.eye(128))
    assert related[0, :, 1].all() and related[1, :, 1].all()  # all second texts are equal


def test_truncated_vectors_have_length_1():
    vectors = unit_triplets()
    found = sentence_model.truncated(vectors, 3).numpy()
    assert found.shape == (EXAMPLES, 3, 3) and sentence_model.truncated(vectors, None) is vectors
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1.0, rtol=1e-6)
    ratios, expected = (x[..., 0] / x[..., 2] for x in (found, vectors))
    np.testing.assert_allclose(ratios, expected, rtol=1e-5)


def test_a_student_learns_the_squared_difference_of_its_vectors():
    student, teacher = model_of("cosine"), model_of("cosine")
    teacher.trainable = False
    for model, seed in ((student, 1), (teacher, 2)):
        set_random_weights(model, seed)
    ids = tf.constant(np.random.default_rng(3).integers(1, 50, (EXAMPLES, 2, 6), np.int32))
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


def test_what_is_refused():
    for loss, num_texts, message in (
        ("cosine", 3, r"input_ids \[B, 2, S\]: pairs; received 3 texts"),
        (TRIPLET, 2, r"input_ids \[B, 3, S\]: triplets; received 2 texts"),
        (IN_BATCH_NEGATIVES, 1, r"\[B, 2, S\]: pairs or \[B, 3, S\]: triplets; received 1 texts"),
    ):
        features = {"input_ids": tf.zeros([2, num_texts, 4], tf.int32), "label_ids": tf.zeros([2])}
        refuses(message, model_of(loss).checked_labels, features)
    with pytest.raises(UserError, match="--matryoshka_dims must be at most .* 8; got 9,4. Leave"):
        model_of("cosine", matryoshka_dims=[9, 4])


QUERIES, TEXTS, WIDTH = 7, 250, 12
# InformationRetrievalEvaluator of sentence-transformers 6.2 on `vectors(2)` and `relevant(2)`.
SENTENCE_TRANSFORMERS = {
    "eval_mrr@10": 0.035714,
    "eval_ndcg@10": 0.020867,
    "eval_recall@1": 0.0,
    "eval_recall@10": 0.028571,
    "eval_recall@100": 0.32449,
}


def vectors(seed):
    rng = np.random.default_rng(seed)
    made = [rng.normal(size=(n, WIDTH)).astype(np.float32) for n in (QUERIES, TEXTS)]
    return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in made]


def relevant(seed, grades=(1,)):
    rng = np.random.default_rng(seed)
    return [
        {int(i): float(rng.choice(grades)) for i in rng.choice(TEXTS, 1 + q, replace=False)}
        for q in range(QUERIES)
    ]


def evaluate(queries, texts, judged, sizes=(), chunk=64):
    parts = (texts[i : i + chunk] for i in range(0, len(texts), chunk))
    return task.retrieval_scores(queries, parts, judged, sizes)


@pytest.mark.parametrize("size", [None, 5])
def test_texts_are_ranked_as_by_the_whole_matrix(size):
    queries, texts = vectors(1)
    judged = relevant(1, grades=(1, 2, 3))
    found = evaluate(queries, texts, judged, () if size is None else (size,))
    end = "" if size is None else f"_{size}"
    cut = [x[:, :size] / np.linalg.norm(x[:, :size], axis=1)[:, None] for x in (queries, texts)]
    order = np.argsort(-(cut[0] @ cut[1].T), axis=1)
    for k in (1, 10, 100):
        recalls = [len({*order[q, :k]} & {*judged[q]}) / len(judged[q]) for q in range(QUERIES)]
        assert found[f"eval_recall@{k}{end}"] == pytest.approx(np.mean(recalls))
    ndcg = []
    for q in range(QUERIES):
        gains = [judged[q].get(i, 0) for i in order[q, :10]]
        best = sorted(judged[q].values(), reverse=True)[:10]
        discounted = [sum(g / np.log2(i + 2) for i, g in enumerate(x)) for x in (gains, best)]
        ndcg.append(discounted[0] / discounted[1])
    assert found[f"eval_ndcg@10{end}"] == pytest.approx(np.mean(ndcg))
    assert len(found) == 5 * (1 if size is None else 2)


@pytest.mark.parametrize("chunk", [1, 3, 250])
def test_measures_are_those_of_sentence_transformers(chunk):
    queries, texts = vectors(2)
    found = evaluate(queries, texts, relevant(2), chunk=chunk)
    assert {name: round(value, 6) for name, value in found.items()} == SENTENCE_TRANSFORMERS
    # A model that gives one vector to all texts finds nothing.
    texts[:] = texts[0]
    found = evaluate(queries, texts, [{i: 1.0} for i in range(QUERIES)], chunk=chunk)
    assert set(found.values()) == {0.0}


@pytest.mark.parametrize("chunk", [3, 64])
def test_a_query_does_not_find_itself(chunk):
    queries, texts = vectors(4)
    judged = relevant(4)
    own = [-1, 0, 5, 77, -1, 249, 13]
    for query, text in enumerate(own):
        if text >= 0:
            texts[text] = queries[query]
            judged[query].pop(text, None)
    without = evaluate(queries, texts, judged, (5,), chunk)
    parts = (texts[i : i + chunk] for i in range(0, TEXTS, chunk))
    found = task.retrieval_scores(queries, parts, judged, (5,), own)
    order = np.argsort(-(queries @ texts.T), axis=1).tolist()
    left = [[i for i in order[q] if i != own[q]] for q in range(QUERIES)]
    recalls = [len({*left[q][:10]} & {*judged[q]}) / len(judged[q]) for q in range(QUERIES)]
    assert found["eval_recall@10"] == pytest.approx(np.mean(recalls))
    assert found["eval_mrr@10"] > without["eval_mrr@10"]
