"""Joins the tags of word pieces or words to entities, with their place in the text."""

import itertools
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.pretrained.forward import softmax
from bert_tf.pretrained.results import Entity
from bert_tf.tasks.tagging.data import TaggedWindow, make_windows
from bert_tf.text import sequences
from bert_tf.text.offsets import Piece
from bert_tf.text.tokenizers import Tokenizer

# What gets a tag: `word`, a run of characters without white space, as in run_tagging. As in Hugging
# Face's pipeline: `first`, a run without punctuation, or one punctuation mark; `simple`, each word
# piece; `none`, each word piece, and neighbours are not joined.
STRATEGIES = ("word", "first", "simple", "none")


def check_strategy(strategy: str) -> None:
    """Raises UserError if a strategy is unknown."""
    if strategy not in STRATEGIES:
        raise UserError(
            f"aggregation_strategy must be one of {', '.join(STRATEGIES)}; received {strategy!r}"
        )


class TaggedText:
    """A text cut into windows for a tagger, as run_tagging cuts a sentence.

    Args:
        text: the text.
        tokenizer: the model's tokenizer.
        max_seq_length: longest window in word pieces, [CLS] and [SEP] included.

    Attributes:
        rows: the model's input for each window.
    """

    def __init__(self, text: str, tokenizer: Tokenizer, max_seq_length: int):
        self._text = text
        self._pieces = tokenizer.pieces(text)
        self._windows = _cut(text, self._pieces, max_seq_length - 2)
        self.rows = []
        for window in self._windows:
            ids = [piece.token_id for piece in self._pieces[window.begin : window.end]]
            self.rows.append(sequences.pack_pair(ids, [], len(ids) + 2, tokenizer.layout))

    def join(
        self, logits: Sequence[np.ndarray], labels: Sequence[str], strategy: str
    ) -> list[Entity]:
        """Returns the entities of the text, in order.

        Args:
            logits: float [S, labels] of each window.
            labels: the tags, such as `B-PER`.
            strategy: see `STRATEGIES`.
        """
        probabilities = np.zeros([len(self._pieces), len(labels)])
        for window, values in zip(self._windows, logits, strict=True):
            first = 1 + window.first - window.begin  # after [CLS]
            tagged = values[first : first + window.last - window.first]
            probabilities[window.first : window.last] = softmax(tagged)
        return _join(self._text, self._pieces, probabilities, labels, strategy)


def _cut(text: str, pieces: Sequence[Piece], room: int) -> list[TaggedWindow]:
    """Returns the windows of a text, as run_tagging cuts a sentence.

    Args:
        text: the text.
        pieces: its word pieces. A window holds indices of pieces.
        room: word pieces in a window.
    """
    starts = _unit_starts(text, pieces, "word")
    lengths = np.diff([*starts, len(pieces)])
    if lengths.size and max(lengths) > room // 2:  # a word must be split
        starts, lengths = range(len(pieces)), np.ones(len(pieces), int)
    edges = [*starts, len(pieces)]
    windows = make_windows(lengths.tolist(), [len(lengths)], room, False)
    return [TaggedWindow(*(int(edges[word]) for word in window)) for window in windows]


def _unit_starts(text: str, pieces: Sequence[Piece], strategy: str) -> list[int]:
    """Returns the indices of the pieces that begin a unit with its own tag."""
    starts = []
    for i, piece in enumerate(pieces):
        if strategy == "first":
            begins = piece.begins_word
        elif strategy == "word":
            begins = any(map(str.isspace, text[pieces[i - 1].end : piece.start]))
        else:
            begins = True
        if i == 0 or begins:
            starts.append(i)
    return starts


def _join(
    text: str,
    pieces: Sequence[Piece],
    probabilities: np.ndarray,
    labels: Sequence[str],
    strategy: str,
) -> list[Entity]:
    """Returns the entities of a text, in order.

    Neighbours of one type form one entity, until the type changes or a `B-` begins a new one.

    Args:
        text: the text.
        pieces: its word pieces.
        probabilities: float [pieces, labels]. A word takes the row of its first piece.
        labels: the tags, such as `B-PER`.
        strategy: see `STRATEGIES`.
    """
    found: list[Entity] = []
    members: list[float] = []  # probabilities of the last entity's parts
    end_of_last = -1  # the piece after it
    starts = _unit_starts(text, pieces, strategy)
    for first, after in itertools.pairwise([*starts, len(pieces)]):
        best = int(np.argmax(probabilities[first]))
        prefix, dash, kind = labels[best].partition("-")
        if labels[best] == "O":
            continue
        if not dash or prefix not in ("B", "I"):
            prefix, kind = "I", labels[best]
        if strategy == "none":
            prefix, kind = "B", labels[best]
        start, end = pieces[first].start, pieces[after - 1].end
        if prefix == "I" and end_of_last == first and found[-1].label == kind:
            start = found.pop().start
        else:
            members = []
        members.append(float(probabilities[first, best]))
        found.append(Entity(text[start:end], kind, start, end, float(np.mean(members))))
        end_of_last = after
    return found
