"""Reads pairs of texts and single texts from tables, and writes their records."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf import progress
from bert_tf.datasets import tables
from bert_tf.errors import UserError, quoted
from bert_tf.files import records
from bert_tf.tasks.sentences.schema import sentences_schema
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer

_EXAMPLES_PER_BATCH = 2048  # examples in one call of the tokenizer
_LOGGED_EXAMPLES = 5  # as in the original's programs


@dataclasses.dataclass(frozen=True)
class Sentences:
    """A pair of texts, or a single one.

    texts: two or one.
    score: how near the two are in meaning; 0 where it is not known.
    """

    texts: tuple[str, ...]
    score: float = 0.0


def read_sentences(
    path: str,
    columns: Mapping[str, str | None],
    has_header: bool,
    delimiter: str | None,
    needed_by: str,
    score_scale: float | None = None,
    refuse_empty_rows: bool = False,
) -> list[Sentences]:
    """Returns the sentences of a table's rows.

    Args:
        path: the file.
        columns: the names of the columns to read by their flags, of `text_a_column`,
            `text_b_column` and `label_column`; those that are not there are not read.
        has_header: whether the first line names the columns.
        delimiter: see `tables.read_table`.
        needed_by: what needs the columns, for messages.
        score_scale: the greatest score; the least is its negative. None for no bounds.
        refuse_empty_rows: whether to raise at an empty row that has an example after it. Otherwise
            empty rows are passed over.

    Raises:
        UserError: the file or a row is not as it must be; the message names the line.
    """
    rows = tables.read_table(path, delimiter, has_header)
    numbers = tables.column_numbers(rows, path, has_header, columns, needed_by)
    texts = [numbers[name] for name in ("text_a_column", "text_b_column") if name in numbers]
    label = numbers.get("label_column")
    needed = 1 + max(numbers.values())
    found: list[Sentences] = []
    empty = None
    for i, row in rows[has_header:]:
        if not row:
            empty = i
            continue
        if refuse_empty_rows and empty is not None:
            raise tables.empty_row(path, empty)
        place = f"{path}, line {i + 1}"
        if len(row) < needed:
            raise tables.short_row(row, needed, place)
        score = 0.0 if label is None else _score(row[label], score_scale, place)
        found.append(Sentences(tuple(row[number] for number in texts), score))
    if not found:
        raise tables.no_examples(path, has_header)
    return found


def _score(text: str, score_scale: float | None, place: str) -> float:
    """Returns the score that a text stands for, which must be within the bounds."""
    greatest = score_scale or float(np.finfo(np.float32).max)  # records hold float32
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if abs(value) <= greatest:
        return value
    rule, remedy = "a number", "--label_column"
    if score_scale:
        rule = f"a number from {-score_scale:g} to {score_scale:g} (--score_scale)"
        remedy += " or --score_scale"
    raise UserError(
        f"{place}: score {quoted(text)} must be {rule}; correct or delete the line, or change"
        f" {remedy}"
    )


def write_records(
    sentences: Sequence[Sentences],
    tokenizer: Tokenizer,
    max_seq_length: int,
    output_file: str,
) -> int:
    """Writes one record for each example, in the same order; returns their number.

    Each text becomes [CLS] text [SEP], a sequence of its own, cut at its end if it is too long.
    The file is written atomically.

    Args:
        sentences: the examples, all with the same number of texts; at least one.
        tokenizer: its vocabulary must have the tokens of its `layout`.
        max_seq_length: length of each sequence.
        output_file: the TFRecord file.

    Raises:
        UserError: the file cannot be written.
    """
    schema = sentences_schema(max_seq_length, len(sentences[0].texts))
    written = 0
    with (
        records.write_files([output_file], "output_dir") as write,
        progress.Progress("writing records", "examples", len(sentences)) as work,
    ):
        for start in range(0, len(sentences), _EXAMPLES_PER_BATCH):
            batch = sentences[start : start + _EXAMPLES_PER_BATCH]
            for example, ids in _tokenize(batch, tokenizer):
                packed = [
                    sequences.truncate_and_pack(text, [], max_seq_length, tokenizer.layout)
                    for text in ids
                ]
                if written < _LOGGED_EXAMPLES:
                    _log(packed, example.score, tokenizer)
                # Each feature has the sequences of all texts one after another.
                values = {name: sum((text[name] for text in packed), []) for name in packed[0]}
                write(records.serialize({**values, "label_ids": [example.score]}, schema))
                written += 1
            work.advance(len(batch))
    return written


def _tokenize(
    batch: Sequence[Sentences], tokenizer: Tokenizer
) -> Iterator[tuple[Sentences, list[list[int]]]]:
    """Yields each example with the ids of its texts."""
    ids, splits = tokenizer.encode([text for example in batch for text in example.texts])
    pieces = iter([ids[i:j].tolist() for i, j in itertools.pairwise(splits)])
    for example in batch:
        yield example, list(itertools.islice(pieces, len(example.texts)))


def _log(packed: Sequence[dict[str, list[int]]], score: float, tokenizer: Tokenizer) -> None:
    """Logs a record in the style of the original's programs."""
    logging.debug("*** Example ***")
    for text in packed:
        tokens = sequences.unpadded_tokens(text, tokenizer.inv_vocab)
        logging.debug("tokens: %s", " ".join(tokens))
    logging.debug("score: %s", score)
