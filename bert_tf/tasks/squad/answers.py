"""Converts start and end logits to answers, n-best lists and the odds of no answer."""

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.files.whole_files import write_whole
from bert_tf.tasks.squad.examples import SquadData, split_words
from bert_tf.tasks.squad.features import Context, ContextWindow, max_context
from bert_tf.tasks.squad.final_text import FinalText
from bert_tf.tasks.squad.settings import SquadSettings

# The odds of "no answer" for a question without any other candidate: more than any difference of
# logits. It is the original's initial value when it searches the lowest score of "no answer".
NO_OTHER_ANSWER = 1000000.0


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Predictions by question id.

    answers: the answer; "" for no answer.
    nbest: the most likely answers, each with `text`, `probability`, `start_logit`, `end_logit`.
    null_odds: for SQuAD 2.0, score of "no answer" minus score of the best answer.
    best_answers: the most likely answer, "no answer" excluded; "" if there is no candidate.
    """

    answers: dict[str, str] = dataclasses.field(default_factory=dict)
    nbest: dict[str, list[dict[str, str | float]]] = dataclasses.field(default_factory=dict)
    null_odds: dict[str, float] = dataclasses.field(default_factory=dict)
    best_answers: dict[str, str] = dataclasses.field(default_factory=dict)


class WindowLogits(NamedTuple):
    """The model's output for a window (original: RawResult).

    unique_id: id of the window.
    start, end: float32 [length], logits of each position; at least one for each token.
    """

    unique_id: int
    start: np.ndarray
    end: np.ndarray


class _Scored(NamedTuple):
    """A window with its logits, float64 [length]."""

    window: ContextWindow
    start_logits: np.ndarray
    end_logits: np.ndarray


class _Entry(NamedTuple):
    text: str
    start_logit: float
    end_logit: float


class _ContextText:
    """Maps tokens of a context to its text.

    Args:
        text: the context.
        context: its word pieces.
        tokens: word piece by id.
        final_text: maps joined word pieces to the original words.
    """

    def __init__(
        self, text: str, context: Context, tokens: Mapping[int, str], final_text: FinalText
    ):
        self._words = split_words(text)
        self._context = context
        self._tokens = tokens
        self._final_text = final_text

    def of(self, start: int, end: int) -> str:
        """Returns the text of tokens `start` to `end`, both included."""
        ids = self._context.ids[start : end + 1].tolist()
        pieces = " ".join(self._tokens[token_id] for token_id in ids)
        # Joins word pieces as in the original, where a piece may be just "##".
        predicted = " ".join(pieces.replace(" ##", "").replace("##", "").split())
        first, last = np.searchsorted(self._context.word_starts, [start, end], side="right") - 1
        return self._final_text(predicted, self._words[first : last + 1])


def predict_answers(
    data: SquadData,
    contexts: Sequence[Context],
    windows: Sequence[ContextWindow],
    logits: Iterable[WindowLogits],
    settings: SquadSettings,
    tokens: Mapping[int, str],
) -> Predictions:
    """Returns the answers to all questions (original: write_predictions).

    Args:
        data: the questions.
        contexts: word pieces of `data.contexts`.
        windows: windows of all questions, in order.
        logits: logits of each window, in the same order; read one question at a time.
        settings: `n_best_size`, `max_answer_length`, `version_2_with_negative`,
            `null_score_diff_threshold`, `do_lower_case` and `verbose_logging` are used.
        tokens: word piece by id.

    Raises:
        RuntimeError: the logits come in another order than the windows.
    """
    predictions = Predictions()
    final_text = FinalText(settings.do_lower_case, settings.verbose_logging)
    groups = itertools.groupby(
        zip(windows, logits, strict=True), lambda pair: pair[0].example_index
    )
    group = next(groups, None)
    for index, example in enumerate(data.examples):
        scored = []
        if group and group[0] == index:  # a context without tokens has no window
            scored = [_scored(*pair) for pair in group[1]]
            group = next(groups, None)
        context = contexts[example.context_index]
        text = _ContextText(data.contexts[example.context_index], context, tokens, final_text)
        _add_prediction(predictions, example.qas_id, scored, settings, text)
    return predictions


def write_predictions(predictions: Predictions, output_dir: str, with_null_odds: bool) -> None:
    """Writes predictions.json, nbest_predictions.json and, for SQuAD 2.0, null_odds.json."""
    write_json(predictions.answers, os.path.join(output_dir, "predictions.json"))
    write_json(predictions.nbest, os.path.join(output_dir, "nbest_predictions.json"))
    if with_null_odds:
        write_json(predictions.null_odds, os.path.join(output_dir, "null_odds.json"))


def write_json(content: Mapping, path: str) -> None:
    """Writes a JSON file in the original's layout."""
    write_whole(path, json.dumps(content, indent=4) + "\n")


