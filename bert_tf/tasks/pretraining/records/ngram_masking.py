"""ALBERT's masks: predict n-grams of words, shorter n-grams more often.

https://arxiv.org/abs/1909.11942, section 4.1 (original: google-research/albert,
create_pretraining_data.py, create_masked_lm_predictions). NumPy's generator draws the length of
each n-gram and `random.Random` everything else, in the original's order.
"""

import random
from collections.abc import Iterator

import numpy as np

from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import Masks, Word
from bert_tf.tasks.pretraining.records.shuffling import shuffle
from bert_tf.text.tokenizers import Tokenizer

TOKEN_BOUNDARY = "token_boundary"  # the feature that is 1 where a word starts


def ngram_lengths(longest: int, favor_shorter_ngram: bool, seed: int) -> Iterator[int]:
    """Yields numbers of words, from 1 to `longest`: n with a probability in proportion to 1 / n.

    Draws what numpy.random.RandomState.choice would, without its slow checks.

    Args:
        favor_shorter_ngram: if false, the probabilities are in reverse order.
        seed: seed of NumPy's generator, which the original does not seed.
    """
    probabilities = 1.0 / np.arange(1, longest + 1)
    probabilities /= probabilities.sum(keepdims=True)
    if not favor_shorter_ngram:
        probabilities = probabilities[::-1]
    probabilities = probabilities / probabilities.sum(keepdims=True)
    sums = probabilities.cumsum()
    sums = (sums / sums[-1]).tolist()
    draw = np.random.RandomState(seed % 2**32).random_sample
    while True:
        number = draw()
        yield next(n for n, total in enumerate(sums, 1) if number < total)


class NgramMasks(Masks):
    """Masks n-grams of words, or of tokens without --do_whole_word_mask.

    --do_permutation also permutes as many tokens as are masked, and predicts their originals.

    Args:
        rng: generator of all random numbers except the lengths of n-grams.
        seed: seed of the lengths of n-grams.
    """

    def __init__(
        self, tokenizer: Tokenizer, settings: PretrainingDataSettings, rng: random.Random, seed: int
    ):
        super().__init__(tokenizer, settings, rng)
        self._lengths = ngram_lengths(settings.ngram, settings.favor_shorter_ngram, seed)
        self._permutes = settings.do_permutation
        self.num_places = self._max_predictions * (2 if self._permutes else 1)

    def add(self, instance: dict[str, list], positions: list[int]) -> None:
        """Masks an instance and adds the `masked_lm_*` features and `token_boundary`."""
        boundary = list(instance["input_mask"])
        for position in positions:
            boundary[position] = int(instance["input_ids"][position] not in self._continuations)
        instance[TOKEN_BOUNDARY] = boundary
        super().add(instance, positions)

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
        """Returns the positions of n-grams of words, at most `num_to_choose`.

        As in the original, a length is drawn for each word tried, even if the word is already
        taken, and an n-gram that does not fit loses words at its end.

        Args:
            order: the words' numbers, in the order to try them as first words of n-grams.
            taken: positions not to choose; the chosen positions are added.
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
