"""`classify`: the class of a text, of the model's classes or of any."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from bert_tf.errors import UserError
from bert_tf.pretrained import zero_shot
from bert_tf.pretrained.arguments import as_list, received
from bert_tf.pretrained.forward import sigmoid, softmax
from bert_tf.pretrained.methods.base import LoadedModel, Text
from bert_tf.pretrained.results import Classification


class Classify(LoadedModel):
    """Methods of classifiers and regressions."""

    @overload
    def classify(
        self, texts: Text, *, long_text: str | None = ..., window_stride: int | None = ...
    ) -> Classification | float: ...
    @overload
    def classify(
        self, texts: Sequence[Text], *, long_text: str | None = ..., window_stride: int | None = ...
    ) -> list[Classification] | list[float]: ...
    @overload
    def classify(
        self,
        texts: str,
        labels: Sequence[str],
        hypothesis_template: str = ...,
        multi_label: bool = ...,
    ) -> Classification: ...
    @overload
    def classify(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        hypothesis_template: str = ...,
        multi_label: bool = ...,
    ) -> list[Classification]: ...
    def classify(
        self,
        texts: Text | Sequence[Text],
        labels: Sequence[str] | None = None,
        hypothesis_template: str = zero_shot.TEMPLATE,
        multi_label: bool = False,
        long_text: str | None = None,
        window_stride: int | None = None,
    ) -> Classification | float | list[Classification] | list[float]:
        """Returns the class of each text; if the model is a regression, a float for each.

        If a text can have several classes (`config.is_multi_label`), `labels` are those of at least
        the probability `config.threshold`, maybe none; `label` is the most likely one, and
        `probabilities` do not add up to 1.

        With `labels` the classes are yours, and the model is one of natural language inference,
        trained on data such as MNLI or XNLI: it judges whether a text entails "This example is
        {label}." (zero-shot classification, as in the pipeline of transformers).

        Args:
            texts: a text, a pair of texts `(a, b)`, or a list of either. No pairs with `labels`.
            labels: the classes to choose from. None for the classes that the model was trained on.
            hypothesis_template: with `labels`: the hypothesis about a text, with `{}` where the
                label goes.
            multi_label: with `labels`: whether each label is judged by itself, entailment against
                contradiction, so that a text can have several labels or none, and `probabilities`
                do not add up to 1. A single label is always judged so.
            long_text: what becomes of a text with more word pieces than `max_seq_length`. "cut"
                leaves its end out. "mean" and "max" split it into overlapping windows, and its
                probabilities, or its number, are the mean or the maximum of theirs; maxima of
                probabilities that add up to 1 are divided by their sum. Of a pair the longer text
                is split, and the other one is whole in every window. None for what the model was
                trained with, --long_text of run_classifier, or else "cut". Not with `labels`.
            window_stride: word pieces from the start of a window to the start of the next one.
                None for what the model was trained with, or else half a window.

        Raises:
            UserError: the model has no classifier or, with `labels`, no class for entailment; or
                windows have no room for the longer text of a pair.
        """
        if labels is not None:
            if long_text not in (None, "cut") or window_stride is not None:
                raise UserError(
                    "long_text and window_stride exclude labels: zero-shot classification cuts long"
                    " texts. Split them before, and classify the parts"
                )
            return self._zero_shot(texts, labels, hypothesis_template, multi_label)
        if multi_label is not False or hypothesis_template != zero_shot.TEMPLATE:
            raise UserError("multi_label and hypothesis_template need labels, the classes to judge")
        kind = "regression" if "regression" in self._folder.heads else "classification"
        self._folder.check_head(kind, "classify")
        texts, single = as_list(texts, pairs=True)
        self._folder.warn_of_other_input(texts)
        windows = self._windows(texts, long_text, window_stride)
        found = [row["logits"] for row in self._run(kind, windows.rows)]
        if kind == "regression":
            numbers = windows.join(np.array([logits[0] for logits in found])).tolist()
            return numbers[0] if single else numbers
        several = self.config.is_multi_label
        probabilities = [(sigmoid if several else softmax)(logits) for logits in found]
        joined = windows.join(np.array(probabilities), add_up=not several)
        threshold = self.config.threshold if several else None
        classes = [_classification(row, self.labels, threshold) for row in joined]
        return classes[0] if single else classes

    def _zero_shot(
        self, texts: Any, labels: Any, hypothesis_template: Any, multi_label: Any
    ) -> Classification | list[Classification]:
        labels = zero_shot.check_arguments(labels, hypothesis_template, multi_label)
        judge = zero_shot.Judge(self._folder, labels, hypothesis_template, multi_label)
        texts, single = as_list(texts, pairs=True)
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise UserError(
                    f"texts[{i}] must be one text, not a pair: the second text is the hypothesis"
                    f" about a label; {received(text)}"
                )
        self._folder.warn_of_other_input([(text, "") for text in texts])
        found = self._run("classification", judge.rows(texts))
        logits = np.array([row["logits"] for row in found]).reshape([len(found), len(self.labels)])
        threshold = 0.5 if judge.is_multi_label else None
        found_classes = judge.probabilities(logits)
        classes = [_classification(row, labels, threshold) for row in found_classes]
        return classes[0] if single else classes


def _classification(
    probabilities: NDArray[np.float64], labels: Sequence[str], threshold: float | None
) -> Classification:
    """Returns the class of a text; with a threshold it can have several."""
    by_label = dict(zip(labels, probabilities.tolist(), strict=True))
    best = int(np.argmax(probabilities))
    above: tuple[str, ...] = (labels[best],)
    if threshold is not None:
        above = tuple(label for label in labels if by_label[label] >= threshold)
    return Classification(labels[best], float(probabilities[best]), by_label, above)
