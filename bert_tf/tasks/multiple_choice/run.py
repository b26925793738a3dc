"""From SWAG's files to a model that chooses, its accuracy and choices: run_multiple_choice."""

import os

import numpy as np
import tensorflow as tf

from bert_tf.engine.prediction import Columns, join
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import fine_tuning_checks as fine_tuning_settings
from bert_tf.runs import reporting
from bert_tf.runs.fine_tuning import FineTuner
from bert_tf.runs.settings import model_options
from bert_tf.tasks.multiple_choice import data, swag
from bert_tf.tasks.multiple_choice.model import MultipleChoiceTask
from bert_tf.tasks.multiple_choice.schema import multiple_choice_schema
from bert_tf.tasks.multiple_choice.settings import MultipleChoiceSettings
from bert_tf.text.sequences import REQUIRED_TOKENS

_FILES = {"train": "train.csv", "eval": "val.csv", "predict": "test.csv"}


def run_multiple_choice(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: MultipleChoiceSettings,
) -> dict[str, float | int] | None:
    """Returns the results of the evaluation, if there is one.

    In `output_dir` are then the records `train.tf_record`, `eval.tf_record` and
    `predict.tf_record`, checkpoints, `eval_results.txt`, and `test_results.tsv` with the
    probabilities of the choices.

    Args:
        config: of the model.
        strategy: where to compute.
        settings: see its fields.

    Raises:
        UserError: settings, files and checkpoint do not fit together.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """
    tokenizer = fine_tuning_settings.make_tokenizer(config, settings, REQUIRED_TOKENS)

    # Everything is read before anything is computed: what is wrong shows at once.
    sets = {
        name: swag.read_questions(
            os.path.join(settings.data_dir, _FILES[name]), labelled=name != "predict"
        )
        for name in fine_tuning_settings.needed_sets(strategy, settings)
    }
    schema = multiple_choice_schema(settings.max_seq_length)
    task = MultipleChoiceTask(config, **model_options(settings, strategy))

    metric = "eval_accuracy"
    with FineTuner(config, task, strategy, settings, schema, metric) as tuner:
        num_questions = {
            name: data.write_records(
                questions, tokenizer, settings.max_seq_length, tuner.record_file(name)
            )
            for name, questions in sets.items()
        }
        sets.clear()  # they are in the records now

        def predictions(name: str, batch_size: int) -> Columns:
            return join(tuner.predict(name, num_questions[name], batch_size))

        def evaluate() -> dict[str, float]:
            columns = predictions("eval", settings.eval_batch_size)
            right = np.argmax(columns["outputs"], axis=1) == columns["label_ids"]
            return {
                "eval_accuracy": float(np.mean(right)),
                **reporting.mean_losses(columns["per_example_loss"], settings.eval_batch_size),
            }

        def predict() -> None:
            outputs = predictions("predict", settings.predict_batch_size)["outputs"]
            reporting.write_probabilities(tuner.run.path("test_results.tsv"), outputs)

        return tuner.train_evaluate_predict(num_questions.get("train"), evaluate, predict)
