"""Converts documents to pre-training instances: pairs of sentences.

The paper describes them in 3.1, A.1 and A.2. Random numbers are drawn from `random.Random` in the
order of the original's create_pretraining_data.py, so that the same text, flags and seed give the
same instances.
"""

import random
from collections.abc import Iterator

from bert_tf.datasets.documents import Document, Documents
from bert_tf.tasks.pretraining.records import masking
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.text import sequences

_RANDOM_DOCUMENT_TRIES = 10  # original: create_instances_from_document

# A document, and its tokens from a number to before another.
Part = tuple[Document, int, int]


def create_pairs(
    documents: Documents,
    settings: PretrainingDataSettings,
    vocabulary: masking.Vocabulary,
    rng: random.Random,
) -> Iterator[Iterator[dict[str, list]]]:
    """Yields for each document its instances; see `create_instances`."""
    for index in range(len(documents)):
        yield create_instances(documents, index, settings, vocabulary, rng)


def create_instances(
    documents: Documents,
    index: int,
    settings: PretrainingDataSettings,
    vocabulary: masking.Vocabulary,
    rng: random.Random,
) -> Iterator[dict[str, list]]:
    """Yields the instances of a document (original: create_instances_from_document).

    Args:
        documents: all documents, from which random next sentences are drawn.
        index: index of the document.
        settings: `max_seq_length`, `short_seq_prob` and those of `masking.add_targets` are used.
        vocabulary: the vocabulary of the documents.
        rng: generator of all random numbers.

    Yields:
        The features of a record by name; lengths are those of `pretraining_schema`.
    """
    document = documents[index]
    max_num_tokens = settings.max_seq_length - vocabulary.layout.num_special(is_pair=True)
    target = max_num_tokens
    if rng.random() < settings.short_seq_prob:
        # Some sequences are short, as in fine-tuning.
        target = rng.randint(2, max_num_tokens)
    first = sentence = 0
    while sentence < document.num_sentences:
        sentence += 1
        start, end = document.edge(first), document.edge(sentence)
        if end - start < target and sentence < document.num_sentences:
            continue
        # The instance is made of sentences `first` to `sentence` - 1.
        split = first + 1
        if sentence - first >= 2:
            split = first + rng.randint(1, sentence - first - 1)
        middle = document.edge(split)
        is_random_next = sentence - first == 1 or rng.random() < 0.5
        if is_random_next:
            other, start_b, end_b = random_next(documents, index, target - (middle - start), rng)
            sentence = split  # the next instance begins with the sentences that were not used
        else:
            other, start_b, end_b = document, middle, end
        instance, positions = pack_parts(
            (document, start, middle), (other, start_b, end_b), settings, vocabulary, rng
        )
        instance["next_sentence_labels"] = [int(is_random_next)]
        masking.add_targets(instance, positions, settings, vocabulary, rng)
        yield instance
        first = sentence


def pack_parts(
    part_a: Part,
    part_b: Part,
    settings: PretrainingDataSettings,
    vocabulary: masking.Vocabulary,
    rng: random.Random,
) -> tuple[dict[str, list], list[int]]:
    """Returns an instance of two parts, cut to fit, and the positions that may be masked.

    Args:
        part_a: the first part.
        part_b: the second.
        settings: `max_seq_length` is used.
        vocabulary: gives [CLS] and [SEP].
        rng: generator of all random numbers.
    """
    (text_a, start_a, end_a), (text_b, start_b, end_b) = part_a, part_b
    layout = vocabulary.layout
    keep_a, keep_a_end, keep_b, keep_b_end = sequences.truncate_pair(
        end_a - start_a,
        end_b - start_b,
        settings.max_seq_length - layout.num_special(is_pair=True),
        rng,
    )
    instance = sequences.pack_pair(
        text_a.ids(start_a + keep_a, start_a + keep_a_end),
        text_b.ids(start_b + keep_b, start_b + keep_b_end),
        settings.max_seq_length,
        layout,
    )
    length_a, length_b = keep_a_end - keep_a, keep_b_end - keep_b
    second = layout.second_start(length_a)
    return instance, [*range(1, length_a + 1), *range(second, second + length_b)]


def random_next(documents: Documents, index: int, target_length: int, rng: random.Random) -> Part:
    """Returns a document and the range of its tokens that replaces the next sentences.

    Args:
        documents: all documents.
        index: of the one that it should not be.
        target_length: number of tokens after which no further sentence is taken.
        rng: generator of all random numbers.
    """
    for _ in range(_RANDOM_DOCUMENT_TRIES):
        other_index = rng.randint(0, len(documents) - 1)
        if other_index != index:
            break
    # After ten tries, or if there is only one document, it may be the same document.
    other = documents[other_index]
    sentence = rng.randint(0, other.num_sentences - 1)
    start = other.edge(sentence)
    end = other.edge(sentence + 1)
    while end - start < target_length and sentence + 1 < other.num_sentences:
        sentence += 1
        end = other.edge(sentence + 1)
    return other, start, end
