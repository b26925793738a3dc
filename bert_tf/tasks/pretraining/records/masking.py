"""Masks of pre-training records: which tokens are predicted, and what stands in their place.

80% of the chosen tokens become [MASK], 10% stay as they are, and 10% become a random token (the
paper, A.1; original: create_masked_lm_predictions). Random numbers are drawn from `random.Random`
in the original's order.
"""

import math
import random
from collections.abc import Sequence

from absl import logging

from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.shuffling import shuffle
from bert_tf.text.tokenizers import Tokenizer

MASKED = 0.8  # share of the chosen tokens
UNCHANGED = 0.5  # share of the other chosen ones


class Vocabulary:
    """The parts of a vocabulary that masking uses.

    Args:
        tokenizer: of the documents.
    """

    def __init__(self, tokenizer: Tokenizer):
        vocab = tokenizer.vocab
        self.layout = tokenizer.layout
        self.mask_id = vocab[tokenizer.mask_token]
        # A random replacement is drawn by its line in the file.
        self.ids = [i for i in vocab.values() if i not in tokenizer.never_drawn]
        self.continuations = tokenizer.continuations
        self._aliases = tokenizer.aliases

    def replace_aliases(self, ids: list[int]) -> None:
        """Replaces ids that only `encode_for_masking` gives by those that they stand for."""
        if self._aliases:
            ids[:] = [self._aliases.get(number, number) for number in ids]


def check_predictions(max_seq_length: int, max_predictions: int, masked_lm_prob: float) -> None:
    """Warns if sequences of full length have no room for the share of tokens to predict."""
    wanted = max_seq_length * masked_lm_prob
    if max_predictions < round(wanted):
        logging.warning(
            "--max_predictions_per_seq=%d is too few for --masked_lm_prob=%g of"
            " --max_seq_length=%d tokens, which are %d; --max_predictions_per_seq=%d would be"
            " right",
            *(max_predictions, masked_lm_prob, max_seq_length, round(wanted), math.ceil(wanted)),
        )


def add_targets(
    instance: dict[str, list],
    positions: list[int],
    settings: PretrainingDataSettings,
    vocabulary: Vocabulary,
    rng: random.Random,
) -> None:
    """Masks an instance, or adds what masks are drawn from while training (`mask` is False).

    Args:
        instance: `input_ids`, `input_mask` and `segment_ids`; changed.
        positions: of the tokens that may be masked: all but [CLS] and [SEP].
        settings: `mask`, `max_predictions_per_seq`, `masked_lm_prob` and `do_whole_word_mask` are
            used.
        vocabulary: of the tokens.
        rng: generator of all random numbers.
    """
    words = [[position] for position in positions]
    if settings.do_whole_word_mask or not settings.mask:
        words = _words(positions, instance["input_ids"], vocabulary)
        vocabulary.replace_aliases(instance["input_ids"])
    if settings.mask:
        _add_masks(instance, words, settings, vocabulary, rng)
    else:
        _add_word_ids(instance, words)


def _add_masks(
    instance: dict[str, list],
    words: list[list[int]],
    settings: PretrainingDataSettings,
    vocabulary: Vocabulary,
    rng: random.Random,
) -> None:
    """Masks tokens in `input_ids` and adds the `masked_lm_*` features."""
    input_ids = instance["input_ids"]
    num_tokens = sum(instance["input_mask"])
    num_to_predict = min(
        settings.max_predictions_per_seq, max(1, round(num_tokens * settings.masked_lm_prob))
    )
    labels = {}
    for position in _choose(words, num_to_predict, rng):
        labels[position] = input_ids[position]
        if rng.random() < MASKED:
            input_ids[position] = vocabulary.mask_id
        elif rng.random() >= UNCHANGED:
            input_ids[position] = vocabulary.ids[rng.randint(0, len(vocabulary.ids) - 1)]
    chosen = sorted(labels)
    padding = [0] * (settings.max_predictions_per_seq - len(chosen))
    instance["masked_lm_positions"] = chosen + padding
    instance["masked_lm_ids"] = [labels[position] for position in chosen] + padding
    instance["masked_lm_weights"] = [1.0] * len(chosen) + [0.0] * len(padding)


def _add_word_ids(instance: dict[str, list], words: list[list[int]]) -> None:
    """Adds `word_ids`: the number of the word of each token, from 1; 0 for what is not masked."""
    word_ids = [0] * len(instance["input_ids"])
    for number, word in enumerate(words, 1):
        for position in word:
            word_ids[position] = number
    instance["word_ids"] = word_ids


def _words(
    positions: Sequence[int], input_ids: Sequence[int], vocabulary: Vocabulary
) -> list[list[int]]:
    """Returns the positions of each word.

    As in the original, a piece whose word was cut off belongs to the word before it, even across
    [SEP], or is a word by itself if there is none.
    """
    words: list[list[int]] = []
    for position in positions:
        if words and input_ids[position] in vocabulary.continuations:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def _choose(words: list[list[int]], num_to_predict: int, rng: random.Random) -> list[int]:
    """Returns at most `num_to_predict` positions that make up whole words, in random order."""
    shuffle(words, rng)
    chosen: list[int] = []
    for word in words:
        if len(chosen) == num_to_predict:
            break
        if len(chosen) + len(word) <= num_to_predict:
            chosen.extend(word)
    return chosen
