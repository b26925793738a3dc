"""Tests of Preprocessor and TextFeatures: their features are those of the tokenizer."""

import json
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.export.text_features import TextFeatures
from bert_tf.text import sequences
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.tokenizer_settings import AddedToken, TokenizerSettings
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.byte_pair_files import word_merges, write_vocabulary
from tests.support.model_folders import VOCAB, random_weights, write_model
from tests.support.refusals import refusal
from tests.support.sentence_piece_model import write_model as write_sentence_pieces

NAMES = ("input_ids", "input_mask", "segment_ids")
WORDS = "the cat dogs sat, on  a mat . UNAFFABLE (b) [SEP] <mask> \u9db4 \u00e9 cafe\u0301 \0 12"
WORDS = WORDS.split(" ")
LENGTH = 11
INDEX = {token: i for i, token in enumerate(VOCAB)}


def texts_of(seed, count=40):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(14))) for _ in range(count)]


def word_pieces(folder):
    return FastTokenizer(INDEX)


def word_pieces_with_a_word_to_find(folder):
    token = AddedToken("cat", INDEX["cat"], single_word=True)
    return FastTokenizer(INDEX, settings=TokenizerSettings(added_tokens=(token,)))


def byte_pairs(folder):
    merges = word_merges(["the", "cat", "sat"])
    return load_tokenizer(write_vocabulary(folder, merges), False, needs_mask=True)


def sentence_pieces(folder):
    pieces = ["[CLS]", "[SEP]", "[MASK]", "\u2581", "\u2581the", "\u2581cat", *"abcdmnorstu,."]
    return load_tokenizer(write_sentence_pieces(folder / "spiece.model", pieces), True)


def word_pieces_in_python(folder):
    return FastTokenizer(INDEX)


FAMILIES = (word_pieces, word_pieces_in_python, word_pieces_with_a_word_to_find, byte_pairs)
FAMILIES += (sentence_pieces,)


def check(found, tokenizer, texts, second=None, length=LENGTH):
    """Compares with the library's rows."""
    second = second or [""] * len(texts)
    found = {name: np.asarray(found[name]).tolist() for name in NAMES}
    for i, pair in enumerate(zip(texts, second, strict=True)):
        a, b = (tokenizer.encode([text])[0].tolist() for text in pair)
        row = sequences.truncate_and_pack(a, b, length, tokenizer.layout)
        assert {name: found[name][i] for name in NAMES} == row


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"), random_weights("classifier"))


@pytest.fixture(scope="module")
def of_folder(folder):
    return bert_tf.Preprocessor(folder, LENGTH)


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family.__name__)
def preprocessor(request, of_folder, tmp_path_factory):
    if request.param is word_pieces:
        return of_folder  # making the tables of a graph takes a second
    tokenizer = request.param(tmp_path_factory.mktemp("vocab"))
    in_graph = False if request.param is word_pieces_in_python else None
    return bert_tf.Preprocessor(tokenizer, LENGTH, in_graph)


def test_batches_of_a_dataset(preprocessor):
    texts, second = texts_of(1), texts_of(2)
    pairs = tf.data.Dataset.from_tensor_slices((texts, second)).batch(len(texts))
    for found in pairs.map(lambda a, b: preprocessor((a, b)), num_parallel_calls=2):
        check(found, preprocessor.tokenizer, texts, second)
    single = tf.data.Dataset.from_tensor_slices(texts).batch(len(texts), drop_remainder=True)
    dataset = single.map(preprocessor)
    assert dataset.element_spec == {
        name: tf.TensorSpec([len(texts), LENGTH], tf.int32) for name in NAMES
    }
    for found in dataset:
        check(found, preprocessor.tokenizer, texts)


def test_single_texts_with_labels_and_weights(preprocessor):
    texts, labels = texts_of(3, 4), np.arange(4)
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels, labels / 2)).map(preprocessor)
    features, label, weight = dataset.element_spec
    assert {x.shape.as_list()[0] for x in features.values()} == {LENGTH}
    assert (label.dtype, weight.dtype) == (tf.int64, tf.float64)
    rows = list(dataset.as_numpy_iterator())
    assert [(row[1], row[2]) for row in rows] == [(i, i / 2) for i in range(4)]
    found = {name: np.stack([row[0][name] for row in rows]) for name in NAMES}
    check(found, preprocessor.tokenizer, texts)


def test_called_outside_of_a_dataset(preprocessor):
    texts = texts_of(4, 3)
    for given in (texts, np.array(texts), np.array(texts, object), tf.constant(texts)):
        found, y = preprocessor(given, [1, 0, 1])
        assert y == [1, 0, 1]
        check(found, preprocessor.tokenizer, texts)
    found = preprocessor(("the cat", "sat"))
    assert found["input_ids"].shape == [LENGTH]
    batch = {name: value.numpy()[None] for name, value in found.items()}
    check(batch, preprocessor.tokenizer, ["the cat"], ["sat"])
    assert preprocessor(tf.constant([], tf.string))["input_ids"].shape == [0, LENGTH]
    found = preprocessor(tf.constant([b"the \xff cat"]))
    check(found, preprocessor.tokenizer, ["the  cat"])


