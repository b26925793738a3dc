"""Converts documents to pre-training instances: sentence pairs with masked tokens.

The paper describes them in 3.1, A.1 and A.2. Random numbers are drawn from `random.Random` in the
order of the original's create_pretraining_data.py, so that the same text, flags and seed give the
same instances.
"""

import random
from collections.abc import Iterator, Mapping, MutableSequence

from bert_tf.tasks.pretraining.settings import PretrainingDataSettings
from bert_tf.text import sequences
from bert_tf.text.documents import Document, Documents

_RANDOM_DOCUMENT_TRIES = 10  # original: create_instances_from_document


class Vocabulary:
    """The parts of a vocabulary that masking uses.

    Args:
        vocab: token -> id, in the order of the vocabulary file.
    """

    def __init__(self, vocab: Mapping[str, int]):
        self.cls_id, self.sep_id = sequences.special_ids(vocab)
        self.mask_id = vocab["[MASK]"]
        self.ids = list(vocab.values())  # a random replacement is drawn by its line in the file
        self.continuations = frozenset(id for token, id in vocab.items() if token.startswith("##"))


def shuffle(values: MutableSequence, rng: random.Random) -> None:
    """Shuffles `values` with the same result as `rng.shuffle`, but faster.

    `random.Random.shuffle` calls a Python function for each number. Here the function's few lines
    are inlined: to get a number below n, draw n.bit_length() bits until they are below n.
    """
    getrandbits = rng.getrandbits
    last = len(values) - 1
    while last > 0:
        bits = (last + 1).bit_length()
        stop = max((1 << bits - 1) - 2, 0)  # for all i above it, i + 1 has `bits` bits
        for i in range(last, stop, -1):
            j = getrandbits(bits)
            while j > i:
                j = getrandbits(bits)
            values[i], values[j] = values[j], values[i]
        last = stop


def create_instances(
    documents: Documents,
    index: int,
    settings: PretrainingDataSettings,
    vocabulary: Vocabulary,
    rng: random.Random,
) -> Iterator[dict[str, list]]:
    """Yields the instances of a document (original: create_instances_from_document).

    Args:
        documents: all documents, from which random next sentences are drawn.
        index: index of the document.
        settings: `max_seq_length`, `max_predictions_per_seq`, `short_seq_prob`, `masked_lm_prob`
            and `do_whole_word_mask` are used.
        vocabulary: the vocabulary of the documents.
        rng: generator of all random numbers.

    Yields:
        The features of a record by name; lengths are those of `pretraining_schema`.
    """
    document = documents[index]
    max_num_tokens = settings.max_seq_length - 3  # [CLS], [SEP], [SEP]
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
            other, start_b, end_b = _random_next(documents, index, target - (middle - start), rng)
            sentence = split  # the next instance begins with the sentences that were not used
        else:
            other, start_b, end_b = document, middle, end
        keep_a, keep_a_end, keep_b, keep_b_end = sequences.truncate_pair(
            middle - start, end_b - start_b, max_num_tokens, rng
        )
        instance = sequences.pack_pair(
            document.ids(start + keep_a, start + keep_a_end),
            other.ids(start_b + keep_b, start_b + keep_b_end),
            settings.max_seq_length,
            vocabulary.cls_id,
            vocabulary.sep_id,
        )
        instance["next_sentence_labels"] = [int(is_random_next)]
        _mask(instance, keep_a_end - keep_a, keep_b_end - keep_b, settings, vocabulary, rng)
        yield instance
        first = sentence


def _random_next(
    documents: Documents, index: int, target_length: int, rng: random.Random
) -> tuple[Document, int, int]:
    """Returns a document and the range of its tokens that replaces the next sentences."""
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


def _mask(
    instance: dict[str, list],
    length_a: int,
    length_b: int,
    settings: PretrainingDataSettings,
    vocabulary: Vocabulary,
    rng: random.Random,
) -> None:
    """Masks tokens in `input_ids` and adds the `masked_lm_*` features to the instance.

    80% of the chosen tokens become [MASK], 10% stay as they are, and 10% become a random token (the
    paper, A.1; original: create_masked_lm_predictions).

    Args:
        instance: features of [CLS] a [SEP] b [SEP].
        length_a: number of tokens of a.
        length_b: number of tokens of b.
        settings: see `create_instances`.
        vocabulary: see `create_instances`.
        rng: see `create_instances`.
    """
    input_ids = instance["input_ids"]
    positions = [*range(1, length_a + 1), *range(length_a + 2, length_a + length_b + 2)]
    num_tokens = length_a + length_b + 3
    num_to_predict = min(
        settings.max_predictions_per_seq, max(1, round(num_tokens * settings.masked_lm_prob))
    )
    if settings.do_whole_word_mask:
        chosen = _choose_whole_words(positions, input_ids, num_to_predict, vocabulary, rng)
    else:
        shuffle(positions, rng)
        chosen = positions[:num_to_predict]
    labels = {}
    for position in chosen:
        labels[position] = input_ids[position]
        if rng.random() < 0.8:
            input_ids[position] = vocabulary.mask_id
        elif rng.random() >= 0.5:
            input_ids[position] = vocabulary.ids[rng.randint(0, len(vocabulary.ids) - 1)]
    chosen = sorted(labels)
    padding = [0] * (settings.max_predictions_per_seq - len(chosen))
    instance["masked_lm_positions"] = chosen + padding
    instance["masked_lm_ids"] = [labels[position] for position in chosen] + padding
    instance["masked_lm_weights"] = [1.0] * len(chosen) + [0.0] * len(padding)


def _choose_whole_words(
    positions: list[int],
    input_ids: list[int],
    num_to_predict: int,
    vocabulary: Vocabulary,
    rng: random.Random,
) -> list[int]:
    """Returns at most `num_to_predict` positions that make up whole words, in random order."""
    words: list[list[int]] = []
    for position in positions:
        # As in the original, a piece whose word was cut off belongs to the word before it, even
        # across [SEP], or is a word by itself if there is none.
        if words and input_ids[position] in vocabulary.continuations:
            words[-1].append(position)
        else:
            words.append([position])
    shuffle(words, rng)
    chosen: list[int] = []
    for word in words:
        if len(chosen) + len(word) <= num_to_predict:
            chosen.extend(word)
    return chosen
