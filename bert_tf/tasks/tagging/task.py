"""Tagging as a task of fine-tuning (run_tagging.py)."""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.label_file import LABELS_FILE, check_label
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.runs.results.review import EVALUATED
from bert_tf.runs.training.fine_tuning_checks import learned_labels
from bert_tf.tasks.class_weights import choose_weights
from bert_tf.tasks.tagging import conll, data, review
from bert_tf.tasks.tagging.conll import Sentence
from bert_tf.tasks.tagging.entities import bioes_tags, entity_metrics
from bert_tf.tasks.tagging.head import check_feature_layers
from bert_tf.tasks.tagging.model import TaggingModel
from bert_tf.tasks.tagging.settings import TaggingSettings
from bert_tf.tasks.task import ExampleSet, FineTuningTask, PredictionColumns
from bert_tf.text.tokenizers import Tokenizer

# --tag_scheme -> the letters of tags beside O.
_LETTERS = {"iob": "BI", "bioes": "BIES"}
# Flag -> file in --data_dir that is read without the flag.
_FILES = {"train_file": "train.txt", "eval_file": "valid.txt", "predict_file": "test.txt"}


@dataclasses.dataclass(eq=False, kw_only=True)
class SentenceSet(ExampleSet):
    """The documents of a CoNLL file, and their sentences, whose words the records tag in order."""

    sentences: list[Sentence]


class TaggingTask(FineTuningTask):
    """Gives each word of a sentence a tag.

    The predicted tag of each word goes to predictions.txt, and each sentence with its tags to
    predictions.tsv. If the predicted file has tags, the scores of the predictions go to
    test_results.txt, test_report.txt and test_errors.tsv.
    """

    best_metric = "f1"
    _class_weights: Mapping[str, float] | None = None  # if the training examples have weights

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Checks that BERT has the layers of --feature_based."""
        if self.settings.feature_based:
            check_feature_layers(self.settings.feature_layers, config.num_layer_outputs)

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        path, flag = _file(self.settings, purpose)
        sentences = _sentences(self.settings, path, flag, tags_required=purpose != "predict")
        return [SentenceSet(purpose, data.documents(sentences), sentences=sentences)]

    def dev_set(self) -> str | None:
        if not self.settings.eval_file and not self.settings.data_dir:
            return None
        path, _ = _file(self.settings, "eval")
        return path if self.settings.eval_file or tf.io.gfile.exists(path) else None

    def key(self, example: list[Sentence]) -> tuple[None, str]:
        return None, "\n".join(" ".join(sentence.words) for sentence in example)

    def subset(self, whole: SentenceSet, purpose: str, numbers: Sequence[int]) -> SentenceSet:
        documents = [whole.examples[i] for i in numbers]
        sentences = [sentence for document in documents for sentence in document]
        return SentenceSet(purpose, documents, sentences=sentences)

    def labels(self, sets: Mapping[str, Sequence[SentenceSet]]) -> list[str]:
        training = sets["train"][0].sentences if "train" in sets else None
        labels = _choose_labels(self.settings, training)
        for purpose, (found,) in sets.items():
            if purpose == "eval" and self.settings.dev_fraction:
                purpose = "train"  # its file has the examples
            unknown = sorted(_tags(found.sentences) - set(labels))
            path, flag = _file(self.settings, purpose)
            letters = _LETTERS[self.settings.tag_scheme]
            others = [label for label in labels if not conll.is_tag(label, letters)]
            if others and found.sentences[0].tags is not None:
                raise UserError(
                    f"--{flag}: {path} has tags, which are IOB1 or IOB2; the model's include"
                    f" {listed(others)}. run_tagging trains and scores only models of IOB1 and IOB2"
                    " tags, or of BIOES with --tag_scheme=bioes: leave the tags out of the file,"
                    " and use --do_predict"
                )
            if unknown:
                made = "" if self.settings.tag_scheme == "iob" else "Leave out --tag_scheme, c"
                raise UserError(
                    f"--{flag}: {path} has the tags {listed(unknown)}, which are not among the"
                    f" model's: {listed(labels)}. {made or 'C'}orrect the file, or train a new"
                    " model with all tags in --labels, in another --output_dir"
                )
        if training:
            _different(sorted(_tags(training)), *_file(self.settings, "train"))
        return labels

    def prepare(self, sets: Mapping[str, Sequence[SentenceSet]], labels: Sequence[str]) -> None:
        given = self.settings.class_weights
        sentences = [sentence for found in sets.get("train", ()) for sentence in found.sentences]
        if given:
            training = [tag for sentence in sentences for tag in sentence.tags]
            self._class_weights = choose_weights(given, labels, training)
        elif any(sentence.weight is not None for sentence in sentences):
            self._class_weights = {}
        if self._class_weights is not None and sentences:
            if not any(data.word_weights(sentences, self._class_weights)):
                raise UserError(
                    "The weights of the words to train on must have a sum above 0; all are 0."
                    " Change --class_weights, or the weights of the sentences"
                )

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: Sequence[str]
    ) -> data.TaggingEncoder:
        settings = self.settings
        windows = settings.document_context, settings.window_stride
        weights = self._class_weights if example_set.name == "train" else None
        return data.TaggingEncoder(tokenizer, settings.max_seq_length, labels, *windows, weights)

    def build(self, config: BertConfig, labels: Sequence[str], **options) -> TaggingModel:
        layers = self.settings.feature_layers if self.settings.feature_based else None
        return TaggingModel(config, len(labels), layers, self.settings.lstm_size, **options)

    def evaluate(
        self, example_set: SentenceSet, predictions: PredictionColumns
    ) -> dict[str, float]:
        tags, losses, loss = _tags_and_losses(example_set, predictions)
        example_set.answers = tags, losses
        sentences = example_set.sentences
        weights = data.word_weights(sentences, {})
        if any(weight != 1.0 for weight in weights):
            if not any(weights):
                raise UserError(
                    "The weights of the sentences to evaluate must have a sum above 0; all are 0"
                )
            loss = float(np.average(losses, weights=weights))
        return _scores(sentences, tags, loss)

    def write_review(self, example_set: SentenceSet) -> None:
        sentences, found = example_set.sentences, example_set.answers
        review.write_tables(self.settings.output_dir, EVALUATED, sentences, *found)

    def write_predictions(self, example_set: SentenceSet, predictions: PredictionColumns) -> None:
        tags, losses, loss = _tags_and_losses(example_set, predictions)
        path = self.path("predictions.txt")
        logging.info("Writing predictions to: %s", path)
        conll.write_predictions(path, example_set.sentences, tags)
        sentences = example_set.sentences
        review.write_tables(self.settings.output_dir, "predictions", sentences, tags, losses)
        if example_set.sentences[0].tags is not None:
            scores = _scores(example_set.sentences, tags, loss)
            scores["global_step"] = predictions.global_step
            reporting.write_results(self.path("test_results.txt"), scores)


def _sentences(
    settings: TaggingSettings, path: str, flag: str, tags_required: bool = True
) -> list[Sentence]:
    """Returns the sentences of a file, with tags of --tag_scheme."""
    sentences = conll.read_sentences(path, flag, tags_required)
    if settings.tag_scheme == "iob":
        return sentences
    return [dataclasses.replace(s, tags=s.tags and bioes_tags(s.tags)) for s in sentences]


def _file(settings: TaggingSettings, purpose: str) -> tuple[str, str]:
    """Returns the path of a purpose's file and the flag that names it: PURPOSE_file or data_dir."""
    flag = f"{purpose}_file"
    path = getattr(settings, flag)
    if path:
        return path, flag
    if not settings.data_dir:
        raise UserError(
            f"A CoNLL file is needed: name the file with --{flag}, or a folder that has"
            f" {_FILES[flag]} with --data_dir"
        )
    return os.path.join(settings.data_dir, _FILES[flag]), "data_dir"


