"""Question answering as a task of fine-tuning (run_squad.py)."""

import dataclasses
import functools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files.model_input import PAIRS
from bert_tf.files.overwriting import check_overwrites
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.squad import answers, review, scoring
from bert_tf.tasks.squad.examples import SquadData, read_squad_examples
from bert_tf.tasks.squad.features import SquadEncoder
from bert_tf.tasks.squad.joint_model import HEAD_OPTIONS, JointSquadModel
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.task import ExampleSet, FineTuningTask, PredictionColumns
from bert_tf.text.tokenizers import Tokenizer

# Seed of the order of the training examples (original: main). --random_seed does not change it.
_SHUFFLE_SEED = 12345
_THRESHOLDS = "null_threshold.json"


@dataclasses.dataclass(eq=False, kw_only=True)
class QuestionSet(ExampleSet):
    """The questions of a SQuAD file, and the contexts that they are about."""

    data: SquadData


def training_set(data: SquadData) -> QuestionSet:
    """Returns the questions to train on, in the original's order."""
    random.Random(_SHUFFLE_SEED).shuffle(data.examples)
    return QuestionSet("train", data.examples, data=data)


class SquadTask(FineTuningTask):
    """Finds the answers to questions in texts.

    Answers go to predictions.json, the most likely candidates to nbest_predictions.json and, for
    SQuAD 2.0, the odds of no answer to null_odds.json; predictions.tsv has answers beside their
    questions. If `predict_file` has answers, predictions are scored, and errors.tsv and eval_report
    tell more; for SQuAD 2.0 the best thresholds then go to null_threshold.json.
    """

    batch_flags = {**FineTuningTask.batch_flags, "eval": "predict_batch_size"}
    prediction_heading = "***** Running predictions *****"

    def __init__(self, settings: SquadSettings):
        super().__init__(settings)
        # For 2.0, F1 with the best threshold, since the dev set determines it (the paper, 4.3).
        self.best_metric = "best_f1" if settings.version_2_with_negative else "f1"

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Checks that the predictions do not overwrite a file with questions."""
        written = [self.path(name) for name in (*answers.FILES, _THRESHOLDS, *review.FILES)]
        read = {flag: getattr(self.settings, flag) for flag in ("train_file", "predict_file")}
        check_overwrites(written, "output_dir", read)

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        if purpose != "train":
            return [self._questions]
        return [training_set(self._read("train_file"))]

    @functools.cached_property
    def _questions(self) -> QuestionSet:
        """The questions to answer, also for evaluation during training."""
        settings, data = self.settings, self._read("predict_file")
        if settings.evaluate_every_steps and data.correct_answers is None:
            raise UserError(
                "--evaluate_every_steps compares predictions with the `answers` of each question in"
                f" --predict_file={settings.predict_file}, where some are missing. Name a file with"
                " answers, or leave --evaluate_every_steps out"
            )
        return QuestionSet("eval", data.examples, data=data)

    def _read(self, flag: str) -> SquadData:
        path, is_training = getattr(self.settings, flag), flag == "train_file"
        return read_squad_examples(path, flag, is_training, self.settings.version_2_with_negative)

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
        """Returns the number of questions: the original counts epochs in questions, not records."""
        path = self.path("train.tf_record")
        logging.info("%s: %d examples, %d records", path, num_examples, num_records)
        if not num_records:
            raise UserError("--train_file must have a context with text; all contexts are empty")
        return num_examples

    def evaluate(
        self, example_set: QuestionSet, predictions: PredictionColumns
    ) -> dict[str, float]:
        return self._score(example_set.data, self._answer(example_set, predictions))

    def write_predictions(
        self, example_set: QuestionSet, predictions: PredictionColumns
    ) -> dict[str, float] | None:
        logging.info("  Num orig examples = %d", len(example_set.data.examples))
        logging.info("  Num split examples = %d", example_set.num_records)
        found = self._answer(example_set, predictions)
        logging.info("Writing predictions to: %s", self.settings.output_dir)
        answers.write_predictions(found, self.settings.output_dir)
        with_negative = self.settings.version_2_with_negative
        review.write_review(self.settings.output_dir, example_set.data, found, with_negative)
        if example_set.data.correct_answers is None:
            logging.info("No scores: --predict_file has questions without `answers`")
            return None
        scores = self._score(example_set.data, found)
        if with_negative:
            # With all digits, since a threshold equals the odds of a question; eval_results.txt
            # rounds.
            best = {name: value for name, value in scores.items() if name.startswith("best_")}
            answers.write_json(best, self.path(_THRESHOLDS))
        return scores

    def _answer(
        self, example_set: QuestionSet, predictions: PredictionColumns
    ) -> answers.Predictions:
        encoder = example_set.encoder
        return answers.predict_answers(
            example_set.data,
            encoder.contexts,
            encoder.windows,
            _logits(predictions) if encoder.windows else iter(()),
            self.settings,
            encoder.tokenizer,
        )

    def _score(self, data: SquadData, found: answers.Predictions) -> dict[str, float | int]:
        """Returns the official scores and, for SQuAD 2.0, the best thresholds."""
        right = data.correct_answers
        if not self.settings.version_2_with_negative:
            return scoring.evaluate(right, found.answers)
        return {
            **scoring.evaluate_with_negative(right, found.answers),
            **scoring.best_thresholds(right, found.best_answers, found.null_odds),
        }


def _logits(predictions: PredictionColumns) -> Iterator[answers.WindowLogits]:
    for columns in predictions:
        for row in zip(*columns.values(), strict=True):
            outputs = dict(zip(columns, row, strict=True))
            yield answers.window_logits(outputs["unique_ids"], outputs)
