"""The CoNLL files of run_tagging.py, and the files that it writes."""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError, first_of, listed
from bert_tf.files.model_notes import LABELS_FILE
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.tasks.tagging import data
from bert_tf.tasks.tagging.data import Sentence
from bert_tf.tasks.tagging.entities import bioes_tags
from bert_tf.tasks.tagging.settings import TaggingSettings
from bert_tf.tasks.tagging.task import SentenceSet, TaggingTask, report_of, scores
from bert_tf.tasks.task import Evaluated, ExampleSet, TaskFiles

# --tag_scheme -> the letters of tags except O.
_LETTERS = {"iob": "BI", "bioes": "BIES"}
# Flag -> file in --data_dir that is read by default.
_FILES = {"train_file": "train.txt", "eval_file": "valid.txt", "predict_file": "test.txt"}


class TaggingFiles(TaskFiles, TaggingTask):
    """Reads CoNLL files.

    It writes the tag of each word to predictions.txt and sentences with tags to predictions.tsv. If
    the file has tags, it also writes test_results.txt, test_report.txt and test_errors.tsv.
    """

    def __init__(self, settings: TaggingSettings):
        super().__init__(settings, settings.labels)
        self.letters = _LETTERS[settings.tag_scheme]

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        path, flag = self._file(purpose)
        sentences = self._sentences(path, flag, tags_required=purpose != "predict")
        return [self.example_set(purpose, sentences)]

    def dev_set(self) -> str | None:
        if not self.settings.eval_file and not self.settings.data_dir:
            return None
        path, _ = self._file("eval")
        return path if self.settings.eval_file or tf.io.gfile.exists(path) else None

    def labels(self, sets: Mapping[str, Sequence[SentenceSet]]) -> list[str]:
        training = sets["train"][0].sentences if "train" in sets else None
        labels = self._choose_labels(super().labels(sets), training)
        for purpose, (found,) in sets.items():
            if purpose == "eval" and self.settings.dev_fraction:
                purpose = "train"  # the examples are from the training file
            unknown = sorted(_tags(found.sentences) - set(labels))
            path, flag = self._file(purpose)
            others = [label for label in labels if not data.is_tag(label, self.letters)]
            if others and found.sentences[0].tags is not None:
                raise UserError(
                    f"--{flag}: {path} has tags, which are IOB1 or IOB2; the model's tags include"
                    f" {listed(others)}. run_tagging trains and scores only models of IOB1 and IOB2"
                    " tags, or of BIOES with --tag_scheme=bioes: leave the tags out of the file,"
                    " and use --do_predict"
                )
            if unknown:
                made = "" if self.settings.tag_scheme == "iob" else "Leave out --tag_scheme, c"
                raise UserError(
                    f"--{flag}: {path} has the tags {listed(unknown)}, which are not among the"
                    f" model's: {first_of(labels)}. {made or 'C'}orrect the file, or train a new"
                    " model with all tags in --labels, in another --output_dir"
                )
        return labels

    def _choose_labels(self, known: list[str], training: list[Sentence] | None) -> list[str]:
        if known:
            return known
        path, flag = self._file("train")
        if training is None:
            if not tf.io.gfile.exists(path):
                file = os.path.join(self.settings.output_dir, LABELS_FILE)
                raise UserError(
                    "The tags of the model must be known, from --labels, from the file that"
                    f" --do_train writes ({file}) or from the training file (--{flag}: {path});"
                    " neither file exists. Give --labels"
                )
            training = self._sentences(path, flag)
        return sorted(_tags(training))

    def _sentences(self, path: str, flag: str, tags_required: bool = True) -> list[Sentence]:
        sentences = data.read_sentences(path, flag, tags_required)
        if self.settings.tag_scheme == "iob":
            return sentences
        return [dataclasses.replace(s, tags=s.tags and bioes_tags(s.tags)) for s in sentences]

    def _file(self, purpose: str) -> tuple[str, str]:
        settings, flag = self.settings, f"{purpose}_file"
        path = getattr(settings, flag)
        if path:
            return path, flag
        if not settings.data_dir:
            raise UserError(
                f"A CoNLL file is needed: name the file with --{flag}, or a folder that has"
                f" {_FILES[flag]} with --data_dir"
            )
        return os.path.join(settings.data_dir, _FILES[flag]), "data_dir"

    def write_review(self, example_set: SentenceSet, evaluated: Evaluated) -> None:
        sentences = example_set.sentences
        write_tables(self.settings.output_dir, tables.EVALUATED, sentences, *evaluated.found)

    def write_predictions(self, example_set: SentenceSet, outputs: Any, global_step: int) -> None:
        tags, losses, loss = outputs
        path = self.path("predictions.txt")
        logging.info("Writing predictions to: %s", path)
        data.write_predictions(path, example_set.sentences, tags)
        sentences = example_set.sentences
        write_tables(self.settings.output_dir, "predictions", sentences, tags, losses)
        if sentences[0].tags is not None:
            results = {**scores(sentences, tags, loss), "global_step": global_step}
            reporting.write_results(self.path("test_results.txt"), results)


def _tags(sentences: list[Sentence]) -> set[str]:
    return {tag for sentence in sentences for tag in sentence.tags or ()}


def write_tables(
    output_dir: str,
    name: str,
    sentences: Sequence[Sentence],
    predicted: Sequence[Sequence[str]],
    losses: Sequence[float],
) -> None:
    """Writes NAME.tsv and, if the sentences have tags, errors.tsv and eval_report.txt.

    The errors are the wrongly tagged sentences, sorted by the largest loss of a word, highest
    first. If NAME is `predictions`, the files are test_errors.tsv and test_report.txt.
    """
    known = sentences[0].tags is not None
    stream = iter(losses)
    rows = []
    for i, (sentence, tags) in enumerate(zip(sentences, predicted, strict=True)):
        highest = max(itertools.islice(stream, len(tags)), default=0.0)
        label = [" ".join(sentence.tags)] if known else []
        found = [_wrong(sentence, tags), highest] if known else []
        rows.append([f"sentence-{i}", " ".join(sentence.words), *label, " ".join(tags), *found])
    columns = ["id", "text", "label", "prediction", "wrong", "loss"]
    if not known:
        columns = ["id", "text", "prediction"]
    tables.write_table(os.path.join(output_dir, f"{name}.tsv"), columns, rows)
    if not known:
        return
    errors, report = ("errors", "eval_report")
    if name != tables.EVALUATED:
        errors, report = ("test_errors", "test_report")
    wrong = sorted((row for row in rows if row[-2]), key=lambda row: -row[-1])
    tables.write_table(os.path.join(output_dir, f"{errors}.tsv"), columns, wrong)
    tables.write_report(output_dir, "", report_of(sentences, predicted), report)


def _wrong(sentence: Sentence, tags: Sequence[str]) -> str:
    words = zip(sentence.words, sentence.tags, tags, strict=True)
    return "; ".join(
        f"{word}: {found} should be {tag}" for word, tag, found in words if tag != found
    )
