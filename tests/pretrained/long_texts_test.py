"""Tests of long texts in the library: windows, their joined answers, and what is refused."""

import dataclasses

import numpy as np
import pytest

from bert_tf.files.model_notes import ModelInput
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings
from bert_tf.pretrained.methods.tag import TaggedText
from bert_tf.pretrained.model import Pretrained
from bert_tf.pretrained.text_input import TextRows
from tests.support.numpy_bert import assert_near
from tests.support.refusals import refusal

pytestmark = pytest.mark.usefixtures("eager")

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "paris", "is", "in", "france", "."]


def make_text(seed, length):
    return " ".join(np.random.default_rng(seed).choice(WORDS, length))


def parts(text, room, stride):
    """Returns the windows of a text of whole words as texts, by counting words."""
    words, found = text.split(), []
    for start in range(0, len(words), stride):
        found.append(" ".join(words[start : start + room]))
        if start + room >= len(words):
            return found


@pytest.mark.parametrize(("long_text", "stride"), [("mean", 7), ("max", 30), ("mean", None)])
def test_the_class_of_a_long_text_is_that_of_its_windows_joined(model, long_text, stride):
    texts = [make_text(1, 75), "the cat sat", make_text(2, 31)]
    found = model.classify(texts, long_text=long_text, window_stride=stride)
    for text, result in zip(texts, found, strict=True):
        windows = model.classify(parts(text, 30, stride or 15))
        rows = np.array([list(window.probabilities.values()) for window in windows])
        expected = rows.mean(axis=0) if long_text == "mean" else rows.max(axis=0)
        expected = expected / expected.sum()
        assert_near(list(result.probabilities.values()), expected, 1e-6)
        assert result.label == ["no", "maybe", "yes"][expected.argmax()]


def test_of_a_pair_the_longer_text_is_split(model, warnings):
    short, long = make_text(3, 9), make_text(4, 40)
    found = model.classify([(short, long), (long, short)], long_text="mean", window_stride=5)
    for result, is_second in zip(found, (True, False), strict=True):
        pairs = [(short, x) if is_second else (x, short) for x in parts(long, 32 - 3 - 9, 5)]
        rows = [list(window.probabilities.values()) for window in model.classify(pairs)]
        assert_near(list(result.probabilities.values()), np.mean(rows, axis=0), 1e-6)
    assert not [text for text in warnings if "word pieces" in text]  # nothing is cut


def test_a_text_of_one_window_has_the_same_bits(model):
    texts = ["the cat sat", ("a dog", "paris is in france"), "", make_text(5, 30)]
    classes, vectors = model.classify(texts), model.encode(texts)
    for long_text in ("mean", "max"):
        assert model.classify(texts, long_text=long_text) == classes
        assert model.encode(texts, long_text=long_text).tobytes() == vectors.tobytes()
        assert model.classify([], long_text=long_text) == []
        assert model.encode([], long_text=long_text).shape == (0, 12)


@pytest.mark.parametrize("long_text", ["mean", "max"])
def test_the_vector_of_a_long_text_is_made_of_its_windows(model, long_text):
    text = make_text(6, 50)
    vectors = model.encode(parts(text, 30, 9), pooling="cls")
    expected = vectors.mean(axis=0) if long_text == "mean" else vectors.max(axis=0)
    options = {"long_text": long_text, "window_stride": 9}
    assert_near(model.encode(text, pooling="cls", **options), expected, 1e-5)
    expected /= np.linalg.norm(expected)
    found = model.encode([text, "the"], pooling="cls", normalize=True, **options)
    assert_near(found[0], expected, 1e-5)


@pytest.mark.parametrize("include_prompt", [True, False])
def test_every_window_begins_with_the_prompt(model, include_prompt):
    vectors = VectorSettings(prompt="the dog ", include_prompt=include_prompt)
    prompted = Pretrained(dataclasses.replace(model._own_folder, vectors=vectors))
    text = make_text(7, 44)
    expected = prompted.encode(parts(text, 28, 10)).mean(axis=0)
    assert_near(prompted.encode(text, long_text="mean", window_stride=10), expected, 1e-5)


def test_a_model_that_was_trained_on_windows_reads_windows(model):
    def trained_on(*values):
        known = dataclasses.replace(model._own_folder, trained_on=ModelInput("texts", 32, *values))
        return Pretrained(known)

    text = make_text(8, 70)
    trained = trained_on("max", 9)
    expected = model.classify(text, long_text="max", window_stride=9)
    assert trained.classify(text) == expected != model.classify(text)
    assert trained.classify(text, long_text="cut") == model.classify(text)
    assert trained.classify(text, window_stride=30) != expected
    mean = model.classify(text, long_text="mean", window_stride=9)
    assert trained.classify(text, long_text="mean") == mean
    assert trained_on("mean").classify(text) == model.classify(text, long_text="mean")
    shorter = trained_on("max", 29)
    shorter.max_seq_length = 16  # of `load`
    model.max_seq_length, before = 16, model.max_seq_length
    expected = model.classify(text, long_text="max", window_stride=14)
    model.max_seq_length = before
    assert shorter.classify(text) == expected


