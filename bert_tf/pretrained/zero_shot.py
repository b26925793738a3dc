"""Classes that a model was not trained on, by its judgement whether a text entails them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from bert_tf.errors import UserError, listed, quoted
from bert_tf.pretrained.arguments import STRING, SWITCH, as_list, check_type, received
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.forward import softmax
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer

TEMPLATE = "This example is {}."  # of transformers' zero-shot-classification pipeline

_RULE = (
    "classify(..., labels=...) needs a model of natural language inference, trained on data such as"
    " MNLI or XNLI"
)


def check_arguments(labels: Any, hypothesis_template: Any, multi_label: Any) -> list[str]:
    """Returns the labels as a list, after a check of the arguments of `Pretrained.classify`.

    Raises:
        UserError: there is no label, one is blank or given twice, or the template has no place for
            a label.
    """
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
    if hypothesis_template.count("{}") != 1:
        raise UserError(
            "hypothesis_template must have {} once, where the label goes, such as"
            f" {quoted(TEMPLATE)}; {received(hypothesis_template)}"
        )
    return labels


class Judge:
    """Asks a model whether texts entail hypotheses.

    Args:
        folder: the model's.
        labels: what a text is asked to be.
        hypothesis_template: makes the hypothesis of a label in place of `{}`.
        multi_label: whether a text can have several labels. With a single label it always can.

    Raises:
        UserError: the model has no class for entailment or, if it is needed, for contradiction; or
            a hypothesis leaves no room for the text.
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
        self._hypotheses = _ids(hypotheses, folder.tokenizer)
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
        layout, ids = self._tokenizer.layout, _ids(texts, self._tokenizer)
        longest = max(map(len, self._hypotheses))
        if num_cut := sum(len(text) > self._room - longest for text in ids):
            logging.warning(
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


def _ids(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    ids, edges = tokenizer.encode(texts)
    return [ids[start:end].tolist() for start, end in zip(edges[:-1], edges[1:], strict=True)]


def _entailment(folder: ModelFolder) -> int:
    """Returns the number of the class for entailment, found as by transformers' pipeline."""
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
    decide, which is the same for the orders of classes that are in use.
    """
    for i, label in enumerate(folder.labels):
        if label.lower().startswith("contradict"):
            return i
    if len(folder.labels) == 2:  # such as "not_entailment"
        return 1 - entailment
    raise UserError(
        "multi_label, or a single label, compares entailment with contradiction: a class whose name"
        f" begins with 'contradict'; {folder.path} has the classes {listed(folder.labels)}. Name"
        " its classes in config.json's id2label or labels.txt, or give several labels without"
        " multi_label"
    )
