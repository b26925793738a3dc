"""Converts documents to pre-training instances, depending on the objective.

Random numbers are drawn from `random.Random` in the order of the originals, so that the same text,
flags and seed give the same instances.
"""

import random
from collections.abc import Iterator, Sequence

from bert_tf.datasets.documents import Document, Documents
from bert_tf.progress import Progress
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import Masks
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM, MLM_NSP
from bert_tf.text import sequences

_RANDOM_DOCUMENT_TRIES = 10  # original: create_instances_from_document
_TAKEN = 1 << 16  # length of `Documents.taken` (512 KB) at which its tokens are marked as used

# (document, start, end): the document's tokens from `start` to before `end`.
Part = tuple[Document, int, int]


def create_instances(
    documents: Documents, settings: PretrainingDataSettings, masks: Masks, rng: random.Random
) -> Iterator[dict[str, list]]:
    """Yields the instances of all documents, `dupe_factor` times: the features of records by name.

    With --objective=mlm and --across_documents, every pass after the first shuffles the documents.
    """
    pairs = Pairs(documents, settings, masks, rng)
    total = settings.dupe_factor * len(documents)
    with Progress("making instances", "documents", total) as work:
        for number in range(settings.dupe_factor):
            of_document = pairs.of_document
            if settings.objective == MLM:
                if number and settings.across_documents:
                    documents.shuffle(rng)  # so that each pass has different sequences
                of_document = FullSentences(documents, settings, masks).of_document
            elif settings.objective == ELECTRA:
                segments = ElectraSegments(documents, settings, masks.layout, rng)
                of_document = segments.of_document
            for index in range(len(documents)):
                yield from of_document(index)
                documents.mark_used(_TAKEN)
                work.advance()


class Pairs:
    """Makes pairs of texts: [CLS] a [SEP] b [SEP].

    With `mlm_nsp` the second text follows the first or is random: BERT's paper, 3.1, A.1 and A.2
    (original: create_pretraining_data.py, create_instances_from_document). With `mlm_sop` the texts
    are in order or swapped: ALBERT (https://arxiv.org/abs/1909.11942), section 3.1.
    """

    def __init__(
        self,
        documents: Documents,
        settings: PretrainingDataSettings,
        masks: Masks,
        rng: random.Random,
    ):
        self._documents = documents
        self._masks = masks
        self._layout = masks.layout
        self._rng = rng
        self._max_seq_length = settings.max_seq_length
        self._max_num_tokens = settings.max_seq_length - masks.layout.num_special(is_pair=True)
        self._short_seq_prob = settings.short_seq_prob
        self._draws_random_texts = settings.objective == MLM_NSP or settings.random_next_sentence

    def of_document(self, index: int) -> Iterator[dict[str, list]]:
        """Yields a document's instances; `next_sentence_labels` 1 means a random text or a swap."""
        document, rng = self._documents[index], self._rng
        target = self._max_num_tokens
        if rng.random() < self._short_seq_prob:
            # Some sequences are short, as in fine-tuning.
            target = rng.randint(2, self._max_num_tokens)
        first = sentence = 0
        while sentence < document.num_sentences:
            sentence += 1
            start, end = document.edge(first), document.edge(sentence)
            if end - start < target and sentence < document.num_sentences:
                continue
            # Sentences `first` to `sentence` - 1 make up the instance.
            split = first + 1
            if sentence - first >= 2:
                split = first + rng.randint(1, sentence - first - 1)
            middle = document.edge(split)
            part_a, part_b = (document, start, middle), (document, middle, end)
            is_random = sentence - first == 1  # a single sentence leaves no second text
            is_swapped = False
            if self._draws_random_texts:
                is_random = is_random or rng.random() < 0.5
            elif not is_random:
                is_swapped = rng.random() < 0.5
            if is_random:
                part_b = self._random_part(index, target - (middle - start))
                sentence = split  # the next instance starts with the unused sentences
            elif is_swapped:
                part_a, part_b = part_b, part_a
            yield self._instance(part_a, part_b, is_random or is_swapped)
            first = sentence

    def _random_part(self, index: int, target_length: int) -> Part:
        """Returns sentences of a random document, about `target_length` tokens; avoids `index`."""
        for _ in range(_RANDOM_DOCUMENT_TRIES):
            other_index = self._rng.randint(0, len(self._documents) - 1)
            if other_index != index:
                break
        # If every try drew `index`, the text comes from the same document.
        other = self._documents[other_index]
        sentence = self._rng.randint(0, other.num_sentences - 1)
        start = other.edge(sentence)
        end = other.edge(sentence + 1)
        while end - start < target_length and sentence + 1 < other.num_sentences:
            sentence += 1
            end = other.edge(sentence + 1)
        return other, start, end

    def _instance(self, part_a: Part, part_b: Part, label: bool) -> dict[str, list]:
        (text_a, start_a, end_a), (text_b, start_b, end_b) = part_a, part_b
        keep_a, keep_a_end, keep_b, keep_b_end = sequences.truncate_pair(
            end_a - start_a, end_b - start_b, self._max_num_tokens, self._rng
        )
        instance = sequences.pack_pair(
            text_a.ids(start_a + keep_a, start_a + keep_a_end),
            text_b.ids(start_b + keep_b, start_b + keep_b_end) or None,
            self._max_seq_length,
            self._layout,
        )
        instance["next_sentence_labels"] = [int(label)]
        length_a, length_b = keep_a_end - keep_a, keep_b_end - keep_b
        second = self._layout.second_start(length_a)
        positions = [*range(1, length_a + 1), *range(second, second + length_b)]
        self._masks.mask(instance, positions)
        return instance


# ELECTRA's `_create_example`.
_SINGLE_SEGMENT_PROB = 0.1  # as in tasks with one text
_UNLIMITED = 100_000
_SHORT_SEQ_PROB = 0.05
_SHORTEST = 5


class ElectraSegments:
    """Makes ELECTRA's instances: one or two segments, unmasked, from the documents in order.

    `ExampleBuilder` (google-research/electra, build_pretraining_dataset.py) makes the same
    instances if `random` is seeded there before the first file. The original does not seed it, and
    shuffles the files.
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

        As in the original, short sentences may join segment 1 after a longer one joined segment 2.
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
        layout = self._masks.layout
        instance = sequences.pack_pair(self._tokens, None, self._max_seq_length, layout)
        self._masks.mask(instance, self._positions)
        self._tokens, self._positions, self._is_between = [], [], False
        return instance


def _sentences(document: Document, longest: int) -> Iterator[list[int]]:
    """Yields the sentences of a document; splits a sentence that is too long for a sequence."""
    for sentence in range(document.num_sentences):
        end = document.edge(sentence + 1)
        for start in range(document.edge(sentence), end, longest):
            yield document.ids(start, min(start + longest, end))
