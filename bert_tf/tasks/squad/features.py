"""Questions and contexts -> windows of `max_seq_length` tokens, and records of them."""

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
from bert_tf.text.fast_tokenization import FastTokenizer

FIRST_UNIQUE_ID = 1000000000

_LOGGED_EXAMPLES = 20
_BATCH_WORDS = 20000
_BATCH_EXAMPLES = 1000


class Context(NamedTuple):
    """The word pieces of a context.

    ids: int32 [tokens].
    word_starts: int32 [words + 1]: word w has the tokens word_starts[w] to word_starts[w + 1] - 1.
    """

    ids: np.ndarray
    word_starts: np.ndarray


class Span(NamedTuple):
    """Some tokens of a context, `length` of them from `start` on (original: _DocSpan)."""

    start: int
    length: int


@dataclasses.dataclass(frozen=True, slots=True)
class ContextWindow:
    """What one record holds: [CLS], the question, [SEP], a span of the context, [SEP].

    unique_id: the number of the record, from 1000000000.
    example_index: the question's place among its file's.
    offset: where in the sequence the span begins.
    span: the span.
    """

    unique_id: int
    example_index: int
    offset: int
    span: Span


def tokenize_contexts(contexts: Sequence[str], tokenizer: FastTokenizer) -> list[Context]:
    """Returns the word pieces of each context, word by word as the original makes them."""
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
        waiting.append(split_words(context))
        words_waiting += len(waiting[-1])
        if words_waiting >= _BATCH_WORDS:
            flush()
            words_waiting = 0
    flush()
    return result


def make_spans(num_tokens: int, max_tokens: int, doc_stride: int) -> list[Span]:
    """Returns the spans of at most `max_tokens`, `doc_stride` apart, that cover all tokens."""
    spans = []
    start = 0
    while start < num_tokens:
        length = min(num_tokens - start, max_tokens)
        spans.append(Span(start, length))
        if start + length == num_tokens:
            break
        start += min(length, doc_stride)
    return spans


def max_context(spans: Sequence[Span]) -> list[np.ndarray]:
    """Returns for each span which of its tokens have the most context there, bool [length].

    A token of several overlapping spans counts in one only: where the smaller of what is to its
    left and to its right is largest (original: _check_is_max_context).
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
    """Returns where in ids[start:end + 1] the answer is, or (start, end) if it is nowhere in it.

    The words of the answer "1895" in "(1895-1943)." are the whole of it, the tokens are one of
    five. (Original: _improve_answer_span. It compares joined tokens, which is the same.)
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
    tokenizer: FastTokenizer,
    settings: SquadSettings,
    is_training: bool,
) -> list[ContextWindow]:
    """Returns the windows of all questions, in order, having written a record of each to a file.

    The records are those of the original's convert_examples_to_features and FeatureWriter. Of a
    window only its place is kept in memory.

    Args:
        path: the TFRecord file, in --output_dir.
        data: questions.
        contexts: its contexts' word pieces.
        tokenizer: what they were made with; it must have [CLS] and [SEP].
        settings: `max_seq_length`, `doc_stride` and `max_query_length` are read.
        is_training: whether the records hold answers.

    Raises:
        UserError: the file cannot be written.
    """
    schema = squad_schema(settings.max_seq_length, is_training)
    cls_id, sep_id = (tokenizer.vocab[token] for token in sequences.REQUIRED_TOKENS)
    windows: list[ContextWindow] = []
    with (
        records.write_files([path], "output_dir") as write,
        Progress("making records", "questions", len(data.examples)) as work,
    ):
        queries = _queries(data.examples, tokenizer, settings.max_query_length)
        for index, (example, query, answer_ids) in enumerate(queries):
            context = contexts[example.context_index]
            ids = context.ids.tolist()
            answer = _answer_tokens(example, context, answer_ids) if is_training else None
            # [CLS], [SEP] and [SEP]
            max_tokens = settings.max_seq_length - len(query) - 3
            for span in make_spans(len(ids), max_tokens, settings.doc_stride):
                unique_id = FIRST_UNIQUE_ID + len(windows)
                window = ContextWindow(unique_id, index, len(query) + 2, span)
                text = ids[span.start : span.start + span.length]
                values = sequences.pack_pair(query, text, settings.max_seq_length, cls_id, sep_id)
                values["unique_ids"] = [unique_id]
                if is_training:
                    start, end = _positions(window, answer)
                    values["start_positions"], values["end_positions"] = [start], [end]
                    values["is_impossible"] = [int(example.is_impossible)]
                if index < _LOGGED_EXAMPLES:
                    _log(window, values, tokenizer)
                write(records.serialize(values, schema))
                windows.append(window)
            work.advance()
    return windows


def _queries(
    examples: Sequence[SquadExample], tokenizer: FastTokenizer, max_query_length: int
) -> Iterator[tuple[SquadExample, list[int], list[int]]]:
    """Yields each question with its ids and, if it has an answer, the first answer's ids."""
    for begin in range(0, len(examples), _BATCH_EXAMPLES):
        batch = examples[begin : begin + _BATCH_EXAMPLES]
        questions = [example.question_text for example in batch]
        answers = [example.answers[0] if example.answers else "" for example in batch]
        ids, splits = tokenizer.encode(questions + answers)
        rows = [ids[i:j].tolist() for i, j in itertools.pairwise(splits)]
        for i, example in enumerate(batch):
            yield example, rows[i][:max_query_length], rows[len(batch) + i]


def _answer_tokens(
    example: SquadExample, context: Context, answer_ids: Sequence[int]
) -> tuple[int, int] | None:
    """Returns the first and the last token of the answer in the context; None if there is none."""
    if example.is_impossible:
        return None
    start = int(context.word_starts[:-1][example.start_position])
    end = int(context.word_starts[1:][example.end_position]) - 1
    return improve_answer_span(context.ids.tolist(), start, end, answer_ids)


def _positions(window: ContextWindow, answer: tuple[int, int] | None) -> tuple[int, int]:
    """Returns the answer's first and last position in the sequence; 0, 0 if it is not all there."""
    first, length = window.span
    if answer is None or answer[0] < first or answer[1] >= first + length:
        return 0, 0
    start, end = (position - first + window.offset for position in answer)
    return start, end


def _log(window: ContextWindow, values: dict[str, list[int]], tokenizer: FastTokenizer) -> None:
    """Logs one record, the lists of zeros and ones aside, as the original does its first ones."""
    length = sum(values["input_mask"])
    tokens = [tokenizer.inv_vocab[token_id] for token_id in values["input_ids"][:length]]
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
