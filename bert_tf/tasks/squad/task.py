"""Question answering as a fine-tuning task."""

import dataclasses
import os
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

from absl import logging

from bert_tf.errors import UserError
from bert_tf.files.model_notes import PAIRS
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.results.reports import Report
from bert_tf.tasks.squad import answers, scoring
from bert_tf.tasks.squad.examples import SquadData, SquadRows
from bert_tf.tasks.squad.features import SquadEncoder
from bert_tf.tasks.squad.model import HEAD_OPTIONS, JointSquadModel, SquadModel, head_options
from bert_tf.tasks.squad.settings import SquadOptions
from bert_tf.tasks.task import Chunks, Evaluated, ExampleSet, FineTuningTask
from bert_tf.text.base_tokenizer import Tokenizer

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
        """Returns the number of questions: epochs are counted in questions, as in the original."""
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
            yield answers.window_logits(dict(zip(columns, row, strict=True)))
