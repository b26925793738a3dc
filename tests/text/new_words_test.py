"""Choosing new entries for a vocabulary, against trying everything; and learning a vocabulary."""

import collections
import random
import string
from pathlib import Path

import pytest

from bert_tf import tokenization
from bert_tf.text import new_words
from bert_tf.text.new_words import (
    TokenCounts,
    WordPieceLearner,
    choose_entries,
    count_tokens,
    count_words,
)
from bert_tf.tokenization import WordpieceTokenizer
from tests.support.pretraining_runs import ROOT

CHARACTERS = ["[UNK]", *string.ascii_lowercase, *(f"##{char}" for char in string.ascii_lowercase)]


def make_vocab(*tokens: str) -> dict[str, int]:
    return {token: number for number, token in enumerate((*CHARACTERS, *tokens))}


def tokenize(word: str, vocab) -> list[str]:
    return WordpieceTokenizer(vocab).tokenize(word)


def num_tokens(word_counts, vocab) -> int:
    return sum(count * len(tokenize(word, vocab)) for word, count in word_counts.items())


def with_entries(vocab, entries) -> dict[str, int]:
    return {**vocab, **{entry: len(vocab) + i for i, entry in enumerate(entries)}}


def random_text(seed: int) -> tuple[dict[str, int], dict[str, int]]:
    """Returns counts of words that share stems and endings, and a vocabulary that splits them."""
    rng = random.Random(seed)
    parts = ["".join(rng.choices("abcd", k=rng.randint(1, 4))) for _ in range(9)]
    words = {"".join(rng.choices(parts, k=rng.randint(1, 3))) for _ in range(40)}
    pieces = ["".join(rng.choices("abcd", k=rng.randint(2, 3))) for _ in range(12)]
    vocab = make_vocab(*dict.fromkeys([*pieces[:6], *(f"##{piece}" for piece in pieces[6:])]))
    return {word: rng.randint(1, 50) for word in sorted(words)}, vocab


def test_tokens_are_counted():
    vocab = make_vocab("card", "##io", "heart")
    uses = {"card": 3, "##io": 3, "heart": 5, "[UNK]": 2, "a": 7, "##b": 7}
    counts = count_tokens({"cardio": 3, "heart": 5, "\u00e9": 2, "ab": 7}, vocab)
    assert counts == TokenCounts(words=17, tokens=27, split=10, unknown=2, uses=uses)


def test_words_and_pieces_are_chosen_by_the_tokens_that_they_save():
    vocab = make_vocab("heart", "card", "myo", "##card", "##io", "##itis", "##gram", "##s")
    words = {"cardio": 6, "cardiogram": 9, "cardiograms": 5, "heart": 99, "hearts": 8}
    words |= {"myocarditis": 7, "pericarditis": 7}
    chosen = choose_entries(words, vocab, 4, min_count=5)
    assert chosen == {
        "pericarditis": ("p", "##e", "##r", "##i", "##card", "##itis"),  # 7 * 5
        "cardiogram": ("card", "##io", "##gram"),  # (9 + 5) * 2
        "myocarditis": ("myo", "##card", "##itis"),  # 7 * 2; "##carditis" saves 7 more, now
        "hearts": ("heart", "##s"),  # 8; "cardio" saves 6, "cardiograms" 5
    }
    # What many words have in common comes first.
    words = {f"{char}carditis": 2 for char in string.ascii_lowercase}
    chosen = choose_entries(words, vocab, 2, min_count=1)
    assert chosen == {"##carditis": ("##card", "##itis"), "acarditis": ("a", "##card", "##itis")}
    assert choose_entries(words, vocab, 2, min_count=1, whole_words=True) == {
        "acarditis": ("a", "##card", "##itis"),
        "bcarditis": ("b", "##card", "##itis"),
    }


def test_entries_that_are_not_chosen():
    vocab = make_vocab("card", "##io")
    words = {"cardioa": 4, "cardiob": 4, "cardioc": 4, "xy": 1}
    # "cardio" saves 12 tokens, and then each of the words 4 more.
    assert [*choose_entries(words, vocab, 3, min_count=1)] == ["cardio", "cardioa", "cardiob"]
    chosen = choose_entries(words, vocab, 4, min_count=1)
    assert [*chosen] == ["cardioa", "cardiob", "cardioc", "xy"]
    assert chosen["cardioa"] == ("card", "##io", "##a")
    vocab = make_vocab("cardi", "##ology")
    # "cardio" would make "cardiology" cardio ##l ##o ##g ##y: three tokens more.
    words = {"cardio": 10, "cardiology": 3}
    assert [*choose_entries(words, vocab, 1, min_count=4)] == ["cardio"]  # 10 - 3 * 3 = 1 saved
    words["cardiology"] = 4
    assert choose_entries(words, vocab, 1, min_count=5) == {}  # 10 - 4 * 3
    assert [*choose_entries(words, vocab, 9, min_count=4)][0] == "cardiology"
    # No word becomes unknown.
    vocab = make_vocab("cardi", "##ology")
    words = {"cardio": 10, "cardiology": 1}
    del vocab["##y"]
    assert choose_entries(words, vocab, 1, min_count=2) == {}
    assert tokenize("cardiology", with_entries(vocab, ["cardio"])) == ["[UNK]"]
    assert "cardiology" in choose_entries(words, vocab, 9, min_count=1)
    # A word that is unknown already saves nothing.
    assert choose_entries({"\u00e9t\u00e9": 9, "a": 9}, make_vocab(), 5, min_count=1) == {}


