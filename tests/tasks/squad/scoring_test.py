"""Tests of bert_tf.tasks.squad.scoring, and of the tables of answers and their report."""

import json
import math

import numpy as np
import pytest

from bert_tf.runs.results.tables import read_table
from bert_tf.tasks.squad import files, scoring
from bert_tf.tasks.squad.answers import Predictions
from bert_tf.tasks.squad.examples import SquadData, SquadExample

# Expected values were worked out by hand from the definitions in evaluate-v1.1.py and
# evaluate-v2.0.py.


def test_normalize_answer():
    assert scoring.normalize_answer("The  U.S.A., (an) ally\u00a0of a--b!") == "usa ally of ab"
    assert scoring.normalize_answer("Theatre another") == "theatre another"
    assert scoring.normalize_answer("a, the.") == ""
    # Punctuation is removed first, so "a.b" has no article; dashes beyond ASCII stay.
    assert scoring.normalize_answer("a.b a\u2013b") == "ab \u2013b"


def test_f1_counts_repeated_words():
    # 2 words in common of 3 predicted and 4 right ones: 2 * (2/3 * 2/4) / (2/3 + 2/4)
    assert scoring.f1_score("x x y z", "The x x w") == pytest.approx(4 / 7)
    assert scoring.f1_score("x", "y") == 0.0
    assert scoring.f1_score("the", "a") == 0.0


def test_version_1():
    answers = {"p": ("a cat", "The black cat"), "q": ("dog",), "r": ("bird",)}
    answers |= {"s": (), "t": ("the",)}
    predictions = {"p": "black cat!", "q": "big dog", "s": "x", "t": "a"}
    results = scoring.evaluate(answers, predictions)
    # r is not predicted, s has no right answer; an article matches but has no words.
    assert results["exact_match"] == pytest.approx(100 * (1 + 0 + 0 + 0 + 1) / 5)
    assert results["f1"] == pytest.approx(100 * (1 + 2 / 3 + 0 + 0 + 0) / 5)


