"""Converts questions and contexts to records: overlapping windows of `max_seq_length` tokens."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.tasks.squad.examples import SquadData, SquadExample
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.squad.words import PiecePlaces, is_spaced, place_pieces, split_words
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.sequences import Span, make_spans


def squad_schema(max_seq_length: int, is_training: bool) -> records.Schema:
    """Returns the schema of SQuAD records: one window of a text with its question.

    `unique_ids` identify the windows of a file. In `segment_ids` 1 is the text, 0 the question and
    padding. Training adds the labels: `start_positions` and `end_positions`, indices of the
    answer's first and last token in the sequence (0, the index of [CLS], if the window has no
    answer), and `is_impossible` (1 = the question has no answer). Labels that a record lacks are
    read as 0. Names and types: `FeatureWriter` of the original.
    """
    schema = {"unique_ids": records.int64_feature([]), **records.model_inputs([max_seq_length])}
    if is_training:
        position = records.int64_feature([], low=0, high=max_seq_length - 1, default=0)
        schema["start_positions"] = schema["end_positions"] = position
        schema["is_impossible"] = records.int64_feature([], low=0, high=1, default=0)
    return schema


# From the original's convert_examples_to_features.
FIRST_UNIQUE_ID = 1000000000

_CONTEXTS_PER_CALL = 512  # contexts in one call of the tokenizer


class Context(NamedTuple):
    """The word pieces of a context."""

    ids: np.ndarray  # int32 [tokens]
    # int32 [words + 1]; word w has the tokens word_starts[w] to word_starts[w + 1] - 1
    word_starts: np.ndarray
    places: PiecePlaces | None  # None if spaces separate all words


@dataclasses.dataclass(frozen=True, slots=True)
class ContextWindow:
    """The sequence of one record: [CLS] question [SEP] span of the context [SEP]."""

    example_index: int  # index of the question in `SquadData.examples`
    offset: int  # position in the sequence where the span begins
    span: Span


def tokenize_contexts(contexts: Sequence[str], tokenizer: Tokenizer) -> list[Context]:
    """Returns the word pieces of each context, tokenized word by word as in the original."""
    result = []
    for start in range(0, len(contexts), _CONTEXTS_PER_CALL):
        texts = contexts[start : start + _CONTEXTS_PER_CALL]
        batch = [split_words(text) for text in texts]
        if tokenizer.carries_space:
            batch = [words[:1] + [f" {word}" for word in words[1:]] for words in batch]
        ids, splits = tokenizer.encode(list(itertools.chain.from_iterable(batch)))
        all_spaced = is_spaced(" ".join(texts))
        first = 0
        for text, words in zip(texts, batch, strict=True):
            starts = splits[first : first + len(words) + 1]
            first += len(words)
            # A copy, because a view would keep the ids of the whole batch in memory.
            own = ids[starts[0] : starts[-1]].copy()
            starts = (starts - starts[0]).astype(np.int32)
            places = None if all_spaced else place_pieces(text, words, own, starts, tokenizer)
            result.append(Context(own, starts, places))
    return result


def make_inputs(
    query: Sequence[int],
    context: Context,
    max_seq_length: int,
    doc_stride: int,
    layout: sequences.Layout,
) -> Iterator[tuple[Span, dict[str, list[int]]]]:
    """Yields each span of a context, with the model's input: [CLS] query [SEP] span [SEP]."""
    ids = context.ids.tolist()
    max_tokens = max_seq_length - len(query) - layout.num_special(is_pair=True)
    for span in make_spans(len(ids), max_tokens, doc_stride):
        text = ids[span.start : span.start + span.length]
        yield span, sequences.pack_pair(query, text, max_seq_length, layout)


def improve_answer_span(
    ids: Sequence[int], start: int, end: int, answer_ids: Sequence[int]
) -> tuple[int, int]:
    """Returns the first and last token of the answer within tokens `start` to `end` of a context.

    Words are coarse: the answer "1895" is one of the six tokens of the word "(1895-1943).". If the
    answer's tokens are not found, the result is (start, end). (Original: _improve_answer_span,
    which compares joined tokens, with the same result.)
    """
    within = list(ids[start : end + 1])
    size, wanted = len(answer_ids), list(answer_ids)
    for i in range(len(within) - size + 1) if size else ():
        if within[i : i + size] == wanted:
            return start + i, start + i + size - 1
    return start, end


class SquadEncoder(ExampleEncoder):
    """Turns a question into records, one for each window of its context.

    Records, ids and order match the original's (convert_examples_to_features, FeatureWriter). Each
    question of `data` must be encoded once, in order; `windows` has the window of each record.
    """

    unit = "questions"
    length_flag = "max_query_length"  # contexts are split, not cut
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
        self.max_length = settings.max_query_length
        self._texts = data.contexts
        self.windows: list[ContextWindow] = []
        self._settings = settings
        self._is_training = is_training
        self._num_questions = 0

    @functools.cached_property
    def contexts(self) -> list[Context]:
        return tokenize_contexts(self._texts, self.tokenizer)

    def texts(self, example: SquadExample) -> list[str]:
        """Returns the question and, for training, its answer with and without a leading space."""
        if not (self._is_training and example.answers):
            return [example.question_text]
        answer = example.answers[0]
        return [example.question_text, f" {answer}", answer]

    def length_needed(self, ids: list[list[int]]) -> int:
        return len(ids[0])

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
            window = ContextWindow(index, offset, span)
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
    # `answer_ids` are several tokenizations; the first one found in the context is used.
    if example.is_impossible:
        return None
    first_word, last_word = example.start_position, example.end_position
    start = int(context.word_starts[:-1][first_word])
    end = int(context.word_starts[1:][last_word]) - 1
    places = context.places
    # The original takes the answer's first match in these words, or all of them without a match.
    if places and places.unspaced[first_word : last_word + 1].any():
        begin = example.answer_start
        before_end = places.starts[start : end + 1] < begin + len(example.answers[0])
        (found,) = np.nonzero(before_end & (places.ends[start : end + 1] > begin))
        if found.size:
            return start + int(found[0]), start + int(found[-1])
    ids = context.ids.tolist()
    spans = [improve_answer_span(ids, start, end, answer) for answer in answer_ids]
    return next((span for span in spans if span != (start, end)), (start, end))


def _positions(window: ContextWindow, answer: tuple[int, int] | None) -> tuple[int, int]:
    """Returns the answer's first and last position in the sequence; 0, 0 if outside the window."""
    first, length = window.span
    if answer is None or answer[0] < first or answer[1] >= first + length:
        return 0, 0
    start, end = (position - first + window.offset for position in answer)
    return start, end
