"""Tests of answers in text without spaces: labels, predictions, and the time they take."""

import random
import time

import numpy as np
import pytest

from bert_tf.tasks.squad import answers, features
from bert_tf.tasks.squad.examples import read_squad_examples
from bert_tf.tasks.squad.words import FinalText, is_spaced, is_unspaced, split_words
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.support.squad_files import question, settings_of_lengths, write_squad

VOCAB = (
    "[PAD] [UNK] [CLS] [SEP] who 日 本 東 京 都 は の です か ##な ##か な ##た"
    " แ ##มว ##กน ##แ cat 7 , the ##s"
).split()
# Answers that occur several times in a word, pieces that are unknown, marks that are dropped.
TEXTS = {
    "Chinese": "東京、東京都と東京。 cat 東京",
    "unknown": "日龘本東龘京。",
    "Japanese": "なかなたてんき、なか",
    "Thai": "แมวกนแมว แมว",
    "marks": "แมวก\u0e34น\u0e35แมว",
    "long": "cat,7," * 60,
    "after spaces": "the  cat\n7 東京東京",
}


@pytest.fixture(scope="module")
def tokenizer():
    return FastTokenizer({token: i for i, token in enumerate(VOCAB)})


def spans_of(tokenizer, folder, context, answer, start):
    """Returns the label's tokens, and the text that is predicted from them."""
    qas = [question("q", "who", [(answer, start)])]
    path = write_squad(folder / "x.json", (context, qas))
    data = read_squad_examples(path, "train_file", True, False)
    encoder = features.SquadEncoder(data, tokenizer, settings_of_lengths(), is_training=True)
    (example,) = data.examples
    ids, splits = tokenizer.encode(encoder.texts(example))
    texts = [ids[i:j].tolist() for i, j in zip(splits, splits[1:], strict=False)]
    record = next(encoder.records(example, texts))
    (first,), (last,) = record["start_positions"], record["end_positions"]
    tokens = [tokenizer.inv_vocab[i] for i in record["input_ids"][first : last + 1]]
    at = answers.ContextText(
        context, encoder.contexts[0], tokenizer, FinalText(tokenizer.split_words)
    ).of
    offset = encoder.windows[0].offset
    return tokens, at(first - offset, last - offset)


@pytest.mark.parametrize(
    "name, answer, number, tokens",
    [
        ("Chinese", "東京", 0, "東 京"),
        ("Chinese", "東京", 1, "東 京"),
        ("Chinese", "東京", 2, "東 京"),
        ("Chinese", "東京", 3, "東 京"),
        ("Chinese", "京。 cat", 0, "京 [UNK] cat"),
        ("unknown", "龘", 0, "[UNK]"),
        ("unknown", "龘", 1, "[UNK]"),
        ("unknown", "龘本", 0, "[UNK] 本"),
        ("Japanese", "なか", 1, "な ##か"),
        ("Thai", "แมว", 1, "##แ ##มว"),
        ("Thai", "แมว", 2, "แ ##มว"),
        ("Thai", "น", 0, "##กน"),
        ("long", "cat", 41, "cat"),
        ("long", "7,cat", 30, "7 , cat"),
        ("after spaces", "東京", 1, "東 京"),
        ("after spaces", "7 東", 0, "7 東"),
    ],
)
def test_an_answer_is_where_it_starts(tokenizer, tmp_path, name, answer, number, tokens):
    context, start = TEXTS[name], -1
    for _ in range(number + 1):
        start = context.index(answer, start + 1)
    found, (text, begin, end) = spans_of(tokenizer, tmp_path, context, answer, start)
    assert found == tokens.split()
    if answer == "น":  # a part of a piece
        answer, start = "กน", start - 1
    assert (text, begin, end) == (answer, start, start + len(answer))


def test_an_answer_keeps_the_marks_that_the_tokenizer_drops(tokenizer):
    text = TEXTS["marks"] + " 東e\u0301"
    (context,) = features.tokenize_contexts([text], tokenizer)
    assert context.places.ends.max() == len(text)


def test_an_answer_that_is_elsewhere_in_a_sentence_is_skipped(tmp_path, caplog):
    qas = [question("off", "q", [("東京", 1)]), question("right", "q", [("東京", 3)])]
    path = write_squad(tmp_path / "x.json", (TEXTS["Chinese"], qas))
    data = read_squad_examples(path, "train_file", True, False)
    assert [(e.qas_id, e.answer_start) for e in data.examples] == [("right", 3)]
    assert "(id 'off'): Could not find answer: '東京、東京都と東京。' vs. '東京'" in caplog.text


def test_words_that_are_not_between_spaces():
    for word in ("Smith's", "(1895-1943).", "서울은", "Ελλάδα", "x" * 200):
        assert not is_unspaced(word)
    for word in ("x" * 201, "(北京)", "\uff49\uff30", "ສະບາຍດີ", "ភាសា", "မြန်မာ", "𠀀", "カタカナ"):
        assert is_unspaced(word)


def test_a_text_is_spaced_if_all_its_words_are():
    rng = random.Random(0)
    words = ["a", "é", "–", "서울은", "x" * 199, "x" * 200, "हिन्दी", "жизнь", "\ud800", "…"] * 4
    words += ["x" * 201, "北", "ສະ", "𠀀", "。", "\u1a20", "\u1b00", "\u2fff", "\U0001f600"]
    seen = set()
    for _ in range(2000):
        count = rng.choice([0, 1, 3, 30])
        text = "".join(rng.choice(words) + rng.choice("   \t\n\u202f") for _ in range(count))
        seen.add(expected := not any(map(is_unspaced, split_words(text))))
        assert is_spaced(text) == expected, ascii(text)
    assert seen == {True, False}


@pytest.mark.parametrize("unit", ["日本東京", "なかな。", "cat,7,", "แมว,"])
def test_time_grows_in_proportion(tokenizer, unit):
    """An answer of a context of 40,000 characters takes no longer than one of 2,000."""
    taken = []
    for size in (2_000, 40_000):
        text = (unit * size)[:size]
        (context,) = features.tokenize_contexts([text], tokenizer)
        at = answers.ContextText(text, context, tokenizer, FinalText(tokenizer.split_words)).of
        start = time.perf_counter()
        for first in np.linspace(0, len(context.ids) - 4, 200).astype(int).tolist():
            found, begin, end = at(first, first + 3)
            assert found == text[begin:end] and len(found) < 20
        taken.append(time.perf_counter() - start)
    assert taken[1] < 5 * taken[0] + 0.05
