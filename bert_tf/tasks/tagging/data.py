"""CoNLL column files, and the records of their sentences.

Each line of a file has a word in the first column and, if the words are tagged, its tag in the
last. Empty lines end sentences, and `-DOCSTART-` lines begin documents.

A record is a window of word pieces. It tags the words of a sentence, or of a part of a long
sentence, and has the words around them as context.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import records
from bert_tf.files.model_notes import check_label, is_tag
from bert_tf.files.whole_files import check_line_ends, read_text, write_whole
from bert_tf.tasks.arguments import as_names, is_list, plain, received
from bert_tf.tasks.example_records import ExampleEncoder, Record
from bert_tf.tasks.rows import Rows, check_there, read_rows
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer

DOCUMENT_START = "-DOCSTART-"


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence and its tags."""

    words: list[str]
    tags: list[str] | None  # None if the file has no tags
    document: int  # Index of its document. Without `-DOCSTART-` lines every sentence is a document.
    weight: float | None = None  # of each word, in losses and scores; None for 1


def read_sentences(path: str, flag: str, tags_required: bool = True) -> list[Sentence]:
    """Reads the sentences of a CoNLL file, named by `flag`.

    The UTF-8 file has columns separated by spaces or tabs, the same number in each word's line. The
    first column is the word, the last the tag: `O`, `B-TYPE` or `I-TYPE`. `B-` begins every entity
    (IOB2), or only an entity that directly follows one of the same type (IOB1).
    """
    file = f"--{flag}: {path}"
    rule = "it must have a word and its tag on each line"
    text = read_text(path, file, rule)
    check_line_ends(text, file)
    # str.split also splits at other white space.
    rows = [
        (number, re.findall(r"[^ \t\r]+", line)) for number, line in enumerate(text.split("\n"), 1)
    ]
    first_word = next((columns for _, columns in rows if _is_word(columns)), None)
    if first_word is None:
        raise UserError(f"{file} has no sentence; {rule}")
    is_tagged = tags_required or len(first_word) > 1
    sentences = []
    documents = 0
    for are_words, group in itertools.groupby(rows, lambda row: _is_word(row[1])):
        if not are_words:
            documents += sum(columns[:1] == [DOCUMENT_START] for _, columns in group)
            continue
        words, tags = [], []
        for number, columns in group:
            place = f"{file}, line {number}"
            _check_columns(columns, is_tagged, place)
            if len(columns) != len(first_word):
                raise UserError(
                    f"{place}: the line has {len(columns)} columns, but the first word's line has"
                    f" {len(first_word)}, and spaces and tabs separate columns; correct the line."
                    " Split a word with a space over several lines"
                )
            words.append(columns[0])
            tags.append(columns[-1])
        sentences.append(Sentence(words, tags if is_tagged else None, documents))
    if not documents:
        sentences = [dataclasses.replace(s, document=i) for i, s in enumerate(sentences)]
    return sentences


def _is_word(columns: Sequence[str]) -> bool:
    return bool(columns) and columns[0] != DOCUMENT_START


def _check_columns(columns: Sequence[str], is_tagged: bool, place: str) -> None:
    if not is_tagged:
        if len(columns) > 1:
            raise UserError(
                f"{place}: either all words of a file must have tags, or none; the first word has"
                f" no tag, but this line has {len(columns)} columns"
            )
        return
    if len(columns) == 1:
        raise UserError(
            f"{place}: a line must have a word and, in its last column, its tag; this one has only"
            f" {quoted(columns[0])}. Add the tag"
        )
    if not is_tag(columns[-1]):
        raise UserError(
            f"{place}: a tag must be O, B-TYPE or I-TYPE; the last column has"
            f" {quoted(columns[-1])}. Convert tags of other schemes: E- to I-, and S- to"
            " B-; with --tag_scheme=bioes, run_tagging makes E- and S- itself"
        )
    check_label(columns[-1], place)


def write_predictions(
    path: str, sentences: Iterable[Sentence], predicted: Iterable[Sequence[str]]
) -> None:
    """Writes a line for each word with its tag, if known, and its predicted tag, for conlleval."""
    parts = []
    for sentence, tags in zip(sentences, predicted, strict=True):
        columns = [x for x in (sentence.words, sentence.tags, tags) if x is not None]
        lines = (" ".join(line) for line in zip(*columns, strict=True))
        parts.append("\n".join(lines) + "\n\n")
    write_whole(path, "".join(parts))


