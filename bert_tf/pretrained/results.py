"""The results that a loaded model returns."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.runs.results.reports import Evaluation as Evaluation

__all__ = "Answer Classification Entity Evaluation Filling RankedPassage TextAttention".split()


@dataclasses.dataclass(frozen=True)
class Filling:
    """A token for a [MASK].

    Attributes:
        token: the word piece; it starts with "##" if it continues a word.
        token_id: its id.
        probability: its probability among all tokens of the vocabulary.
    """

    token: str
    token_id: int
    probability: float


@dataclasses.dataclass(frozen=True)
class Classification:
    """The class of a text.

    Attributes:
        label: the most likely class.
        probability: its probability.
        probabilities: the probability of each class, in the order of the model's classes. They add
            up to 1, unless a text can have several classes.
        labels: the classes of the text, in the same order: only `label`, or, if a text can have
            several classes or none, all classes with at least the probability `config.threshold`.
    """

    label: str
    probability: float
    probabilities: dict[str, float]
    labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class RankedPassage:
    """A passage, ranked by its relevance to a query.

    Attributes:
        index: its place in the given list, from 0.
        score: the probability of the positive class or, if the model predicts a number, the number
            or its sigmoid.
        text: the passage.
    """

    index: int
    score: float
    text: str


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer in a context.

    Attributes:
        text: `context[start:end]`; "" for no answer.
        start: offset of its first character in the context; 0 for no answer.
        end: offset just after its last character; 0 for no answer.
        score: depends on the `method` of `Pretrained.answer`. With "run_squad", the probability
            among the candidates; 0 without candidates. With "transformers", the probability of its
            start times the probability of its end, added up over equal texts; it can exceed 1.
            Compare scores only within a context.
        log_odds: the sum of its start and end logits, minus the lowest sum at [CLS] in any window,
            as for SQuAD 2.0; 0 for no answer. With an answerable classifier it is the negated
            logit of the classifier, the same for all answers in a context. Use it to compare
            answers in different contexts. run_squad's `null_odds.json` has the opposite sign.
    """

    text: str
    start: int
    end: int
    score: float
    log_odds: float


@dataclasses.dataclass(frozen=True)
class Entity:
    """A typed part of a text, such as a person's name.

    Attributes:
        text: `text[start:end]` of the given text.
        label: its type, such as "PER".
        start: offset of its first character.
        end: offset just after its last character.
        probability: mean of the probabilities of its words' tags.
    """

    text: str
    label: str
    start: int
    end: int
    probability: float


@dataclasses.dataclass(frozen=True, eq=False)
class TextAttention:
    """The attention of BERT within a text.

    Attributes:
        tokens: the S word pieces, [CLS] and [SEP] included.
        segment_ids: int32 [S], 1 for the second text.
        probabilities: float32 [L, N, S, S]: in each layer and head, how much of its attention each
            token (third axis) pays to every token (last axis).
    """

    tokens: list[str]
    segment_ids: NDArray[np.int32]
    probabilities: NDArray[Any]
