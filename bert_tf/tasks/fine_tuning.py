"""Runs fine-tuning: the same steps for every task."""

import dataclasses

import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import check_prediction
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.tasks.cross_validation import cross_validate
from bert_tf.tasks.dev_split import read_sets
from bert_tf.tasks.fine_tuner import FineTuner
from bert_tf.tasks.in_memory import InMemory
from bert_tf.tasks.task import FineTuningTask


def run_fine_tuning(
    task: FineTuningTask,
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    memory: InMemory | None = None,
) -> dict[str, float | int] | None:
    """Trains, evaluates and predicts, as the task's settings say; with --folds several times.

    It writes to `output_dir`:
        train.tf_record, and at its end eval.tf_record and predict.tf_record: the examples.
        checkpoints, and the model's other files: configuration, vocabulary, labels.txt.
        eval_results.txt: the results of the evaluation.
        the task's predictions, and tables and a report of the evaluated examples.

    With `memory`, the model to start from and the examples are in memory: settings that name files
    with them are ignored.

    Returns the results of the final evaluation; None without one. With --folds see
    `cross_validate`. Raises what `FineTuner` raises.
    """
    if not getattr(task.settings, "folds", 0):
        return _run(task, config, strategy, memory)
    own = task.model_config(config)
    task.check(own, strategy)  # before the examples are read
    return cross_validate(task, own, lambda fold: _run(fold, config, strategy, None), strategy)


def _run(
    task: FineTuningTask,
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    memory: InMemory | None,
) -> dict[str, float | int] | None:
    settings = task.settings
    config = task.model_config(config)
    task.check(config, strategy)
    purposes = _purposes(task, strategy, memory)
    if memory:
        tokenizer = memory.tokenizer
    else:
        tokenizer = make_tokenizer(config, settings, settings.init_checkpoint, settings.output_dir)
    # Read all files first, to report errors in them before hours of training.
    sets = read_sets(task, purposes, memory.sets if memory else None)
    labels = task.labels(sets)
    results = None
    with FineTuner(task, config, strategy, tokenizer, sets, labels, memory) as tuner:
        tuner.write_records()
        if settings.do_train:
            tuner.train()
        if settings.do_eval:
            logging.info("***** Running evaluation *****")
            results = tuner.write_results(tuner.evaluate())
            tuner.write_review()
        if settings.do_predict:
            logging.info(task.prediction_heading)
            found = tuner.write_predictions()
            results = tuner.write_results(found) if found else results
    return results


def _purposes(
    task: FineTuningTask, strategy: tf.distribute.Strategy, memory: InMemory | None
) -> list[str]:
    """Returns the run's purposes; raises UserError if there are none or a batch size is wrong."""
    settings = task.settings
    wanted = {
        "train": settings.do_train,
        "eval": settings.do_eval or settings.evaluate_every_steps,
        "predict": settings.do_predict,
    }
    if memory:
        wanted |= memory.wanted(settings)
    purposes = [purpose for purpose in wanted if wanted[purpose]]
    if not purposes:
        names = [f.name for f in dataclasses.fields(settings)]
        *first, last = (f"--{x}" for x in ("do_train", "do_eval", "do_predict") if x in names)
        raise UserError(f"At least one of {', '.join(first)} and {last} must be given.")
    if getattr(settings, "temperature_scaling", False) and "eval" not in purposes:
        raise UserError(
            "--temperature_scaling is fitted on the dev set: add --do_eval, or leave"
            " --temperature_scaling out"
        )
    for purpose in purposes:
        if flag := task.batch_flags.get(purpose):
            check_prediction(strategy, getattr(settings, flag), flag)
    return purposes
