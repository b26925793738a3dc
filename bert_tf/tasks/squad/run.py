"""Fine-tuning on SQuAD and answering its questions: the one call of run_squad."""

import itertools
import os
import random
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import check_prediction
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import fine_tuning_checks as fine_tuning_settings
from bert_tf.runs.fine_tuning import FineTuner
from bert_tf.runs.settings import model_options
from bert_tf.tasks.squad import answers, features, scoring
from bert_tf.tasks.squad.examples import SquadData, read_squad_examples
from bert_tf.tasks.squad.model import SquadTask
from bert_tf.tasks.squad.schema import squad_schema
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sequences import REQUIRED_TOKENS

# Of the order in which training examples become records, whatever --random_seed is.
_SHUFFLE_SEED = 12345


def run_squad(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: SquadSettings,
) -> dict[str, float | int] | None:
    """Returns the scores of the predictions, if --predict_file has answers.

    In `output_dir` are then the records `train.tf_record` and `eval.tf_record`, checkpoints,
    `predictions.json`, `nbest_predictions.json`, `null_odds.json` and, where there are scores,
    `eval_results.txt` and `null_threshold.json`.

    Args:
        config: of the model.
        strategy: where to compute.
        settings: see its fields.

    Raises:
        UserError: settings, files and checkpoint do not fit together.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """
    _check(settings)
    tokenizer = fine_tuning_settings.make_tokenizer(config, settings, REQUIRED_TOKENS)
    with_negative = settings.version_2_with_negative
    # Everything is read before anything is computed: what is wrong shows at once.
    train_data = predict_data = None
    if settings.do_train:
        train_data = read_squad_examples(settings.train_file, "train_file", True, with_negative)
    if settings.do_predict or settings.evaluate_every_steps:
        check_prediction(strategy, settings.predict_batch_size, "predict_batch_size")
        predict_data = read_squad_examples(
            settings.predict_file, "predict_file", False, with_negative
        )
        if settings.evaluate_every_steps and not _has_answers(predict_data):
            raise UserError(
                "--evaluate_every_steps scores the answers to the questions of"
                f" --predict_file={settings.predict_file}, each of which must have `answers`; name"
                " another file, or leave it out"
            )
    task = SquadTask(config, **model_options(settings, strategy))
    schema = squad_schema(settings.max_seq_length, is_training=True)
    # With the threshold that the dev set gives (the paper, 4.3).
    metric = "best_f1" if with_negative else "f1"
    with FineTuner(config, task, strategy, settings, schema, metric) as tuner:
        questions = None
        if predict_data:
            path = tuner.record_file("eval")
            questions = _Questions(predict_data, tokenizer, path, settings)
        if train_data:
            path = tuner.record_file("train")
            num_examples = _write_training_records(train_data, tokenizer, path, settings)
            train_data = None  # it is in the records now

            def evaluate() -> dict[str, float | int]:
                return questions.score(questions.answer(tuner))

            tuner.train(num_examples, evaluate)
        if not settings.do_predict:
            return None
        logging.info("***** Running predictions *****")
        logging.info("  Num orig examples = %d", len(questions.data.examples))
        logging.info("  Num split examples = %d", len(questions.windows))
        predictions = questions.answer(tuner)
        logging.info("Writing predictions to: %s", settings.output_dir)
        answers.write_predictions(predictions, settings.output_dir, with_negative)
        if not _has_answers(questions.data):
            logging.info("--predict_file has questions without `answers`: nothing is scored")
            return None
        scores = questions.score(predictions)
        if with_negative:
            # In full: eval_results.txt rounds, and the threshold is the odds of one question.
            best = {name: value for name, value in scores.items() if name.startswith("best_")}
            answers.write_json(best, os.path.join(settings.output_dir, "null_threshold.json"))
        return tuner.write_results(scores)


def _check(settings: SquadSettings) -> None:
    if not settings.do_train and not settings.do_predict:
        raise UserError("At least one of --do_train and --do_predict must be given.")
    if settings.do_train and not settings.train_file:
        raise UserError("With --do_train, --train_file must say what to train on.")
    if settings.do_predict and not settings.predict_file:
        raise UserError("With --do_predict, --predict_file must say which questions to answer.")
    if settings.evaluate_every_steps and not (settings.do_train and settings.predict_file):
        raise UserError(
            "--evaluate_every_steps needs --do_train, and --predict_file with the questions and"
            " answers to evaluate on"
        )


def _has_answers(data: SquadData) -> bool:
    return all(example.answers is not None for example in data.examples)


def _write_training_records(
    data: SquadData, tokenizer: FastTokenizer, path: str, settings: SquadSettings
) -> int:
    """Returns the number of questions in the file that it writes, having shuffled them.

    Their number, not that of the windows, is what epochs are counted by, as in the original.
    """
    random.Random(_SHUFFLE_SEED).shuffle(data.examples)
    contexts = features.tokenize_contexts(data.contexts, tokenizer)
    windows = features.write_records(path, data, contexts, tokenizer, settings, is_training=True)
    logging.info("%s: %d examples, %d records", path, len(data.examples), len(windows))
    if not windows:
        raise UserError("--train_file must have a context with text; in this one all are empty")
    return len(data.examples)


class _Questions:
    """The questions of --predict_file, and their records in eval.tf_record."""

    def __init__(
        self, data: SquadData, tokenizer: FastTokenizer, path: str, settings: SquadSettings
    ):
        self.data = data
        self._settings = settings
        self._tokens = tokenizer.inv_vocab
        self._contexts = features.tokenize_contexts(data.contexts, tokenizer)
        self.windows = features.write_records(
            path, data, self._contexts, tokenizer, settings, is_training=False
        )

    def answer(self, tuner: FineTuner) -> answers.Predictions:
        """Returns the answers that the present weights give."""
        return answers.predict_answers(
            self.data,
            self._contexts,
            self.windows,
            self._logits(tuner),
            self._settings,
            self._tokens,
        )

    def _logits(self, tuner: FineTuner) -> Iterator[answers.WindowLogits]:
        if self.windows:
            batch_size = self._settings.predict_batch_size
            for columns in tuner.predict("eval", len(self.windows), batch_size):
                logits = (columns[name] for name in ("unique_ids", "start_logits", "end_logits"))
                yield from itertools.starmap(answers.WindowLogits, zip(*logits, strict=True))

    def score(self, predictions: answers.Predictions) -> dict[str, float | int]:
        """Returns the official figures, and for SQuAD 2.0 the best thresholds."""
        right = {example.qas_id: example.answers for example in self.data.examples}
        if not self._settings.version_2_with_negative:
            return scoring.evaluate(right, predictions.answers)
        return {
            **scoring.evaluate_with_negative(right, predictions.answers),
            **scoring.best_thresholds(right, predictions.best_answers, predictions.null_odds),
        }