def test_rare_words_propose_nothing_but_count():
    vocab = make_vocab("card", "##io")
    assert choose_entries({"cardio": 4}, vocab, 5, min_count=5) == {}
    # "cardio" is proposed by the frequent word, and saves tokens of both; "ab" is saved first.
    words = {"ab": 8, "cardio": 5, "cardios": 4}
    assert [*choose_entries(words, vocab, 5, min_count=5)] == ["cardio", "ab"]
    for order in ("ab ba cd dc xy", "dc xy ab cd ba", "xy dc cd ba ab"):  # it does not matter
        chosen = choose_entries(dict.fromkeys(order.split(), 5), make_vocab(), 3, min_count=1)
        assert [*chosen] == ["ab", "ba", "cd"]


@pytest.mark.parametrize("seed", range(5))
def test_savings_come_close_to_those_of_trying_everything(seed):
    words, vocab = random_text(seed)
    candidates = {
        ("##" if start else "") + word[start:end]
        for word in words
        for start in range(len(word))
        for end in range(start + 2, len(word) + 1)
    }.difference(vocab)
    best = dict(vocab)
    before = num_tokens(words, vocab)
    for _ in range(6):
        entry = min(candidates, key=lambda c: (num_tokens(words, with_entries(best, [c])), c))
        best = with_entries(best, [entry])
        candidates.remove(entry)
    chosen = choose_entries(words, vocab, 6, min_count=1)
    saved = before - num_tokens(words, with_entries(vocab, chosen))
    assert len(chosen) == 6
    assert saved >= 0.9 * (before - num_tokens(words, best))


@pytest.mark.parametrize("seed", range(8))
def test_every_entry_saves_tokens_and_replaces_its_pieces(seed):
    words, vocab = random_text(seed)
    chosen = choose_entries(words, vocab, 9, min_count=3)
    grown, last = dict(vocab), num_tokens(words, vocab)
    for entry, pieces in chosen.items():
        assert entry not in vocab and len(pieces) > 1
        joined = "".join(piece.removeprefix("##") for piece in pieces)
        assert entry == ("##" if pieces[0].startswith("##") else "") + joined
        if not entry.startswith("##"):
            assert tokenize(entry, vocab) == [*pieces]
        grown = with_entries(grown, [entry])
        assert num_tokens(words, grown) < last
        last = num_tokens(words, grown)


def test_a_split_changes_only_where_the_new_one_has_a_new_entry():
    """Which is what the pages say of texts whose outputs stay."""
    changes = 0
    for seed in range(30):
        words, vocab = random_text(seed)
        rng = random.Random(seed)
        entries = {"".join(rng.choices("abcd", k=rng.randint(2, 5))) for _ in range(4)}
        entries = {rng.choice(["", "##"]) + entry for entry in entries}.difference(vocab)
        new = with_entries(vocab, entries)
        for word in words:
            after = tokenize(word, new)
            changed = after != tokenize(word, vocab)
            assert changed == bool(entries.intersection(after)), word
            changes += changed
    assert changes > 50


def test_words_are_counted_as_the_tokenizer_splits_them(monkeypatch):
    monkeypatch.setattr(new_words, "_MAX_CHUNKS", 4)
    odd = "A\u200bB\tc\x0bd e\u2028f \ufffdg\ufffd h\u4e2d\u03a3\u03a3. i\u3000\u0130 \0 \x1c"
    ascii_marks = "".join(map(chr, range(33, 127)))
    batches = [
        ["The na\u00efve words\u2026 #1!\u200b", "the words"],
        [odd, "", "one\u00a0two", ascii_marks],
        odd.split(" "),
    ]
    for do_lower_case in (True, False):
        basic = tokenization.BasicTokenizer(do_lower_case)
        expected = collections.Counter(
            word for batch in batches for line in batch for word in basic.tokenize(line)
        )
        counts = count_words(batches, do_lower_case)
        assert counts == expected and list(counts) == sorted(counts)


LONGEST = 50


def check_learner(
    word_counts: dict[str, int], threshold: int, max_unique_chars: int, most: int
) -> None:
    """Compares pieces, and their order by count, with those of TensorFlow Text's learner."""
    pytest.importorskip("tensorflow_text")
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
                check_learner(word_counts, threshold, max_unique_chars, most)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_real_words(do_lower_case):
    lines = Path(ROOT, "flags/quickstart/corpus.txt").read_text().split("\n")
    for threshold in (1, 20):
        check_learner(count_words([lines], do_lower_case), threshold, 1000, 1_000_000)
    # Of equally frequent characters the first are kept.
    check_learner({"c": 4, "b": 4, "a": 4}, 1, 2, 1_000_000)
