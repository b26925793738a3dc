"""Tests of bert_tf.tasks.sentences.retrieval, against whole matrices and sentence-transformers."""

import numpy as np
import pytest

from bert_tf.tasks.sentences import retrieval

QUERIES, TEXTS, H = 7, 250, 12
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
    made = [rng.normal(size=(n, H)).astype(np.float32) for n in (QUERIES, TEXTS)]
    return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in made]


def relevant(seed, grades=(1,)):
    rng = np.random.default_rng(seed)
    return [
        {int(i): float(rng.choice(grades)) for i in rng.choice(TEXTS, 1 + q, replace=False)}
        for q in range(QUERIES)
    ]


def evaluate(queries, texts, judged, sizes=(), chunk=64):
    parts = (texts[i : i + chunk] for i in range(0, len(texts), chunk))
    return retrieval.evaluate(queries, parts, judged, sizes)


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


def test_measures_are_those_of_sentence_transformers():
    found = evaluate(*vectors(2), relevant(2))
    assert {name: round(value, 6) for name, value in found.items()} == SENTENCE_TRANSFORMERS


@pytest.mark.parametrize("chunk", [1, 3, 250])
def test_a_model_that_gives_one_vector_to_all_texts_finds_nothing(chunk):
    queries, texts = vectors(3)
    texts[:] = texts[0]
    found = evaluate(queries, texts, [{i: 1.0} for i in range(QUERIES)], chunk=chunk)
    assert set(found.values()) == {0.0}
