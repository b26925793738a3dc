"""`classify` and `rank`: the class of a text, and the passages that best match a query."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from bert_tf.errors import UserError, listed, quoted
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.forward import sigmoid, softmax
from bert_tf.pretrained.methods.base import LoadedModel, Text
from bert_tf.pretrained.results import Classification, RankedPassage
from bert_tf.pretrained.text_input import tokenize, warn_once
from bert_tf.tasks.arguments import STRING, SWITCH, as_list, check_count, check_type, received
from bert_tf.text import sequences

TEMPLATE = "This example is {}."  # of transformers' zero-shot-classification pipeline

_RULE = (
    "classify(..., labels=...) needs a model of natural language inference, trained on data such as"
    " MNLI or XNLI"
)


def check_arguments(labels: Any, hypothesis_template: Any, multi_label: Any) -> list[str]:
    """Checks the arguments of `Pretrained.classify`, and returns the labels as a list."""
    check_type("hypothesis_template", hypothesis_template, STRING)
    check_type("multi_label", multi_label, SWITCH)
    labels, single = as_list(labels, name="labels")
    if single or not labels:
        raise UserError(
            "labels must be a list of at least one class, such as ['sports', 'politics'];"
            f" {received(labels[0] if single else labels)}"
        )
    blank = [i for i, label in enumerate(labels) if not label.strip()]
    if blank:
        raise UserError(f"labels[{blank[0]}] is blank: a class must be named by words")
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise UserError(f"labels must differ from each other; given twice: {listed(twice)}")
    around = hypothesis_template.replace("{}", "", 1)
    if around == hypothesis_template or {*"{}"} & {*around}:
        raise UserError(
            "hypothesis_template must have {} once, where the label goes, and no other braces, such"
            f" as {quoted(TEMPLATE)}; {received(hypothesis_template)}"
        )
    return labels


class Judge:
    """Asks a model whether texts entail the hypotheses of labels; see `Pretrained.classify`.

    A single label is always judged as with `multi_label`.
    """

    def __init__(
        self,
        folder: ModelFolder,
        labels: Sequence[str],
        hypothesis_template: str,
        multi_label: bool,
    ):
        self._labels = labels
        self._entailment = _entailment(folder)
        self.is_multi_label = multi_label or len(labels) == 1
        self._contradiction = (
            _contradiction(folder, self._entailment) if self.is_multi_label else -1
        )
        self._tokenizer, self._length = folder.tokenizer, folder.max_seq_length
        hypotheses = [hypothesis_template.replace("{}", label) for label in labels]
        self._hypotheses = [ids for ids, _ in tokenize(hypotheses, folder.tokenizer)]
        self._room = self._length - folder.tokenizer.layout.num_special(is_pair=True)
        for hypothesis, ids in zip(hypotheses, self._hypotheses, strict=True):
            if len(ids) >= self._room:
                raise UserError(
                    f"The hypothesis {quoted(hypothesis)} has {len(ids)} word pieces; it must have"
                    f" fewer than {self._room}, so that the model's longest input,"
                    f" {self._length}, has room for a text. Shorten the label or the template"
                )

    def rows(self, texts: Sequence[str]) -> list[dict[str, list[int]]]:
        """Returns the model's input for each text with each label; only the text is truncated."""
        layout = self._tokenizer.layout
        ids = [ids for ids, _ in tokenize(texts, self._tokenizer)]
        longest = max(map(len, self._hypotheses))
        if num_cut := sum(len(text) > self._room - longest for text in ids):
            warn_once(
                self._tokenizer,
                "%d of %d texts have more than %d word pieces, and are truncated so that the model"
                " also reads a label's hypothesis",
                *(num_cut, len(ids), self._room - longest),
            )
        return [
            sequences.pack_pair(text[: self._room - len(hypothesis)], hypothesis, 0, layout)
            for text in ids
            for hypothesis in self._hypotheses
        ]

    def probabilities(self, logits: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the probability of each label, [texts, labels], from the logits of `rows`."""
        logits = logits.reshape([-1, len(self._labels), logits.shape[-1]])
        if self.is_multi_label:
            return softmax(logits[..., [self._contradiction, self._entailment]])[..., 1]
        return softmax(logits[..., self._entailment])


def _entailment(folder: ModelFolder) -> int:
    """Returns the number of the class for entailment, found as in transformers' pipeline."""
    if "classification" in folder.heads and len(folder.labels) > 1:
        for i, label in enumerate(folder.labels):
            if label.lower().startswith("entail"):
                return i
        names = "config.json's id2label or labels.txt"
        raise UserError(
            f"{_RULE}, with a class whose name begins with 'entail'; {folder.path} has the classes"
            f" {listed(folder.labels)}. If it is such a model, name its classes in {names}; if not,"
            " leave out labels to get one of these classes"
        )
    raise UserError(f"{_RULE}; {folder.path} has {listed(folder.heads) or 'no head'}")


def _contradiction(folder: ModelFolder, entailment: int) -> int:
    """Returns the number of the class to compare entailment with.

    transformers' pipeline takes the first class or, if that is entailment, the last. Here the names
    decide; for the usual orders of classes, the result is the same.
    """
    for i, label in enumerate(folder.labels):
        if label.lower().startswith("contradict"):
            return i
    if len(folder.labels) == 2:  # such as "not_entailment"
        return 1 - entailment
    raise UserError(
        "multi_label, or a single label, compares entailment with a class whose name begins with"
        f" 'contradict'; {folder.path} has the classes {listed(folder.labels)}. Name"
        " its classes in config.json's id2label or labels.txt, or give several labels without"
        " multi_label"
    )


class Classify(LoadedModel):
    """Methods of classifiers and regressions, and of cross-encoders, which read pairs of texts."""

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
        hypothesis_template: str = TEMPLATE,
        multi_label: bool = False,
        long_text: str | None = None,
        window_stride: int | None = None,
    ) -> Classification | float | list[Classification] | list[float]:
        """Returns the class of each text or, if the model is a regression, its number as a float.

        If a text can have several classes (`config.is_multi_label`), `labels` are the classes with
        a probability of at least `config.threshold`, maybe none; `label` is the most likely class,
        and `probabilities` do not add up to 1.

        With `labels` you choose the classes. The model must be trained on natural language
        inference, such as MNLI or XNLI: it judges whether a text entails "This example is {label}."
        (zero-shot classification, as in the pipeline of transformers).

        Args:
            texts: a text, a pair of texts `(a, b)`, or a list of either. No pairs with `labels`.
            labels: the classes to choose from. None for the classes that the model was trained on.
            hypothesis_template: with `labels`: the hypothesis about a text, with `{}` where the
                label goes.
            multi_label: with `labels`: whether each label is judged by itself, entailment against
                contradiction, so that a text can have several labels or none, and `probabilities`
                do not add up to 1. A single label is always judged this way.
            long_text: what to do with a text of more word pieces than `max_seq_length`. "cut"
                drops its end. "mean" and "max" split it into overlapping windows and return the
                mean or the maximum of the windows' probabilities or numbers; maxima of
                probabilities that add up to 1 are divided by their sum. In a pair only the longer
                text is split, and each window has the whole shorter text. None for the --long_text
                of the training, or else "cut". Not with `labels`.
            window_stride: word pieces from the start of a window to the start of the next one.
                None for the stride of the training, or else half a window.

        Raises:
            UserError: the model has no classifier or, with `labels`, no class for entailment; or
                windows have no room for the longer text of a pair.
        """
        if labels is not None:
            if long_text not in (None, "cut") or window_stride is not None:
                raise UserError(
                    "long_text and window_stride exclude labels: zero-shot classification cuts long"
                    " texts. Split them first, and classify the parts"
                )
            return self._zero_shot(texts, labels, hypothesis_template, multi_label)
        if multi_label is not False or hypothesis_template != TEMPLATE:
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
        labels = check_arguments(labels, hypothesis_template, multi_label)
        judge = Judge(self._folder, labels, hypothesis_template, multi_label)
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

    def rank(
        self,
        query: str,
        passages: Sequence[str],
        top_k: int | None = None,
        positive: str | None = None,
        long_text: str | None = None,
        window_stride: int | None = None,
    ) -> list[RankedPassage]:
        """Returns the passages, the most relevant one first; ties keep their order.

        The model reads pairs `(query, passage)`. The score is the number of a regression, or a
        classifier's probability of `positive`. For a Hugging Face regression the score is the
        number's sigmoid or, if the folder says so, the number itself, as in the CrossEncoder of
        sentence-transformers.

        Args:
            query: the text to find passages for.
            passages: a list of texts, such as the results of a search.
            top_k: number of passages to return. None for all.
            positive: the class of relevant passages; not for a regression.
            long_text: what to do with a passage that does not fit beside the query. "cut" drops its
                end. "mean" and "max" split it into overlapping windows, see `classify`; the
                score comes from the mean or the maximum of the windows' numbers, or log odds of
                `positive`. With "max" the best window decides. None for the --long_text of the
                training, or else "cut".
            window_stride: see `classify`.

        Raises:
            UserError: the model cannot classify texts, or `positive` is not one of its classes.
        """
        is_number = "regression" in self._folder.heads
        kind = "regression" if is_number else "classification"
        self._folder.check_head(kind, "rank")
        column = self._column(positive)
        check_type("query", query, STRING)
        check_count("top_k", top_k, 1, default="for all passages")
        texts, _ = as_list(passages, name="passages")
        pairs = [(query, text) for text in texts]
        self._folder.warn_of_other_input(pairs)
        windows = self._windows(pairs, long_text, window_stride)
        found = [row["logits"] for row in self._run(kind, windows.rows)]
        logits = np.array(found, np.float64).reshape([len(found), max(1, len(self.labels))])
        value = logits[:, column]  # orders better than its sigmoid, which rounds to 1
        if not (is_number or self.config.is_multi_label):  # log odds, whose sigmoid is the softmax
            others = np.delete(logits, column, axis=1)
            value = value - np.logaddexp.reduce(others, axis=1)
        value = windows.join(value)
        scores = value if is_number and not self._folder.has_sigmoid else sigmoid(value)
        order = np.argsort(-value, kind="stable")
        return [RankedPassage(i, float(scores[i]), texts[i]) for i in order[:top_k].tolist()]

    def _column(self, positive: Any) -> int:
        check_type("positive", positive, STRING, "for a model that gives a number")
        if positive is None and len(self.labels) < 2:
            return 0
        if not self.labels:
            raise UserError(
                f"{self._folder.path} gives a number, not classes, so positive must be left out;"
                f" received {quoted(positive)}"
            )
        if positive not in self.labels:
            raise UserError(
                "positive must be the class of relevant passages, one of"
                f" {listed(self.labels)}: rank(query, passages, positive={self.labels[-1]!r});"
                f" received {positive if positive is None else quoted(positive)}"
            )
        return self.labels.index(positive)


def _classification(
    probabilities: NDArray[np.float64], labels: Sequence[str], threshold: float | None
) -> Classification:
    by_label = dict(zip(labels, probabilities.tolist(), strict=True))
    best = int(np.argmax(probabilities))
    above: tuple[str, ...] = (labels[best],)
    if threshold is not None:
        above = tuple(label for label in labels if by_label[label] >= threshold)
    return Classification(labels[best], float(probabilities[best]), by_label, above)
