"""From CoNLL files to a tagger, its scores and its tags: the one call of run_tagging."""

import itertools
import os
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import Columns
from bert_tf.errors import UserError
from bert_tf.files.label_file import LABELS_FILE
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import fine_tuning_checks as fine_tuning_settings
from bert_tf.runs import reporting
from bert_tf.runs.fine_tuning import FineTuner
from bert_tf.runs.settings import model_options
from bert_tf.tasks.tagging import conll, data
from bert_tf.tasks.tagging.conll import Sentence
from bert_tf.tasks.tagging.entities import entity_metrics
from bert_tf.tasks.tagging.model import TaggingTask
from bert_tf.tasks.tagging.schema import tagging_schema
from bert_tf.tasks.tagging.settings import TaggingSettings

_FILES = {"train_file": "train.txt", "eval_file": "valid.txt", "predict_file": "test.txt"}


def run_tagging(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: TaggingSettings,
) -> dict[str, float | int] | None:
    """Returns the results of the evaluation, if there is one.

    In `output_dir` are then the records `train.tf_record`, `eval.tf_record` and
    `predict.tf_record`, checkpoints, `labels.txt` with the tags in the order of the logits,
    `eval_results.txt`, `predictions.txt` with the predicted tag of each word and, where the right
    ones are known, `test_results.txt` with their scores.

    Args:
        config: of the model.
        strategy: where to compute.
        settings: see its fields.

    Raises:
        UserError: settings, files and checkpoint do not fit together.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """
    tokenizer = fine_tuning_settings.make_tokenizer(config, settings, data.REQUIRED_TOKENS)

    # Everything is read before anything is computed: what is wrong shows at once.
    sets: dict[str, list[Sentence]] = {}
    for name in fine_tuning_settings.needed_sets(strategy, settings):
        path, flag = _path(settings, f"{name}_file")
        sets[name] = conll.read_sentences(path, flag, tags_required=name != "predict")
    labels = _labels(settings, sets.get("train"))
    for name, sentences in sets.items():
        _check_tags(sentences, labels, *_path(settings, f"{name}_file"))
    schema = tagging_schema(settings.max_seq_length)
    layers = settings.feature_layers if settings.feature_based else None
    options = model_options(settings, strategy)
    task = TaggingTask(config, len(labels), layers, lstm_size=settings.lstm_size, **options)

    with FineTuner(config, task, strategy, settings, schema, "f1", labels) as tuner:
        num_examples = {
            name: data.write_records(
                sentences,
                labels,
                tokenizer,
                settings.max_seq_length,
                settings.document_context,
                tuner.record_file(name),
            )
            for name, sentences in sets.items()
        }
        sets.pop("train", None)  # they are in the records now

        def tag(name: str, batch_size: int) -> tuple[list[list[str]], float]:
            windows = tuner.predict(name, num_examples[name], batch_size)
            return _tags_and_loss(windows, sets[name], labels)

        def evaluate() -> dict[str, float]:
            return _scores(sets["eval"], *tag("eval", settings.eval_batch_size))

        def predict() -> None:
            tags, loss = tag("predict", settings.predict_batch_size)
            path = os.path.join(settings.output_dir, "predictions.txt")
            logging.info("Writing predictions to: %s", path)
            conll.write_predictions(path, sets["predict"], tags)
            if sets["predict"][0].tags is not None:
                scores = _scores(sets["predict"], tags, loss)
                scores["global_step"] = tuner.global_step
                reporting.write_results(tuner.run.path("test_results.txt"), scores)

        return tuner.train_evaluate_predict(num_examples.get("train"), evaluate, predict)


def _path(settings: TaggingSettings, flag: str) -> tuple[str, str]:
    """Returns a file's path and the flag that names it."""
    path = getattr(settings, flag)
    if path:
        return path, flag
    if not settings.data_dir:
        raise UserError(
            f"A CoNLL file is needed: name it by --{flag}, or its folder, where it is called"
            f" {_FILES[flag]}, by --data_dir"
        )
    return os.path.join(settings.data_dir, _FILES[flag]), "data_dir"


def _labels(settings: TaggingSettings, training: list[Sentence] | None) -> list[str]:
    """Returns the tags in the order of the logits.

    They are those that the model in `output_dir` has been trained with, else --labels, else the
    tags of the training file in the order of the alphabet.
    """
    learned = fine_tuning_settings.learned_labels(settings)
    if learned is not None:
        if settings.labels and list(settings.labels) != learned:
            raise UserError(
                f"--labels={','.join(settings.labels)} must be those that the model in --output_dir"
                f" or --init_checkpoint was trained with, {','.join(learned)} ({LABELS_FILE} beside"
                " it); leave it out, or choose another model"
            )
        return learned
    if settings.labels:
        labels = list(settings.labels)
        if len(set(labels)) < len(labels) or not all(map(conll.is_tag, labels)):
            raise UserError(
                "--labels lists each tag once, O, B-TYPE or I-TYPE, with commas between them; got"
                f" {','.join(labels)}"
            )
        return labels
    path, flag = _path(settings, "train_file")
    if training is None:
        if not tf.io.gfile.exists(path):
            file = os.path.join(settings.output_dir, LABELS_FILE)
            raise UserError(
                f"The tags of the model must be known: {file}, which --do_train writes, and the"
                f" training file (--{flag}: {path}) are missing. List them by --labels"
            )
        training = conll.read_sentences(path, flag)
    labels = sorted({tag for sentence in training for tag in sentence.tags})
    if len(labels) == 1:
        raise UserError(
            f"--{flag}: {path} must have words of different tags, and all are {labels[0]}; there"
            " is nothing to learn from it"
        )
    return labels


def _check_tags(sentences: list[Sentence], labels: Sequence[str], path: str, flag: str) -> None:
    found = {tag for sentence in sentences for tag in sentence.tags or ()}
    unknown = sorted(found - set(labels))
    if unknown:
        raise UserError(
            f"--{flag}: {path} has the tags {', '.join(unknown)}, which are not among the"
            f" model's: {', '.join(labels)}. Mend the file, or train a model anew, in an"
            " --output_dir of its own, that is told all of them by --labels"
        )


def _tags_and_loss(
    windows: Iterable[Columns], sentences: list[Sentence], labels: Sequence[str]
) -> tuple[list[list[str]], float]:
    """Returns the tags of each sentence and the mean loss of a word.

    Args:
        windows: the predictions for the records of the sentences.
        sentences: what the records were made of.
        labels: the tags in the order of the logits.
    """
    tags: list[str] = []
    loss = 0.0
    for columns in windows:
        for predictions, losses in zip(columns["predictions"], columns["losses"], strict=True):
            tags += [labels[i] for i in predictions[predictions >= 0]]
            loss += float(np.sum(losses, dtype=np.float64))
    stream = iter(tags)
    grouped = [list(itertools.islice(stream, len(sentence.words))) for sentence in sentences]
    return grouped, loss / len(tags)


def _scores(sentences: list[Sentence], tags: list[list[str]], loss: float) -> dict[str, float]:
    scores = entity_metrics([sentence.tags for sentence in sentences], tags)
    return {"eval_accuracy": scores.pop("accuracy"), "eval_loss": loss, **scores}