def _scored(window: ContextWindow, logits: WindowLogits) -> _Scored:
    if window.unique_id != logits.unique_id:
        raise RuntimeError(
            f"logits must come in the order of the windows; expected those of {window.unique_id},"
            f" received those of {logits.unique_id}"
        )
    # float64, since the original adds logits as Python floats.
    return _Scored(window, np.float64(logits.start), np.float64(logits.end))


def _add_prediction(
    predictions: Predictions,
    qas_id: str,
    scored: Sequence[_Scored],
    settings: SquadSettings,
    context: _ContextText,
) -> None:
    """Adds the prediction for one question."""
    null_score, null_start, null_end = NO_OTHER_ANSWER, 0.0, 0.0
    for _, start_logits, end_logits in scored:
        score = float(start_logits[0] + end_logits[0])
        if score < null_score:
            null_score, null_start, null_end = score, float(start_logits[0]), float(end_logits[0])
    null = _Entry("", null_start, null_end)
    nbest = _nbest(scored, null, settings, context)
    probabilities = _softmax([entry.start_logit + entry.end_logit for entry in nbest])
    predictions.nbest[qas_id] = [
        {"text": text, "probability": probability, "start_logit": start, "end_logit": end}
        for (text, start, end), probability in zip(nbest, probabilities, strict=True)
    ]
    best = next((entry for entry in nbest if entry.text), null)
    predictions.best_answers[qas_id] = best.text
    answer = nbest[0].text
    if settings.version_2_with_negative:
        odds = NO_OTHER_ANSWER
        if best.text:
            odds = null_score - best.start_logit - best.end_logit
        predictions.null_odds[qas_id] = odds
        answer = "" if odds > settings.null_score_diff_threshold else best.text
    predictions.answers[qas_id] = answer


def _nbest(
    scored: Sequence[_Scored],
    null: _Entry,
    settings: SquadSettings,
    context: _ContextText,
) -> list[_Entry]:
    """Returns the most likely answers with different texts; for SQuAD 2.0 including no answer."""
    candidates = _candidates(scored, settings)
    if settings.version_2_with_negative:
        candidates.append((None, None, null.start_logit, null.end_logit))
    candidates.sort(key=lambda candidate: candidate[2] + candidate[3], reverse=True)
    texts: dict[str, _Entry] = {}
    for start, end, start_logit, end_logit in candidates:
        if len(texts) >= settings.n_best_size:
            break
        text = "" if start is None else context.of(start, end)
        if text not in texts:
            texts[text] = _Entry(text, start_logit, end_logit)
    if settings.version_2_with_negative:
        texts.setdefault("", null)
    return list(texts.values()) or [_Entry("empty", 0.0, 0.0)]


def _candidates(
    scored: Sequence[_Scored], settings: SquadSettings
) -> list[tuple[int | None, int | None, float, float]]:
    """Returns (first token, last token, start logit, end logit) of all possible answers.

    An answer starts and ends at one of the n best positions of a window, lies in the context, has
    at most `max_answer_length` tokens, and starts at a token with its maximum context.
    """
    candidates = []
    most_context = max_context([window.span for window, _, _ in scored])
    for (window, start_logits, end_logits), has_most_context in zip(
        scored, most_context, strict=True
    ):
        starts = _best_positions(start_logits, window, settings.n_best_size)
        starts = starts[has_most_context[starts]]
        ends = _best_positions(end_logits, window, settings.n_best_size)
        lengths = ends[np.newaxis, :] - starts[:, np.newaxis] + 1
        rows, columns = np.nonzero((lengths >= 1) & (lengths <= settings.max_answer_length))
        first, last = starts[rows], ends[columns]
        candidates += zip(
            (first + window.span.start).tolist(),
            (last + window.span.start).tolist(),
            start_logits[first + window.offset].tolist(),
            end_logits[last + window.offset].tolist(),
            strict=True,
        )
    return candidates


def _best_positions(logits: np.ndarray, window: ContextWindow, n_best_size: int) -> np.ndarray:
    """Returns those of the n best positions that are in the window's span, relative to it."""
    # The n best are chosen from all positions, question and padding included, as in the original.
    best = np.argsort(-logits, kind="stable")[:n_best_size] - window.offset
    return best[(best >= 0) & (best < window.span.length)]


def _softmax(scores: Sequence[float]) -> list[float]:
    """Returns the softmax of scores, computed with Python floats as in the original."""
    highest = max(scores)
    exponentials = [math.exp(score - highest) for score in scores]
    total = 0.0  # not `sum`, which is more precise since Python 3.12
    for value in exponentials:
        total += value
    return [value / total for value in exponentials]
