"""The model's input for texts that may be too long for one sequence, and their joined answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.errors import UserError, quoted
from bert_tf.files.model_input import ModelInput
from bert_tf.pretrained import text_input
from bert_tf.pretrained.arguments import STRING, WHOLE_NUMBER, check_type, received
from bert_tf.tasks.long_text import CUT, LONG_TEXT, join_windows
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer
from bert_tf.text.windows import split_pair


def of_folder(
    long_text: Any, window_stride: Any, trained_on: ModelInput, max_seq_length: int
) -> tuple[Any, Any]:
    """Returns the arguments `long_text` and `window_stride`; for None what the folder says.

    Its stride is lowered to the text of a window, if the windows are now shorter.
    """
    if long_text is None:
        long_text = trained_on.long_text or CUT
    if window_stride is None and long_text != CUT and trained_on.window_stride:
        window_stride = min(trained_on.window_stride, max_seq_length - 2)
    return long_text, window_stride


def check_stride(window_stride: Any, max_seq_length: int) -> None:
    """Raises UserError if a stride is not from 1 to the number of word pieces in a window."""
    check_type("window_stride", window_stride, WHOLE_NUMBER, "for half a window")
    room = max_seq_length - 2
    if window_stride is not None and not 1 <= window_stride <= room:
        raise UserError(
            f"window_stride must be from 1 to {room}, the word pieces of a window (max_seq_length"
            f" {max_seq_length} without two special tokens); {received(window_stride)}"
        )


class TextRows:
    """The model's input for texts: a row for each, or one for each window of a long text.

    Args:
        texts: texts and pairs of texts.
        long_text: "cut" truncates long texts. "mean" or "max" split them into windows, see
            `windows.split_pair`, and say how `join` joins the windows' values.
        window_stride: word pieces between the starts of windows; None for half of the room.
        num_first: number of word pieces at the start of every text that are in all its windows.

    Attributes:
        rows: `sequences.pack_pair` of each text or window, not padded.

    Raises:
        UserError: an argument is not valid, or a text leaves no room for the other one of its pair.
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
        if long_text not in LONG_TEXT:
            raise UserError(
                f"long_text must be one of {', '.join(LONG_TEXT)}; received {quoted(long_text)}"
            )
        check_stride(window_stride, max_seq_length)
        self._long_text = long_text
        if long_text == CUT:
            if window_stride is not None:
                raise UserError(
                    f"window_stride needs long_text='mean' or 'max'; received {window_stride} and"
                    " long_text='cut', which makes no windows"
                )
            self.rows = text_input.encode(texts, tokenizer, max_seq_length)
            return
        room = max_seq_length - num_first
        if num_first and room <= tokenizer.layout.num_special(is_pair=True):
            raise UserError(
                f"long_text={long_text!r} puts the prompt, {num_first} word pieces, into every"
                f" window, so max_seq_length ({max_seq_length}) must leave room for a text beside"
                " it. Load the model with a greater max_seq_length, or set long_text='cut'"
            )
        self.rows, self._counts = [], []
        for i, (ids_a, ids_b) in enumerate(text_input.tokenize(texts, tokenizer)):
            first, rest = ids_a[:num_first], ids_a[num_first:]
            place, stride = f"texts[{i}]", window_stride or 0
            windows = split_pair(rest, ids_b, room, stride, tokenizer.layout, place)
            self._counts.append(len(windows))
            for window_a, window_b in windows:
                pair = [*first, *window_a], window_b
                length = sequences.packed_length(*pair, tokenizer.layout)
                self.rows.append(sequences.pack_pair(*pair, length, tokenizer.layout))

    def join(self, values: NDArray[Any], add_up: bool = False) -> NDArray[Any]:
        """Returns the values of the texts from those of the rows; see `join_windows`."""
        if self._long_text == CUT:
            return values
        return np.asarray(join_windows(values, self._counts, self._long_text, add_up))
