"""Fills sequences with whole sentences, as RoBERTa and ELECTRA do."""

import random
from collections.abc import Iterator, Sequence

from bert_tf.datasets.documents import Document, Documents
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import Masks
from bert_tf.text import sequences

# ELECTRA's `_create_example`.
_SINGLE_SEGMENT_PROB = 0.1  # as in tasks with one text
_UNLIMITED = 100_000
_SHORT_SEQ_PROB = 0.05
_SHORTEST = 5


class ElectraSegments:
    """Makes ELECTRA's instances: one or two segments, unmasked, from the documents in order.

    The instances are those of `ExampleBuilder` (google-research/electra,
    build_pretraining_dataset.py) if `random` is seeded there before the first file. The original
    does not seed it, and shuffles the files.
    """

    def __init__(
        self,
        documents: Documents,
        settings: PretrainingDataSettings,
        layout: sequences.Layout,
        rng: random.Random,
    ):
        self._documents = documents
        self._layout = layout
        self._rng = rng
        self._max_seq_length = self._target = settings.max_seq_length

    def of_document(self, index: int) -> Iterator[dict[str, list]]:
        """Yields the instances of a document; call it for the documents in order."""
        document = self._documents[index]
        first = 0
        for end in range(1, document.num_sentences + 1):
            is_full = document.edge(end) - document.edge(first) >= self._target
            if is_full or end == document.num_sentences:
                yield self._instance(document, range(first, end))
                first = end

    def _instance(self, document: Document, sentences: range) -> dict[str, list]:
        """Returns the instance of some sentences, cut to fit, and draws the next instance's length.

        As in the original, a short sentence may go to the first segment after a longer one did not.
        """
        limit = (self._target - 3) // 2  # without [CLS] and two [SEP]
        if self._rng.random() < _SINGLE_SEGMENT_PROB:
            limit = _UNLIMITED
        segments: tuple[list[range], list[range]] = ([], [])
        lengths = [0, 0]
        for sentence in sentences:
            tokens = range(document.edge(sentence), document.edge(sentence + 1))
            is_first = (
                not lengths[0]
                or lengths[0] + len(tokens) < limit
                or (not lengths[1] and lengths[0] < limit and self._rng.random() < 0.5)
            )
            segments[not is_first].append(tokens)
            lengths[not is_first] += len(tokens)
        length = self._max_seq_length
        first = _ids(document, segments[0], length - 2)
        second = _ids(document, segments[1], max(0, length - len(first) - 3))
        is_short = self._rng.random() < _SHORT_SEQ_PROB
        self._target = self._rng.randint(_SHORTEST, length) if is_short else length
        return sequences.pack_pair(first, second or None, length, self._layout)


def _ids(document: Document, parts: Sequence[range], longest: int) -> list[int]:
    ids: list[int] = []
    for part in parts:
        ids += document.ids(part.start, min(part.stop, part.start + longest - len(ids)))
    return ids


class FullSentences:
    """Makes the sequences of one pass over the documents: [CLS] sentences [SEP] sentences [SEP].

    RoBERTa (Liu et al., 2019), section 4.2: FULL-SENTENCES and DOC-SENTENCES. A sequence takes
    sentences until the next one does not fit. All `segment_ids` are 0.
    """

    def __init__(self, documents: Documents, settings: PretrainingDataSettings, masks: Masks):
        self._documents = documents
        self._masks = masks
        self._max_seq_length = settings.max_seq_length
        self._across_documents = settings.across_documents
        self._tokens: list[int] = []
        self._positions: list[int] = []
        self._is_between = False  # whether the last token ended a document

    def of_document(self, index: int) -> Iterator[dict[str, list]]:
        """Yields the instances that end in a document; call it for the documents in order."""
        room = self._max_seq_length - 2  # without [CLS] and the last [SEP]
        for sentence in _sentences(self._documents[index], room):
            if len(self._tokens) + self._is_between + len(sentence) > room:
                yield self._take()
            if self._is_between:
                self._tokens.append(self._masks.layout.sep_id)
                self._is_between = False
            first = len(self._tokens) + 1  # after [CLS]
            self._positions += range(first, first + len(sentence))
            self._tokens += sentence
        is_last = index == len(self._documents) - 1
        if self._tokens and (is_last or not self._across_documents):
            yield self._take()
        self._is_between = bool(self._tokens)

    def _take(self) -> dict[str, list]:
        """Returns the instance made of the sentences so far, and starts a new one."""
        ids = [self._masks.layout.cls_id, *self._tokens, self._masks.layout.sep_id]
        padding = [0] * (self._max_seq_length - len(ids))
        instance = {
            "input_ids": ids + padding,
            "input_mask": [1] * len(ids) + padding,
            "segment_ids": [0] * self._max_seq_length,
        }
        self._masks.mask(instance, self._positions)
        self._tokens, self._positions, self._is_between = [], [], False
        return instance


def _sentences(document: Document, longest: int) -> Iterator[list[int]]:
    """Yields the sentences of a document; splits a sentence that is too long for a sequence."""
    for sentence in range(document.num_sentences):
        end = document.edge(sentence + 1)
        for start in range(document.edge(sentence), end, longest):
            yield document.ids(start, min(start + longest, end))
