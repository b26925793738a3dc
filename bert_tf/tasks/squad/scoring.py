"""SQuAD's scores: exact match, F1, the best threshold for no answer, and the report.

Source: evaluate-v1.1.py and evaluate-v2.0.py of https://rajpurkar.github.io/SQuAD-explorer/.
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.runs.results.reports import Report, mean_report
from bert_tf.tasks.squad.answers import Predictions
from bert_tf.tasks.squad.examples import SquadData

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# The forms of a question word count as one.
_FORMS = {"whom": "who", "whose": "who"}
_WORDS = re.compile(r"\b(what|when|where|which|who|whom|whose|why|how)\b", re.IGNORECASE)

# Question id -> the texts of its correct answers.
Answers = Mapping[str, Sequence[str]]


def normalize_answer(text: str) -> str:
    """Lowercases the text, removes punctuation and articles, and leaves single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, prediction: str) -> float:
    """Returns 1.0 if both texts are equal when normalized, else 0.0."""
    return float(normalize_answer(answer) == normalize_answer(prediction))


def f1_score(answer: str, prediction: str) -> float:
    """Returns the F1 score of the words that both texts share; 0 if either has no words."""
    right, predicted = (normalize_answer(text).split() for text in (answer, prediction))
    common = sum((collections.Counter(right) & collections.Counter(predicted)).values())
    return 2.0 * common / (len(right) + len(predicted)) if common else 0.0


def evaluate(answers: Answers, predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns `exact_match` and `f1` of SQuAD 1.1, in percent.

    Arguments are by question id. The best of the correct answers counts. A question without correct
    answers or without a prediction scores 0.
    """
    scores = question_scores(answers, predictions)
    exact, f1 = 100.0 * np.mean(list(scores.values()), axis=0)
    return {"exact_match": float(exact), "f1": float(f1)}


def question_scores(
    answers: Answers, predictions: Mapping[str, str]
) -> dict[str, tuple[float, float]]:
    """Returns (exact match, F1) of the 1.1 script for each question; see `evaluate`."""
    scores = {}
    for qas_id, texts in answers.items():
        right = texts if qas_id in predictions else ()
        exact = max((exact_match(text, predictions[qas_id]) for text in right), default=0.0)
        f1 = max((f1_score(text, predictions[qas_id]) for text in right), default=0.0)
        scores[qas_id] = exact, f1
    return scores


def evaluate_with_negative(
    answers: Answers, predictions: Mapping[str, str]
) -> dict[str, float | int]:
    """Returns SQuAD 2.0's scores: `exact` and `f1` in percent, `total` for the number of questions.

    Scores that begin with `HasAns_` are for the questions with an answer, `NoAns_` for the others.
    No answer is [] in `answers` and "" in predictions. Questions without a prediction do not count.
    """
    scores = scores_with_negative(answers, predictions)
    results = _means(scores, "")
    for prefix, has_answer in (("HasAns_", True), ("NoAns_", False)):
        part = {key: value for key, value in scores.items() if bool(answers[key]) == has_answer}
        if part:
            results |= _means(part, prefix)
    return results


def best_thresholds(
    answers: Answers, best_answers: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, float]:
    """Returns the best scores that any --null_score_diff_threshold reaches, with the thresholds.

    `best_exact_thresh` and `best_f1_thresh` are the lowest thresholds that reach `best_exact` and
    `best_f1`: a question whose odds exceed the threshold gets no answer (the paper, 4.3). The
    official script searches predictions to which a threshold was already applied, so it never finds
    a higher one, and it counts "" as wrong for every question that has an answer.
    """
    scores = scores_with_negative(answers, best_answers)
    ids = sorted(scores, key=null_odds.__getitem__)
    odds = np.array([null_odds[qas_id] for qas_id in ids])
    # "" is also right if all answers consist of articles and punctuation.
    without = scores_with_negative(answers, dict.fromkeys(ids, ""))
    # With the threshold odds[i], questions 0 to i, and all with equal odds, keep their answers.
    possible = np.append(odds[:-1] != odds[1:], True)
    below_all = float(np.nextafter(odds[0], -np.inf))
    results = {}
    for column, name in enumerate(("exact", "f1")):
        null = np.array([without[qas_id][column] for qas_id in ids], np.float64)
        gains = np.array([scores[qas_id][column] for qas_id in ids]) - null
        totals = np.where(possible, np.cumsum(gains), -np.inf)
        best = int(np.argmax(totals))
        gain, threshold = float(totals[best]), float(odds[best])
        if gain <= 0.0:
            gain, threshold = 0.0, below_all
        results[f"best_{name}"] = float(100.0 * (null.sum() + gain) / len(ids))
        results[f"best_{name}_thresh"] = threshold
    return results


def scores_with_negative(
    answers: Answers, predictions: Mapping[str, str]
) -> dict[str, tuple[float, float]]:
    """Returns (exact match, F1) of the 2.0 script for each question that has a prediction."""
    scores = {}
    for qas_id, texts in answers.items():
        if qas_id not in predictions:
            continue
        prediction = predictions[qas_id]
        # Answers of only articles and punctuation are ignored; if none remains, "" is the answer.
        right = [text for text in texts if normalize_answer(text)] or [""]
        exact = f1 = max(exact_match(text, prediction) for text in right)
        if right != [""] and normalize_answer(prediction):
            f1 = max(f1_score(text, prediction) for text in right)
        scores[qas_id] = exact, f1
    return scores


def _means(scores: Mapping[str, tuple[float, float]], prefix: str) -> dict[str, float | int]:
    exact, f1 = map(float, 100.0 * np.mean(list(scores.values()), axis=0))
    return {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": len(scores)}


def found_scores(
    data: SquadData, found: Predictions, with_negative: bool
) -> dict[str, tuple[float, float]]:
    score = scores_with_negative if with_negative else question_scores
    return score(data.correct_answers, found.answers)


def answer_report(
    data: SquadData, scores: dict[str, tuple[float, float]], with_negative: bool
) -> Report:
    """Reports exact match and F1 in percent: overall, by question word, by answerability."""
    groups: dict[str, dict] = collections.defaultdict(lambda: collections.defaultdict(list))
    for example in data.examples:
        exact, f1 = scores[example.qas_id]
        score = {"exact": 100.0 * exact, "f1": 100.0 * f1}
        groups["all"]["all questions"].append(score)
        groups["question_word"][question_word(example.question_text)].append(score)
        if with_negative:
            groups["answer"]["answerable" if example.answers else "unanswerable"].append(score)
    return mean_report({name: dict(sorted(members.items())) for name, members in groups.items()})


def question_word(question: str) -> str:
    """Returns the first English question word of a question: what, who, how ...; else "other"."""
    found = _WORDS.search(question)
    word = found[0].lower() if found else "other"
    return _FORMS.get(word, word)
