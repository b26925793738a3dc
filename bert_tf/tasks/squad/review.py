"""Tables of questions with their answers, and the report by question word."""

import collections
import os
import re

import numpy as np

from bert_tf.runs.results import review, tables
from bert_tf.runs.results.reports import Report, mean_report
from bert_tf.tasks.squad import scoring
from bert_tf.tasks.squad.answers import Predictions
from bert_tf.tasks.squad.examples import SquadData

FILES = ("predictions.tsv", "errors.tsv", "eval_report.txt", "eval_report.json")
_AROUND = 1000  # characters of the context before and after an answer

# The forms of a question word count as one.
_FORMS = {"whom": "who", "whose": "who"}
_WORDS = re.compile(r"\b(what|when|where|which|who|whom|whose|why|how)\b", re.IGNORECASE)


def write_review(output_dir: str, data: SquadData, found: Predictions, with_negative: bool) -> None:
    """Writes predictions.tsv and, if the questions have answers, errors.tsv and the report.

    `errors.tsv` has the questions without an exact match, the most certain answers first.

    Args:
        with_negative: whether questions can have no answer, and count as in SQuAD 2.0.
    """
    right, scores = data.correct_answers, {}
    if right is not None:
        score = scoring.scores_with_negative if with_negative else scoring.question_scores
        scores = score(right, found.answers)
    columns = ["id", "question", "context", "answer", "probability"]
    rows = []
    for example in data.examples:
        answer, nbest = found.answers[example.qas_id], found.nbest[example.qas_id]
        probability = next((x["probability"] for x in nbest if x["text"] == answer), 0.0)
        context = _around(answer, data.contexts[example.context_index])
        row = [example.qas_id, example.question_text, context, answer, probability]
        if right is not None:
            row += [" | ".join(dict.fromkeys(example.answers)), *scores[example.qas_id]]
        rows.append(row)
    columns += [] if right is None else ["correct_answers", "exact", "f1"]
    tables.write_table(os.path.join(output_dir, FILES[0]), columns, rows)
    if right is not None:
        exact, certainty = (np.array([row[i] for row in rows]) for i in (-2, 4))
        order = review.surest_first(exact == 0.0, certainty)
        tables.write_table(os.path.join(output_dir, FILES[1]), columns, (rows[i] for i in order))
        review.write_report(output_dir, "", answer_report(data, scores, with_negative))


def answer_report(
    data: SquadData, scores: dict[str, tuple[float, float]], with_negative: bool
) -> Report:
    """Returns the report of answers, in percent: all, by question word, and if there is an answer.

    Args:
        scores: (exact match, F1) by question id.
        with_negative: whether questions can have no answer.
    """
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


def _around(answer: str, context: str) -> str:
    """Returns a context; of a long one only the part around the answer, else the beginning."""
    start = max(0, context.find(answer) - _AROUND)
    end = start + len(answer) + 2 * _AROUND
    return "..." * (start > 0) + context[start:end] + "..." * (end < len(context))
