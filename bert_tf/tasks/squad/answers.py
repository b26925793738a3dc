"""Converts start and end logits to answers, n-best lists and the odds of no answer."""

import bisect
import collections
import dataclasses
import functools
import itertools
import json
import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.files.whole_files import write_whole
from bert_tf.tasks.squad.examples import SquadData
from bert_tf.tasks.squad.features import Context, ContextWindow
from bert_tf.tasks.squad.settings import AnswerSettings, SquadSettings
from bert_tf.tasks.squad.words import FinalText, split_words, word_spans
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.sequences import max_context

# The odds of "no answer" for a question without candidates: larger than any difference of logits.
# The original starts its search for the lowest score of "no answer" at this value.
NO_OTHER_ANSWER = 1000000.0
# The files that `write_predictions` writes, the last one only for SQuAD 2.0.
FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Predictions by question id."""

    answers: dict[str, str] = dataclasses.field(default_factory=dict)  # "" for no answer
    # The most likely answers, each with `text`, `probability`, `start_logit`, `end_logit`.
    nbest: dict[str, list[dict[str, str | float]]] = dataclasses.field(default_factory=dict)
    null_odds: dict[str, float] = dataclasses.field(default_factory=dict)  # only for SQuAD 2.0
    # The most likely answer, "no answer" excluded; "" without candidates.
    best_answers: dict[str, str] = dataclasses.field(default_factory=dict)


class Beam(NamedTuple):
    """The K likeliest starts of a window, and the K likeliest ends for each start (ELECTRA)."""

    starts: np.ndarray  # int [K]
    ends: np.ndarray  # int [K, K]
    start_scores: np.ndarray  # log probabilities, float32 [K]
    end_scores: np.ndarray  # log probabilities, float32 [K, K]


class WindowLogits(NamedTuple):
    """The start and end logits of a window, float64 [S] (original: RawResult)."""

    start: np.ndarray
    end: np.ndarray
    beam: Beam | None = None  # replaces the logits in a model that predicts start and end jointly
    impossible: float | None = None  # logit of "no answer", from a classifier

    @property
    def null_score(self) -> float:
        if self.impossible is not None:
            return float(self.impossible)
        return float(self.start[0]) + float(self.end[0])


# A model's outputs for a beam, in the order of `Beam`.
BEAM = ("start_top_index", "end_top_index", "start_top_log_probs", "end_top_log_probs")


def window_logits(outputs: Mapping[str, Any]) -> WindowLogits:
    """Returns the logits of a window from a model's outputs for it, by name."""
    beam = Beam(*(outputs[name] for name in BEAM)) if BEAM[0] in outputs else None
    # float64, since the original adds them as Python floats
    logits = np.float64(outputs["start_logits"]), np.float64(outputs["end_logits"])
    return WindowLogits(*logits, beam, outputs.get("answerable_logit"))


class NullScore(NamedTuple):
    """The score of "no answer"; `is_odds` if a classifier's logit already gives the odds."""

    value: float
    is_odds: bool


class Candidate(NamedTuple):
    """A possible answer to a question, with the logits of its first and last word piece."""

    text: str  # "" for no answer
    start_logit: float
    end_logit: float
    start: int = 0  # its first character in the context
    end: int = 0  # its last character + 1

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


