"""Fine-tunes, evaluates and predicts multiple choice (run_multiple_choice.py)."""

import functools
import os

import numpy as np
import tensorflow as tf

from bert_tf.engine.prediction import Columns, join
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.settings import model_options
from bert_tf.runs.folder import reporting
from bert_tf.runs.training.fine_tuning import FineTuner
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer, needed_sets
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.multiple_choice import swag
from bert_tf.tasks.multiple_choice.data import QuestionEncoder
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.multiple_choice.schema import multiple_choice_schema
from bert_tf.tasks.multiple_choice.settings import MultipleChoiceSettings

_FILES = {"train": "train.csv", "eval": "val.csv", "predict": "test.csv"}  # SWAG's names


def run_multiple_choice(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: MultipleChoiceSettings,
) -> dict[str, float | int] | None:
    """Fine-tunes, evaluates and predicts; returns the results of the evaluation, if there is one.

    It writes to `output_dir`:
        train.tf_record, eval.tf_record, predict.tf_record: the questions.
        checkpoints.
        eval_results.txt: the results of the evaluation.
        test_results.tsv: the probabilities of the choices of each test question.

    Raises:
        UserError: settings, files and checkpoint do not fit each other.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or gradient is not finite.
    """
    tokenizer = make_tokenizer(config, settings, settings.init_checkpoint, settings.output_dir)

    # All files are read first, so that their errors show before anything is computed.
    sets = {
        name: swag.read_questions(
            os.path.join(settings.data_dir, _FILES[name]), labelled=name != "predict"
        )
        for name in needed_sets(strategy, settings)
    }
    schema = multiple_choice_schema(settings.max_seq_length)
    build = functools.partial(MultipleChoiceModel, config, **model_options(settings, strategy))

    metric = "eval_accuracy"
    encoder = QuestionEncoder(tokenizer, settings.max_seq_length)
    with FineTuner(config, build, strategy, settings, schema, metric) as tuner:
        num_questions = {
            name: write_records(tuner.record_file(name), questions, encoder)
            for name, questions in sets.items()
        }
        sets.clear()  # frees their memory

        def predictions(name: str, batch_size: int) -> Columns:
            return join(tuner.predict(name, num_questions[name], batch_size))

        def evaluate() -> dict[str, float]:
            columns = predictions("eval", settings.eval_batch_size)
            correct = np.argmax(columns["outputs"], axis=1) == columns["label_ids"]
            return {
                "eval_accuracy": float(np.mean(correct)),
                **reporting.mean_losses(columns["per_example_loss"], settings.eval_batch_size),
            }

        def predict() -> None:
            outputs = predictions("predict", settings.predict_batch_size)["outputs"]
            reporting.write_probabilities(tuner.run.path("test_results.tsv"), outputs)

        return tuner.train_evaluate_predict(num_questions.get("train"), evaluate, predict)
