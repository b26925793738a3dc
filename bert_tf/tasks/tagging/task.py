"""Tagging as a fine-tuning task."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, first_of, quoted
from bert_tf.files.model_notes import LABELS_FILE, check_label
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.results.reports import Report, span_report
from bert_tf.runs.training.fine_tuning_checks import learned_labels
from bert_tf.tasks.class_weights import choose_weights
from bert_tf.tasks.tagging import data
from bert_tf.tasks.tagging.data import Sentence, TaggingRows
from bert_tf.tasks.tagging.entities import entity_counts, entity_metrics
from bert_tf.tasks.tagging.model import TaggingModel, check_feature_layers
from bert_tf.tasks.tagging.settings import TaggingOptions
from bert_tf.tasks.task import Chunks, Evaluated, ExampleSet, FineTuningTask
from bert_tf.text.base_tokenizer import Tokenizer


@dataclasses.dataclass(eq=False, kw_only=True)
class SentenceSet(ExampleSet):
    """The documents of a CoNLL file, and their sentences in order."""

    sentences: list[Sentence]


class TaggingTask(FineTuningTask):
    """The task of tagging each word of a sentence."""

    options = TaggingOptions
    best_metric = "f1"
    letters = "BI"  # first letters of the tags except O
    _class_weights: Mapping[str, float] | None = None  # None if training is unweighted

    def __init__(self, settings: TaggingOptions, names: Sequence[str] = ()):
        super().__init__(settings)
        self._names = list(names)

    @classmethod
    def of_rows(cls, options: TaggingOptions, rows: TaggingRows) -> Self:
        return cls(options, rows.labels or ())

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        if self.settings.feature_based:
            check_feature_layers(self.settings.feature_layers, config.num_layer_outputs)

    def key(self, example: list[Sentence]) -> tuple[None, str]:
        return None, "\n".join(" ".join(sentence.words) for sentence in example)

    def example_set(self, purpose: str, examples: list[Sentence]) -> SentenceSet:
        return SentenceSet(purpose, data.documents(examples), sentences=examples)

    def subset(self, whole: SentenceSet, purpose: str, numbers: Sequence[int]) -> SentenceSet:
        documents = [whole.examples[i] for i in numbers]
        sentences = [sentence for document in documents for sentence in document]
        return SentenceSet(purpose, documents, sentences=sentences)

    def labels(self, sets: Mapping[str, Sequence[SentenceSet]]) -> list[str]:
        """Returns the tags of the model in --output_dir or --init_checkpoint, or the given tags."""
        labels, learned = self._names, learned_labels(self.settings)
        if learned is not None:
            if labels and labels != learned:
                raise UserError(
                    f"--labels={quoted(','.join(labels))} must be the labels of the model in"
                    f" --output_dir or --init_checkpoint, {first_of(learned)} ({LABELS_FILE} in its"
                    " folder); leave --labels out, or choose another model"
                )
            return learned
        if len(set(labels)) < len(labels) or not all(data.is_tag(x, self.letters) for x in labels):
            *begin, last = (f"{letter}-TYPE" for letter in self.letters)
            raise UserError(
                f"--labels must list each tag once, O, {', '.join(begin)} or {last}, separated by"
                f" commas; got {quoted(','.join(labels))}"
            )
        for label in labels:
            check_label(label, "--labels")
        return labels

    def prepare(self, sets: Mapping[str, Sequence[SentenceSet]], labels: Sequence[str]) -> None:
        given = self.settings.class_weights
        sentences = [sentence for found in sets.get("train", ()) for sentence in found.sentences]
        training = [tag for sentence in sentences for tag in sentence.tags]
        self.check_differ(training, refuses=True)
        if given:
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

    def evaluate(self, example_set: SentenceSet, predictions: Chunks) -> Evaluated:
        tags, losses, loss = self.predict(example_set, predictions)
        sentences = example_set.sentences
        weights = data.word_weights(sentences, {})
        if any(weight != 1.0 for weight in weights):
            if not any(weights):
                raise UserError(
                    "The weights of the sentences to evaluate must have a sum above 0; all are 0"
                )
            loss = float(np.average(losses, weights=weights))
        return Evaluated(scores(sentences, tags, loss), (tags, losses))

    def predict(
        self, example_set: SentenceSet, predictions: Chunks
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

    def report(self, example_set: SentenceSet, evaluated: Evaluated) -> Report:
        return report_of(example_set.sentences, evaluated.found[0])


def scores(sentences: list[Sentence], tags: list[list[str]], loss: float) -> dict[str, float]:
    weights = [1 if sentence.weight is None else sentence.weight for sentence in sentences]
    found = entity_metrics([sentence.tags for sentence in sentences], tags, weights)
    return {"eval_accuracy": found.pop("accuracy"), "eval_loss": loss, **found}


def report_of(sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> Report:
    return span_report(*entity_counts([sentence.tags for sentence in sentences], predicted))
