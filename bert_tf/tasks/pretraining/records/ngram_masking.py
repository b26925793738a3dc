"""ALBERT's masks: predict n-grams of words, shorter n-grams more often.

https://arxiv.org/abs/1909.11942, section 4.1 (original: google-research/albert,
create_pretraining_data.py, create_masked_lm_predictions). NumPy's generator draws the length of
each n-gram and `random.Random` everything else, in the original's order.
"""

import random

import numpy as np

from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import Masks
from bert_tf.tasks.pretraining.records.shuffling import shuffle
from bert_tf.text.tokenizers import Tokenizer

TOKEN_BOUNDARY = "token_boundary"  # the feature that is 1 where a word starts


class NgramLengths:
    """Draws how many words an n-gram has.

    Args:
        longest: maximum number of words.
        favor_shorter_ngram: draw n words with a probability in proportion to 1 / n; if false, with
            these probabilities in reverse order.
        seed: seed of NumPy's generator, which the original does not seed.
    """

    def __init__(self, longest: int, favor_shorter_ngram: bool, seed: int):
        probabilities = 1.0 / np.arange(1, longest + 1)
        probabilities /= probabilities.sum(keepdims=True)
        if not favor_shorter_ngram:
            probabilities = probabilities[::-1]
        probabilities = probabilities / probabilities.sum(keepdims=True)
        sums = probabilities.cumsum()
        self.longest = longest
        # Draws what numpy.random.RandomState.choice would, without its slow checks.
        self._sums = (sums / sums[-1]).tolist()
        self._draw = np.random.RandomState(seed % 2**32).random_sample

    def draw(self) -> int:
        """Returns a number of words, from 1 to `longest`."""
        number = self._draw()
        return next(n for n, total in enumerate(self._sums, 1) if number < total)


class NgramMasks(Masks):
    """Masks n-grams of words, or of tokens without --do_whole_word_mask.

    Args:
        tokenizer: the documents' tokenizer.
        settings: uses `ngram`, `favor_shorter_ngram` and `do_permutation`, and what `Masks` uses.
        rng: generator of all random numbers except the lengths of n-grams.
        seed: seed of the lengths of n-grams.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: PretrainingDataSettings,
        rng: random.Random,
        seed: int,
    ):
        super().__init__(tokenizer, settings, rng)
        self._lengths = NgramLengths(settings.ngram, settings.favor_shorter_ngram, seed)
        self._permutes = settings.do_permutation

    def add(self, instance: dict[str, list], positions: list[int]) -> None:
        """Masks an instance and adds the `masked_lm_*` features and `token_boundary`; see `Masks`.

        --do_permutation also permutes as many tokens as are masked, and predicts their originals.
        """
        input_ids = instance["input_ids"]
        boundary = list(instance["input_mask"])
        for position in positions:
            boundary[position] = int(input_ids[position] not in self._continuations)
        instance[TOKEN_BOUNDARY] = boundary
        words = self._words(input_ids, positions)
        labels: dict[int, int] = {}
        if self._masked_lm_prob:
            number = self._num_to_predict(instance)
            order = list(range(len(words)))
            shuffle(order, self._rng)
            chosen = self._choose(words, order, number, set())
            labels = self._replace(input_ids, chosen)
            shuffle(order, self._rng)
            if self._permutes:
                moved = sorted(self._choose(words, order, number, set(labels)))
                targets = list(moved)
                shuffle(targets, self._rng)
                before = list(input_ids)
                for source, target in zip(moved, targets, strict=True):
                    input_ids[source] = before[target]
                    labels[source] = before[source]
        self._add_labels(instance, labels, self._max_predictions * (2 if self._permutes else 1))

    def _choose(
        self, words: list[list[int]], order: list[int], num_to_choose: int, taken: set[int]
    ) -> list[int]:
        """Returns the positions of n-grams of words, at most `num_to_choose`.

        As in the original, a length is drawn for each word tried, even if the word is already
        taken, and an n-gram that does not fit loses words at its end.

        Args:
            words: the positions of each word.
            order: the words' numbers, in the order to try them as first words of n-grams.
            num_to_choose: maximum number of positions.
            taken: positions not to choose; the chosen positions are added.
        """
        chosen: list[int] = []
        for first in order:
            if len(chosen) >= num_to_choose:
                break
            room = num_to_choose - len(chosen)
            for number in range(self._lengths.draw(), 0, -1):
                ngram = [position for word in words[first : first + number] for position in word]
                if len(ngram) <= room:
                    if taken.isdisjoint(ngram):
                        chosen += ngram
                        taken.update(ngram)
                    break
        return chosen
