"""Converts documents to pre-training instances without pairs: sequences of whole sentences.

RoBERTa (Liu et al., 2019), section 4.2: FULL-SENTENCES and DOC-SENTENCES. A sequence takes
sentences until the next one does not fit. It holds no next sentence to predict, and all its
`segment_ids` are 0.
"""

import random
from collections.abc import Iterator

from bert_tf.datasets.documents import Document, Documents
from bert_tf.tasks.pretraining.records import masking
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings


def create_sequences(
    documents: Documents,
    settings: PretrainingDataSettings,
    vocabulary: masking.Vocabulary,
    rng: random.Random,
) -> Iterator[list[dict[str, list]]]:
    """Yields for each document the instances that end in it.

    Args:
        documents: all documents, in the order in which they are joined.
        settings: `max_seq_length`, `across_documents` and those of `masking.add_targets` are used.
        vocabulary: the vocabulary of the documents.
        rng: generator of all random numbers.

    Yields:
        The features of records by name; lengths are those of `pretraining_schema`.
    """
    sequence = _Sequence(settings, vocabulary, rng)
    for number in range(len(documents)):
        found = []
        for part in _parts(documents[number], settings.max_seq_length - 2):
            if not sequence.has_room(part):
                found.append(sequence.take())
            sequence.add(part)
        last = number == len(documents) - 1
        if sequence.tokens and (last or not settings.across_documents):
            found.append(sequence.take())
        sequence.end_document()
        yield found


def _parts(document: Document, longest: int) -> Iterator[list[int]]:
    """Yields the sentences of a document; one that no sequence holds is cut into several."""
    for sentence in range(document.num_sentences):
        end = document.edge(sentence + 1)
        for start in range(document.edge(sentence), end, longest):
            yield document.ids(start, min(start + longest, end))


class _Sequence:
    """The sentences of a sequence that is being made: [CLS] sentences [SEP] sentences [SEP]."""

    def __init__(
        self,
        settings: PretrainingDataSettings,
        vocabulary: masking.Vocabulary,
        rng: random.Random,
    ):
        self._settings = settings
        self._vocabulary = vocabulary
        self._rng = rng
        self._start()

    def _start(self) -> None:
        self.tokens: list[int] = []
        self._positions: list[int] = []
        self._between = False  # whether a document has ended after the last token

    def has_room(self, sentence: list[int]) -> bool:
        """Returns whether a sentence fits."""
        room = self._settings.max_seq_length - 2
        return len(self.tokens) + self._between + len(sentence) <= room

    def add(self, sentence: list[int]) -> None:
        """Adds a sentence, after a [SEP] if it begins a document."""
        if self._between:
            self.tokens.append(self._vocabulary.layout.sep_id)
            self._between = False
        first = len(self.tokens) + 1  # after [CLS]
        self._positions += range(first, first + len(sentence))
        self.tokens += sentence

    def end_document(self) -> None:
        """Marks the end of a document."""
        self._between = bool(self.tokens)

    def take(self) -> dict[str, list]:
        """Returns the instance, and starts another."""
        layout = self._vocabulary.layout
        ids = [layout.cls_id, *self.tokens, layout.sep_id]
        padding = [0] * (self._settings.max_seq_length - len(ids))
        instance = {
            "input_ids": ids + padding,
            "input_mask": [1] * len(ids) + padding,
            "segment_ids": [0] * self._settings.max_seq_length,
        }
        masking.add_targets(instance, self._positions, self._settings, self._vocabulary, self._rng)
        self._start()
        return instance
