"""Tests of the estimators: scikit-learn's checks, cross-validation, searches."""

import functools
import pickle
import re
import types

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import estimator_checks

import bert_tf
from bert_tf import BertClassifier, BertRegressor
from bert_tf.pretrained import estimators
from bert_tf.tasks.classification.settings import ClassifierOptions
from tests.support.model_folders import random_weights, write_model
from tests.support.refusals import refusal
from tests.support.registered_tasks import run_in
from tools import convert_checkpoint

TEXTS = ["the cat sat", "a dog ran", "the cat ran", "a dog sat on a mat"] * 3
NAMES = ["cat", "dog", "cat", "dog"] * 3
ROWS = {"a": TEXTS, "b": TEXTS[::-1]}


class StandIn:
    """A model that knows each text, and takes twice its own number for a class's or a text's."""

    calls: list[dict] = []

    def __init__(self):
        self._chosen = types.SimpleNamespace()

    def for_classification(self, labels):
        self.labels = labels
        return self

    def for_regression(self):
        self.labels = None
        return self

    def fit(self, x, y, **options):
        StandIn.calls.append(options)
        self.known = dict(zip(map(str, x), y, strict=True))
        return self

    def predict(self, x):
        found = [self.known.get(str(text)) for text in x]
        if self.labels is None:
            return np.array([float(y or 0) for y in found])
        return np.array([[0.9 if y == label else 0.1 for label in self.labels] for y in found])


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(estimators, "load", lambda folder: StandIn())
    monkeypatch.setattr(StandIn, "calls", [])
    return StandIn


CHECKS = """estimator_cloneable estimator_repr estimator_tags_renamed valid_tag_types
    no_attributes_set_in_init do_not_raise_errors_in_init_or_set_param get_params_invariance
    parameters_default_constructible set_params mixin_order"""


@pytest.mark.parametrize("check", CHECKS.split())
def test_the_checks_of_scikit_learn(check):
    function = getattr(estimator_checks, f"check_{check}", None)
    if function is None:
        pytest.skip("not in this version of scikit-learn")
    for estimator in (BertClassifier(), BertRegressor("folder", epochs=2)):
        function(type(estimator).__name__, clone(estimator))


@pytest.mark.parametrize("y", [NAMES, [1, 3] * 6, np.array([True, False] * 6)])
def test_classes_keep_their_type(stand_in, y):
    estimator = BertClassifier("folder", random_state=3, options={"warmup_proportion": 0.0})
    assert estimator.fit(np.array(TEXTS), y) is estimator
    assert estimator.classes_.tolist() == sorted(set(np.array(y).tolist()))
    assert estimator.predict(TEXTS).tolist() == np.array(y).tolist()
    assert estimator.predict_proba(TEXTS).shape == (12, 2) and estimator.score(TEXTS, y) == 1.0
    (options,) = stand_in.calls
    expected = {"seed": 3, "warmup_proportion": 0.0, "epochs": None}
    assert options.items() >= expected.items()


def test_tables_and_pairs(stand_in):
    table = pd.DataFrame(ROWS)
    numbers = pd.Series(np.arange(12.0))
    for x in (table, table.to_numpy(), list(zip(TEXTS, TEXTS[::-1], strict=True))):
        estimator = BertRegressor("folder").fit(x, numbers, sample_weight=np.ones(12))
        assert str(("the cat sat", "a dog sat on a mat")) in estimator.model_.known
    estimator = BertClassifier("folder").fit(table[["a"]], pd.Series(NAMES, dtype="category"))
    assert estimator.predict(table["a"]).tolist() == NAMES
    assert estimator.predict(tuple(table["a"][:2])).tolist() == NAMES[:2]  # no pair


FEATURES = "1 features, but .* expecting 2 features"
CHANGES = [
    (lambda table: table[["b", "a"]], "must be in the same order as they were in fit"),
    (lambda table: table.rename(columns={"b": "text"}), "Feature names unseen at fit time"),
    (lambda table: table[["a"]], "Feature names seen at fit time, yet now missing"),
    (lambda table: table.to_numpy()[:, :1], FEATURES),
    (lambda table: table["a"], FEATURES),
    (lambda table: TEXTS, FEATURES),
]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_columns_are_those_of_the_training(stand_in):
    table = pd.DataFrame(ROWS)
    for kind, y in ((BertClassifier, NAMES), (BertRegressor, np.arange(12.0))):
        estimator = kind("folder").fit(table, y)
        assert estimator.feature_names_in_.tolist() == ["a", "b"] and estimator.n_features_in_ == 2
        doors = [estimator.predict, functools.partial(estimator.score, y=y)]
        for door in (*doors, getattr(estimator, "predict_proba", doors[0])):
            for change, message in CHANGES:
                assert re.search(message, refusal(door, change(table), kind=ValueError))
        assert len(estimator.predict(list(zip(TEXTS, TEXTS, strict=True)))) == 12  # has no names
    refitted = BertClassifier("folder").fit(table, NAMES).fit(TEXTS, NAMES)
    assert not hasattr(refitted, "feature_names_in_") and len(refitted.predict(TEXTS)) == 12
    told = refusal(refitted.predict, table, kind=ValueError)
    assert re.search("2 features, but .* expecting 1 features", told)


def test_equal_numbers_are_one_class(stand_in):
    texts = [f"text {i}" for i in range(12)]
    for y in (
        [0.0, -0.0, 1.0] * 4,
        [1, 1.0, 2] * 4,
        [True, 1, 0] * 4,
        [np.float32(1), np.int8(1), 2] * 4,
        pd.Series([-0.0, 0, 3] * 4, dtype=object),
        ["a", np.str_("a"), "b"] * 4,
    ):
        estimator = BertClassifier("folder").fit(texts, y)
        assert len(estimator.classes_) == 2
        assert (estimator.predict(texts) == np.array(y)).all()


