"""Fine-tunes on SQuAD and answers questions (run_squad.py)."""

import functools
import itertools
import os
import random
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import check_prediction
from bert_tf.errors import UserError
from bert_tf.files.overwriting import check_overwrites
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.settings import model_options
from bert_tf.runs.training.fine_tuning import FineTuner
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.squad import answers, scoring
from bert_tf.tasks.squad.examples import SquadData, read_squad_examples
from bert_tf.tasks.squad.features import SquadEncoder
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.squad.schema import squad_schema
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.text.sequences import Layout
from bert_tf.text.tokenizers import Tokenizer

# Seed of the order of the training examples (original: main). --random_seed does not change it.
_SHUFFLE_SEED = 12345
_THRESHOLDS = "null_threshold.json"


def run_squad(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: SquadSettings,
) -> dict[str, float | int] | None:
    """Fine-tunes on `train_file`, answers the questions of `predict_file`, or both.

    It writes to `output_dir`:
        train.tf_record, eval.tf_record: the questions.
        checkpoints.
        predictions.json, nbest_predictions.json: the answers, and the most likely ones.
        null_odds.json: for SQuAD 2.0, the odds of no answer.
        eval_results.txt: the scores, if `predict_file` has answers.
        null_threshold.json: for SQuAD 2.0, the best thresholds, if `predict_file` has answers.

    Returns:
        The scores of the predictions; None if there are no predictions, or no answers to compare
        them with.

    Raises:
        UserError: settings, files and checkpoint do not fit together.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """
    _check(settings)
    tokenizer = make_tokenizer(config, settings, settings.init_checkpoint, settings.output_dir)
    _check_lengths(settings, tokenizer.layout)
    # All files are read first, so that errors in them show before hours of training.
    train_data = _read_training_data(settings)
    predict_data = _read_questions(strategy, settings)
    build = functools.partial(SquadModel, config, **model_options(settings, strategy))
    schema = squad_schema(settings.max_seq_length, is_training=True)
    # For 2.0, F1 with the best threshold, since the dev set determines it (the paper, 4.3).
    metric = "best_f1" if settings.version_2_with_negative else "f1"
    with FineTuner(config, build, strategy, settings, schema, metric) as tuner:
        questions = _Questions(predict_data, tokenizer, tuner, settings) if predict_data else None
        if train_data:
            path = tuner.record_file("train")
            num_examples = _write_training_records(train_data, tokenizer, path, settings)
            train_data = None  # frees memory: the records have it
            tuner.train(num_examples, lambda: questions.score(questions.answer()))
        return _predict(tuner, questions, settings) if settings.do_predict else None


def _check(settings: SquadSettings) -> None:
    if not settings.do_train and not settings.do_predict:
        raise UserError("At least one of --do_train and --do_predict must be given.")
    check_overwrites(
        [os.path.join(settings.output_dir, name) for name in (*answers.FILES, _THRESHOLDS)],
        "output_dir",
        {"train_file": settings.train_file, "predict_file": settings.predict_file},
    )


def _check_lengths(settings: SquadSettings, layout: Layout) -> None:
    """Checks that there is room for the text beside the longest question, whatever the model."""
    taken = settings.max_query_length + layout.num_special(is_pair=True)
    if settings.max_seq_length <= taken:
        raise UserError(
            f"--max_seq_length={settings.max_seq_length} must be greater than {taken}:"
            f" --max_query_length={settings.max_query_length} and the special tokens of a pair"
        )


def _read_training_data(settings: SquadSettings) -> SquadData | None:
    if not settings.do_train:
        return None
    return read_squad_examples(
        settings.train_file, "train_file", True, settings.version_2_with_negative
    )


