"""Tables of questions with their answers, and the report by question word."""

import json

import pytest

from bert_tf.runs.results.tables import read_table
from bert_tf.tasks.squad import review, scoring
from bert_tf.tasks.squad.answers import Predictions
from bert_tf.tasks.squad.examples import SquadData, SquadExample

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
    review.write_review(str(folder), data, Predictions(answers, nbest), with_negative)


def test_answers_and_errors(tmp_path):
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


def test_the_report_by_question_word_and_answer(tmp_path):
    write(tmp_path, QUESTIONS, with_negative=True)
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


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("What's new?", "what"),
        ("In WHOSE house?", "who"),
        ("How many?", "how"),
        ("Somewhat odd: name it", "other"),
        ("\u8c01?", "other"),
        ("", "other"),
    ],
)
def test_question_words(question, word):
    assert review.question_word(question) == word