class ContextText:
    """Maps the tokens of a context to its text; `context` has the word pieces of `text`."""

    def __init__(self, text: str, context: Context, tokenizer: Tokenizer, final_text: FinalText):
        self._text = text
        self._words = split_words(text)
        self._spans = word_spans(text)
        self._context = context
        self._words_of = tokenizer.words_of
        self._final_text = final_text

    def of(self, start: int, end: int) -> tuple[str, int, int]:
        """Returns the text of tokens `start` to `end`, both included, and its place in the context.

        White space within the text becomes one space, as in the original. The place is (first
        character, last character + 1).
        """
        first, last = np.searchsorted(self._context.word_starts, [start, end], side="right") - 1
        places = self._context.places
        # The original looks for the answer's pieces in these words, and takes all words if it does
        # not find them. In a script without spaces a word is a whole sentence.
        if places and places.unspaced[first : last + 1].any():
            begin = int(places.starts[start : end + 1].min())
            stop = max(begin + 1, int(places.ends[start : end + 1].max()))
            return " ".join(split_words(self._text[begin:stop])), begin, stop
        predicted = self._words_of(self._context.ids[start : end + 1].tolist())
        words = self._words[first : last + 1]
        begin, stop = self._final_text(predicted, words)
        # Start of each word in the joined words.
        starts = list(itertools.accumulate((len(word) + 1 for word in words), initial=0))

        def place(position: int) -> int:
            word = bisect.bisect_right(starts, position) - 1
            return self._spans[first + word][0] + position - starts[word]

        return " ".join(words)[begin:stop], place(begin), place(stop - 1) + 1


def predict_answers(
    data: SquadData,
    contexts: Sequence[Context],
    windows: Sequence[ContextWindow],
    logits: Iterable[WindowLogits],
    settings: SquadSettings,
    tokenizer: Tokenizer,
) -> Predictions:
    """Returns the answers to all questions (original: write_predictions).

    `logits` are in the order of `windows`, and read one question at a time.
    """
    predictions = Predictions()
    final_text = FinalText(tokenizer.split_words, settings.verbose_logging)
    counts = collections.Counter(window.example_index for window in windows)
    pairs = zip(windows, logits, strict=True)
    for index, example in enumerate(data.examples):
        # A context without tokens has no window.
        found = list(itertools.islice(pairs, counts[index]))
        own, scored = [window for window, _ in found], [row for _, row in found]
        context = contexts[example.context_index]
        text = data.contexts[example.context_index]
        answer_text = ContextText(text, context, tokenizer, final_text)
        nbest, null_score = find_answers(own, scored, settings, answer_text)
        _add_prediction(predictions, example.qas_id, nbest, null_score, settings)
    next(pairs, None)  # reads `logits` to their end
    return predictions


def write_predictions(predictions: Predictions, output_dir: str) -> None:
    contents = predictions.answers, predictions.nbest, predictions.null_odds
    for name, content in zip(FILES, contents, strict=True):
        if content:
            write_json(content, os.path.join(output_dir, name))


def write_json(content: Mapping, path: str) -> None:
    """Writes a JSON file in the original's layout."""
    write_whole(path, json.dumps(content, indent=4) + "\n")


def _add_prediction(
    predictions: Predictions,
    qas_id: str,
    nbest: Sequence[Candidate],
    null_score: NullScore,
    settings: SquadSettings,
) -> None:
    probabilities = softmax([answer.score for answer in nbest])
    predictions.nbest[qas_id] = [
        {
            "text": answer.text,
            "probability": probability,
            "start_logit": answer.start_logit,
            "end_logit": answer.end_logit,
        }
        for answer, probability in zip(nbest, probabilities, strict=True)
    ]
    best = next((answer for answer in nbest if answer.text), None)
    predictions.best_answers[qas_id] = best.text if best else ""
    chosen = nbest[0].text
    if settings.version_2_with_negative:
        odds = predictions.null_odds[qas_id] = null_odds(best, null_score)
        chosen = best.text if best and odds <= settings.null_score_diff_threshold else ""
    predictions.answers[qas_id] = chosen


def null_odds(best: Candidate | None, null_score: NullScore) -> float:
    """Returns the score of "no answer" minus the best answer's; with a classifier, its logit."""
    if not best:
        return NO_OTHER_ANSWER
    value, is_odds = null_score
    return value if is_odds else value - best.start_logit - best.end_logit


