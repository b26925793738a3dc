"""ALBERT's masks: n-grams of words are predicted, the shorter ones more often.

https://arxiv.org/abs/1909.11942, section 4.1 (original: google-research/albert,
create_pretraining_data.py, create_masked_lm_predictions). The length of each n-gram is drawn from
NumPy's generator and all else from `random.Random`, in the original's order.
"""

import random

import numpy as np

from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import MASKED, UNCHANGED, Vocabulary
from bert_tf.tasks.pretraining.records.shuffling import shuffle

TOKEN_BOUNDARY = "token_boundary"  # the feature that is 1 where a word starts

_Words = list[list[int]]


class NgramLengths:
    """Draws how many words an n-gram has.

    Args:
        longest: the most words.
        favor_shorter_ngram: whether n words are drawn with a probability in proportion to 1 / n;
            else the longer ones are drawn so much more often.
        seed: of NumPy's generator. The original leaves it to chance.
    """

    def __init__(self, longest: int, favor_shorter_ngram: bool, seed: int):
        probabilities = 1.0 / np.arange(1, longest + 1)
        probabilities /= probabilities.sum(keepdims=True)
        if not favor_shorter_ngram:
            probabilities = probabilities[::-1]
        probabilities = probabilities / probabilities.sum(keepdims=True)
        sums = probabilities.cumsum()
        self.longest = longest
        # As numpy.random.RandomState.choice does, without what it checks.
        self._sums = (sums / sums[-1]).tolist()
        self._draw = np.random.RandomState(seed % 2**32).random_sample

    def draw(self) -> int:
        """Returns a number of words, from 1 to `longest`."""
        number = self._draw()
        return next(n for n, total in enumerate(self._sums, 1) if number < total)


def add_masks(
    instance: dict[str, list],
    positions: list[int],
    settings: PretrainingDataSettings,
    vocabulary: Vocabulary,
    lengths: NgramLengths,
    rng: random.Random,
) -> None:
    """Masks words of an instance and adds the `masked_lm_*` features and `token_boundary`.

    Args:
        instance: `input_ids`, `input_mask` and `segment_ids`; changed.
        positions: of the tokens that may be masked: all but [CLS] and [SEP].
        settings: the flags.
        vocabulary: of the tokens.
        lengths: of the n-grams.
        rng: generator of all other random numbers.
    """
    input_ids = instance["input_ids"]
    num_tokens = sum(instance["input_mask"])
    starts = [input_ids[position] not in vocabulary.continuations for position in positions]
    vocabulary.replace_aliases(input_ids)
    boundary = [1] * num_tokens + [0] * (len(input_ids) - num_tokens)
    words: _Words = []
    for position, is_start in zip(positions, starts, strict=True):
        boundary[position] = int(is_start)
        if settings.do_whole_word_mask and words and not is_start:
            words[-1].append(position)
        else:
            words.append([position])
    instance[TOKEN_BOUNDARY] = boundary

    labels: dict[int, int] = {}
    most = settings.max_predictions_per_seq
    if settings.masked_lm_prob:
        num_to_predict = min(most, max(1, round(num_tokens * settings.masked_lm_prob)))
        order = list(range(len(words)))
        shuffle(order, rng)
        chosen = _choose(words, order, num_to_predict, lengths, set())
        for position in chosen:
            labels[position] = input_ids[position]
            if rng.random() < MASKED:
                input_ids[position] = vocabulary.mask_id
            elif rng.random() >= UNCHANGED:
                input_ids[position] = vocabulary.ids[rng.randint(0, len(vocabulary.ids) - 1)]
        shuffle(order, rng)
        if settings.do_permutation:
            moved = sorted(_choose(words, order, num_to_predict, lengths, set(labels)))
            targets = list(moved)
            shuffle(targets, rng)
            before = list(input_ids)
            for source, target in zip(moved, targets, strict=True):
                input_ids[source] = before[target]
                labels[source] = before[source]
    if settings.do_permutation:
        most *= 2
    chosen = sorted(labels)
    padding = [0] * (most - len(chosen))
    instance["masked_lm_positions"] = chosen + padding
    instance["masked_lm_ids"] = [labels[position] for position in chosen] + padding
    instance["masked_lm_weights"] = [1.0] * len(chosen) + [0.0] * len(padding)


def _choose(
    words: _Words, order: list[int], num_to_choose: int, lengths: NgramLengths, taken: set[int]
) -> list[int]:
    """Returns at most so many positions that make up n-grams of words.

    As in the original a length is drawn for each word that is tried, even where the word is taken
    already; and an n-gram that does not fit loses words at its end.

    Args:
        words: the positions of each word.
        order: in which the first words of n-grams are tried.
        num_to_choose: the most positions.
        lengths: of the n-grams.
        taken: positions that are not chosen; changed.
    """
    chosen: list[int] = []
    for first in order:
        if len(chosen) >= num_to_choose:
            break
        room = num_to_choose - len(chosen)
        for number in range(lengths.draw(), 0, -1):
            positions = [position for word in words[first : first + number] for position in word]
            if len(positions) <= room:
                if taken.isdisjoint(positions):
                    chosen += positions
                    taken.update(positions)
                break
    return chosen
