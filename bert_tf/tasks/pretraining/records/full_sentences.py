"""Converts documents to pre-training instances without pairs: sequences of whole sentences.

RoBERTa (Liu et al., 2019), section 4.2: FULL-SENTENCES and DOC-SENTENCES. A sequence takes
sentences until the next one does not fit. There is no next sentence to predict, and all
`segment_ids` are 0.
"""

from collections.abc import Iterator

from bert_tf.datasets.documents import Document, Documents
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import Masks


class FullSentences:
    """Makes the sequences of one pass over the documents: [CLS] sentences [SEP] sentences [SEP]."""

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
        self._masks.add(instance, self._positions)
        self._tokens, self._positions, self._is_between = [], [], False
        return instance


def _sentences(document: Document, longest: int) -> Iterator[list[int]]:
    """Yields the sentences of a document; cuts a sentence that no sequence can hold."""
    for sentence in range(document.num_sentences):
        end = document.edge(sentence + 1)
        for start in range(document.edge(sentence), end, longest):
            yield document.ids(start, min(start + longest, end))
