"""Cuts texts longer than a sequence, or splits them into windows and joins the outputs."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.errors import UserError
from bert_tf.runs.flags.setting_fields import Group, Settings

if TYPE_CHECKING:
    from bert_tf.engine.prediction import Columns

CUT, MEAN, MAX = LONG_TEXT = ("cut", "mean", "max")
STRIDE_RULE = "or pieces of the text would be in no window"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongTextSettings(Settings):
    """What to do with texts longer than `max_seq_length`, which is a field of the subclass."""

    long_text: str = Group.DATA.setting(
        CUT,
        help="What to do with a text longer than --max_seq_length. cut: leave out its end. mean,"
        " max: split it into overlapping windows, and return the mean or the maximum of the"
        " windows' answers; in training every window is an example.",
        choices=LONG_TEXT,
    )
    window_stride: int | None = Group.DATA.setting(
        None,
        help="Word pieces from the start of a window of a long text to the start of the next one,"
        " like --doc_stride of run_squad. Default: half a window.",
        at_least=1,
        needs=("long_text", MEAN, MAX),
    )

    def __post_init__(self):
        super().__post_init__()
        check_stride(self.window_stride, self.max_seq_length)

    @property
    def stride(self) -> int | None:
        """The stride of `sequences.split_pair`; None if long texts are cut."""
        return None if self.long_text == CUT else self.window_stride or 0


def check_stride(window_stride: int | None, max_seq_length: int) -> None:
    """Raises UserError if a stride is longer than the text of a window."""
    room = max_seq_length - 2
    if window_stride is not None and window_stride > room:
        raise UserError(
            f"--window_stride={window_stride} must be at most {room}, the word pieces of a window"
            f" (--max_seq_length={max_seq_length} without two special tokens), {STRIDE_RULE}"
        )


def windows(settings: Settings) -> tuple[str | None, int | None]:
    """Returns `long_text` (None if texts are cut) and `window_stride`, for `ModelInput`."""
    long_text = getattr(settings, "long_text", CUT)
    return None if long_text == CUT else long_text, getattr(settings, "window_stride", None)


def join_windows(
    values: np.ndarray, counts: Sequence[int], long_text: str, add_up: bool = False
) -> np.ndarray:
    """Returns the mean or maximum over each text's windows: float [windows, ...] -> [texts, ...].

    `counts` has the number of windows of each text. With `add_up`, values are probabilities that
    sum to 1 on the last axis, so maxima are divided by their sum. A single window is not changed.
    """
    if not len(counts):
        return values
    sizes = np.asarray(counts).reshape([-1] + [1] * (values.ndim - 1))
    starts = _starts(counts)
    wide = values.astype(np.float64)
    if long_text == MAX:
        joined = np.maximum.reduceat(wide, starts)
        if add_up:
            joined = np.where(sizes > 1, joined / joined.sum(axis=-1, keepdims=True), joined)
    else:
        joined = np.add.reduceat(wide, starts) / sizes
    return joined.astype(values.dtype)


def text_columns(
    columns: "Columns", counts: Sequence[int], long_text: str, add_up: bool
) -> "Columns":
    """Joins the columns of windows into columns of texts.

    Outputs are joined by `join_windows`, losses by their mean as in training, and weights by their
    sum. Other columns are equal in all windows of a text.
    """
    starts = _starts(counts)
    joined = {name: column[starts] for name, column in columns.items()}
    if "outputs" in columns:
        outputs = columns["outputs"]
        joined["outputs"] = join_windows(outputs, counts, long_text, add_up and outputs.ndim > 1)
    if "per_example_loss" in columns:
        joined["per_example_loss"] = join_windows(columns["per_example_loss"], counts, MEAN)
    if "example_weight" in columns:
        joined["example_weight"] = np.add.reduceat(columns["example_weight"], starts)
    return joined


def _starts(counts: Sequence[int]) -> np.ndarray:
    return np.cumsum([0, *counts[:-1]])
