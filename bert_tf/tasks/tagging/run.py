"""Fine-tunes a tagger on CoNLL files, evaluates it and tags words (run_tagging.py)."""

import functools
import itertools
import os
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import Columns
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.label_file import LABELS_FILE, check_label
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.settings import model_options
from bert_tf.runs.folder import reporting
from bert_tf.runs.training.fine_tuning import FineTuner
from bert_tf.runs.training.fine_tuning_checks import learned_labels, make_tokenizer, needed_sets
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.tagging import conll, data
from bert_tf.tasks.tagging.conll import Sentence
from bert_tf.tasks.tagging.entities import entity_metrics
from bert_tf.tasks.tagging.head import check_feature_layers
from bert_tf.tasks.tagging.model import TaggingModel
from bert_tf.tasks.tagging.schema import tagging_schema
from bert_tf.tasks.tagging.settings import TaggingSettings

# Flag -> file in --data_dir that is read without the flag.
_FILES = {"train_file": "train.txt", "eval_file": "valid.txt", "predict_file": "test.txt"}


def run_tagging(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: TaggingSettings,
) -> dict[str, float | int] | None:
    """Fine-tunes a tagger, evaluates it and tags words, as the settings say.

    It writes to `output_dir`:
        train.tf_record, eval.tf_record, predict.tf_record: the windows of the sentences.
        checkpoints, and labels.txt: the tags in the order of the logits.
        eval_results.txt: the results of the evaluation.
        predictions.txt: the predicted tag of each word.
        test_results.txt: the scores of the predictions, if `predict_file` has tags.

    Returns:
        The results of the evaluation; None without one.

    Raises:
        UserError: settings, files and checkpoint do not fit together.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """
    tokenizer = make_tokenizer(config, settings, settings.init_checkpoint, settings.output_dir)
    # All files are read first, so that errors in them show before hours of training.
    sets: dict[str, list[Sentence]] = {}
    for name in needed_sets(strategy, settings):
        path, flag = _path(settings, f"{name}_file")
        sets[name] = conll.read_sentences(path, flag, tags_required=name != "predict")
    labels = _labels(settings, sets.get("train"))
    for name, sentences in sets.items():
        _check_tags(sentences, labels, *_path(settings, f"{name}_file"))
    schema = tagging_schema(settings.max_seq_length)
    layers = settings.feature_layers if settings.feature_based else None
    options = model_options(settings, strategy)
    if layers:
        check_feature_layers(layers, config.num_layer_outputs)
    sizes = (len(labels), layers, settings.lstm_size)
    build = functools.partial(TaggingModel, config, *sizes, **options)

    encoder = data.TaggingEncoder(
        tokenizer, settings.max_seq_length, labels, settings.document_context
    )
    with FineTuner(config, build, strategy, settings, schema, "f1", labels) as tuner:
        num_records = {
            name: write_records(tuner.record_file(name), data.documents(sentences), encoder)
            for name, sentences in sets.items()
        }
        sets.pop("train", None)  # frees memory: the records have it

        def tag(name: str, batch_size: int) -> tuple[list[list[str]], float]:
            chunks = tuner.predict(name, num_records[name], batch_size)
            return _tags_and_loss(chunks, sets[name], labels)

        def evaluate() -> dict[str, float]:
            return _scores(sets["eval"], *tag("eval", settings.eval_batch_size))

        def predict() -> None:
            tags, loss = tag("predict", settings.predict_batch_size)
            path = tuner.run.path("predictions.txt")
            logging.info("Writing predictions to: %s", path)
            conll.write_predictions(path, sets["predict"], tags)
            if sets["predict"][0].tags is not None:
                scores = _scores(sets["predict"], tags, loss)
                scores["global_step"] = tuner.global_step
                reporting.write_results(tuner.run.path("test_results.txt"), scores)

        return tuner.train_evaluate_predict(num_records.get("train"), evaluate, predict)


