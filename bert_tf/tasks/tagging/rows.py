"""Reads words and tags in memory."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

from bert_tf.errors import UserError, listed
from bert_tf.files.model_notes import is_tag
from bert_tf.tasks.arguments import as_names, is_list, plain, received
from bert_tf.tasks.rows import Rows, check_there, read_rows
from bert_tf.tasks.tagging import data


class TaggingRows(Rows):
    """Rows of words and tags; `labels` of None stand for the tags of the training data."""

    task = "tagging"
    head = "tagging"
    inputs, targets = "sentences", "tags"
    ranks = (1, 1)
    left_out = {"feature_based": "a model in memory has no BiLSTM. Train one with run_tagging.py"}

    def __init__(self, labels: Sequence[str] | None = None):
        self.labels = None if labels is None else as_names(labels, "the tags")

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> Self:
        return cls(labels)

    def examples(self, purpose: str, x: Any, y: Any, weights: Any = None) -> list[data.Sentence]:
        inputs, targets = self.names(purpose)
        needs_tags = purpose != "predict"
        sentences, tags, weights = read_rows(x, y, weights, inputs, targets, needs_tags, self.ranks)
        found = [
            data.Sentence(*self._sentence(words, own, f"{inputs}[{i}]", f"{targets}[{i}]"), i)
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
        return found

    def _sentence(
        self, words: Any, tags: Any, place: str, tags_place: str
    ) -> tuple[list[str], list[str] | None]:
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
            rule, hint = f"one of {listed(self.labels)}", "If it is right, name all: for_tagging"
            hint += "(labels=[...])"
        elif isinstance(tag, int):
            rule, hint = "O, B-TYPE or I-TYPE", "For tags as numbers, name them: labels=[...]"
        else:
            rule, hint = "O, B-TYPE or I-TYPE", "For classes of words, such as NOUN, write B-NOUN"
        raise UserError(f"{place} must be {rule}; {received(tag)}. {hint}")

    def answers(self, outputs: tuple[list[list[str]], list[float], float]) -> list[list[str]]:
        return outputs[0]