def find_answers(
    windows: Sequence[ContextWindow],
    logits: Sequence[WindowLogits],
    settings: AnswerSettings,
    context: ContextText,
) -> tuple[list[Candidate], NullScore]:
    """Returns the most likely answers with different texts, and the score of "no answer".

    For SQuAD 2.0 the answers include "no answer", with the text "", unless a classifier scores it.
    If nothing is found, the only answer is "empty", as in the original.
    """
    null, null_score = Candidate("", 0.0, 0.0), NO_OTHER_ANSWER
    for window in logits:
        if window.null_score < null_score:
            null = Candidate("", float(window.start[0]), float(window.end[0]))
            null_score = window.null_score
    has_classifier = any(window.impossible is not None for window in logits)
    lists_null = settings.version_2_with_negative and not has_classifier
    spans = _token_spans(windows, logits, settings)
    if lists_null:
        spans.append((None, None, null.start_logit, null.end_logit))
    spans.sort(key=lambda span: span[2] + span[3], reverse=True)
    texts: dict[str, Candidate] = {}
    for first, last, start_logit, end_logit in spans:
        if len(texts) >= settings.n_best_size:
            break
        text, start, end = ("", 0, 0) if first is None else context.of(first, last)
        if text not in texts:
            texts[text] = Candidate(text, start_logit, end_logit, start, end)
    if lists_null:
        texts.setdefault("", null)
    found = list(texts.values()) or [Candidate("empty", 0.0, 0.0)]
    return found, NullScore(null_score, has_classifier)


def _token_spans(
    windows: Sequence[ContextWindow], logits: Sequence[WindowLogits], settings: AnswerSettings
) -> list[tuple[int | None, int | None, float, float]]:
    # An answer is one of the `_pairs` of a window, lies in the context, has at most
    # `max_answer_length` tokens, and starts at a token that has its maximum context in this window.
    found = []
    most_context = max_context([window.span for window in windows])
    for window, of_window, has_most_context in zip(windows, logits, most_context, strict=True):
        pairs = _pairs(of_window, window, settings.n_best_size)
        first, last = pairs[0] - window.offset, pairs[1] - window.offset
        length = window.span.length
        kept = (first >= 0) & (first <= last) & (last < length)
        kept &= last - first < settings.max_answer_length
        kept[kept] = has_most_context[first[kept]]
        columns = first + window.span.start, last + window.span.start, *pairs[2:]
        found += zip(*(column[kept].tolist() for column in columns), strict=True)
    return found


def _pairs(logits: WindowLogits, window: ContextWindow, n_best_size: int) -> list[np.ndarray]:
    """Returns starts, ends and the logits of both: all pairs of the n best, or the beam."""
    if (beam := logits.beam) is not None:
        size = beam.ends.shape[-1]
        scores = np.float64(beam.start_scores), np.float64(beam.end_scores)
        starts, start_scores = np.repeat(beam.starts, size), np.repeat(scores[0], size)
        return [starts, beam.ends.ravel(), start_scores, scores[1].ravel()]
    starts = _best_positions(logits.start, window, n_best_size)
    ends = _best_positions(logits.end, window, n_best_size)
    first, last = np.repeat(starts, len(ends)), np.tile(ends, len(starts))
    return [first, last, logits.start[first], logits.end[last]]


def _best_positions(logits: np.ndarray, window: ContextWindow, n_best_size: int) -> np.ndarray:
    """Returns the n best positions that are in the window's span."""
    # The n best are chosen from all positions, question and padding included, as in the original.
    best = np.argsort(-logits, kind="stable")[:n_best_size]
    return best[(best >= window.offset) & (best < window.offset + window.span.length)]


def softmax(scores: Sequence[float]) -> list[float]:
    """Returns the softmax of scores, computed with Python floats as in the original."""
    highest = max(scores)
    exponentials = [math.exp(score - highest) for score in scores]
    total = functools.reduce(operator.add, exponentials)  # `sum` rounds less since Python 3.12
    return [value / total for value in exponentials]