def tagging_schema(max_seq_length: int, weighted: bool = False) -> records.Schema:
    """Returns the schema of tagging records.

    `label_ids` are indices in the list of labels. `label_mask` is 1 for the first piece of a word
    to tag; 0 for any other piece, a word of the context, [CLS], [SEP] or padding. `weighted`
    records also have `label_weights`, float32, the weight of each label in the loss; it counts
    where `label_mask` is 1.
    """
    inputs = records.model_inputs([max_seq_length])
    weights = records.float_feature([max_seq_length], "max_seq_length", low=0.0)
    return {
        **inputs,
        "label_ids": inputs["input_ids"],
        "label_mask": inputs["input_mask"],
        **({"label_weights": weights} if weighted else {}),
    }


class TaggedWindow(NamedTuple):
    """Indices of words in the document: a record has [begin, end), and tags [first, last)."""

    begin: int
    end: int
    first: int
    last: int


def make_windows(
    lengths: Sequence[int],
    sentence_ends: Sequence[int],
    room: int,
    document_context: bool,
    stride: int | None = None,
) -> Iterator[TaggedWindow]:
    """Yields the windows of a document; each word is tagged in exactly one window.

    Each sentence has a window, filled up on both sides with whole words from the sentence or, with
    `document_context`, the document. A sentence that is too long is split into parts of at most
    `stride` word pieces (None for half a window), but at least one word. Each part is in the middle
    of a window, so that its words have context on both sides.

    Args:
        lengths: number of word pieces of each word of the document.
        sentence_ends: for each sentence, number of words of the document up to its end.
        room: number of word pieces in a window; a word has at most half as many.
    """
    starts = [0, *sentence_ends[:-1]]
    for start, stop in zip(starts, sentence_ends, strict=True):
        low, high = (0, len(lengths)) if document_context else (start, stop)
        limit = room if sum(lengths[start:stop]) <= room else min(stride or room // 2, room)
        while start < stop:
            last, size = start + 1, lengths[start]
            while last < stop and size + lengths[last] <= limit:
                size += lengths[last]
                last += 1
            begin, end = _widen(lengths, start, last, low, high, room - size)
            yield TaggedWindow(begin, end, start, last)
            start = last


def _widen(
    lengths: Sequence[int], begin: int, end: int, low: int, high: int, room: int
) -> tuple[int, int]:
    """Extends [begin, end) by words alternately before and after it, while there is room."""
    before = None
    while before != (begin, end):
        before = begin, end
        if begin > low and lengths[begin - 1] <= room:
            begin -= 1
            room -= lengths[begin]
        if end < high and lengths[end] <= room:
            room -= lengths[end]
            end += 1
    return begin, end


def documents(sentences: Iterable[Sentence]) -> list[list[Sentence]]:
    return [list(found) for _, found in itertools.groupby(sentences, lambda s: s.document)]


def word_weights(sentences: Iterable[Sentence], class_weights: Mapping[str, float]) -> list[float]:
    """Returns each tagged word's weight: the sentence's times the tag's, both 1 by default."""
    return [
        (1.0 if sentence.weight is None else sentence.weight) * class_weights.get(tag, 1.0)
        for sentence in sentences
        for tag in sentence.tags or ()
    ]


class TaggingEncoder(ExampleEncoder):
    """Turns a document into records, one for each window, which tag the words in order.

    `labels` are in the order of the logits; words without a tag get the first label. With
    `class_weights`, by tag, records have `label_weights`. For the windows see `make_windows`.
    """

    unit = "documents"

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_seq_length: int,
        labels: Sequence[str],
        document_context: bool,
        stride: int | None = None,
        class_weights: Mapping[str, float] | None = None,
    ):
        schema = tagging_schema(max_seq_length, weighted=class_weights is not None)
        super().__init__(tokenizer, max_seq_length, schema)
        self.labels = labels
        self._label_ids = {label: i for i, label in enumerate(labels)}
        self._windows = {"document_context": document_context, "stride": stride}
        self._class_weights = class_weights

    def texts(self, example: Sequence[Sentence]) -> list[str]:
        # Pieces of some vocabularies contain the space before a word.
        return [f" {word}" if i else word for s in example for i, word in enumerate(s.words)]

    def length_needed(self, ids: list[list[int]]) -> int:
        """Returns the length that cuts no word: a word may fill at most half of a record's room."""
        return 2 + 2 * max((len(word) for word in ids), default=0)

    def records(self, example: Sequence[Sentence], ids: list[list[int]]) -> Iterator[Record]:
        length, layout = self.max_seq_length, self.tokenizer.layout
        room = length - 2
        # A word without pieces, such as a control character, becomes [UNK], to have a label.
        pieces = [word[: room // 2] or [self.tokenizer.unknown_id] for word in ids]
        tags = [tag for s in example for tag in s.tags or [self.labels[0]] * len(s.words)]
        labels = [self._label_ids[tag] for tag in tags]
        weights = [] if self._class_weights is None else word_weights(example, self._class_weights)
        lengths = [len(word) for word in pieces]
        ends = list(itertools.accumulate(len(sentence.words) for sentence in example))
        for begin, end, first, last in make_windows(lengths, ends, room, **self._windows):
            inputs = list(itertools.chain.from_iterable(pieces[begin:end]))
            label_ids, label_mask, label_weights = [0] * length, [0] * length, [0.0] * length
            position = 1 + sum(lengths[begin:first])  # after [CLS]
            for word in range(first, last):
                label_ids[position], label_mask[position] = labels[word], 1
                if weights:
                    label_weights[position] = weights[word]
                position += lengths[word]
            packed = sequences.pack_pair(inputs, None, length, layout)
            record = {**packed, "label_ids": label_ids, "label_mask": label_mask}
            yield {**record, "label_weights": label_weights} if weights else record

    def describe(self, example: Sequence[Sentence], record: Mapping[str, list]) -> Iterator[str]:
        """Yields the tokens of a record and their labels, X for tokens without a label."""
        yield from super().describe(example, record)
        pairs = zip(record["label_ids"], record["label_mask"], strict=True)
        shown = [self.labels[label_id] if mask else "X" for label_id, mask in pairs]
        yield f"labels: {' '.join(shown[: sum(record['input_mask'])])}"


class TaggingRows(Rows):
    """Rows of words and tags; without `labels`, the tags are collected from the training data."""

    task = "tagging"
    head = "tagging"
    inputs, targets = "sentences", "tags"
    ranks = (1, 1)
    left_out = {"feature_based": "a model in memory has no BiLSTM. Train one with run_tagging.py"}

    def __init__(self, labels: Sequence[str] | None = None):
        self.labels = None if labels is None else as_names(labels, "the tags")

    def examples(self, purpose: str, x: Any, y: Any = None, weights: Any = None) -> list[Sentence]:
        inputs, targets = self.names(purpose)
        needs_tags = purpose != "predict"
        sentences, tags, weights = read_rows(x, y, weights, inputs, targets, needs_tags, self.ranks)
        rows = zip(sentences, tags, weights or [None] * len(sentences), strict=True)
        found = [
            Sentence(*self._sentence(words, own, f"{inputs}[{i}]", f"{targets}[{i}]"), i, weight)
            for i, (words, own, weight) in enumerate(rows)
        ]
        if purpose == "train" and not self.labels:
            self.labels = tuple(sorted({tag for sentence in found for tag in sentence.tags or ()}))
        return found

    def _sentence(
        self, words: Any, tags: Any, place: str, tags_place: str
    ) -> tuple[list[str], list[str] | None]:
        if not is_list(words) or not len(words):
            raise UserError(
                f"{place} must be a list of words, such as text.split(); {received(words)}"
            )
        words = [plain(word) for word in words]
        for i, word in enumerate(words):
            if not isinstance(word, str) or word.split() != [word]:
                raise UserError(
                    f"{place}[{i}] must be a word, without white space; {received(word)}"
                )
        if tags is None:
            return words, None
        if not is_list(tags) or len(tags) != len(words):
            raise UserError(
                f"{tags_place} must be a list of {len(words)} tags, one for each word;"
                f" {received(tags)}"
            )
        return words, [self._tag(plain(tag), f"{tags_place}[{i}]") for i, tag in enumerate(tags)]

    def _tag(self, tag: Any, place: str) -> str:
        check_there(tag, place)
        if isinstance(tag, int) and self.labels and 0 <= tag < len(self.labels):
            return self.labels[tag]
        if isinstance(tag, str) and (tag in self.labels if self.labels else is_tag(tag)):
            return tag
        if self.labels:
            rule = f"one of {listed(self.labels)}"
            hint = "If it is right, name all tags: for_tagging(labels=[...])"
        elif isinstance(tag, int):
            rule, hint = "O, B-TYPE or I-TYPE", "For tags as numbers, name them: labels=[...]"
        else:
            rule, hint = "O, B-TYPE or I-TYPE", "For classes of words, such as NOUN, write B-NOUN"
        raise UserError(f"{place} must be {rule}; {received(tag)}. {hint}")

    def answers(self, outputs: tuple[list[list[str]], list[float], float]) -> list[list[str]]:
        return outputs[0]