def _read_questions(strategy: tf.distribute.Strategy, settings: SquadSettings) -> SquadData | None:
    """Returns the questions for prediction and for evaluation during training, if any."""
    if not (settings.do_predict or settings.evaluate_every_steps):
        return None
    check_prediction(strategy, settings.predict_batch_size, "predict_batch_size")
    data = read_squad_examples(
        settings.predict_file, "predict_file", False, settings.version_2_with_negative
    )
    if settings.evaluate_every_steps and not _has_answers(data):
        raise UserError(
            "--evaluate_every_steps compares predictions with the `answers` of each question in"
            f" --predict_file={settings.predict_file}, where some are missing. Name a file with"
            " answers, or leave this flag out"
        )
    return data


def _has_answers(data: SquadData) -> bool:
    return all(example.answers is not None for example in data.examples)


def _write_training_records(
    data: SquadData, tokenizer: Tokenizer, path: str, settings: SquadSettings
) -> int:
    """Shuffles the questions and writes their records; returns the number of questions.

    An epoch is counted in questions, not in records, as in the original.
    """
    random.Random(_SHUFFLE_SEED).shuffle(data.examples)
    encoder = SquadEncoder(data, tokenizer, settings, is_training=True)
    num_records = write_records(path, data.examples, encoder)
    logging.info("%s: %d examples, %d records", path, len(data.examples), num_records)
    if not num_records:
        raise UserError("--train_file must have a context with text; all contexts are empty")
    return len(data.examples)


class _Questions:
    """The questions of --predict_file; writes their records, answers and scores them."""

    def __init__(
        self,
        data: SquadData,
        tokenizer: Tokenizer,
        tuner: FineTuner,
        settings: SquadSettings,
    ):
        self.data = data
        self._tuner = tuner
        self._settings = settings
        self._words_of = tokenizer.words_of
        encoder = SquadEncoder(data, tokenizer, settings, is_training=False)
        write_records(tuner.record_file("eval"), data.examples, encoder)
        self._contexts, self.windows = encoder.contexts, encoder.windows

    def answer(self) -> answers.Predictions:
        """Returns the answers of the model with its current weights."""
        return answers.predict_answers(
            self.data, self._contexts, self.windows, self._logits(), self._settings, self._words_of
        )

    def _logits(self) -> Iterator[answers.WindowLogits]:
        if self.windows:
            batch_size = self._settings.predict_batch_size
            for columns in self._tuner.predict("eval", len(self.windows), batch_size):
                logits = (columns[name] for name in ("unique_ids", "start_logits", "end_logits"))
                yield from itertools.starmap(answers.WindowLogits, zip(*logits, strict=True))

    def score(self, predictions: answers.Predictions) -> dict[str, float | int]:
        """Returns the official scores and, for SQuAD 2.0, the best thresholds."""
        right = {example.qas_id: example.answers for example in self.data.examples}
        if not self._settings.version_2_with_negative:
            return scoring.evaluate(right, predictions.answers)
        return {
            **scoring.evaluate_with_negative(right, predictions.answers),
            **scoring.best_thresholds(right, predictions.best_answers, predictions.null_odds),
        }


def _predict(
    tuner: FineTuner, questions: _Questions, settings: SquadSettings
) -> dict[str, float | int] | None:
    """Writes the predictions and, if the questions have answers, the scores, which it returns."""
    logging.info("***** Running predictions *****")
    logging.info("  Num orig examples = %d", len(questions.data.examples))
    logging.info("  Num split examples = %d", len(questions.windows))
    predictions = questions.answer()
    logging.info("Writing predictions to: %s", settings.output_dir)
    with_negative = settings.version_2_with_negative
    answers.write_predictions(predictions, settings.output_dir, with_negative)
    if not _has_answers(questions.data):
        logging.info("No scores: --predict_file has questions without `answers`")
        return None
    scores = questions.score(predictions)
    if with_negative:
        # With all digits, which eval_results.txt rounds: a threshold equals the odds of a question.
        best = {name: value for name, value in scores.items() if name.startswith("best_")}
        answers.write_json(best, os.path.join(settings.output_dir, _THRESHOLDS))
    return tuner.write_results(scores)
