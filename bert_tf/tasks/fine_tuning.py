"""Runs a fine-tuning program: reads files, trains, evaluates, predicts, and writes the results."""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import read_as_hugging_face
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.tasks.cross_validation import Fold, cross_validate
from bert_tf.tasks.files import TaskFiles
from bert_tf.tasks.fine_tuner import FineTuner, Start, check_purposes
from bert_tf.tasks.splits import read_sets
from bert_tf.text.tokenizers import read_vocabulary


def run_fine_tuning(
    task: TaskFiles, config: BertConfig, strategy: tf.distribute.Strategy
) -> dict[str, float | int] | None:
    """Trains, evaluates and predicts, as the task's settings say; see `cross_validate` for --folds.

    It writes to `output_dir`: records (*.tf_record), checkpoints, the model's other files,
    eval_results.txt, and the task's predictions, tables and report. Returns the results of the
    final evaluation, or None without an evaluation.
    """
    if not getattr(task.settings, "folds", 0):
        results, _ = _run(task, config, strategy)
        _log_end(task, results)
        return results
    own = task.model_config(config)
    task.check(own, strategy)  # before the examples are read
    return cross_validate(task, own, lambda fold: _run(fold, config, strategy), strategy)


def _run(task: TaskFiles, config: BertConfig, strategy: tf.distribute.Strategy) -> Fold:
    settings = task.settings
    config = task.model_config(config)
    task.check(config, strategy)
    purposes = _purposes(task)
    check_purposes(task, purposes, strategy)
    tokenizer = make_tokenizer(config, settings, settings.init_checkpoint, settings.output_dir)
    # Read all files first, to report errors in them before hours of training.
    sets = read_sets(task, purposes)
    hugging_face = read_as_hugging_face(settings.vocab_file, settings.init_checkpoint)
    vocabulary = read_vocabulary(settings.vocab_file, hugging_face)
    start = Start(config=config, tokenizer=tokenizer, vocabulary=vocabulary)
    results, evaluated = None, []
    with FineTuner(task, start, strategy, sets) as tuner:
        tuner.write_records(task.row)
        if settings.do_train:
            tuner.train()
        if settings.do_eval:
            logging.info("***** Running evaluation *****")
            results = _write_results(tuner, tuner.evaluate())
            evaluated = tuner.evaluated
            if tuner.run.owns_results:
                for example_set, found in evaluated:
                    task.write_review(example_set, found)
        if settings.do_predict:
            logging.info(task.prediction_heading)
            scores = None
            for example_set, outputs in tuner.predict():
                found = task.write_predictions(example_set, outputs, tuner.global_step)
                scores = found or scores
            results = _write_results(tuner, scores) if scores else results
    return results, evaluated


def _write_results(tuner: FineTuner, results: Mapping[str, float]) -> dict[str, float | int]:
    results = tuner.run.report(results, tuner.global_step)
    tuner.run.write_results(results)
    return results


def _log_end(task: TaskFiles, results: Mapping[str, float | int] | None) -> None:
    """Logs the best metric, and which files to read."""
    settings = task.settings
    names = ["eval_results.txt", "errors.tsv"] if results else []
    names += ["predictions.tsv"] if settings.do_predict else []
    paths = [path for path in map(task.path, names) if tf.io.gfile.exists(path)]
    value = (results or {}).get(task.best_metric)
    figure = "" if value is None else f"{task.best_metric} = {value:.4g}. "
    if paths:
        logging.info("%sTo read: %s", figure, ", ".join(paths))


def _purposes(task: TaskFiles) -> list[str]:
    settings = task.settings
    wanted = {
        "train": settings.do_train,
        "eval": settings.do_eval or settings.evaluate_every_steps,
        "predict": settings.do_predict,
    }
    purposes = [purpose for purpose in wanted if wanted[purpose]]
    if not purposes:
        names = [f.name for f in dataclasses.fields(settings)]
        *first, last = (f"--{x}" for x in ("do_train", "do_eval", "do_predict") if x in names)
        raise UserError(f"At least one of {', '.join(first)} and {last} must be given.")
    return purposes
