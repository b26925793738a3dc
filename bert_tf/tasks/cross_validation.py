"""Cross-validation (--folds): trains on all folds but one and evaluates on that, for each fold.

Each fold is a run of its own in OUTPUT_DIR/fold-N. A stopped one resumes, and a finished one is not
repeated: it leaves `fold.npz`, with its results and its predictions.
"""

import copy
import dataclasses
import gc
import hashlib
import io
import json
import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine import distribution
from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.whole_files import read_bytes, read_json, write_whole
from bert_tf.runs.flags.setting_fields import Group, flags_of, rule_of
from bert_tf.runs.folder import reporting
from bert_tf.runs.results.kept_rows import KeptRows
from bert_tf.tasks.folds import FoldKey, divide
from bert_tf.tasks.task import ExampleSet, FineTuningTask

_NOTE = "folds.json"  # in --output_dir: what the folds are made of
_FINISHED = "fold.npz"  # in the folder of a fold
Results = dict[str, float | int]
_Fold = tuple[Results, dict[str, np.ndarray]]  # results, and the columns of the predictions


def cross_validate(
    task: FineTuningTask,
    run: Callable[[FineTuningTask], Results | None],
    strategy: tf.distribute.Strategy,
) -> Results:
    """Trains and evaluates once for each fold; returns the mean and the spread of each metric.

    The spread, `METRIC_std`, is the standard deviation of the folds' results, with n - 1. Both go
    to the log and to eval_results.txt. The review of an evaluation, with the prediction for each
    example by the model that was not trained on it, is of all folds together.

    Args:
        task: its training examples are divided.
        run: runs a task with the settings of a fold.

    Raises:
        UserError: there are too few examples, or --output_dir has the folds of another run.
    """
    settings = task.settings
    (whole,) = task.read_sets("train")
    keys = [task.fold_key(example) for example in whole.examples]
    folds = divide(keys, settings.folds)
    if (dev_set := task.dev_set()) is not None:
        logging.info("--folds: the dev set, %s, is not read", dev_set)
    chief = distribution.is_chief(strategy)
    storage.make_output_dir(settings.output_dir, "output_dir")
    _check_note(settings, keys, chief)
    found = []
    for number, held in enumerate(folds, 1):
        path = task.path(os.path.join(f"fold-{number}", _FINISHED))
        if (fold := _finished(path)) is None:
            logging.info("***** Fold %d of %d *****", number, len(folds))
            fold = _run_fold(task, run, whole, number, held)
            if chief:
                _finish(path, fold)
            gc.collect()  # the fold's model, before the next one's is made
        found.append(fold)
    results = _mean_and_spread([results for results, _ in found])
    if chief:
        reporting.log_results(results)
        reporting.write_results(task.path("eval_results.txt"), results)
        _write_review(task, whole, folds, [columns for _, columns in found])
    return results


def _run_fold(
    task: FineTuningTask,
    run: Callable[[FineTuningTask], Results | None],
    whole: ExampleSet,
    number: int,
    held: Sequence[int],
) -> _Fold:
    own = copy.copy(task)
    folder = task.path(f"fold-{number}")
    own.settings = dataclasses.replace(task.settings, folds=0, output_dir=folder)
    rest = sorted(set(range(len(whole.examples))) - set(held))
    sets = {"train": own.subset(whole, "train", rest), "eval": own.subset(whole, "eval", held)}
    own.read_sets = lambda purpose: [sets[purpose]]
    results = run(own) or {}
    return results, {name: np.asarray(x) for name, x in sets["eval"].answers.items()}


def _finish(path: str, fold: _Fold) -> None:
    results, columns = fold
    content = io.BytesIO()
    np.savez(content, results=np.array(json.dumps(results)), **columns)
    write_whole(path, content.getvalue())


def _finished(path: str) -> _Fold | None:
    """Returns the results and predictions of a fold that is finished; None if it is not."""
    if not tf.io.gfile.exists(path):
        return None
    try:
        with np.load(io.BytesIO(read_bytes(path, path))) as file:
            columns = {name: file[name] for name in file.files}
        results = json.loads(columns.pop("results").item())
    except (ValueError, KeyError, EOFError, OSError) as error:
        raise UserError(
            f"{path} must be as a finished fold has written it ({error}); delete it to evaluate the"
            " fold again"
        ) from error
    logging.info("%s is finished", os.path.dirname(path))
    return results, columns


def _mean_and_spread(folds: Sequence[Results]) -> Results:
    results: Results = {}
    for name in folds[0]:
        if name not in reporting.COUNTS:
            values = [float(fold[name]) for fold in folds]
            results[name] = statistics.fmean(values)
            results[f"{name}_std"] = statistics.stdev(values)
    return results


def _write_review(
    task: FineTuningTask,
    whole: ExampleSet,
    folds: Sequence[Sequence[int]],
    columns: Sequence[dict[str, np.ndarray]],
) -> None:
    """Writes the review of the predictions of all folds, in the order of the examples."""
    order = np.argsort(np.concatenate([np.array(held) for held in folds]))
    everything = ExampleSet("eval", ())
    everything.answers = {
        name: np.concatenate([fold[name] for fold in columns])[order] for name in columns[0]
    }
    rows = (task.row(x, "eval", i) for i, x in enumerate(whole.examples))
    everything.rows = KeptRows(rows)
    task.write_review(everything)
    everything.rows.close()


def _check_note(settings: Any, keys: Sequence[FoldKey], chief: bool) -> None:
    """Notes what the folds are made of; checks that finished ones are made of the same."""
    kinds = (Group.DATA, Group.MODEL, Group.TRAINING)
    fields = [field for field in flags_of(type(settings)) if rule_of(field).group in kinds]
    note = {f"--{x.name}": getattr(settings, x.name) for x in fields if x.name != "data_dir"}
    note["--folds"] = settings.folds
    text = json.dumps(keys, ensure_ascii=True)
    note["the training examples"] = hashlib.sha256(text.encode()).hexdigest()
    note = json.loads(json.dumps(note))
    path = os.path.join(settings.output_dir, _NOTE)
    if tf.io.gfile.exists(path):
        noted = read_json(path, path, "it must be as a run with --folds has written it")
        changed = [name for name in note if noted.get(name) != note[name]]
        if changed:
            raise UserError(
                f"--output_dir={settings.output_dir} has folds of a run that differs in"
                f" {', '.join(changed)}; their results must not be mixed. Give what it had, or"
                " choose another --output_dir"
            )
    elif chief:
        write_whole(path, json.dumps(note, indent=1) + "\n")
