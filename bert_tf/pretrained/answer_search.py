"""The searches of `answer`: split a context into windows, and turn their logits into answers."""

import abc
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError, quoted
from bert_tf.pretrained.results import Answer
from bert_tf.pretrained.text_input import warn_once
from bert_tf.tasks.arguments import NUMBER, as_list, check_choice, check_count, check_type
from bert_tf.tasks.squad import answers, features
from bert_tf.tasks.squad.settings import AnswerSettings
from bert_tf.tasks.squad.words import FinalText
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer, without_space
from bert_tf.text.sequences import Span, make_spans

# `start_logits` and `end_logits` of each window, float32 [S].
Logits = Sequence[dict[str, np.ndarray]]


class Search(abc.ABC):
    """The search for the answer to one question."""

    rows: list[dict[str, list[int]]]  # the model's input for each window
    is_cut = False  # whether the end of the question is left out
    has_candidate = True  # whether `find` found an answer with text

    def __init__(
        self,
        question: str,
        context: str,
        tokenizer: Tokenizer,
        settings: AnswerSettings,
        max_seq_length: int,
        num_answers: int,
    ):
        self._context = context
        self._tokenizer = tokenizer
        self._settings = settings
        self._num_answers = num_answers
        self._cut(tokenizer.encode([question])[0].tolist(), max_seq_length)

    @abc.abstractmethod
    def _cut(self, query: list[int], max_seq_length: int) -> None:
        """Splits the context into windows and sets `rows`; `query` has the question's ids."""

    @abc.abstractmethod
    def find(self, logits: Logits) -> list[Answer]:
        """Returns the best answers, the best first."""


class RunSquadSearch(Search):
    """Searches as run_squad does: rows are padded, because its n best may include padding."""

    def _cut(self, query: list[int], max_seq_length: int) -> None:
        tokenizer, settings = self._tokenizer, self._settings
        (self._pieces,) = features.tokenize_contexts([self._context], tokenizer)
        self.is_cut = len(query) > settings.max_query_length
        query = query[: settings.max_query_length]
        taken = len(query) + tokenizer.layout.num_special(is_pair=True)
        if max_seq_length <= taken:
            raise UserError(
                f"max_seq_length ({max_seq_length}) must be greater than {taken}, which a question"
                f" ({len(query)} word pieces) and the special tokens take up, to leave room for the"
                " context. Set a greater max_seq_length, at most the model's"
            )
        layout, stride = tokenizer.layout, settings.doc_stride
        inputs = features.make_inputs(query, self._pieces, max_seq_length, stride, layout)
        offset = layout.second_start(len(query))
        self.rows, self._windows = [], []
        for span, row in inputs:
            self.rows.append(row)
            self._windows.append(features.ContextWindow(0, offset, span))

    def find(self, logits: Logits) -> list[Answer]:
        scored = [answers.window_logits(outputs) for outputs in logits]
        settings, tokenizer = self._settings, self._tokenizer
        final_text = FinalText(tokenizer.split_words)
        text = answers.ContextText(self._context, self._pieces, tokenizer, final_text)
        nbest, null_score = answers.find_answers(self._windows, scored, settings, text)
        self.has_candidate = any(candidate.end for candidate in nbest)
        if not self.has_candidate and not settings.version_2_with_negative:
            return [Answer("", 0, 0, 0.0, 0.0)]  # run_squad writes "empty"
        probabilities = answers.softmax([candidate.score for candidate in nbest])
        found = [
            # The context's own text: run_squad's files change its white space.
            Answer(
                self._context[best.start : best.end],
                best.start,
                best.end,
                probability,
                best.score * (not null_score.is_odds) - null_score.value if best.end else 0.0,
            )
            for best, probability in zip(nbest, probabilities, strict=True)
        ]
        if settings.version_2_with_negative:
            if null_score.is_odds:  # the candidates do not include "no answer"
                found.append(Answer("", 0, 0, 1 / (1 + math.exp(-null_score.value)), 0.0))
            best = next((candidate for candidate in nbest if candidate.text), None)
            odds = answers.null_odds(best, null_score)
            # The prediction (an answer or none) comes first, even if others score higher.
            has_answer = odds <= settings.null_score_diff_threshold
            found.sort(key=lambda answer: bool(answer.text) != has_answer)
        return found[: self._num_answers]


