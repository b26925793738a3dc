"""Converts sentences to records: windows of word pieces, each with the words that it tags.

A window is a sentence, or a part of a long one, with the words around it as context.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.progress import Progress
from bert_tf.tasks.tagging.conll import Sentence
from bert_tf.tasks.tagging.schema import tagging_schema
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer

_LOGGED_EXAMPLES = 5  # original: file_based_convert_examples_to_features


class TaggedWindow(NamedTuple):
    """The words of one record, [begin, end), and the words that it tags, [first, last).

    All four are indices of words in the document.
    """

    begin: int
    end: int
    first: int
    last: int


def make_windows(
    lengths: Sequence[int], sentence_ends: Sequence[int], room: int, document_context: bool
) -> Iterator[TaggedWindow]:
    """Yields the windows of a document. Each word is tagged in exactly one of them.

    There is one window for each sentence, filled up on both sides with whole words from the
    document. A sentence that is too long is cut into parts of at most half a window, so that every
    word has context on both sides.

    Args:
        lengths: number of word pieces of each word of the document.
        sentence_ends: for each sentence, number of words of the document up to its end.
        room: number of word pieces in a window; a word has at most half as many.
        document_context: whether to fill up with words from other sentences of the document, too.
    """
    starts = [0, *sentence_ends[:-1]]
    for start, stop in zip(starts, sentence_ends, strict=True):
        low, high = (0, len(lengths)) if document_context else (start, stop)
        limit = room if sum(lengths[start:stop]) <= room else room // 2
        while start < stop:
            last, size = start, 0
            while last < stop and size + lengths[last] <= limit:
                size += lengths[last]
                last += 1
            begin, end = _widen(lengths, start, last, low, high, room - size)
            yield TaggedWindow(begin, end, start, last)
            start = last


def _widen(
    lengths: Sequence[int], begin: int, end: int, low: int, high: int, room: int
) -> tuple[int, int]:
    """Returns [begin, end) extended by words, in turn before and after it, while there is room."""
    grows = True
    while grows:
        grows = False
        if begin > low and lengths[begin - 1] <= room:
            begin -= 1
            room -= lengths[begin]
            grows = True
        if end < high and lengths[end] <= room:
            room -= lengths[end]
            end += 1
            grows = True
    return begin, end


def tokenize(words: Sequence[str], tokenizer: Tokenizer, most: int) -> list[list[int]]:
    """Returns the word-piece ids of each word: at least one, at most `most`.

    A word without word pieces, such as a control character, becomes [UNK], since its label needs a
    position.
    """
    ids, row_splits = tokenizer.encode(words)
    unknown = [tokenizer.unknown_id]
    return [
        ids[begin : min(end, begin + most)].tolist() or unknown
        for begin, end in itertools.pairwise(row_splits.tolist())
    ]


def write_records(
    sentences: Sequence[Sentence],
    labels: Sequence[str],
    tokenizer: Tokenizer,
    max_seq_length: int,
    document_context: bool,
    output_file: str,
) -> int:
    """Writes a record for each window of the sentences; returns the number of records.

    Records tag the words in the order of the sentences. The file is written atomically.

    Args:
        sentences: sentences; those of a document are consecutive.
        labels: all tags in the order of the logits. Words without a tag get the first.
        tokenizer: its vocabulary must have the tokens of its `layout`.
        max_seq_length: length of the records, [CLS] and [SEP] included.
        document_context: see `make_windows`.
        output_file: the TFRecord file, in --output_dir.

    Raises:
        UserError: `max_seq_length` is too small, or the file cannot be written.
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    if max_seq_length < 4:
        raise UserError(
            "--max_seq_length must be at least 4, for [CLS], a word, a word of context and [SEP];"
            f" got {max_seq_length}"
        )
    schema = tagging_schema(max_seq_length)
    label_ids = {label: i for i, label in enumerate(labels)}
    # In a vocabulary with spaces in its pieces, the space before a word decides on its pieces.
    words = [
        f" {word}" if i else word for sentence in sentences for i, word in enumerate(sentence.words)
    ]
    pieces = iter(tokenize(words, tokenizer, (max_seq_length - 2) // 2))
    written = 0
    with (
        records.write_files([output_file], "output_dir") as write,
        Progress("writing records", "sentences", len(sentences)) as work,
    ):
        for _, group in itertools.groupby(sentences, lambda sentence: sentence.document):
            document = list(group)
            ends = list(itertools.accumulate(len(sentence.words) for sentence in document))
            tags = [tag for s in document for tag in s.tags or [labels[0]] * len(s.words)]
            word_pieces = list(itertools.islice(pieces, ends[-1]))
            word_labels = [label_ids[tag] for tag in tags]
            lengths = [len(ids) for ids in word_pieces]
            for window in make_windows(lengths, ends, max_seq_length - 2, document_context):
                values = _features(window, word_pieces, word_labels, tokenizer, max_seq_length)
                if written < _LOGGED_EXAMPLES:
                    _log_record(values, labels, tokenizer)
                write(records.serialize(values, schema))
                written += 1
            work.advance(len(document))
    return written


def _features(
    window: TaggedWindow,
    pieces: Sequence[list[int]],
    labels: Sequence[int],
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> dict[str, list[int]]:
    """Returns the record of a window.

    Args:
        window: the window.
        pieces: word-piece ids of each word of the document.
        labels: label id of each word of the document.
        tokenizer: the tokenizer of the word pieces.
        max_seq_length: length of the record.
    """
    ids = list(itertools.chain.from_iterable(pieces[window.begin : window.end]))
    label_ids, label_mask = [0] * max_seq_length, [0] * max_seq_length
    position = 1 + sum(map(len, pieces[window.begin : window.first]))
    for word in range(window.first, window.last):
        label_ids[position], label_mask[position] = labels[word], 1
        position += len(pieces[word])
    return {
        **sequences.pack_pair(ids, [], max_seq_length, tokenizer.layout),
        "label_ids": label_ids,
        "label_mask": label_mask,
    }


def _log_record(values: dict[str, list[int]], labels: Sequence[str], tokenizer: Tokenizer) -> None:
    """Logs the tokens of a record and their labels, X for tokens without one."""
    tokens = sequences.unpadded_tokens(values, tokenizer.inv_vocab)
    pairs = zip(values["label_ids"], values["label_mask"], strict=True)
    shown = [labels[label_id] if mask else "X" for label_id, mask in pairs]
    logging.debug("*** Example ***")
    logging.debug("tokens: %s", " ".join(tokens))
    logging.debug("labels: %s", " ".join(shown[: len(tokens)]))
