"""The learner finds the same word pieces as TensorFlow Text's."""

import collections
import random
from pathlib import Path

import pytest

from bert_tf.text import new_words
from bert_tf.text.new_words import WordPieceLearner, count_words
from tests.support.pretraining_runs import ROOT

pytest.importorskip("tensorflow_text")

LONGEST = 50


def check(word_counts: dict[str, int], threshold: int, max_unique_chars: int, most: int) -> None:
    """Compares pieces, and their order by count, with those of the original learner."""
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib

    learner = WordPieceLearner(word_counts, max_unique_chars)
    threshold = min(threshold, learner.largest_count)
    pieces = learner.pieces(threshold)
    chars = sorted(piece for piece in pieces if len(piece) == 1)
    others = sorted(pieces.keys() - chars, key=lambda piece: (-pieces[piece], piece))

    # Before it learns, the tool has always added the characters of words that the learner drops.
    counts = collections.Counter(word_counts)
    for word, count in word_counts.items():
        for char in word if len(word) > LONGEST else "":
            counts[char] += count
    limits = {"max_token_length": LONGEST, "max_unique_chars": max_unique_chars}
    expected = wordpiece_tokenizer_learner_lib.learn(
        counts, 0, [], threshold, threshold, max_input_tokens=most, **limits
    )
    assert [*chars, *others] == expected


@pytest.mark.parametrize("seed", range(8))
def test_made_up_words(seed, monkeypatch):
    rng = random.Random(seed)
    letters = "#\u00e9\u4e2dabcd"[rng.randrange(4) :]
    word_counts = collections.Counter()
    for size in rng.choices([1, 2, 3, 4, 5, 7, 9, LONGEST, LONGEST + 1], [9] * 7 + [1, 1], k=50):
        word = "".join(rng.choices(letters, k=size)).replace("##", "a")
        word_counts[word] += rng.randrange(1, 40)
    for most in (1_000_000, 30):
        monkeypatch.setattr(new_words, "_MAX_WORDS", most)
        for threshold in (1, 2, 5, 30, 200, 10_000):
            for max_unique_chars in (1, 3, 1000):
                check(word_counts, threshold, max_unique_chars, most)


def test_of_equally_frequent_characters_the_first_are_kept():
    check({"c": 4, "b": 4, "a": 4}, 1, 2, 1_000_000)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_real_words(do_lower_case):
    lines = Path(ROOT, "flags/quickstart/corpus.txt").read_text().split("\n")
    for threshold in (1, 20):
        check(count_words([lines], do_lower_case), threshold, 1000, 1_000_000)