@pytest.mark.slow
def test_a_keras_model_and_an_exported_graph_take_texts(of_folder, tmp_path):
    first, second = keras.Input((), dtype="string"), keras.Input((), dtype="string")
    model = keras.Model([first, second], of_folder((first, second)))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    texts = texts_of(5, 3), texts_of(6, 3)
    found = again([tf.constant(part) for part in texts])
    check(found, of_folder.tokenizer, *texts)
    module = tf.Module()
    module.preprocessor = of_folder
    module.serve = tf.function(of_folder, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "graph"))
    loaded, texts = tf.saved_model.load(str(tmp_path / "graph")), texts_of(7, 5)
    found = loaded.serve(tf.constant(texts))
    check(found, of_folder.tokenizer, texts)


PAIR = "A pair of texts is one argument, a tuple: dataset.map(lambda a, b: preprocessor((a, b)))"

REFUSED = [
    (("a", "b"), f"y must be labels, not texts. {PAIR}"),
    ((["a"], ["yes"]), f"y must be labels, not texts. {PAIR}"),
    ((tf.constant(["a"]), tf.constant(["b"])), "y must be labels, not texts"),
    ((("a", "b", "c"),), "must have two elements; received 3. Write several texts as a list"),
    ((tf.constant([[1, 2]]),), "texts must be a string, or a list or tensor of strings with one"),
    ((tf.constant([["a", "b"]]),), "received a tensor, string (1, 2)"),
    ((["a", None],), "received ['a', None]"),
    ((({"text": "a"}),), "received {'text': 'a'}"),
]


def test_what_is_refused(of_folder):
    for arguments, message in REFUSED:
        assert message in refusal(of_folder, *arguments)
    pairs = tf.data.Dataset.from_tensor_slices((["a"], ["b"]))
    assert PAIR in refusal(pairs.map, of_folder, kind=Exception)  # where the pipeline is made


def test_pairs_of_different_numbers_are_refused(preprocessor):
    told = refusal(preprocessor, (["a", "b"], ["c"]), kind=Exception)
    assert "There must be as many first texts as second texts" in told


def test_what_no_preprocessor_can_be_made_of(folder, tmp_path):
    pieces, found = byte_pairs(tmp_path), word_pieces_with_a_word_to_find(tmp_path)
    length = "With a tokenizer, also give max_seq_length, the length of each sequence: at"
    for arguments, message in (
        (
            (pieces, 9, True),
            "in_graph=True needs a vocabulary of word pieces, without added tokens",
        ),
        ((pieces, 9, True), "; the model has a different kind. Leave"),
        ((found, 9, True), "the model has the added tokens 'cat'. Leave in_graph out"),
        ((pieces, 9, "yes"), "in_graph must be True or False, or None, for True if it i"),
        ((folder, 33), "max_seq_length must be from 4 to 32, max_position"),
        ((INDEX, None), length),
        ((INDEX, 3), "at least 4; received 3 (int)"),
        ((INDEX, 9.5), "max_seq_length must be a whole number (int)"),
    ):
        tokenizer, *rest = arguments
        tokenizer = FastTokenizer(INDEX) if tokenizer is INDEX else tokenizer
        assert message in refusal(bert_tf.Preprocessor, tokenizer, *rest)
    told = refusal(bert_tf.Preprocessor(pieces, 9).get_config)
    assert "A Preprocessor of a tokenizer cannot be saved" in told


def write_export(folder, head="classification", length=None, axes=2, **changes):
    """Writes what `TextFeatures` reads of an exported folder; returns the folder."""
    shape = [None] * (axes - 1) + [length]
    signatures = {"serving_default": {"inputs": {"input_ids": {"shape": shape}}}}
    content = {"max_seq_length": 12, "do_lower_case": True, "head": head, "signatures": signatures}
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCAB))
    (folder / "export.json").write_text(json.dumps({**content, **changes}))
    return folder


def test_a_damaged_description_is_refused(tmp_path):
    folder = write_export(tmp_path, signatures="ids")
    assert refusal(TextFeatures, folder) == (
        f"{tmp_path}/export.json was not written by this version of tools.export, or is damaged"
        " (AttributeError(\"'str' object has no attribute 'get'\")). Export the model again"
    )


@pytest.mark.parametrize("head", ["classification", "tagging", "squad", "masked_lm"])
def test_no_texts_give_arrays_without_rows(tmp_path, head):
    for length in (None, 8):
        found = TextFeatures(write_export(tmp_path, head, length))([])
        assert {*found} == {*NAMES, *["masked_lm_positions"][: head == "masked_lm"]}
        assert {len(x) for x in found.values()} == {0}
        width = found["input_ids"].shape[1]
        assert width == length if length else width > 0  # runtimes refuse a length of 0


def test_choices_are_texts_in_a_list(tmp_path):
    features = TextFeatures(write_export(tmp_path, "multiple_choice", axes=3))
    for choices in (["a cat", "the dog"], ("a cat", "the dog"), np.array(["a cat", "the dog"])):
        assert features([("the cat", choices)])["input_ids"].shape == (1, 2, 7)
    for row in (("the cat", "ab"), ("the cat", 3), ("the cat", None), ("the cat", {"a": "b"})):
        assert refusal(features, [row]) == (
            "texts must be a list of (context, [choice, choice, ...]), with the same number"
            f" of choices in each; received {[row]}"
        )
