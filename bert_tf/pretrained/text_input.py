"""Converts texts to the input of a loaded model, and joins the outputs of a text's windows."""

import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from bert_tf.errors import UserError, quoted
from bert_tf.files.model_notes import ModelInput
from bert_tf.tasks.arguments import STRING, check_choice, check_count, check_type
from bert_tf.tasks.long_text import CUT, LONG_TEXT, join_windows
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.sequences import split_pair

_warned: weakref.WeakKeyDictionary[Tokenizer, set[str]] = weakref.WeakKeyDictionary()


def warn_once(tokenizer: Tokenizer, message: str, *values: object) -> None:
    """Warns once for each loaded model: on a server, every request may cause the same warning."""
    warned = _warned.setdefault(tokenizer, set())
    if message not in warned:
        warned.add(message)
        logging.warning(message + ". Later ones are not reported", *values)


def encode(
    texts: Sequence[str | tuple[str, str]], tokenizer: Tokenizer, max_seq_length: int
) -> list[dict[str, list[int]]]:
    """Returns each text or pair as `sequences.pack_pair` packs it, truncated if long, unpadded."""
    return _packed(tokenize(texts, tokenizer), tokenizer, max_seq_length)


def tokenize(
    texts: Sequence[str | tuple[str, str]], tokenizer: Tokenizer
) -> Iterator[tuple[list[int], list[int] | None]]:
    """Yields the ids of both texts of each pair; for a single text the second ids are None."""
    parts = [(text, "") if isinstance(text, str) else text for text in texts]
    ids, edges = tokenizer.encode([part for pair in parts for part in pair])
    for text, start, middle, end in zip(texts, edges[:-1:2], edges[1::2], edges[2::2], strict=True):
        second = None if isinstance(text, str) else ids[middle:end].tolist()
        yield ids[start:middle].tolist(), second


def _packed(
    pairs: Iterable[tuple[list[int], list[int] | None]], tokenizer: Tokenizer, max_seq_length: int
) -> list[dict[str, list[int]]]:
    layout = tokenizer.layout
    rows, num_cut = [], 0
    for both in pairs:
        length = sequences.packed_length(*both, layout)
        num_cut += length > max_seq_length
        rows.append(sequences.truncate_and_pack(*both, min(length, max_seq_length), layout))
    if num_cut:
        warn_once(
            tokenizer,
            "%d of %d texts have more than %d word pieces with [CLS] and [SEP], and are truncated."
            " To use the whole text, split it; a loaded model's classify, encode and rank do so"
            " with long_text='mean'",
            *(num_cut, len(rows), max_seq_length),
        )
    return rows


def encode_masks(
    texts: Sequence[str], tokenizer: Tokenizer, max_seq_length: int
) -> list[dict[str, list[int]]]:
    """Returns the model's input for texts with [MASK], with the masks' `masked_lm_positions`."""
    mask, mask_id = tokenizer.mask_token, tokenizer.vocab.get(tokenizer.mask_token)
    if mask_id is None:
        raise UserError(f"The vocabulary has no {mask}, so this model cannot fill one in")
    ids, edges = tokenizer.encode_masks(texts)
    tokens = [ids[start:end].tolist() for start, end in itertools.pairwise(edges)]
    positions = [[k for k, x in enumerate(one, 1) if x == mask_id] for one in tokens]  # after [CLS]
    for i, places in enumerate(positions):
        if not places:
            raise UserError(f"texts[{i}] must have a {mask}; received {quoted(texts[i])}")
        if places[-1] >= max_seq_length - 1:
            raise UserError(
                f"texts[{i}]: each {mask} must be within the first {max_seq_length - 2} word"
                f" pieces, the model's longest input; the last one is number {places[-1]}."
                " Shorten the text"
            )
    rows = _packed(((one, None) for one in tokens), tokenizer, max_seq_length)
    return [
        {**row, "masked_lm_positions": places} for row, places in zip(rows, positions, strict=True)
    ]


def of_folder(
    long_text: Any, window_stride: Any, trained_on: ModelInput, max_seq_length: int
) -> tuple[Any, Any]:
    """Returns `long_text` and `window_stride`, by default the folder's.

    The folder's stride is lowered if it does not fit `max_seq_length`.
    """
    if long_text is None:
        long_text = trained_on.long_text or CUT
    if window_stride is None and long_text != CUT and trained_on.window_stride:
        window_stride = min(trained_on.window_stride, max_seq_length - 2)
    return long_text, window_stride


def check_stride(window_stride: Any, max_seq_length: int) -> None:
    """Raises UserError unless a stride is from 1 to the number of word pieces in a window."""
    room, pieces = max_seq_length - 2, "the word pieces of a window (max_seq_length"
    what = f"{pieces} {max_seq_length} without two special tokens)"
    check_count("window_stride", window_stride, 1, room, what, "for half a window")


class TextRows:
    """The model's input for texts: `rows`, not padded, one for each text or window of a long text.

    `long_text` is "cut" to truncate texts; or "mean" or "max" to split them into windows (see
    `sequences.split_pair`), whose values are joined by their mean or maximum. All windows of a text
    begin with its first `num_first` word pieces. A `window_stride` of None is half a window.
    """

    def __init__(
        self,
        texts: Sequence[str | tuple[str, str]],
        tokenizer: Tokenizer,
        max_seq_length: int,
        long_text: Any,
        window_stride: Any,
        num_first: int = 0,
    ):
        check_type("long_text", long_text, STRING)
        check_choice("long_text", long_text, LONG_TEXT)
        check_stride(window_stride, max_seq_length)
        self._long_text = long_text
        if long_text == CUT:
            if window_stride is not None:
                raise UserError(
                    f"window_stride needs long_text='mean' or 'max'; received {window_stride} and"
                    " long_text='cut', which makes no windows"
                )
            self.rows = encode(texts, tokenizer, max_seq_length)
            return
        room = max_seq_length - num_first
        if num_first and room <= tokenizer.layout.num_special(is_pair=True):
            raise UserError(
                f"long_text={long_text!r} puts the prompt, {num_first} word pieces, into every"
                f" window, so max_seq_length ({max_seq_length}) must leave room for a text beside"
                " it. Load the model with a greater max_seq_length, or set long_text='cut'"
            )
        self.rows, self._counts = [], []
        for i, (ids_a, ids_b) in enumerate(tokenize(texts, tokenizer)):
            first, rest = ids_a[:num_first], ids_a[num_first:]
            place, stride = f"texts[{i}]", window_stride or 0
            windows = split_pair(rest, ids_b, room, stride, tokenizer.layout, place)
            self._counts.append(len(windows))
            for window_a, window_b in windows:
                pair = [*first, *window_a], window_b
                self.rows.append(sequences.pack_pair(*pair, 0, tokenizer.layout))

    def join(self, values: NDArray[Any], add_up: bool = False) -> NDArray[Any]:
        """Joins the rows' values into one for each text; see `join_windows`."""
        if self._long_text == CUT:
            return values
        return np.asarray(join_windows(values, self._counts, self._long_text, add_up))
