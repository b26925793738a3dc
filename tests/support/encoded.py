"""Small tokenizers, and what a tokenizer makes of texts, text by text."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.tokenizers import read_vocabulary
from bert_tf.tokenization import SEQUENCE_TOKENS


def tokenizer_of(tokens: Sequence[str], do_lower_case: bool = True) -> FastTokenizer:
    """Returns a tokenizer of a vocabulary, given as its lines."""
    vocab = {token: number for number, token in enumerate(tokens)}
    return FastTokenizer(vocab, do_lower_case, SEQUENCE_TOKENS)


def ids_of_each(tokenizer, texts) -> list[list[int]]:
    """Returns the ids of each text, after a look at `encode`'s arrays."""
    ids, row_splits = tokenizer.encode(texts)
    assert (ids.dtype, row_splits.dtype) == (np.int32, np.int64)
    assert row_splits[0] == 0 and row_splits[-1] == len(ids)
    return [ids[start:end].tolist() for start, end in itertools.pairwise(row_splits)]


def tokens_of_each(tokenizer, *texts) -> list[list[str]]:
    """Returns the tokens of each text."""
    return [[tokenizer.inv_vocab[i] for i in ids] for ids in ids_of_each(tokenizer, texts)]


def placed_pieces(tokenizer, text) -> list[tuple[str, str, bool]]:
    """Returns each piece of a text: its token, the text that it comes from, if it begins a word."""
    return [
        (tokenizer.inv_vocab[piece.token_id], text[piece.start : piece.end], piece.begins_word)
        for piece in tokenizer.pieces(text)
    ]


def copy_tokenizer(path: str, folder: Path, hugging_face: bool = False) -> None:
    """Writes the tokenizer of a vocabulary to a folder, as a saved model has it."""
    folder.mkdir(exist_ok=True)
    for name, content in read_vocabulary(path, hugging_face=hugging_face).items():
        (folder / name).write_bytes(content)
