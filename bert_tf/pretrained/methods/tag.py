"""`tag`: the entities of a text."""

import itertools
from collections.abc import Sequence
from typing import overload

import numpy as np

from bert_tf.pretrained.forward import softmax
from bert_tf.pretrained.methods.base import LoadedModel
from bert_tf.pretrained.results import Entity
from bert_tf.pretrained.text_input import check_stride
from bert_tf.tasks.arguments import as_list, check_choice
from bert_tf.tasks.tagging.data import TaggedWindow, make_windows
from bert_tf.tasks.tagging.entities import entities, scheme_tags
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Piece, Tokenizer, without_space


class Tag(LoadedModel):
    """Methods of taggers."""

    @overload
    def tag(
        self, texts: str, aggregation_strategy: str = ..., window_stride: int | None = ...
    ) -> list[Entity]: ...
    @overload
    def tag(
        self, texts: Sequence[str], aggregation_strategy: str = ..., window_stride: int | None = ...
    ) -> list[list[Entity]]: ...
    def tag(
        self,
        texts: str | Sequence[str],
        aggregation_strategy: str = "word",
        window_stride: int | None = None,
    ) -> list[Entity] | list[list[Entity]]:
        """Returns the entities of each text, in order.

        Neighbours of the same type form one entity, until a `B-` tag begins a new one. Classes that
        are all BILOU or IOBES tags are read as such: `U-` and `S-` are an entity of one word, `L-`
        and `E-` end one. An entity is not empty and has no white space at its ends.

        Args:
            texts: sentences. A long sentence is split into windows; each tags the words in its
                middle.
            aggregation_strategy: what gets a tag. "word": each run of characters without white
                space, as in run_tagging. The others are as in transformers' pipeline: "first",
                "average" and "max" tag a word by its first piece, its pieces' mean or its surest
                piece (a word has no white space or punctuation; with RoBERTa and ALBERT, no space).
                "simple" and "none" tag each word piece; "none" does not join neighbours.
            window_stride: number of word pieces that each window of a long sentence tags. A smaller
                number gives every word more context, but takes more windows. None for the stride
                of the training, or else half a window.

        Raises:
            UserError: the model is not a tagger, the strategy is unknown, or the stride is not
                between 1 and the number of word pieces in a window.
        """
        self._folder.check_head("tagging", "tag")
        check_choice("aggregation_strategy", aggregation_strategy, STRATEGIES)
        check_stride(window_stride, self.max_seq_length)
        window_stride = window_stride or self._folder.trained_on.window_stride
        texts, single = as_list(texts)
        window = self.max_seq_length, window_stride
        cuts = [TaggedText(text, self.tokenizer, *window) for text in texts]
        logits = iter(self._run("tagging", [row for cut in cuts for row in cut.rows]))
        found = [
            cut.join([next(logits)["logits"] for _ in cut.rows], self.labels, aggregation_strategy)
            for cut in cuts
        ]
        return found[0] if single else found


STRATEGIES = ("word", "first", "average", "max", "simple", "none")  # see `Pretrained.tag`


class TaggedText:
    """A text cut into windows for a tagger, as run_tagging cuts a sentence; see `make_windows`.

    `rows` are the model's input for each window, of at most `max_seq_length` word pieces.
    """

    def __init__(
        self, text: str, tokenizer: Tokenizer, max_seq_length: int, stride: int | None = None
    ):
        self._text = text
        self._tokenizer = tokenizer
        self._pieces = tokenizer.pieces(text)
        # make_windows counts words, or word pieces if a word must be split.
        room = max_seq_length - 2
        edges = self._edges("word")
        if max(np.diff(edges), default=0) > room // 2:
            edges = self._edges("simple")
        lengths = np.diff(edges).tolist()
        self._windows = [
            TaggedWindow(*(edges[unit] for unit in window))
            for window in make_windows(lengths, [len(lengths)], room, False, stride)
        ]
        self.rows = []
        for window in self._windows:
            ids = [piece.token_id for piece in self._pieces[window.begin : window.end]]
            self.rows.append(sequences.pack_pair(ids, None, 0, tokenizer.layout))

    def _edges(self, strategy: str) -> list[int]:
        """Returns each tagged unit's first piece (perhaps a space), then the number of pieces."""
        pieces = self._pieces
        starts = [0] if pieces else []
        if strategy == "word":
            end = 0  # of the last piece that is not only white space
            for i, piece in enumerate(pieces):
                if piece.start == piece.end:
                    continue
                if any(map(str.isspace, self._text[end : piece.start])):
                    # The space before a word may be a separate piece.
                    while not pieces[i].begins_word and pieces[i - 1].start == pieces[i - 1].end:
                        i -= 1
                    starts.append(i)
                end = piece.end
        else:
            join = strategy in ("first", "average", "max")
            starts += [i for i, x in enumerate(pieces) if not (join and self._continues_word(x))]
        return [*dict.fromkeys([*starts, len(pieces)])]

    def _continues_word(self, piece: Piece) -> bool:
        """Returns whether transformers treats a piece as part of the word before it."""
        if not self._tokenizer.carries_space:
            return not piece.begins_word
        near = self._text[max(piece.start - 1, 0) : piece.start + 1]
        return piece.start > 0 and " " not in near and piece.token_id != self._tokenizer.unknown_id

    def join(
        self, logits: Sequence[np.ndarray], labels: Sequence[str], strategy: str
    ) -> list[Entity]:
        """Returns the text's entities, in order, from float logits [S, labels] of each window."""
        probabilities = np.zeros([len(self._pieces), len(labels)])
        for window, values in zip(self._windows, logits, strict=True):
            first = 1 + window.first - window.begin  # after [CLS]
            tagged = values[first : first + window.last - window.first]
            probabilities[window.first : window.last] = softmax(tagged)
        tags = scheme_tags(labels)
        spans, rows = [], []
        for first, after in itertools.pairwise(self._edges(strategy)):
            start, end = self._pieces[first].start, self._pieces[after - 1].end
            if strategy == "word" and not self._text[start:end].strip():
                continue
            own = probabilities[first:after]
            if strategy == "average":
                rows.append(own.mean(axis=0))
            else:
                rows.append(own[np.argmax(own.max(axis=1)) if strategy == "max" else 0])
            spans.append((start, end))
        best = [int(np.argmax(row)) for row in rows]
        if strategy == "none":
            found = [(labels[k], i, i + 1) for i, k in enumerate(best) if labels[k] != "O"]
        else:
            found = entities([tags[k] for k in best])
        results = []
        for kind, first, after in found:
            start, end = without_space(self._text, spans[first][0], spans[after - 1][1])
            score = float(np.mean([row.max() for row in rows[first:after]]))
            if start < end:
                results.append(Entity(self._text[start:end], kind, start, end, score))
        return results
