"""Tagging, trained from words and tags in memory."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError, listed
from bert_tf.files.label_file import is_tag
from bert_tf.pretrained.arguments import as_names, is_list, received
from bert_tf.pretrained.kinds.base import Kind
from bert_tf.pretrained.kinds.rows import check_there, plain, read_rows
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.tasks.tagging import conll, data
from bert_tf.tasks.tagging.task import SentenceSet


class TaggingKind(Kind):
    """Gives each word a tag, such as `B-PER`.

    Args:
        labels: the tags in the order of the logits; None for those of the training data.
    """

    name = "tagging"
    heads = ("tagging",)
    inputs, targets = "sentences", "tags"
    ranks = (1, 1)

    def __init__(self, labels: Sequence[str] | None = None):
        self.labels = None if labels is None else as_names(labels, "the tags")

    def decided(self) -> dict[str, Any]:
        return {"labels": list(self.labels or ()), "data_dir": "in memory"}

    def check(self, settings: FineTuningSettings) -> None:
        if getattr(settings, "feature_based", False):
            raise UserError(
                "feature_based must be left out: a model in memory has no BiLSTM. Train one with"
                " run_tagging.py"
            )

    def example_set(self, purpose: str, x: Any, y: Any, weights: Any = None) -> SentenceSet:
        inputs, targets = self.names(purpose)
        needs_tags = purpose != "predict"
        sentences, tags, weights = read_rows(x, y, weights, inputs, targets, needs_tags, self.ranks)
        found = [
            conll.Sentence(*self._sentence(words, own, f"{inputs}[{i}]", f"{targets}[{i}]"), i)
            for i, (words, own) in enumerate(zip(sentences, tags, strict=True))
        ]
        if weights is not None:
            weighed = zip(found, weights, strict=True)
            found = [dataclasses.replace(sentence, weight=weight) for sentence, weight in weighed]
        if purpose == "train":
            there = sorted({tag for sentence in found for tag in sentence.tags or ()})
            if len(there) < 2:
                raise UserError(f"{targets} must have at least two tags; all are {listed(there)}")
            self.labels = self.labels or tuple(there)
        name = self.set_name(purpose)
        return SentenceSet(name, data.documents(found), sentences=found)

    def _sentence(
        self, words: Any, tags: Any, place: str, tags_place: str
    ) -> tuple[list[str], list[str] | None]:
        """Returns the words and the tags of a sentence, checked."""
        if not is_list(words) or not len(words):
            raise UserError(
                f"{place} must be a list of words, such as text.split(); {received(words)}"
            )
        words = [plain(word) for word in words]
        for i, word in enumerate(words):
            if not isinstance(word, str) or word.split() != [word]:
                raise UserError(
                    f"{place}[{i}] must be a word, without white space; {received(word)}"
                )
        if tags is None:
            return words, None
        if not is_list(tags) or len(tags) != len(words):
            raise UserError(
                f"{tags_place} must be a list of {len(words)} tags, one for each word;"
                f" {received(tags)}"
            )
        return words, [self._tag(plain(tag), f"{tags_place}[{i}]") for i, tag in enumerate(tags)]

    def _tag(self, tag: Any, place: str) -> str:
        check_there(tag, place)
        if isinstance(tag, int) and self.labels and 0 <= tag < len(self.labels):
            return self.labels[tag]
        if isinstance(tag, str) and (tag in self.labels if self.labels else is_tag(tag)):
            return tag
        if self.labels:
            rule, hint = f"one of {', '.join(self.labels)}", "If it is right, name all: for_tagging"
            hint += "(labels=[...])"
        elif isinstance(tag, int):
            rule, hint = "O, B-TYPE or I-TYPE", "For tags as numbers, name them: labels=[...]"
        else:
            rule, hint = "O, B-TYPE or I-TYPE", "For classes of words, such as NOUN, write B-NOUN"
        raise UserError(f"{place} must be {rule}; {received(tag)}. {hint}")

    def read_predictions(self, settings: FineTuningSettings) -> list[list[str]]:
        path = os.path.join(settings.output_dir, "predictions.txt")
        return [sentence.tags or [] for sentence in conll.read_sentences(path, "output_dir")]
