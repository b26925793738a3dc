"""Masks pre-training records: which tokens to predict, and what replaces them in the input.

80% of the chosen tokens become [MASK], 10% stay as they are, and 10% become a random token (the
paper, A.1; original: create_masked_lm_predictions). Random numbers are drawn from `random.Random`
in the original's order.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from absl import logging

from bert_tf.files.records import Schema, int64_feature
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.shuffling import shuffle
from bert_tf.tasks.pretraining.schema import UNMASKED, pretraining_schema
from bert_tf.text.base_tokenizer import Tokenizer

MASKED = 0.8  # share of the chosen tokens that become [MASK]
Word = Sequence[int]  # the positions of its tokens
TOKEN_BOUNDARY = "token_boundary"  # the feature that is 1 where a word starts
UNCHANGED = 0.5  # share of the other chosen tokens that stay as they are


def check_predictions(max_seq_length: int, max_predictions: int, masked_lm_prob: float) -> None:
    """Warns if sequences of full length have no room for the share of tokens to predict."""
    wanted = max_seq_length * masked_lm_prob
    if max_predictions < round(wanted):
        logging.warning(
            "--max_predictions_per_seq=%d is too small for --masked_lm_prob=%g of"
            " --max_seq_length=%d tokens (%d); --max_predictions_per_seq=%d would be"
            " enough",
            *(max_predictions, masked_lm_prob, max_seq_length, round(wanted), math.ceil(wanted)),
        )


class Masks:
    """Masks tokens of instances one by one, or word by word with --do_whole_word_mask.

    With --nomask it only numbers the words, so that training can mask them.

    Attributes:
        replacement_ids: ids from which random tokens are drawn, in the order of the vocabulary.
        num_places: length of the `masked_lm_*` features; None with --nomask.
        has_longer_words: whether any word so far had several tokens, if words are kept whole.
    """

    def __init__(self, tokenizer: Tokenizer, settings: PretrainingDataSettings, rng: random.Random):
        self.layout = tokenizer.layout
        self.replacement_ids = [
            i for i in tokenizer.vocab.values() if i not in tokenizer.never_drawn
        ]
        self.num_places = settings.max_predictions_per_seq if settings.mask else None
        self._length, self._objective = settings.max_seq_length, settings.objective
        self._max_predictions = settings.max_predictions_per_seq
        self._masked_lm_prob = settings.masked_lm_prob
        self._whole_words = settings.do_whole_word_mask or not settings.mask
        self._mask_id = tokenizer.vocab[tokenizer.mask_token]
        self._continuations = tokenizer.continuations
        self._aliases = tokenizer.aliases
        self._rng = rng
        self.has_longer_words = False

    def schema(self) -> Schema:
        return pretraining_schema(self._length, self.num_places, self._objective)

    def mask(self, instance: dict[str, list], positions: list[int]) -> None:
        """Masks an instance in place and adds `masked_lm_*`; with --nomask only adds `word_ids`.

        `positions` are the tokens that may be masked: all but [CLS] and [SEP].
        """
        input_ids = instance["input_ids"]
        words = self._words(input_ids, positions)
        if self.num_places is None:
            instance[UNMASKED] = [0] * len(input_ids)
            for number, word in enumerate(words, 1):
                for position in word:
                    instance[UNMASKED][position] = number
            return
        wanted = max(1, round(sum(instance["input_mask"]) * self._masked_lm_prob))
        labels = self._mask_words(input_ids, words, min(self._max_predictions, wanted))
        chosen = sorted(labels)
        padding = [0] * (self.num_places - len(chosen))
        instance["masked_lm_positions"] = chosen + padding
        instance["masked_lm_ids"] = [labels[position] for position in chosen] + padding
        instance["masked_lm_weights"] = [1.0] * len(chosen) + [0.0] * len(padding)

    def _words(self, input_ids: list[int], positions: list[int]) -> list[Word]:
        """Returns the positions of each word, or of each token if words are not kept whole.

        As in the original, a piece without its word's start belongs to the previous word, even
        across [SEP], or is its own word if no word comes before it. Replaces the ids of `aliases`
        in place.
        """
        words: list[Word] = []
        if not self._whole_words:
            words.extend(zip(positions, strict=True))  # much faster than lists
        else:
            start = 0
            for end, position in enumerate(positions[1:], 1):
                if input_ids[position] not in self._continuations:
                    words.append(positions[start:end])
                    start = end
            words.append(positions[start:])  # every instance has a token
            self.has_longer_words |= len(words) < len(positions)
        if self._aliases:
            input_ids[:] = [self._aliases.get(number, number) for number in input_ids]
        return words

    def _mask_words(self, input_ids: list[int], words: list[Word], number: int) -> dict[int, int]:
        """Masks at most `number` tokens in place; returns their original ids by position."""
        shuffle(words, self._rng)
        if not self._whole_words:
            return self._replace(input_ids, [position for (position,) in words[:number]])
        chosen: list[int] = []
        for word in words:
            if len(chosen) == number:
                break
            if len(chosen) + len(word) <= number:
                chosen += word
        return self._replace(input_ids, chosen)

    def _replace(self, input_ids: list[int], chosen: Iterable[int]) -> dict[int, int]:
        rng, ids = self._rng, self.replacement_ids
        labels = {}
        for position in chosen:
            labels[position] = input_ids[position]
            if rng.random() < MASKED:
                input_ids[position] = self._mask_id
            elif rng.random() >= UNCHANGED:
                input_ids[position] = ids[rng.randint(0, len(ids) - 1)]
        return labels


def ngram_lengths(longest: int, favor_shorter_ngram: bool, seed: int) -> Iterator[int]:
    """Yields numbers of words from 1 to `longest`, n with a probability in proportion to 1 / n.

    Without `favor_shorter_ngram` the probabilities are reversed. Draws the same numbers as the
    original's calls of numpy.random.choice, but many at a time, which is faster, and with a seed.
    """
    probabilities = 1.0 / np.arange(1, longest + 1)
    probabilities /= probabilities.sum(keepdims=True)
    if not favor_shorter_ngram:
        probabilities = probabilities[::-1]
    probabilities = probabilities / probabilities.sum(keepdims=True)
    rng = np.random.RandomState(seed % 2**32)
    while True:
        yield from rng.choice(np.arange(1, longest + 1), 4096, p=probabilities).tolist()


class NgramMasks(Masks):
    """ALBERT's masks: n-grams of words, or of tokens without --do_whole_word_mask.

    https://arxiv.org/abs/1909.11942, section 4.1 (original: google-research/albert,
    create_pretraining_data.py, create_masked_lm_predictions). NumPy's generator, seeded by `seed`,
    draws the length of each n-gram, and `rng` everything else, in the original's order.
    --do_permutation also permutes as many tokens as are masked, and predicts their originals.
    """

    def __init__(
        self, tokenizer: Tokenizer, settings: PretrainingDataSettings, rng: random.Random, seed: int
    ):
        super().__init__(tokenizer, settings, rng)
        self._lengths = ngram_lengths(settings.ngram, settings.favor_shorter_ngram, seed)
        self._permutes = settings.do_permutation
        self.num_places = self._max_predictions * (2 if self._permutes else 1)

    def schema(self) -> Schema:
        boundary = int64_feature([self._length], "max_seq_length", low=0, high=1)
        return {**super().schema(), TOKEN_BOUNDARY: boundary}

    def mask(self, instance: dict[str, list], positions: list[int]) -> None:
        """Masks an instance in place; adds the `masked_lm_*` features and `token_boundary`."""
        boundary = list(instance["input_mask"])
        for position in positions:
            boundary[position] = int(instance["input_ids"][position] not in self._continuations)
        instance[TOKEN_BOUNDARY] = boundary
        super().mask(instance, positions)

    def _mask_words(self, input_ids: list[int], words: list[Word], number: int) -> dict[int, int]:
        if not self._masked_lm_prob:
            return {}
        order = list(range(len(words)))
        shuffle(order, self._rng)
        labels = self._replace(input_ids, self._choose(words, order, number, set()))
        shuffle(order, self._rng)
        if self._permutes:
            moved = sorted(self._choose(words, order, number, set(labels)))
            targets = list(moved)
            shuffle(targets, self._rng)
            before = list(input_ids)
            for source, target in zip(moved, targets, strict=True):
                input_ids[source] = before[target]
                labels[source] = before[source]
        return labels

    def _choose(
        self, words: list[Word], order: list[int], num_to_choose: int, taken: set[int]
    ) -> list[int]:
        """Returns the positions of n-grams, at most `num_to_choose`, and adds them to `taken`.

        `order`: indices of the words to begin n-grams at. As in the original, a length is drawn for
        each, even if the word is taken, and an n-gram that does not fit loses words at its end.
        """
        chosen: list[int] = []
        for first in order:
            if len(chosen) >= num_to_choose:
                break
            room = num_to_choose - len(chosen)
            for number in range(next(self._lengths), 0, -1):
                ngram = [position for word in words[first : first + number] for position in word]
                if len(ngram) <= room:
                    if taken.isdisjoint(ngram):
                        chosen += ngram
                        taken.update(ngram)
                    break
        return chosen
