"""Converts texts to the input of a loaded model."""

import itertools
from collections.abc import Iterator, Sequence

from absl import logging

from bert_tf.errors import UserError, quoted
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer


def encode(
    texts: Sequence[str | tuple[str, str]], tokenizer: Tokenizer, max_seq_length: int
) -> list[dict[str, list[int]]]:
    """Returns `sequences.pack_pair` of each text or pair, truncated if too long, not padded."""
    layout = tokenizer.layout
    rows, num_cut = [], 0
    for both in tokenize(texts, tokenizer):
        length = sequences.packed_length(*both, layout)
        num_cut += length > max_seq_length
        rows.append(sequences.truncate_and_pack(*both, min(length, max_seq_length), layout))
    remedy = ". long_text='mean' of classify, encode and rank reads all of a text"
    _warn_of_cut(num_cut, rows, max_seq_length, remedy)
    return rows


def tokenize(
    texts: Sequence[str | tuple[str, str]], tokenizer: Tokenizer
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the ids of each text or pair; a single text has an empty second one."""
    parts = [(text, "") if isinstance(text, str) else text for text in texts]
    ids, edges = tokenizer.encode([part for pair in parts for part in pair])
    for start, middle, end in zip(edges[:-1:2], edges[1::2], edges[2::2], strict=True):
        yield ids[start:middle].tolist(), ids[middle:end].tolist()


def _warn_of_cut(
    num_cut: int, rows: Sequence[object], max_seq_length: int, remedy: str = ""
) -> None:
    if num_cut:
        logging.warning(
            "%d of %d texts have more than %d word pieces with [CLS] and [SEP], and are"
            " truncated%s",
            num_cut,
            len(rows),
            max_seq_length,
            remedy,
        )


def encode_masks(
    texts: Sequence[str], tokenizer: Tokenizer, max_seq_length: int
) -> list[dict[str, list[int]]]:
    """Returns the model's input for texts with [MASK], and `masked_lm_positions` of the masks.

    Raises:
        UserError: a text has no [MASK], or has one beyond the model's longest input, or the
            vocabulary has no [MASK].
    """
    mask, mask_id = tokenizer.mask_token, tokenizer.vocab.get(tokenizer.mask_token)
    if mask_id is None:
        raise UserError(f"The vocabulary has no {mask}, so this model cannot fill one in")
    ids, edges = tokenizer.encode_masks(texts)
    rows, num_cut = [], 0
    for i, (start, end) in enumerate(itertools.pairwise(edges)):
        tokens = ids[start:end].tolist()
        if mask_id not in tokens:
            raise UserError(f"texts[{i}] must have a {mask}; received {quoted(texts[i])}")
        row = sequences.pack_pair(tokens, [], 0, tokenizer.layout)
        positions = [k for k, x in enumerate(row["input_ids"]) if x == mask_id]
        if positions[-1] >= max_seq_length - 1:
            raise UserError(
                f"texts[{i}]: each {mask} must be within the first {max_seq_length - 2} word"
                f" pieces, the model's longest input; the last one is number {positions[-1]}."
                " Shorten the text"
            )
        length = min(len(row["input_ids"]), max_seq_length)
        num_cut += len(row["input_ids"]) > max_seq_length
        row = sequences.truncate_and_pack(tokens, [], length, tokenizer.layout)
        rows.append({**row, "masked_lm_positions": positions})
    _warn_of_cut(num_cut, rows, max_seq_length)
    return rows