def _path(settings: TaggingSettings, flag: str) -> tuple[str, str]:
    """Returns the path of a file and the flag that names it, `flag` or --data_dir."""
    path = getattr(settings, flag)
    if path:
        return path, flag
    if not settings.data_dir:
        raise UserError(
            f"A CoNLL file is needed: name it with --{flag}, or name the folder that has it as"
            f" {_FILES[flag]} with --data_dir"
        )
    return os.path.join(settings.data_dir, _FILES[flag]), "data_dir"


def _labels(settings: TaggingSettings, training: list[Sentence] | None) -> list[str]:
    """Returns all tags in the order of the logits.

    These are the tags of the model in `output_dir` or `init_checkpoint`, if it is a trained tagger;
    else --labels; else the sorted tags of the training file.

    Args:
        training: the sentences to train on, if they have been read.
    """
    learned = learned_labels(settings)
    if learned is not None:
        if settings.labels and list(settings.labels) != learned:
            raise UserError(
                f"--labels={quoted(','.join(settings.labels))} must be the labels of the model in"
                f" --output_dir or --init_checkpoint, {listed(learned)} ({LABELS_FILE} in its"
                " folder); leave it out, or choose another model"
            )
        return learned
    if settings.labels:
        labels = list(settings.labels)
        if len(set(labels)) < len(labels) or not all(map(conll.is_tag, labels)):
            raise UserError(
                "--labels must list each tag once, O, B-TYPE or I-TYPE, separated by commas; got"
                f" {quoted(','.join(labels))}"
            )
        for label in labels:
            check_label(label, "--labels")
        return labels
    path, flag = _path(settings, "train_file")
    if training is None:
        if not tf.io.gfile.exists(path):
            file = os.path.join(settings.output_dir, LABELS_FILE)
            raise UserError(
                "The tags of the model must be known, from --labels, from the file that --do_train"
                f" writes ({file}) or from the training file (--{flag}: {path}); neither file"
                " exists. Give --labels"
            )
        training = conll.read_sentences(path, flag)
    labels = sorted({tag for sentence in training for tag in sentence.tags})
    if len(labels) == 1:
        raise UserError(
            f"--{flag}: {path} must have words with different tags; all tags are"
            f" {quoted(labels[0])}"
        )
    return labels


def _check_tags(sentences: list[Sentence], labels: Sequence[str], path: str, flag: str) -> None:
    """Checks that all tags of the sentences are among the labels."""
    found = {tag for sentence in sentences for tag in sentence.tags or ()}
    unknown = sorted(found - set(labels))
    if unknown:
        raise UserError(
            f"--{flag}: {path} has the tags {listed(unknown)}, which are not among the"
            f" model's: {listed(labels)}. Correct the file, or train a new model with all tags"
            " in --labels, in another --output_dir"
        )


def _tags_and_loss(
    chunks: Iterable[Columns], sentences: list[Sentence], labels: Sequence[str]
) -> tuple[list[list[str]], float]:
    """Returns the predicted tags of each sentence and the mean loss per word.

    Args:
        chunks: predictions for the records of the sentences.
        sentences: the sentences.
        labels: all tags in the order of the logits.
    """
    tags: list[str] = []
    loss = 0.0
    for columns in chunks:
        for predictions, losses in zip(columns["predictions"], columns["losses"], strict=True):
            tags += [labels[i] for i in predictions[predictions >= 0]]
            loss += float(np.sum(losses, dtype=np.float64))
    stream = iter(tags)
    grouped = [list(itertools.islice(stream, len(sentence.words))) for sentence in sentences]
    return grouped, loss / len(tags)


def _scores(sentences: list[Sentence], tags: list[list[str]], loss: float) -> dict[str, float]:
    """Returns the scores of predicted tags, under the names of the evaluation's results."""
    scores = entity_metrics([sentence.tags for sentence in sentences], tags)
    return {"eval_accuracy": scores.pop("accuracy"), "eval_loss": loss, **scores}
