"""Runs a fine-tuning program: reads files, trains, evaluates, predicts, and writes the results.

With --folds, a model trained on all other folds is evaluated on each fold. Each fold is a separate
run in OUTPUT_DIR/fold-N. A stopped fold resumes. A finished fold is skipped: its results and
predictions are in `fold.npz`.
"""

import copy
import dataclasses
import gc
import hashlib
import io
import json
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine import distribution
from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.paths import names_in
from bert_tf.files.whole_files import read_bytes, read_json, write_whole
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import read_as_hugging_face
from bert_tf.runs.flags.setting_fields import flags_of
from bert_tf.runs.folder import reporting
from bert_tf.runs.results.tables import KeptRows
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.runs.training.trainer import model_options
from bert_tf.tasks.fine_tuner import FineTuner, check_purposes, training_schedule
from bert_tf.tasks.long_text import windows
from bert_tf.tasks.splits import divide, read_sets
from bert_tf.tasks.task import Evaluated, ExampleSet, Start, TaskFiles
from bert_tf.text.tokenizers import read_vocabulary

_NOTE = "folds.json"  # in --output_dir: what the folds' results depend on
_FINISHED = "fold.npz"  # in the folder of a fold
Results = dict[str, float | int]
# Settings that don't change the results; --data_dir and --vocab_file are compared by content.
_NO_MATTER = frozenset(
    "output_dir data_dir tfds_data_dir vocab_file labels save_checkpoints_steps keep_checkpoint_max"
    " keep_checkpoint_every_steps profile_steps hang_minutes iterations_per_loop"
    " predict_batch_size".split()
)
# The results of a run, and its evaluated examples.
_Found = tuple[Results | None, Sequence[tuple[ExampleSet, Evaluated]]]
_Fold = tuple[Results, dict[str, np.ndarray]]  # results, and the columns of the predictions


def run_fine_tuning(
    task: TaskFiles, config: BertConfig, strategy: tf.distribute.Strategy
) -> Results | None:
    """Trains, evaluates and predicts, as the task's settings say; see `cross_validate` for --folds.

    It writes to `output_dir`: records (*.tf_record), checkpoints, the model's other files,
    eval_results.txt, and the task's predictions, tables and report. Returns the results of the
    final evaluation, or None without an evaluation.
    """
    if getattr(task.settings, "folds", 0):
        return cross_validate(task, config, strategy)
    results, _ = _run(task, config, strategy)
    _log_end(task, results)
    return results


def _run(task: TaskFiles, config: BertConfig, strategy: tf.distribute.Strategy) -> _Found:
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
    start = Start(config, tokenizer, vocabulary)
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


def _write_results(tuner: FineTuner, results: Mapping[str, float]) -> Results:
    results = tuner.run.report(results, tuner.global_step)
    tuner.run.write_results(results)
    return results


def _log_end(task: TaskFiles, results: Mapping[str, float | int] | None) -> None:
    """Logs `best_metric`, and which files to read."""
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


def cross_validate(
    task: TaskFiles, config: BertConfig, strategy: tf.distribute.Strategy
) -> Results:
    """Trains and evaluates once for each fold; returns the mean and the spread of each metric.

    The spread, `METRIC_std`, is the standard deviation over the folds, with n - 1. Means and
    spreads are logged and written to eval_results.txt. The tables of the evaluation cover all
    folds: the prediction for an example is from the model that was not trained on it.
    """
    settings, own_config = task.settings, task.model_config(config)
    task.check(own_config, strategy)  # before the examples are read
    (whole,) = task.read_sets("train")
    folds = divide([task.fold_key(example) for example in whole.examples], settings.folds)
    if (dev_set := task.dev_set()) is not None:
        logging.info("--folds: the dev set, %s, is not read", dev_set)
    for number, held in enumerate(folds, 1):  # all folds, before hours of training
        try:
            _check_fold(task, _fold_sets(task, whole, held))
        except UserError as error:
            raise UserError(f"Fold {number} of --folds={len(folds)}: {error}") from error
    chief = distribution.is_chief(strategy)
    storage.make_output_dir(settings.output_dir, "output_dir")
    _check_note(settings.output_dir, *_note(task, own_config, strategy, whole.examples), chief)
    found = []
    for number, held in enumerate(folds, 1):
        path = task.path(os.path.join(f"fold-{number}", _FINISHED))
        if (fold := _finished(path)) is None:
            logging.info("***** Fold %d of %d *****", number, len(folds))
            fold = _run_fold(task, config, strategy, whole, number, held)
            if chief:
                _finish(path, fold)
            gc.collect()  # frees the model before the next one is built
        found.append(fold)
    results = _mean_and_spread([results for results, _ in found])
    if chief:
        reporting.log_results(results)
        reporting.write_results(task.path("eval_results.txt"), results)
        _write_review(task, whole, folds, [columns for _, columns in found])
    return results