@pytest.mark.slow
def test_a_model_that_fit_trains_on_windows_reads_windows(model):
    texts = [f"{make_text(i, 30)} {('dog', 'paris')[i % 2]}" for i in range(12)]
    labels = ["no", "yes"] * 6
    own = Pretrained(model._own_folder).for_classification(labels=["no", "yes"])
    options = {"long_text": "max", "window_stride": 9, "max_seq_length": 16}
    options |= {"batch_size": 8, "learning_rate": 1e-2, "length_buckets": "none"}
    own.fit(texts, labels, epochs=1, verbose=0, **options)
    found = own.classify(texts)
    assert found == own.classify(texts, long_text="max", window_stride=9)
    assert found != own.classify(texts, long_text="cut")
    right = [result.label == label for result, label in zip(found, labels, strict=True)]
    assert own.evaluate(texts, labels, length_buckets="none")["accuracy"] == np.mean(right)
    told = refusal(own.evaluate, texts, labels, long_text="mean", window_stride=15)
    assert told.startswith("window_stride=15 must be at most 14, the word pieces of")


def test_rows_of_windows_with_a_prompt(model):
    for length, long_text, stride, expected in (
        (8, "mean", 2, ["[CLS] the cat sat on [SEP] mat [SEP]"]),
        (7, "max", 1, [f"[CLS] the {x} [SEP] mat [SEP]" for x in ("cat sat", "sat on")]),
    ):
        pair = [("the cat sat on", "mat")]
        rows = TextRows(pair, model.tokenizer, length, long_text, stride, num_first=1).rows
        tokens = [[model.tokenizer.inv_vocab[i] for i in row["input_ids"]] for row in rows]
        assert [" ".join(row) for row in tokens] == expected
    for length, num_first in ((8, 5), (6, 4)):
        arguments = ["the cat sat on"], model.tokenizer, length, "mean", None
        assert refusal(TextRows, *arguments, num_first) == (
            f"long_text='mean' puts the prompt, {num_first} word pieces, into every window, so"
            f" max_seq_length ({length}) must leave room for a text beside it. Load the model with"
            " a greater max_seq_length, or set long_text='cut'"
        )
        assert TextRows(*arguments, length - 4).rows
    assert TextRows(["the"], model.tokenizer, 3, "max", 1)


STRIDE_RULE = (
    "window_stride must be from 1 to 30, the word pieces of a window (max_seq_length 32 without two"
    " special tokens); received "
)

ONE_OF = "long_text must be one of cut, mean, max; received"
REFUSED = [
    (lambda m: m.classify("a", long_text="median"), f"{ONE_OF} 'median' (str)"),
    (lambda m: m.classify("a", long_text=5), "long_text must be a string; received 5 (int)"),
    (lambda m: m.classify("a", long_text="mean", window_stride=0), f"{STRIDE_RULE}0 (int)"),
    (lambda m: m.encode("a", long_text="max", window_stride=31), f"{STRIDE_RULE}31 (int)"),
    (
        lambda m: m.encode("a", long_text="max", window_stride=1.5),
        "window_stride must be a whole number (int), or None, for half a window; received"
        " 1.5 (float)",
    ),
    (
        lambda m: m.encode("a", window_stride=5),
        "window_stride needs long_text='mean' or 'max'; received 5 and long_text='cut', which"
        " makes no windows",
    ),
    (
        lambda m: m.classify("a", labels=["x", "y"], long_text="mean"),
        "long_text and window_stride exclude labels: zero-shot classification cuts long texts."
        " Split them first, and classify the parts",
    ),
    (
        lambda m: m.classify(["a", ("cat " * 29, "dog " * 30)], long_text="mean"),
        "texts[1]: the shorter text of a pair is whole in every window, so it must leave room"
        " for the longer one; it has 29 word pieces, and max_seq_length (32) has room for 29"
        " beside the special tokens. Shorten the text, raise max_seq_length to 33 or more, or"
        " set long_text to cut",
    ),
]


def test_arguments_that_are_refused(model):
    for call, message in REFUSED:
        assert refusal(call, model) == message


def test_windows_of_a_tagger_start_a_stride_apart(model):
    def windows(stride):
        text = "the cat sat on mat dog ran paris is in"
        rows = TaggedText(text, model.tokenizer, 8, stride).rows
        return [[model.tokenizer.inv_vocab[i] for i in row["input_ids"][1:-1]] for row in rows]

    assert windows(3) == windows(None) != windows(2)
    first, last = "the cat sat on mat dog", "mat dog ran paris is in"
    middle = "sat on mat dog ran paris"
    assert [" ".join(row) for row in windows(2)] == [first, first, middle, last, last]
    assert [" ".join(row) for row in windows(6)] == [first, last]
