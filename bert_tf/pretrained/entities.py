"""Joins the tags of word pieces or words to entities, with their place in the text."""

import itertools
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.pretrained.forward import softmax
from bert_tf.pretrained.results import Entity
from bert_tf.tasks.tagging.data import TaggedWindow, make_windows
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer

# See `Pretrained.tag`. With `first`, a punctuation mark gets its own tag.
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
        max_seq_length: longest window in word pieces, [CLS] and [SEP] included.

    Attributes:
        rows: the model's input for each window.
    """

    def __init__(self, text: str, tokenizer: Tokenizer, max_seq_length: int):
        self._text = text
        self._pieces = tokenizer.pieces(text)
        # make_windows counts words, or word pieces if a word must be split.
        room = max_seq_length - 2
        edges = self._edges("word")
        if max(np.diff(edges), default=0) > room // 2:
            edges = self._edges("simple")
        lengths = np.diff(edges).tolist()
        self._windows = [
            TaggedWindow(*(edges[unit] for unit in window))
            for window in make_windows(lengths, [len(lengths)], room, False)
        ]
        self.rows = []
        for window in self._windows:
            ids = [piece.token_id for piece in self._pieces[window.begin : window.end]]
            self.rows.append(sequences.pack_pair(ids, [], len(ids) + 2, tokenizer.layout))

    def _edges(self, strategy: str) -> list[int]:
        """Returns the indices of the pieces that begin a unit with its own tag, then the end."""
        pieces = self._pieces
        starts = []
        for i, piece in enumerate(pieces):
            if strategy == "first":
                begins = piece.begins_word
            elif strategy == "word":
                begins = any(map(str.isspace, self._text[pieces[i - 1].end : piece.start]))
            else:
                begins = True
            if i == 0 or begins:
                starts.append(i)
        return [*starts, len(pieces)]

    def join(
        self, logits: Sequence[np.ndarray], labels: Sequence[str], strategy: str
    ) -> list[Entity]:
        """Returns the entities of the text, in order.

        Neighbours of one type form one entity, until the type changes or a `B-` begins a new one.
        A word's tag is the tag of its first piece.

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
        found: list[Entity] = []
        members: list[float] = []  # probabilities of the last entity's parts
        end_of_last = -1  # the piece after it
        for first, after in itertools.pairwise(self._edges(strategy)):
            best = int(np.argmax(probabilities[first]))
            prefix, dash, kind = labels[best].partition("-")
            if labels[best] == "O":
                continue
            if not dash or prefix not in ("B", "I"):
                prefix, kind = "I", labels[best]
            if strategy == "none":
                prefix, kind = "B", labels[best]
            start, end = self._pieces[first].start, self._pieces[after - 1].end
            if prefix == "I" and end_of_last == first and found[-1].label == kind:
                start = found.pop().start
            else:
                members = []
            members.append(float(probabilities[first, best]))
            found.append(Entity(self._text[start:end], kind, start, end, float(np.mean(members))))
            end_of_last = after
        return found