@pytest.mark.parametrize("kind", [BertClassifier, BertRegressor])
def test_a_folder_that_every_fold_would_share_is_refused(stand_in, kind, tmp_path):
    folder = str(tmp_path)
    for options in ({"output_dir": folder}, {"settings": ClassifierOptions(output_dir=folder)}):
        data = {"cv": 2, "error_score": "raise"}
        told = refusal(cross_val_score, kind("folder", options=options), TEXTS, [1, 2] * 6, **data)
        assert told.startswith("options must not set output_dir, directly or in settings")


def test_what_is_refused(base, monkeypatch):
    model = bert_tf.load(base)
    monkeypatch.setattr(estimators, "load", lambda folder: model)
    refusal(BertClassifier("folder").predict, ["a"], kind=NotFittedError)
    for missing in (None, float("nan"), pd.NA):
        for y in (["cat", "dog", missing], pd.Series(["cat", "dog", missing])):
            told = refusal(BertClassifier("folder").fit, TEXTS[:3], y)
            assert re.search(r"^y\[2\] is missing .*Leave out the examples", told)
    told = refusal(BertClassifier("folder").fit, TEXTS, NAMES[:3])
    assert "y must have one value for each of X: there are 12 X and 3" in told
    for X, y, weight, message in (
        (TEXTS, [*range(11), "one"], None, "y[11] must be a number from -1e+16 to 1e+16; received"),
        (TEXTS, [*range(11), None], None, "y[11] is missing (None). Leave out the examples"),
        ([*TEXTS[:11], 3.0], range(12), None, "X[11] must be a text or a pair of texts, (a, b);"),
        (np.array([TEXTS] * 3).T, range(12), None, "X must be a list, an array or a column; rec"),
        (TEXTS, range(12), [-1.0] * 12, "sample_weight[0] must be a"),
        (TEXTS, None, None, "y must be given: one for each of X."),
    ):
        assert refusal(BertRegressor(base).fit, X, y, weight).startswith(message)
    for X, y, message in (
        (TEXTS, ["a"] * 12, "labels must list at least two classes"),
        ([*TEXTS[:11], None], NAMES, "X[11] must be a text or a pair of texts, (a, b); received"),
        (TEXTS, [1.0, 1.5] * 6, "Unknown label type: "),  # scikit-learn's, as the next
        (TEXTS, ["a", 1] * 6, "Mix of label input types (string and number)"),
    ):
        assert refusal(BertClassifier(base).fit, X, y, kind=ValueError).startswith(message)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of a model that was only pre-trained."""
    weights = {k: v for k, v in random_weights().items() if k.startswith("bert/")}
    return write_model(tmp_path_factory.mktemp("model") / "base", weights)


@pytest.mark.slow
def test_a_search_in_two_processes_finds_what_one_finds(base):
    """Every process starts TensorFlow; the best estimator comes from this one."""
    estimator = BertClassifier(base, batch_size=4, learning_rate=5e-3, max_seq_length=16, epochs=1)
    found = [
        GridSearchCV(estimator, {"epochs": [1, 6]}, cv=2, n_jobs=n).fit(pd.Series(TEXTS), NAMES)
        for n in (1, 2)
    ]
    one, two = (search.cv_results_["mean_test_score"].tolist() for search in found)
    assert one == two and found[0].best_params_ == found[1].best_params_
    assert found[1].best_estimator_.predict(TEXTS).shape == (12,)


def check_programs_take(saved, folder, probabilities):
    """run_classifier predicts with the saved folder, and the converter converts it."""
    pd.DataFrame({"text": TEXTS}).to_csv(folder / "test.csv", index=False)
    flags = {"task_name": "table", "text_a_column": "text", "data_dir": folder, "do_predict": True}
    flags |= {"init_checkpoint": f"{saved}/bert_model.ckpt", "max_seq_length": 16}
    run_in(saved, "classification", output_dir=folder / "predicted", **flags)
    found = np.loadtxt(folder / "predicted/test_results.tsv")
    np.testing.assert_allclose(found, probabilities, rtol=0, atol=1e-6)
    convert_checkpoint.convert(str(saved), str(folder / "converted"), "safetensors")
    converted = bert_tf.load(folder / "converted")
    np.testing.assert_allclose(converted.predict(TEXTS), probabilities, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_model_is_trained(base, tmp_path):
    options = {"batch_size": 4, "learning_rate": 5e-3, "max_seq_length": 16}
    estimator = BertClassifier(base, epochs=4, **options)
    scores = cross_val_score(estimator, pd.Series(TEXTS), pd.Series(NAMES), cv=2)
    assert scores.shape == (2,) and np.isfinite(scores).all()
    estimator.fit(TEXTS, NAMES)
    estimator.model_.save(tmp_path / "saved")
    again = bert_tf.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict(TEXTS), estimator.predict_proba(TEXTS))
    check_programs_take(tmp_path / "saved", tmp_path, estimator.predict_proba(TEXTS))
    joblib.dump(estimator, tmp_path / "x.joblib")
    for kept in (pickle.loads(pickle.dumps(estimator)), joblib.load(tmp_path / "x.joblib")):
        assert kept.classes_.tolist() == ["cat", "dog"]
        assert kept.get_params() == estimator.get_params()
        np.testing.assert_array_equal(kept.predict_proba(TEXTS), estimator.predict_proba(TEXTS))
        assert kept.score(TEXTS, NAMES) == estimator.score(TEXTS, NAMES)
    regressor = BertRegressor(base, epochs=1, batch_size=4).fit(TEXTS, range(12))
    assert regressor.predict(TEXTS).shape == (12,)
    assert np.isfinite(regressor.score(TEXTS, range(12)))
