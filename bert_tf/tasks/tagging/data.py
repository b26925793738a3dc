"""Tagged sentences -> records: windows of word pieces, each with the words that it tags."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf import progress
from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.tasks.tagging.conll import Sentence
from bert_tf.tasks.tagging.schema import tagging_schema
from bert_tf.text import sequences
from bert_tf.text.fast_tokenization import FastTokenizer

REQUIRED_TOKENS = (*sequences.REQUIRED_TOKENS, "[UNK]")
_LOGGED_EXAMPLES = 5  # as in the original's file_based_convert_examples_to_features


class TaggedWindow(NamedTuple):
    """Words that one record holds, [begin, end), and those among them it tags, [first, last)."""

    begin: int
    end: int
    first: int
    last: int


def make_windows(
    lengths: Sequence[int], sentence_ends: Sequence[int], room: int, document_context: bool
) -> Iterator[TaggedWindow]:
    """Yields windows over a document, one for each sentence; every word is tagged by one of them.

    A window holds its sentence and, on both sides as far as there is room for whole words, what
    stands around it in the document. A sentence without room is cut into parts of at most half
    the room, so that each word sees some of what is on either side of it.

    Args:
        lengths: pieces of each word of the document.
        sentence_ends: for each sentence the number of words up to its end.
        room: pieces that a window has room for; no word has more than half as many.
        document_context: whether windows reach beyond their sentence.
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
    """Returns [begin, end) with words added in turn before and behind while there is room."""
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


def tokenize(words: Sequence[str], tokenizer: FastTokenizer, most: int) -> list[list[int]]:
    """Returns the ids of each word's pieces: at least one, at most `most`.

    A word that the tokenizer leaves nothing of, such as a control character, is [UNK]: it must
    have a piece that carries its label.
    """
    ids, row_splits = tokenizer.encode(words)
    unknown = [tokenizer.vocab["[UNK]"]]
    return [
        ids[begin : min(end, begin + most)].tolist() or unknown
        for begin, end in itertools.pairwise(row_splits.tolist())
    ]


def write_records(
    sentences: Sequence[Sentence],
    labels: Sequence[str],
    tokenizer: FastTokenizer,
    max_seq_length: int,
    document_context: bool,
    output_file: str,
) -> int:
    """Returns the number of records written; they tag the words of the sentences in their order.

    The file takes its name when it is complete.

    Args:
        sentences: those of a document one after another.
        labels: every tag that they may have; words without one get the first.
        tokenizer: must know `REQUIRED_TOKENS`.
        max_seq_length: length of the records, [CLS] and [SEP] included.
        document_context: see `make_windows`.
        output_file: the TFRecord file.

    Raises:
        UserError: `max_seq_length` has no room, or the file cannot be written.
    """
    if max_seq_length < 4:
        raise UserError(
            "--max_seq_length must be at least 4, for [CLS], a word, one beside it and [SEP]; got"
            f" {max_seq_length}"
        )
    schema = tagging_schema(max_seq_length)
    label_ids = {label: i for i, label in enumerate(labels)}
    words = [word for sentence in sentences for word in sentence.words]
    pieces = iter(tokenize(words, tokenizer, (max_seq_length - 2) // 2))
    written = 0
    with (
        records.write_files([output_file], "output_dir") as write,
        progress.Progress("writing records", "sentences", len(sentences)) as work,
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
                    _log(values, labels, tokenizer)
                write(records.serialize(values, schema))
                written += 1
            work.advance(len(document))
    return written


def _features(
    window: TaggedWindow,
    pieces: Sequence[list[int]],
    labels: Sequence[int],
    tokenizer: FastTokenizer,
    max_seq_length: int,
) -> dict[str, list[int]]:
    """Returns the record of a window over a document's words, their pieces and labels."""
    ids = list(itertools.chain.from_iterable(pieces[window.begin : window.end]))
    label_ids, label_mask = [0] * max_seq_length, [0] * max_seq_length
    position = 1 + sum(map(len, pieces[window.begin : window.first]))
    for word in range(window.first, window.last):
        label_ids[position], label_mask[position] = labels[word], 1
        position += len(pieces[word])
    cls_id, sep_id = (tokenizer.vocab[token] for token in sequences.REQUIRED_TOKENS)
    return {
        **sequences.pack_pair(ids, [], max_seq_length, cls_id, sep_id),
        "label_ids": label_ids,
        "label_mask": label_mask,
    }


def _log(values: dict[str, list[int]], labels: Sequence[str], tokenizer: FastTokenizer) -> None:
    """Logs a record in the manner of the original's programs, X being what does not count."""
    length = sum(values["input_mask"])
    counted = zip(values["label_ids"][:length], values["label_mask"], strict=False)
    tokens = [tokenizer.inv_vocab[token_id] for token_id in values["input_ids"][:length]]
    logging.debug("*** Example ***")
    logging.debug("tokens: %s", " ".join(tokens))
    shown = [labels[label_id] if mask else "X" for label_id, mask in counted]
    logging.debug("labels: %s", " ".join(shown))