class PipelineSearch(Search):
    """The search of the question-answering pipeline of transformers 4."""

    # `doc_stride` is the number of word pieces that two windows share. "No answer" is a candidate
    # if `version_2_with_negative` is set.

    def _cut(self, query: list[int], max_seq_length: int) -> None:
        tokenizer, settings = self._tokenizer, self._settings
        self._pieces = tokenizer.pieces(self._context)
        starts = [i for i, piece in enumerate(self._pieces) if piece.begins_word]
        self._word_starts = np.array([*starts, len(self._pieces)])
        layout = tokenizer.layout
        self._offset = layout.second_start(len(query))
        room = max_seq_length - len(query) - layout.num_special(is_pair=True)
        if room <= settings.doc_stride:
            raise UserError(
                f"A question must leave room for more than doc_stride ({settings.doc_stride}) word"
                f" pieces of the context in max_seq_length ({max_seq_length}); this one has"
                f" {len(query)} word pieces. Shorten the question, or set a smaller doc_stride"
            )
        self._spans = make_spans(len(self._pieces), room, room - settings.doc_stride)
        self.rows = []
        for start, length in self._spans:
            ids = [piece.token_id for piece in self._pieces[start : start + length]]
            self.rows.append(sequences.pack_pair(query, ids, 0, layout))

    def find(self, logits: Logits) -> list[Answer]:
        found: dict[str, Answer] = {}
        if any(answers.BEAM[0] in row for row in logits):
            raise UserError(
                'method="transformers" needs separate end logits; this model predicts start and end'
                ' jointly. Use method="run_squad"'
            )
        null_score = 1e6
        null_logits = min(float(row["start_logits"][0] + row["end_logits"][0]) for row in logits)
        for span, row in zip(self._spans, logits, strict=True):
            places = [0, *range(self._offset, self._offset + span.length)]
            starts, ends = (_softmax(row[f"{side}_logits"][places]) for side in ("start", "end"))
            null_score = min(null_score, float(starts[0] * ends[0]))
            scores = np.triu(np.outer(starts[1:], ends[1:]))
            scores = np.tril(scores, self._settings.max_answer_length - 1)
            best = np.argsort(-scores, axis=None, kind="stable")[: 2 * self._num_answers + 10]
            for start, end in zip(*np.unravel_index(best, scores.shape), strict=True):
                if not scores[start, end]:
                    continue
                begin, stop = self._whole_words(span, start, end)
                if begin >= stop:  # a piece that is only a space
                    continue
                text, score = self._context[begin:stop], float(scores[start, end])
                first, last = places[1 + start], places[1 + end]
                log_odds = float(row["start_logits"][first] + row["end_logits"][last]) - null_logits
                known = found.get(text.lower(), Answer(text, begin, stop, 0.0, log_odds))
                found[text.lower()] = dataclasses.replace(
                    known, score=known.score + score, log_odds=max(known.log_odds, log_odds)
                )
        ranked = list(found.values())
        self.has_candidate = bool(ranked)
        if self._settings.version_2_with_negative or not ranked:
            ranked.append(Answer("", 0, 0, null_score, 0.0))
        return sorted(ranked, key=lambda x: x.score, reverse=True)[: self._num_answers]

    def _whole_words(self, span: Span, start: int, end: int) -> tuple[int, int]:
        # `start` and `end` are the answer's first and last piece in the window.
        pieces = [span.start + start, span.start + end]
        first_word, last_word = np.searchsorted(self._word_starts, pieces, "right") - 1
        first = max(self._word_starts[first_word], span.start)
        last = min(self._word_starts[last_word + 1], span.start + span.length) - 1
        return without_space(self._context, self._pieces[first].start, self._pieces[last].end)


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


SEARCHES: dict[str, type[Search]] = {"run_squad": RunSquadSearch, "transformers": PipelineSearch}


def make_searches(
    question: str | Sequence[str],
    context: str | Sequence[str],
    tokenizer: Tokenizer,
    top_k: int | None,
    null_score_diff_threshold: float | None,
    max_seq_length: int,
    doc_stride: int,
    max_answer_length: int,
    method: str,
) -> tuple[list[Search], bool]:
    """Returns a search per question, and whether `question` is a str; see `Pretrained.answer`."""
    check_count("doc_stride", doc_stride, 1)
    check_count("max_answer_length", max_answer_length, 1)
    check_count("top_k", top_k, 1, default="for the best answer only")
    check_type("null_score_diff_threshold", null_score_diff_threshold, NUMBER, "for SQuAD 1.1")
    check_choice("method", method, SEARCHES)
    questions, single = as_list(question, name="question")
    contexts, one_context = as_list(context, name="context")
    if one_context or len(contexts) == 1:
        contexts = contexts[:1] * len(questions)
    if len(contexts) != len(questions):
        raise UserError(
            f"There must be a context for each question, or one for all; received"
            f" {len(questions)} questions and {len(contexts)} contexts. To ask one question of"
            " several contexts, repeat it: [question] * len(contexts)"
        )
    settings = AnswerSettings(
        doc_stride=doc_stride,
        max_query_length=max(1, min(64, max_seq_length // 2)),
        version_2_with_negative=null_score_diff_threshold is not None,
        n_best_size=max(20, top_k or 1),
        max_answer_length=max_answer_length,
        null_score_diff_threshold=float(null_score_diff_threshold or 0),
    )
    searches = [
        SEARCHES[method](*texts, tokenizer, settings, max_seq_length, top_k or 1)
        for texts in zip(questions, contexts, strict=True)
    ]
    for i, search in enumerate(searches):
        if not search.rows:
            raise UserError(f"context[{i}] must have a word; received {quoted(contexts[i])}")
    if num_cut := sum(search.is_cut for search in searches):
        warn_once(
            tokenizer,
            "%d of %d questions have more than %d word pieces, and are truncated",
            *(num_cut, len(searches), settings.max_query_length),
        )
    return searches, single


def find_all(
    searches: Sequence[Search], logits: Logits, tokenizer: Tokenizer
) -> list[list[Answer]]:
    """Returns the answers of each search, from the logits of all windows in order."""
    rest = iter(logits)
    found = [search.find([next(rest) for _ in search.rows]) for search in searches]
    if num_without := sum(not search.has_candidate for search in searches):
        warn_once(
            tokenizer,
            "%d of %d questions have no answer: the likeliest starts and ends are not in the"
            " context. If many have none, the model is not trained to answer questions",
            *(num_without, len(searches)),
        )
    return found