def test_version_2():
    questions = {  # the correct answers, and the prediction
        "right": (("a cat", "black cat"), "cat"),
        "half": (("dog",), "big dog"),
        "none": ((), ""),
        "wrongly none": (("bird",), ""),
        "wrongly some": ((), "x"),
        "articles": (("the",), "a"),
        "articles ignored": (("the", "fish"), "a"),
    }
    answers, predictions = ({name: x[i] for name, x in questions.items()} for i in (0, 1))
    results = scoring.evaluate_with_negative(answers, predictions)
    assert results == pytest.approx(
        {
            "exact": 100 * 3 / 7,
            "f1": 100 * (3 + 2 / 3) / 7,
            "total": 7,
            "HasAns_exact": 100 * 2 / 5,
            "HasAns_f1": 100 * (2 + 2 / 3) / 5,
            "HasAns_total": 5,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
    )
    # Questions without a prediction do not count; without questions there is no mean.
    results = scoring.evaluate_with_negative({"a": (), "b": ("x",)}, {"b": "x"})
    assert results["total"] == 1 and "NoAns_f1" not in results


def at_threshold(answers, best_answers, odds, threshold):
    predictions = {k: "" if odds[k] > threshold else text for k, text in best_answers.items()}
    results = scoring.evaluate_with_negative(answers, predictions)
    return results["exact"], results["f1"]


@pytest.mark.parametrize("seed", range(20))
def test_no_threshold_reaches_better_scores(seed):
    rng = np.random.RandomState(seed)
    ids = [f"q{i}" for i in range(rng.randint(1, 40))]
    # Few different odds, so that several questions share one.
    odds = {key: float(rng.randint(-6, 6)) / 3 for key in ids}
    golds = ((), ("one two three",), ("the", "..."))  # the last: an empty answer is right
    answers = {key: golds[rng.choice(3, p=(0.4, 0.4, 0.2))] for key in ids}
    texts = ("one two three", "two", "four", "")
    best_answers = {key: texts[rng.randint(4)] for key in ids}
    found = scoring.best_thresholds(answers, best_answers, odds)
    values = sorted(set(odds.values()))
    reached = [at_threshold(answers, best_answers, odds, t) for t in [values[0] - 1, *values]]
    for column, name in enumerate(("exact", "f1")):
        best = max(scores[column] for scores in reached)
        assert found[f"best_{name}"] == pytest.approx(best)
        threshold = found[f"best_{name}_thresh"]
        assert at_threshold(answers, best_answers, odds, threshold)[column] == pytest.approx(best)


def test_the_best_threshold_may_be_above_0_or_below_all_odds():
    answers = {"a": ("x",), "b": ("y",), "c": ()}
    odds = {"a": -1.0, "b": 2.5, "c": 3.0}
    found = scoring.best_thresholds(answers, {"a": "x", "b": "y", "c": "z"}, odds)
    assert found["best_exact"] == found["best_f1"] == 100.0
    assert found["best_exact_thresh"] == found["best_f1_thresh"] == 2.5
    found = scoring.best_thresholds({"a": (), "b": ()}, {"a": "x", "b": "y"}, {"a": -7.0, "b": 1.0})
    assert found["best_f1"] == 100.0
    assert found["best_f1_thresh"] == math.nextafter(-7.0, -math.inf)


CONTEXT = "x " * 3000 + "Ann lives in Rome." + " y" * 3000
QUESTIONS = {
    "a": ("Who lives in Rome?", ("Ann", "Ann", "the Ann")),
    "b": ("In which town is she?", ("Rome",)),
    "c": ("=Where does Bob live?", ()),
}
ANSWERS = {"a": "Ann", "b": "lives in Rome", "c": "Rome"}
PROBABILITIES = {"a": 0.5, "b": 0.25, "c": 0.75}


def write(folder, questions, with_negative):
    examples = [SquadExample(key, text, 0, right) for key, (text, right) in questions.items()]
    answers = {key: ANSWERS[key] for key in questions}
    nbest = {
        key: [{"text": "", "probability": 0.1}, {"text": text, "probability": PROBABILITIES[key]}]
        for key, text in answers.items()
    }
    data = SquadData([CONTEXT], examples)
    files.write_review(str(folder), data, Predictions(answers, nbest), with_negative)


def test_answers_errors_and_report(tmp_path):
    write(tmp_path, QUESTIONS, with_negative=True)
    found = read_table(f"{tmp_path}/predictions.tsv")
    assert found["id"] == ["a", "b", "c"] and found["answer"] == list(ANSWERS.values())
    assert found["correct_answers"] == ["Ann | the Ann", "Rome", ""]
    assert found["exact"] == ["1.0", "0.0", "0.0"] and found["f1"] == ["1.0", "0.5", "0.0"]
    assert found["question"][2] == "'=Where does Bob live?"
    for answer, context in zip(found["answer"], found["context"], strict=True):
        assert answer in context and len(context) < 2100 and context.startswith("...")
    errors = read_table(f"{tmp_path}/errors.tsv")
    assert errors["id"] == ["c", "b"] and errors["probability"] == ["0.75", "0.25"]
    # The report, by question word and answer.
    report = json.loads((tmp_path / "eval_report.json").read_text())
    right = {key: answers for key, (_, answers) in QUESTIONS.items()}
    scores = scoring.evaluate_with_negative(right, ANSWERS)
    found = report["all"]["all questions"]
    assert found == pytest.approx({"exact": scores["exact"], "f1": scores["f1"], "examples": 3})
    answerable = report["answer"]["answerable"]
    assert answerable["f1"] == pytest.approx(scores["HasAns_f1"])
    assert report["answer"]["unanswerable"]["exact"] == scores["NoAns_exact"] == 0.0
    assert list(report["question_word"]) == ["where", "which", "who"]
    assert "unanswerable" in (tmp_path / "eval_report.txt").read_text()


def test_questions_of_squad_1_and_without_answers(tmp_path):
    answered = {key: QUESTIONS[key] for key in "ab"}
    write(tmp_path, answered, with_negative=False)
    report = json.loads((tmp_path / "eval_report.json").read_text())
    assert report.keys() == {"all", "question_word"}
    (tmp_path / "eval_report.json").unlink()
    write(tmp_path, {"a": ("Who?", None)}, with_negative=False)
    assert list(read_table(f"{tmp_path}/predictions.tsv"))[3:] == ["answer", "probability"]
    assert not (tmp_path / "eval_report.json").exists()


def test_question_words():
    for question, word in (
        ("What's new?", "what"),
        ("In WHOSE house?", "who"),
        ("How many?", "how"),
        ("Somewhat odd: name it", "other"),
        ("\u8c01?", "other"),
        ("", "other"),
    ):
        assert scoring.question_word(question) == word
