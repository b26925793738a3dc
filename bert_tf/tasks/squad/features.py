"""Converts questions and contexts to records: windows of `max_seq_length` tokens.

A context that is too long for one sequence is split into overlapping windows.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.tasks.squad.examples import SquadData, SquadExample, split_words
from bert_tf.tasks.squad.schema import squad_schema
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer

# From the original's convert_examples_to_features.
FIRST_UNIQUE_ID = 1000000000

_BATCH_WORDS = 20000  # words for one call of the tokenizer


class Context(NamedTuple):
    """The word pieces of a context.

    ids: int32 [tokens].
    word_starts: int32 [words + 1]. The tokens of word w are word_starts[w] to
        word_starts[w + 1] - 1.
    """

    ids: np.ndarray
    word_starts: np.ndarray


class Span(NamedTuple):
    """`length` tokens of a context, beginning at token `start` (original: _DocSpan)."""

    start: int
    length: int


@dataclasses.dataclass(frozen=True, slots=True)
class ContextWindow:
    """The sequence of one record: [CLS] question [SEP] span of the context [SEP].

    unique_id: id of the record, counted from 1000000000.
    example_index: index of the question in `SquadData.examples`.
    offset: position in the sequence where the span begins.
    span: the span.
    """

    unique_id: int
    example_index: int
    offset: int
    span: Span


def tokenize_contexts(
    contexts: Sequence[str], tokenizer: Tokenizer, batch_words: int = _BATCH_WORDS
) -> list[Context]:
    """Returns the word pieces of each context, tokenized word by word as in the original.

    Args:
        contexts: the contexts.
        tokenizer: the tokenizer.
        batch_words: number of words after which the tokenizer is called.
    """
    result = []
    waiting: list[list[str]] = []

    def flush() -> None:
        ids, splits = tokenizer.encode(list(itertools.chain.from_iterable(waiting)))
        word = 0
        for words in waiting:
            starts = splits[word : word + len(words) + 1]
            result.append(
                Context(ids[starts[0] : starts[-1]].copy(), (starts - starts[0]).astype(np.int32))
            )
            word += len(words)
        waiting.clear()

    words_waiting = 0
    for context in contexts:
        words = split_words(context)
        # If a vocabulary's pieces contain spaces, the space before a word changes its pieces.
        waiting.append(words[:1] + [f" {word}" for word in words[1:]])
        words_waiting += len(waiting[-1])
        if words_waiting >= batch_words:
            flush()
            words_waiting = 0
    flush()
    return result


def make_spans(num_tokens: int, max_tokens: int, doc_stride: int) -> list[Span]:
    """Returns spans of at most `max_tokens` that start `doc_stride` apart and cover all tokens."""
    spans = []
    start = 0
    while start < num_tokens:
        length = min(num_tokens - start, max_tokens)
        spans.append(Span(start, length))
        if start + length == num_tokens:
            break
        start += min(length, doc_stride)
    return spans


def make_inputs(
    query: Sequence[int],
    context: Context,
    max_seq_length: int,
    doc_stride: int,
    layout: sequences.Layout,
) -> Iterator[tuple[Span, dict[str, list[int]]]]:
    """Yields each span of a context, and the model's input: [CLS] query [SEP] span [SEP].

    Args:
        query: ids of the question.
        context: word pieces of the context.
        max_seq_length: length of each input, see `sequences.pack_pair`.
        doc_stride: see `make_spans`.
        layout: the special tokens.
    """
    ids = context.ids.tolist()
    max_tokens = max_seq_length - len(query) - layout.num_special(is_pair=True)
    for span in make_spans(len(ids), max_tokens, doc_stride):
        text = ids[span.start : span.start + span.length]
        yield span, sequences.pack_pair(query, text, max_seq_length, layout)


def max_context(spans: Sequence[Span]) -> list[np.ndarray]:
    """Returns for each span a bool [length]: True for tokens that have their maximum context there.

    A token in several spans has its maximum context in exactly one: the span with the largest
    min(tokens to its left, tokens to its right). (Original: _check_is_max_context.)
    """
    end = max((span.start + span.length for span in spans), default=0)
    best_score = np.full(end, -1.0)
    best_span = np.zeros(end, np.int64)
    for index, (start, length) in enumerate(spans):
        left = np.arange(length)
        score = np.minimum(left, left[::-1]) + 0.01 * length
        better = score > best_score[start : start + length]
        best_score[start : start + length][better] = score[better]
        best_span[start : start + length][better] = index
    return [best_span[start : start + length] == i for i, (start, length) in enumerate(spans)]


def improve_answer_span(
    ids: Sequence[int], start: int, end: int, answer_ids: Sequence[int]
) -> tuple[int, int]:
    """Returns the first and last token of the answer within tokens `start` to `end`.

    Words are coarse: the answer "1895" is one of the five tokens of the word "(1895-1943).". If the
    answer's tokens are not found, the function returns (start, end). (Original:
    _improve_answer_span, which compares joined tokens, with the same result.)

    Args:
        ids: tokens of the context.
        start: first token of the answer's first word.
        end: last token of the answer's last word.
        answer_ids: tokens of the answer.
    """
    within = list(ids[start : end + 1])
    size, wanted = len(answer_ids), list(answer_ids)
    for i in range(len(within) - size + 1) if size else ():
        if within[i : i + size] == wanted:
            return start + i, start + i + size - 1
    return start, end


class SquadEncoder(ExampleEncoder):
    """Turns a question into records, one for each window of its context.

    Records, ids and order match the original's (convert_examples_to_features, FeatureWriter).

    Args:
        data: the questions; each must be encoded once, in order.
        tokenizer: its vocabulary must have [CLS] and [SEP].
        settings: `max_seq_length`, `doc_stride` and `max_query_length` are used.
        is_training: whether the records have the answers' positions.

    Raises:
        UserError: `max_seq_length` leaves no room for the text next to the longest question.

    Attributes:
        windows: the window of each record so far, without its tokens.
    """

    unit = "questions"
    num_logged = 20

    def __init__(
        self, data: SquadData, tokenizer: Tokenizer, settings: SquadSettings, is_training: bool
    ):
        length = settings.max_seq_length
        taken = settings.max_query_length + tokenizer.layout.num_special(is_pair=True)
        if length <= taken:
            raise UserError(
                f"--max_seq_length={length} must be greater than {taken}, which"
                f" --max_query_length={settings.max_query_length} and the special tokens of a pair"
                " take up"
            )
        super().__init__(tokenizer, length, squad_schema(length, is_training))
        self._texts = data.contexts
        self.windows: list[ContextWindow] = []
        self._settings = settings
        self._is_training = is_training
        self._num_questions = 0

    @functools.cached_property
    def contexts(self) -> list[Context]:
        """The word pieces of the contexts."""
        return tokenize_contexts(self._texts, self.tokenizer)

    def texts(self, example: SquadExample) -> list[str]:
        """Returns the question and, for training, its first answer with and without a space."""
        if not (self._is_training and example.answers):
            return [example.question_text]
        answer = example.answers[0]
        return [example.question_text, f" {answer}", answer]

    def records(self, example: SquadExample, ids: list[list[int]]) -> Iterator[Record]:
        query, *answer_ids = ids
        query = query[: self._settings.max_query_length]
        context, layout = self.contexts[example.context_index], self.tokenizer.layout
        answer = _answer_tokens(example, context, answer_ids) if self._is_training else None
        offset, index = layout.second_start(len(query)), self._num_questions
        self._num_questions += 1
        for span, values in make_inputs(
            query, context, self.max_seq_length, self._settings.doc_stride, layout
        ):
            unique_id = FIRST_UNIQUE_ID + len(self.windows)
            window = ContextWindow(unique_id, index, offset, span)
            self.windows.append(window)
            record: Record = {**values, "unique_ids": [unique_id]}
            if self._is_training:
                start, end = _positions(window, answer)
                record |= {"start_positions": [start], "end_positions": [end]}
                record["is_impossible"] = [int(example.is_impossible)]
            yield record

    def describe(self, example: SquadExample, record: Mapping[str, list]) -> Iterator[str]:
        """Yields the original's lines, without the lists of ids, zeros and ones."""
        yield f"unique_id: {record['unique_ids'][0]}"
        yield f"example_index: {self._num_questions - 1}"
        yield from super().describe(example, record)
        if not self._is_training:
            return
        if example.is_impossible:
            yield "impossible example"
            return
        start, end = record["start_positions"][0], record["end_positions"][0]
        yield f"start_position: {start}"
        yield f"end_position: {end}"
        answer = record["input_ids"][start : end + 1]
        yield f"answer: {' '.join(self.tokenizer.inv_vocab[i] for i in answer)}"


def _answer_tokens(
    example: SquadExample, context: Context, answer_ids: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """Returns the answer's first and last token in the context, or None without an answer.

    Args:
        example: the question.
        context: word pieces of its context.
        answer_ids: ways to tokenize the answer; the first that occurs in the context counts.
    """
    if example.is_impossible:
        return None
    start = int(context.word_starts[:-1][example.start_position])
    end = int(context.word_starts[1:][example.end_position]) - 1
    ids = context.ids.tolist()
    spans = [improve_answer_span(ids, start, end, answer) for answer in answer_ids]
    return next((span for span in spans if span != (start, end)), (start, end))


def _positions(window: ContextWindow, answer: tuple[int, int] | None) -> tuple[int, int]:
    """Returns the answer's first and last position in the sequence; 0, 0 if it is outside."""
    first, length = window.span
    if answer is None or answer[0] < first or answer[1] >= first + length:
        return 0, 0
    start, end = (position - first + window.offset for position in answer)
    return start, end
