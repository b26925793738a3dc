"""From SWAG's files to a model that chooses, its accuracy and choices: run_multiple_choice."""

import dataclasses
import os
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import fine_tuning, reporting
from bert_tf.configuration import BertConfig
from bert_tf.tasks.multiple_choice import data, swag
from bert_tf.tasks.multiple_choice.model import MultipleChoiceTask
from bert_tf.tasks.multiple_choice.schema import multiple_choice_schema
from bert_tf.whole_files import write_whole

_FILES = {"train": "train.csv", "eval": "val.csv", "predict": "test.csv"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(fine_tuning.EvaluationSettings):
    """What run_multiple_choice is told beyond `fine_tuning.Settings`; the fields are its flags."""

    data_dir: str


def run_multiple_choice(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    tuning: fine_tuning.Settings,
    settings: Settings,
    model_options: dict,
) -> dict[str, float | int] | None:
    """Returns the results of the evaluation, if there is one.

    In `output_dir` are then the records `train.tf_record`, `eval.tf_record` and
    `predict.tf_record`, checkpoints, `eval_results.txt`, and `test_results.tsv` with the
    probabilities of the choices.

    Args:
        config: of the model.
        strategy: where to compute.
        tuning: the flags that every fine-tuning program has.
        settings: the flags of this one.
        model_options: further arguments of `BertModel`.

    Raises:
        ValueError: settings, files and checkpoint do not fit together.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """
    tokenizer = fine_tuning.make_tokenizer(config, tuning, data.REQUIRED_TOKENS)

    # Everything is read before anything is computed: what is wrong shows at once.
    sets = {
        name: swag.read_questions(
            os.path.join(settings.data_dir, _FILES[name]), labelled=name != "predict"
        )
        for name in fine_tuning.needed_sets(strategy, tuning, settings)
    }
    schema = multiple_choice_schema(tuning.max_seq_length)
    task = MultipleChoiceTask(config, **model_options)

    with fine_tuning.FineTuner(config, task, strategy, tuning, schema, "eval_accuracy") as tuner:

        def output(name: str) -> str:
            return os.path.join(tuning.output_dir, name)

        num_questions = {name: len(questions) for name, questions in sets.items()}
        for name, questions in sets.items():
            path = output(f"{name}.tf_record")
            data.write_records(questions, tokenizer, tuning.max_seq_length, path)
        sets = {"eval": sets.get("eval", [])}  # the others are in the records now

        def predict(name: str, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
            return tuner.predict(output(f"{name}.tf_record"), num_questions[name], batch_size)

        def evaluate() -> dict[str, float]:
            rows = predict("eval", settings.eval_batch_size)
            return _scores(sets["eval"], rows, settings.eval_batch_size)

        if tuning.do_train:
            tuner.train(output("train.tf_record"), num_questions["train"], evaluate)
        results = None
        if settings.do_eval:
            logging.info("***** Running evaluation *****")
            results = tuner.write_results(evaluate())
        if settings.do_predict:
            logging.info("***** Running prediction*****")
            rows = predict("predict", settings.predict_batch_size)
            _write_probabilities(output("test_results.tsv"), rows)
    return results


def _scores(
    questions: list[swag.Question], rows: Iterable[dict[str, np.ndarray]], batch_size: int
) -> dict[str, float]:
    """Returns the results that run_classifier of the original has.

    Args:
        questions: with their labels.
        rows: the predictions for each.
        batch_size: of the evaluation. `loss` is the mean over batches, as the Estimator has it:
            each counts alike, the last and smaller one, too.
    """
    log_probs = np.stack([row["log_probs"] for row in rows])  # [questions, choices]
    labels = np.array([question.label for question in questions])
    losses = -log_probs[np.arange(len(labels)), labels]
    return {
        "eval_accuracy": float(np.mean(np.argmax(log_probs, axis=-1) == labels)),
        **reporting.mean_losses(losses, batch_size),
    }


def _write_probabilities(path: str, rows: Iterable[dict[str, np.ndarray]]) -> None:
    """Writes a line for each question: its choices' probabilities with tabs between them."""
    logging.info("Writing predictions to: %s", path)
    lines = ["\t".join(map(str, np.exp(row["log_probs"]))) for row in rows]
    write_whole(path, "".join(f"{line}\n" for line in lines))
