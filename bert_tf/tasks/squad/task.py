"""Question answering as a task of fine-tuning."""

import dataclasses
import functools
import os
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files.model_notes import PAIRS
from bert_tf.files.overwriting import check_overwrites
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.results import review, tables
from bert_tf.runs.results.reports import Report
from bert_tf.tasks.squad import answers, scoring
from bert_tf.tasks.squad.examples import SquadData, SquadRows, read_squad_examples
from bert_tf.tasks.squad.features import SquadEncoder
from bert_tf.tasks.squad.model import HEAD_OPTIONS, JointSquadModel, SquadModel, head_options
from bert_tf.tasks.squad.settings import SquadOptions
from bert_tf.tasks.task import Chunks, Evaluated, ExampleSet, FineTuningTask, TaskFiles
from bert_tf.text.tokenizers import Tokenizer

# Seed of the order of the training examples (original: main). --random_seed does not change it.
_SHUFFLE_SEED = 12345


@dataclasses.dataclass(eq=False, kw_only=True)
class QuestionSet(ExampleSet):
    """The questions of a SQuAD file, with their contexts."""

    data: SquadData


class SquadTask(FineTuningTask):
    """The task of finding the answers to questions in texts."""

    options = SquadOptions
    batch_flags = {**FineTuningTask.batch_flags, "eval": "predict_batch_size"}
    prediction_heading = "***** Running predictions *****"

    def __init__(self, settings: SquadOptions):
        super().__init__(settings)
        # For 2.0, F1 with the best threshold, since the dev set determines it (the paper, 4.3).
        self.best_metric = "best_f1" if settings.version_2_with_negative else "f1"

    @staticmethod
    def defaults(weights: Collection[str]) -> Mapping[str, Any]:
        return head_options(weights)

    @classmethod
    def of_rows(cls, options: SquadOptions, rows: SquadRows) -> Self:
        negative = options.version_2_with_negative or not rows.are_all_answered
        return cls(dataclasses.replace(options, version_2_with_negative=negative))

    def example_set(self, purpose: str, examples: SquadData) -> QuestionSet:
        if purpose == "train":  # in the original's order
            random.Random(_SHUFFLE_SEED).shuffle(examples.examples)
        return QuestionSet(purpose, examples.examples, data=examples)

    def prepare(self, sets: Mapping[str, Sequence[ExampleSet]], labels: None) -> None:
        examples = [x for training in sets.get("train", ()) for x in training.examples]
        if all(x.is_impossible for x in examples):
            self.check_differ("no answer" for _ in examples)

    def reads(self, examples: Sequence[Any]) -> str:
        return PAIRS

    def encoder(self, example_set: QuestionSet, tokenizer: Tokenizer, labels: None) -> SquadEncoder:
        is_training = example_set.name == "train"
        return SquadEncoder(example_set.data, tokenizer, self.settings, is_training)

    def build(self, config: BertConfig, labels: None, **options) -> SquadModel:
        settings = self.settings
        if not (settings.joint_prediction or settings.answerable_classifier):
            return SquadModel(config, **options)
        options |= {name: getattr(settings, name) for name in HEAD_OPTIONS}
        return JointSquadModel(config, **options)

    def epoch_size(self, num_examples: int, num_records: int) -> int:
        """Returns the number of questions, which the original counts epochs in, not records."""
        path = os.path.join(self.settings.output_dir, "train.tf_record")
        logging.info("%s: %d examples, %d records", path, num_examples, num_records)
        if not num_records:
            raise UserError("--train_file must have a context with text; all contexts are empty")
        return num_examples

    def evaluate(self, example_set: QuestionSet, predictions: Chunks) -> Evaluated:
        found = self._answer(example_set, predictions)
        return Evaluated(self.score(example_set.data, found), found)

    def report(self, example_set: QuestionSet, evaluated: Evaluated) -> Report:
        with_negative = self.settings.version_2_with_negative
        scores = scoring.found_scores(example_set.data, evaluated.found, with_negative)
        return scoring.answer_report(example_set.data, scores, with_negative)

    def predict(self, example_set: QuestionSet, predictions: Chunks) -> answers.Predictions:
        logging.info("  Num orig examples = %d", len(example_set.data.examples))
        logging.info("  Num split examples = %d", example_set.num_records)
        return self._answer(example_set, predictions)

    def _answer(self, example_set: QuestionSet, predictions: Chunks) -> answers.Predictions:
        encoder = example_set.encoder
        return answers.predict_answers(
            example_set.data,
            encoder.contexts,
            encoder.windows,
            _logits(predictions) if encoder.windows else iter(()),
            self.settings,
            encoder.tokenizer,
        )

    def score(self, data: SquadData, found: answers.Predictions) -> dict[str, float | int]:
        """Returns the official scores and, for SQuAD 2.0, the best thresholds."""
        right = data.correct_answers
        if not self.settings.version_2_with_negative:
            return scoring.evaluate(right, found.answers)
        return {
            **scoring.evaluate_with_negative(right, found.answers),
            **scoring.best_thresholds(right, found.best_answers, found.null_odds),
        }


def _logits(predictions: Chunks) -> Iterator[answers.WindowLogits]:
    for columns in predictions:
        for row in zip(*columns.values(), strict=True):
            outputs = dict(zip(columns, row, strict=True))
            yield answers.window_logits(outputs["unique_ids"], outputs)


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
        order = review.surest_first(exact == 0.0, certainty)
        tables.write_table(os.path.join(output_dir, _REVIEW[1]), columns, (rows[i] for i in order))
        review.write_report(output_dir, "", scoring.answer_report(data, scores, with_negative))


def _around(answer: str, context: str) -> str:
    start = max(0, context.find(answer) - _AROUND)
    end = start + len(answer) + 2 * _AROUND
    return "..." * (start > 0) + context[start:end] + "..." * (end < len(context))
