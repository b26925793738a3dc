"""Converts questions and contexts to records: windows of `max_seq_length` tokens.

A context that is too long for one sequence is cut into overlapping windows.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.files import records
from bert_tf.progress import Progress
from bert_tf.tasks.squad.examples import SquadData, SquadExample, split_words
from bert_tf.tasks.squad.schema import squad_schema
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer

# From the original's convert_examples_to_features.
FIRST_UNIQUE_ID = 1000000000
_LOGGED_EXAMPLES = 20

# Words and questions for one call of the tokenizer.
_BATCH_WORDS = 20000
_BATCH_EXAMPLES = 1000


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
        # In a vocabulary with spaces in its pieces, the space before a word decides on its pieces.
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

    A token that is in several spans has it in exactly one: that with the largest min(tokens to its
    left, tokens to its right). (Original: _check_is_max_context.)
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

    Words are coarse: the answer "1895" lies in the word "(1895-1943).", of which it is one of five
    tokens. If the answer's tokens are not found, it returns (start, end). (Original:
    _improve_answer_span, which compares joined tokens to the same effect.)

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


def write_records(
    path: str,
    data: SquadData,
    contexts: Sequence[Context],
    tokenizer: Tokenizer,
    settings: SquadSettings,
    is_training: bool,
) -> list[ContextWindow]:
    """Writes a record for each window of each question; returns the windows in order.

    Records, ids and order are those of the original (convert_examples_to_features, FeatureWriter).
    The windows in memory hold no tokens.

    Args:
        path: the TFRecord file, in --output_dir.
        data: the questions.
        contexts: word pieces of `data.contexts`.
        tokenizer: the tokenizer of the word pieces; its vocabulary must have [CLS] and [SEP].
        settings: `max_seq_length`, `doc_stride` and `max_query_length` are used.
        is_training: whether the records have the answers' positions.

    Raises:
        UserError: the file cannot be written.
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    schema = squad_schema(settings.max_seq_length, is_training)
    layout = tokenizer.layout
    windows: list[ContextWindow] = []
    with (
        records.write_files([path], "output_dir") as write,
        Progress("making records", "questions", len(data.examples)) as work,
    ):
        queries = _queries(data.examples, tokenizer, settings.max_query_length)
        for index, (example, query, answer_ids) in enumerate(queries):
            context = contexts[example.context_index]
            answer = _answer_tokens(example, context, answer_ids) if is_training else None
            for span, values in make_inputs(
                query, context, settings.max_seq_length, settings.doc_stride, layout
            ):
                unique_id = FIRST_UNIQUE_ID + len(windows)
                window = ContextWindow(unique_id, index, layout.second_start(len(query)), span)
                values["unique_ids"] = [unique_id]
                if is_training:
                    start, end = _positions(window, answer)
                    values["start_positions"], values["end_positions"] = [start], [end]
                    values["is_impossible"] = [int(example.is_impossible)]
                if index < _LOGGED_EXAMPLES:
                    _log_record(window, values, tokenizer)
                write(records.serialize(values, schema))
                windows.append(window)
            work.advance()
    return windows


def _queries(
    examples: Sequence[SquadExample], tokenizer: Tokenizer, max_query_length: int
) -> Iterator[tuple[SquadExample, list[int], list[list[int]]]]:
    """Yields (example, ids of its question, ids of its first answer with and without a space).

    The ids of the answer are [] if there is none.
    """
    for begin in range(0, len(examples), _BATCH_EXAMPLES):
        batch = examples[begin : begin + _BATCH_EXAMPLES]
        questions = [example.question_text for example in batch]
        answers = [example.answers[0] if example.answers else "" for example in batch]
        within = [f" {answer}" if answer else "" for answer in answers]
        ids, splits = tokenizer.encode(questions + within + answers)
        rows = [ids[i:j].tolist() for i, j in itertools.pairwise(splits)]
        for i, example in enumerate(batch):
            yield example, rows[i][:max_query_length], rows[len(batch) + i :: len(batch)]


def _answer_tokens(
    example: SquadExample, context: Context, answer_ids: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """Returns the answer's first and last token in the context, or None without an answer.

    Args:
        example: the question.
        context: word pieces of its context.
        answer_ids: the answer's tokens, as they may be in the context; the first that are count.
    """
    if example.is_impossible:
        return None
    start = int(context.word_starts[:-1][example.start_position])
    end = int(context.word_starts[1:][example.end_position]) - 1
    ids = context.ids.tolist()
    spans = [improve_answer_span(ids, start, end, answer) for answer in answer_ids]
    return next((span for span in spans if span != (start, end)), (start, end))


def _positions(window: ContextWindow, answer: tuple[int, int] | None) -> tuple[int, int]:
    """Returns the answer's first and last position in the sequence; 0, 0 if it is not inside."""
    first, length = window.span
    if answer is None or answer[0] < first or answer[1] >= first + length:
        return 0, 0
    start, end = (position - first + window.offset for position in answer)
    return start, end


def _log_record(window: ContextWindow, values: dict[str, list[int]], tokenizer: Tokenizer) -> None:
    """Logs a record as in the original, without the lists of ids, zeros and ones."""
    tokens = sequences.unpadded_tokens(values, tokenizer.inv_vocab)
    logging.debug("*** Example ***")
    logging.debug("unique_id: %d", window.unique_id)
    logging.debug("example_index: %d", window.example_index)
    logging.debug("tokens: %s", " ".join(tokens))
    if "start_positions" in values:
        start, end = values["start_positions"][0], values["end_positions"][0]
        if values["is_impossible"][0]:
            logging.debug("impossible example")
        else:
            logging.debug("start_position: %d", start)
            logging.debug("end_position: %d", end)
            logging.debug("answer: %s", " ".join(tokens[start : end + 1]))