def _choose_labels(settings: TaggingSettings, training: list[Sentence] | None) -> list[str]:
    """Returns all tags in the order of the logits.

    These are the tags of the model in `output_dir` or `init_checkpoint`, if it is a trained tagger;
    else --labels; else the sorted tags of the training file.
    """
    labels, learned = list(settings.labels), learned_labels(settings)
    if learned is not None:
        if labels and labels != learned:
            raise UserError(
                f"--labels={quoted(','.join(labels))} must be the labels of the model in"
                f" --output_dir or --init_checkpoint, {listed(learned)} ({LABELS_FILE} in its"
                " folder); leave --labels out, or choose another model"
            )
        return learned
    if labels:
        letters = _LETTERS[settings.tag_scheme]
        if len(set(labels)) < len(labels) or not all(conll.is_tag(x, letters) for x in labels):
            *begin, last = (f"{letter}-TYPE" for letter in letters)
            raise UserError(
                f"--labels must list each tag once, O, {', '.join(begin)} or {last}, separated by"
                f" commas; got {quoted(','.join(labels))}"
            )
        for label in labels:
            check_label(label, "--labels")
        return labels
    path, flag = _file(settings, "train")
    if training is None:
        if not tf.io.gfile.exists(path):
            file = os.path.join(settings.output_dir, LABELS_FILE)
            raise UserError(
                "The tags of the model must be known, from --labels, from the file that --do_train"
                f" writes ({file}) or from the training file (--{flag}: {path}); neither file"
                " exists. Give --labels"
            )
        training = _sentences(settings, path, flag)
    return _different(sorted(_tags(training)), path, flag)


def _different(tags: list[str], path: str, flag: str) -> list[str]:
    """Returns the tags of the training file; raises UserError if all are equal."""
    if len(tags) == 1:
        raise UserError(
            f"--{flag}: {path} must have words with different tags; all tags are {quoted(tags[0])}"
        )
    return tags


def _tags(sentences: list[Sentence]) -> set[str]:
    """Returns all tags in a file."""
    return {tag for sentence in sentences for tag in sentence.tags or ()}


def _tags_and_losses(
    example_set: SentenceSet, predictions: PredictionColumns
) -> tuple[list[list[str]], list[float], float]:
    """Returns the predicted tags of each sentence, the loss of each word, and the mean loss."""
    labels = example_set.encoder.labels
    tags: list[str] = []
    word_losses: list[float] = []
    loss = 0.0
    for columns in predictions:
        for predicted, losses in zip(columns["predictions"], columns["losses"], strict=True):
            tags += [labels[i] for i in predicted[predicted >= 0]]
            word_losses += losses[predicted >= 0].tolist()
            loss += float(np.sum(losses, dtype=np.float64))
    stream = iter(tags)
    grouped = [list(itertools.islice(stream, len(s.words))) for s in example_set.sentences]
    return grouped, word_losses, loss / len(tags)


def _scores(sentences: list[Sentence], tags: list[list[str]], loss: float) -> dict[str, float]:
    """Returns the scores of predicted tags, under the names of the evaluation's results."""
    weights = [1 if sentence.weight is None else sentence.weight for sentence in sentences]
    scores = entity_metrics([sentence.tags for sentence in sentences], tags, weights)
    return {"eval_accuracy": scores.pop("accuracy"), "eval_loss": loss, **scores}
