"""SQuAD's files, and the files of run_squad.py."""

import functools
import os

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files.paths import check_overwrites
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.results import tables
from bert_tf.tasks.squad import answers, scoring
from bert_tf.tasks.squad.examples import SquadData, read_squad_examples
from bert_tf.tasks.squad.task import QuestionSet, SquadTask
from bert_tf.tasks.task import ExampleSet, TaskFiles

_THRESHOLDS = "null_threshold.json"
_REVIEW = ("predictions.tsv", "errors.tsv", "eval_report.txt", "eval_report.json")
_AROUND = 1000  # characters of the context shown before and after an answer


class SquadFiles(TaskFiles, SquadTask):
    """Reads SQuAD's JSON files.

    It writes answers to predictions.json, the most likely candidates to nbest_predictions.json, for
    SQuAD 2.0 the odds of no answer to null_odds.json, and questions with answers to
    predictions.tsv. If `predict_file` has answers, it also writes scores, errors.tsv and
    eval_report and, for SQuAD 2.0, the best thresholds to null_threshold.json.
    """

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Checks that the predictions do not overwrite a file with questions."""
        written = [self.path(name) for name in (*answers.FILES, _THRESHOLDS, *_REVIEW)]
        read = {flag: getattr(self.settings, flag) for flag in ("train_file", "predict_file")}
        check_overwrites(written, "output_dir", read)

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        if purpose != "train":
            return [self._questions]
        return [self.example_set("train", self._read("train_file"))]

    @functools.cached_property
    def _questions(self) -> QuestionSet:
        settings, data = self.settings, self._read("predict_file")
        if settings.evaluate_every_steps and data.correct_answers is None:
            raise UserError(
                "--evaluate_every_steps compares predictions with the `answers` of each question in"
                f" --predict_file={settings.predict_file}, where some are missing. Name a file with"
                " answers, or leave --evaluate_every_steps out"
            )
        return self.example_set("eval", data)

    def _read(self, flag: str) -> SquadData:
        path, is_training = getattr(self.settings, flag), flag == "train_file"
        return read_squad_examples(path, flag, is_training, self.settings.version_2_with_negative)

    def write_predictions(
        self, example_set: QuestionSet, outputs: answers.Predictions, global_step: int
    ) -> dict[str, float] | None:
        logging.info("Writing predictions to: %s", self.settings.output_dir)
        answers.write_predictions(outputs, self.settings.output_dir)
        with_negative = self.settings.version_2_with_negative
        write_review(self.settings.output_dir, example_set.data, outputs, with_negative)
        if example_set.data.correct_answers is None:
            logging.info("No scores: --predict_file has questions without `answers`")
            return None
        scores = self.score(example_set.data, outputs)
        if with_negative:
            # With all digits, since a threshold is the odds of a question; eval_results.txt rounds.
            best = {name: value for name, value in scores.items() if name.startswith("best_")}
            answers.write_json(best, self.path(_THRESHOLDS))
        return scores


def write_review(
    output_dir: str, data: SquadData, found: answers.Predictions, with_negative: bool
) -> None:
    """Writes predictions.tsv and, if the questions have answers, errors.tsv and the report.

    errors.tsv has the questions without an exact match, the most certain answers first.
    """
    right = data.correct_answers
    scores = {} if right is None else scoring.found_scores(data, found, with_negative)
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
    tables.write_table(os.path.join(output_dir, _REVIEW[0]), columns, rows)
    if right is not None:
        exact, certainty = (np.array([row[i] for row in rows]) for i in (-2, 4))
        order = tables.surest_first(exact == 0.0, certainty)
        tables.write_table(os.path.join(output_dir, _REVIEW[1]), columns, (rows[i] for i in order))
        tables.write_report(output_dir, "", scoring.answer_report(data, scores, with_negative))


def _around(answer: str, context: str) -> str:
    start = max(0, context.find(answer) - _AROUND)
    end = start + len(answer) + 2 * _AROUND
    return "..." * (start > 0) + context[start:end] + "..." * (end < len(context))