def _run_fold(
    task: TaskFiles,
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    whole: ExampleSet,
    number: int,
    held: Sequence[int],
) -> _Fold:
    own = copy.copy(task)
    folder = task.path(f"fold-{number}")
    own.settings = dataclasses.replace(task.settings, folds=0, output_dir=folder)
    sets = _fold_sets(own, whole, held)
    own.read_sets = lambda purpose: [sets[purpose]]
    results, ((_, evaluated),) = _run(own, config, strategy)
    return results or {}, {name: np.asarray(x) for name, x in evaluated.found.items()}


def _fold_sets(task: TaskFiles, whole: ExampleSet, held: Sequence[int]) -> dict[str, ExampleSet]:
    rest = sorted(set(range(len(whole.examples))) - set(held))
    numbers = {"train": rest, "eval": held}
    return {purpose: task.subset(whole, purpose, numbers[purpose]) for purpose in numbers}


def _check_fold(task: TaskFiles, sets: dict[str, ExampleSet]) -> None:
    by_purpose = {purpose: [example_set] for purpose, example_set in sets.items()}
    task.prepare(by_purpose, task.labels(by_purpose))
    if not windows(task.settings)[0]:  # windows make more records than examples
        training_schedule(task.settings, len(sets["train"].examples))


def _finish(path: str, fold: _Fold) -> None:
    results, columns = fold
    content = io.BytesIO()
    np.savez(content, results=np.array(json.dumps(results)), **columns)
    write_whole(path, content.getvalue())


def _finished(path: str) -> _Fold | None:
    if not tf.io.gfile.exists(path):
        return None
    with np.load(io.BytesIO(read_bytes(path, path))) as file:
        columns = {name: file[name] for name in file.files}
    results = json.loads(columns.pop("results").item())
    logging.info("%s is finished", os.path.dirname(path))
    return results, columns


def _mean_and_spread(folds: Sequence[Results]) -> Results:
    results: Results = {}
    for name in folds[0]:
        if name not in reporting.COUNTS:
            values = [float(fold[name]) for fold in folds]
            results[name] = statistics.fmean(values)
            results[f"{name}_std"] = statistics.stdev(values)
        elif name == "eval_groups":
            results[name] = sum(int(fold[name]) for fold in folds)
    return results


def _write_review(
    task: TaskFiles,
    whole: ExampleSet,
    folds: Sequence[Sequence[int]],
    columns: Sequence[dict[str, np.ndarray]],
) -> None:
    order = np.argsort(np.concatenate([np.array(held) for held in folds]))
    everything = ExampleSet("eval", ())
    found = {name: np.concatenate([fold[name] for fold in columns])[order] for name in columns[0]}
    rows = (task.row(x, "eval", i) for i, x in enumerate(whole.examples))
    everything.rows = KeptRows(rows)
    task.write_review(everything, Evaluated({}, found))
    everything.rows.close()


def _note(
    task: TaskFiles, config: BertConfig, strategy: tf.distribute.Strategy, examples: Sequence[Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the values that the folds' results depend on, and the flags' defaults, by name."""
    settings = task.settings
    note: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for one in (settings, *task.other_settings):
        names = [field.name for field in flags_of(type(one)) if field.name not in _NO_MATTER]
        note |= {f"--{name}": getattr(one, name) for name in names}
        defaults |= {f"--{name}": type(one).__dataclass_fields__[name].default for name in names}
    note |= {f"--{name}": value for name, value in model_options(settings, strategy).items()}
    note["--labels"] = task.labels({})
    note["--bert_config_file"] = config.to_dict()
    hugging_face = read_as_hugging_face(settings.vocab_file, settings.init_checkpoint)
    vocabulary = read_vocabulary(settings.vocab_file, hugging_face)
    note["--vocab_file"] = _digest({name: str(text) for name, text in vocabulary.items()})
    note["the number of replicas"] = strategy.num_replicas_in_sync
    note["the training examples"] = _digest([_content(example) for example in examples])
    return json.loads(json.dumps(note)), defaults


def _content(example: Any) -> dict[str, Any]:
    return dataclasses.asdict(example) if dataclasses.is_dataclass(example) else vars(example)


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, default=str).encode()).hexdigest()


def _check_note(
    output_dir: str, note: dict[str, Any], defaults: dict[str, Any], chief: bool
) -> None:
    # Notes of earlier releases lack newer flags: those runs had the flags' defaults.
    path = os.path.join(output_dir, _NOTE)
    begun = [name for name in names_in(output_dir) if re.fullmatch(r"fold-\d+", name)]
    if not any(
        tf.io.gfile.exists(os.path.join(output_dir, name, file))
        for name in begun
        for file in (_FINISHED, "checkpoint")
    ):
        if chief:  # replaces the note of a run that failed before its first step
            write_whole(path, json.dumps(note, indent=1) + "\n")
        return
    noted = read_json(path, path, "it must be a file that a run with --folds wrote")
    changed = [name for name in note if noted.get(name, defaults.get(name)) != note[name]]
    if changed:
        raise UserError(
            f"--output_dir={output_dir} has folds of a run that differs in {', '.join(changed)};"
            " their results must not be mixed. Give the same settings, or choose a different"
            " --output_dir"
        )
