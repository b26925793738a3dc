"""Converts documents to ALBERT's pre-training instances: two stretches of text, in order or not.

https://arxiv.org/abs/1909.11942, section 3.1 (original: google-research/albert,
create_pretraining_data.py, create_instances_from_document). Read it beside `instances.py`. Random
numbers are drawn from `random.Random` in the original's order.
"""

import random
from collections.abc import Iterator

from bert_tf.datasets.documents import Documents
from bert_tf.tasks.pretraining.records import masking
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.instances import pack_parts, random_next
from bert_tf.tasks.pretraining.records.ngram_masking import NgramLengths, add_masks


def create_ordered_pairs(
    documents: Documents,
    settings: PretrainingDataSettings,
    vocabulary: masking.Vocabulary,
    lengths: NgramLengths,
    rng: random.Random,
) -> Iterator[Iterator[dict[str, list]]]:
    """Yields for each document its instances; see `create_instances`."""
    for index in range(len(documents)):
        yield create_instances(documents, index, settings, vocabulary, lengths, rng)


def create_instances(
    documents: Documents,
    index: int,
    settings: PretrainingDataSettings,
    vocabulary: masking.Vocabulary,
    lengths: NgramLengths,
    rng: random.Random,
) -> Iterator[dict[str, list]]:
    """Yields the instances of a document.

    Args:
        documents: all documents.
        index: index of the document.
        settings: the flags.
        vocabulary: the vocabulary of the documents.
        lengths: of the n-grams that are masked.
        rng: generator of all other random numbers.

    Yields:
        The features of a record by name. `next_sentence_labels` is 1 if the two parts are swapped,
        or the second is a random one.
    """
    document = documents[index]
    max_num_tokens = settings.max_seq_length - vocabulary.layout.num_special(is_pair=True)
    target = max_num_tokens
    if rng.random() < settings.short_seq_prob:
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
        part_a, part_b = (document, start, middle), (document, middle, end)
        # A chunk of one sentence has no second part.
        is_random = sentence - first == 1
        if settings.random_next_sentence:
            is_random = is_random or rng.random() < 0.5
        is_swapped = False
        if is_random:
            part_b = random_next(documents, index, target - (middle - start), rng)
            sentence = split  # the next instance begins with the sentences that were not used
        elif not settings.random_next_sentence and rng.random() < 0.5:
            is_swapped = True
            part_a, part_b = part_b, part_a
        instance, positions = pack_parts(part_a, part_b, settings, vocabulary, rng)
        instance["next_sentence_labels"] = [int(is_random or is_swapped)]
        if settings.mask:
            add_masks(instance, positions, settings, vocabulary, lengths, rng)
        else:
            masking.add_targets(instance, positions, settings, vocabulary, rng)
        yield instance
        first = sentence
