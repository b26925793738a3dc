"""Converts documents to ELECTRA's instances: one segment or two, unmasked.

The same text and seed give the instances of google-research/electra's build_pretraining_dataset.py
(`ExampleBuilder`), if its `random` is seeded when the first file is read. It never seeds it, and
also shuffles the files; here they are read in their order.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

from bert_tf.datasets.documents import Document, Documents, Lines
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.text import sequences

# The original's `_create_example`.
_SINGLE_SEGMENT_PROB = 0.1  # as in tasks with one text
_UNLIMITED = 100_000
_SHORT_SEQ_PROB = 0.05
_SHORTEST = 5


def document_lines(found: Iterable[tuple[str, list[str]]], blanks_separate_docs: bool) -> Lines:
    """Yields the lines of files, with an empty line at the end of each: a file ends a document.

    Args:
        found: see `text_files.read_files`.
        blanks_separate_docs: whether empty lines within a file end a document, too.
    """
    for _, batches in itertools.groupby(found, key=lambda batch: batch[0]):
        for _, lines in batches:
            yield lines if blanks_separate_docs else list(filter(None, lines))
        yield [""]


class ElectraSegments:
    """Makes the instances of documents in their order, each of the sentences that fill it."""

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
        """Returns the instance of some sentences, cut to fit, and draws the next one's length.

        A later, shorter sentence may still fit into the first segment.
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
        return sequences.pack_pair(first, second, length, self._layout)


def _ids(document: Document, parts: Sequence[range], longest: int) -> list[int]:
    """Returns the ids of parts of a document, at most `longest`."""
    ids: list[int] = []
    for part in parts:
        ids += document.ids(part.start, min(part.stop, part.start + longest - len(ids)))
    return ids
