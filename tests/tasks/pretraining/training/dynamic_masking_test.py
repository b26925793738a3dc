"""Tests of masks that are drawn while training, against those of the static program."""

import random
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.seeds import below, hash_numbers, uniform
from bert_tf.tasks.pretraining.records.masking import Masks
from bert_tf.tasks.pretraining.records.packing import pack_row
from bert_tf.tasks.pretraining.schema import MLM, predictions_per_row, pretraining_schema
from bert_tf.tasks.pretraining.training.dynamic_masking import DynamicMasking
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.byte_pair_files import SPECIAL, write_vocabulary
from tests.support.encoded import tokenizer_of

LENGTH, NUMBER, PROBABILITY = 41, 9, 0.22
WORDS = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##x", "##y", "##z"]
TOKENIZER = tokenizer_of(WORDS)
VOCAB = TOKENIZER.vocab
CLS, SEP, MASK = VOCAB["[CLS]"], VOCAB["[SEP]"], VOCAB["[MASK]"]
FIRST = VOCAB["a"]


def settings(mask, whole_words=False):
    sizes = {"max_predictions_per_seq": NUMBER, "max_seq_length": LENGTH}
    more = {"masked_lm_prob": PROBABILITY, "do_whole_word_mask": whole_words}
    return types.SimpleNamespace(mask=mask, objective=MLM, **sizes, **more)


def sequences(count):
    """Yields packed pairs of other lengths, as lists, with the positions of their tokens."""
    rng = random.Random(5)
    for _ in range(count):
        a, b = rng.randint(1, 17), rng.randint(1, LENGTH - 3 - 17)
        tokens = rng.choices(range(FIRST, len(VOCAB)), k=a + b)
        ids = [CLS, *tokens[:a], SEP, *tokens[a:], SEP]
        padding = [0] * (LENGTH - len(ids))
        positions = [*range(1, a + 1), *range(a + 2, a + b + 2)]
        yield {"input_ids": ids + padding, "input_mask": [1] * len(ids) + padding}, positions


def unmasked(count):
    """Returns the features of unmasked records, int32 [count, LENGTH] each."""
    rows = []
    for features, positions in sequences(count):
        Masks(TOKENIZER, settings(mask=False), random.Random()).mask(features, positions)
        rows.append(features)
    return {name: np.array([row[name] for row in rows], np.int32) for name in rows[0]}


def masker(whole_words, predictions=NUMBER, places=1):
    return DynamicMasking(MASK, len(VOCAB), predictions, PROBABILITY, whole_words, places)


@pytest.fixture(scope="module", params=[False, True], ids=["pieces", "whole_words"])
def drawn(request):
    """Which kind, 7 x 100 unmasked records, and what is drawn for them."""
    features = {name: np.tile(x, (100, 1)) for name, x in unmasked(7).items()}
    keys = hash_numbers(3, tf.range(700))
    masked = masker(request.param)({n: tf.constant(x) for n, x in features.items()}, keys)
    return request.param, features, {name: x.numpy() for name, x in masked.items()}


def repeated(features, each):
    return {name: tf.constant(np.repeat(x, each, axis=0)) for name, x in features.items()}


NAMES = ["masked_lm_positions", "masked_lm_ids", "masked_lm_weights"]


def check_row(features, masked, row, whole_words):
    """Checks what is drawn for a record, or for a packed row, whose mask has several numbers."""
    ids, numbers, words = (features[n][row] for n in ("input_ids", "input_mask", "word_ids"))
    positions, labels, weights = (masked[name][row] for name in NAMES)
    count = int(weights.sum())
    assert weights.tolist() == [1.0] * count + [0.0] * (len(weights) - count)
    assert not positions[count:].any() and not labels[count:].any()
    chosen = positions[:count]
    assert (np.diff(chosen) > 0).all()
    assert (ids[chosen] == labels[:count]).all()
    assert not np.isin(ids[chosen], [0, CLS, SEP]).any()
    others = np.delete(np.arange(len(ids)), chosen)
    assert (masked["input_ids"][row, others] == ids[others]).all()
    for number in range(1, numbers.max() + 1):
        wanted = min(NUMBER, max(1, round(int((numbers == number).sum()) * PROBABILITY)))
        found = (numbers[chosen] == number).sum()
        assert found == wanted or whole_words and found <= wanted
    if whole_words:
        assert np.isin(words, words[chosen]).sum() == count


def test_the_features_are_those_of_masked_records(drawn):
    whole_words, features, masked = drawn
    types = dict.fromkeys(["input_ids", "input_mask", *NAMES], "int32")
    types["masked_lm_weights"] = "float32"
    assert {name: x.dtype.name for name, x in masked.items()} == types
    assert all(masked[name].shape == (700, NUMBER) for name in NAMES)
    for row in range(700):
        check_row(features, masked, row, whole_words)


def test_a_key_alone_decides(drawn):
    """Neither the batch nor the place in it: a resumed run, and other machines, draw the same."""
    whole_words, features, masked = drawn
    rows = np.random.default_rng(1).permutation(700)[:23]
    keys = tf.gather(hash_numbers(3, tf.range(700)), rows)
    part = {name: tf.constant(x[rows]) for name, x in features.items()}
    again = tf.function(masker(whole_words), autograph=False)(part, keys)
    for name, x in again.items():
        assert np.array_equal(x, masked[name][rows]), name
    others = masker(whole_words)(part, hash_numbers(4, tf.cast(rows, tf.int32)))
    differ = others["masked_lm_positions"].numpy() != masked["masked_lm_positions"][rows]
    assert differ.any(axis=1).mean() > 0.9


def counts(rows, of_record, number):
    """Returns how often each position of each record is masked, and what became of the tokens."""
    masked_at = np.zeros((number, LENGTH))
    fates = np.zeros(3)  # [MASK], unchanged, another token
    replacements = np.zeros(len(VOCAB))
    for record, (ids, positions, labels) in zip(of_record, rows, strict=True):
        masked_at[record, positions] += 1
        now = ids[positions]
        other = (now != MASK) & (now != labels)
        fates += [(now == MASK).sum(), (now == labels).sum(), other.sum()]
        replacements += np.bincount(now[other], minlength=len(VOCAB))
    return masked_at, fates, replacements


def assert_like_counts(ours, theirs):
    """Asserts that counts differ by less than five of their standard deviations."""
    assert np.array_equal(ours > 0, theirs > 0)
    deviation = np.sqrt(ours + theirs) + 1e-9
    assert (np.abs(ours - theirs) / deviation).max() < 5.0


@pytest.mark.slow
@pytest.mark.parametrize("whole_words", [False, True])
def test_the_distribution_is_that_of_the_static_program(whole_words):
    """Over 10^5 records a side."""
    number, each = 10, 10_000
    of_record = np.repeat(np.arange(number), each)
    keys = hash_numbers(7, tf.range(number * each))
    masked = masker(whole_words)(repeated(unmasked(number), each), keys)
    masked = {name: x.numpy() for name, x in masked.items()}
    lists = (masked["input_ids"], masked["masked_lm_positions"], masked["masked_lm_ids"])
    rows = []
    for ids, positions, labels, weights in zip(*lists, masked["masked_lm_weights"], strict=True):
        real = weights == 1.0
        rows.append((ids, positions[real], labels[real]))
    dynamic = counts(rows, of_record, number)

    rng = random.Random(11)
    static_rows = []
    for record, candidates in sequences(number):
        for _ in range(each):
            copy = {name: list(x) for name, x in record.items()}
            Masks(TOKENIZER, settings(True, whole_words), rng).mask(copy, list(candidates))
            count = int(sum(copy["masked_lm_weights"]))
            positions, labels = copy["masked_lm_positions"], copy["masked_lm_ids"]
            row = (copy["input_ids"], positions[:count], labels[:count])
            static_rows.append(tuple(map(np.array, row)))
    static = counts(static_rows, of_record, number)
    for ours, theirs in zip(dynamic, static, strict=True):
        assert_like_counts(ours, theirs)
    total = dynamic[1].sum()
    # A random token is the same one now and then.
    same = 0.1 / len(VOCAB)
    expected = np.array([0.8 + same, 0.1 + same, 0.1 - 2 * same]) * total
    assert np.abs(dynamic[1] - expected).max() < 5.0 * np.sqrt(total * 0.8 * 0.2)


PLACES, ROW_LENGTH = 5, 3 * LENGTH
ROW_NUMBER = 28  # 0.22 of a row's length
ROWS = ([0, 1], [2, 3, 4, 5, 6], [7])


def packed_rows():
    """Returns unmasked records of `unmasked` in rows; the last has one sequence."""
    features = unmasked(8)
    features["segment_ids"] = np.zeros_like(features["input_ids"])
    schema = pretraining_schema(ROW_LENGTH, None, MLM, PLACES)
    rows = []
    for numbers in ROWS:
        sequences = []
        for number in numbers:
            length = features["input_mask"][number].sum()
            names = ("input_ids", "segment_ids", "word_ids")
            sequences.append({name: features[name][number, :length].tolist() for name in names})
        rows.append(pack_row(sequences, schema))
    names = ("input_ids", "input_mask", "word_ids")
    return {name: np.array([row[name] for row in rows], np.int32) for name in names}


@pytest.mark.parametrize("whole_words", [False, True])
def test_each_sequence_of_a_packed_row_has_its_own_number_of_predictions(whole_words):
    each = 100
    features = repeated(packed_rows(), each)
    keys = hash_numbers(3, tf.range(each * len(ROWS)))
    masked = tf.function(masker(whole_words, ROW_NUMBER, PLACES), autograph=False)(features, keys)
    masked, features = ({n: x.numpy() for n, x in found.items()} for found in (masked, features))
    places = predictions_per_row(ROW_NUMBER, PLACES)
    assert masked["masked_lm_positions"].shape == (each * len(ROWS), places)
    assert np.array_equal(masked["input_mask"], features["input_mask"])
    for row in range(each * len(ROWS)):
        check_row(features, masked, row, whole_words)
    # A row of one sequence is masked as its record is, but for the ids that replace tokens.
    alone = {n: tf.constant(x[2 * each :, :ROW_LENGTH]) for n, x in features.items()}
    for name, x in masker(whole_words)(alone, keys[2 * each :]).items():
        theirs = masked[name][2 * each :]
        assert np.array_equal(x, theirs[:, : x.shape[1]]) and not theirs[:, x.shape[1] :].any()


def test_a_packed_row_with_too_few_places_leaves_predictions_out():
    features = {name: tf.constant(x) for name, x in packed_rows().items()}
    masked = masker(False, 2, PLACES)(features, hash_numbers(1, tf.range(3)))
    assert masked["masked_lm_weights"].numpy().sum(axis=1).tolist() == [4.0, 4.0, 2.0]


@pytest.mark.slow
@pytest.mark.parametrize("whole_words", [False, True])
def test_the_distribution_in_packed_rows_is_that_of_the_records(whole_words):
    """How often each token is masked, over 10^4 draws."""
    each = 10_000
    rows, plain = packed_rows(), unmasked(8)

    def how_often(masking, features, key):
        count = len(features["input_ids"])
        masked = masking(repeated(features, each), hash_numbers(key, tf.range(count * each)))
        length = features["input_ids"].shape[1]
        chosen = np.zeros((count * each, length))
        positions = masked["masked_lm_positions"].numpy()
        weights = masked["masked_lm_weights"].numpy()
        np.add.at(chosen, (np.arange(count * each)[:, np.newaxis], positions), weights)
        return chosen.reshape(count, each, length).sum(axis=1)

    alone = how_often(masker(whole_words), plain, 5)
    together = how_often(masker(whole_words, ROW_NUMBER, PLACES), rows, 6)
    for row, numbers in enumerate(ROWS):
        begin = 0
        for number in numbers:
            length = plain["input_mask"][number].sum()
            assert_like_counts(together[row, begin : begin + length], alone[number, :length])
            begin += length


def test_hashes_are_even_and_independent():
    numbers = hash_numbers(tf.range(300)[:, tf.newaxis], 2, tf.range(700))
    values = uniform(numbers).numpy()
    assert values.dtype == np.float32 and values.min() >= 0.0 and values.max() < 1.0
    histogram = np.bincount((values * 50).astype(int).ravel(), minlength=50)
    assert np.abs(histogram / 4200 - 1.0).max() < 5.0 / np.sqrt(4200)
    assert abs(np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.01
    assert len(np.unique(numbers.numpy())) == numbers.shape.num_elements()
    dice = np.bincount(below(numbers, 6).numpy().ravel())
    assert len(dice) == 6 and np.abs(dice / 35000 - 1.0).max() < 0.03
    assert not np.array_equal(hash_numbers(1, 2), hash_numbers(2, 1))


def test_ids_that_are_never_drawn():
    """All other ids are drawn evenly, and the same positions are masked."""
    features = {n: tf.constant(np.tile(x, (400, 1))) for n, x in unmasked(7).items()}
    keys = hash_numbers(3, tf.range(2800))
    never = (0, 2, 3, len(VOCAB) - 1)
    mask = DynamicMasking(MASK, len(VOCAB), NUMBER, PROBABILITY, False, 1, never)
    plain, found = masker(False)(features, keys), mask(features, keys)
    for name in NAMES:
        np.testing.assert_array_equal(plain[name], found[name], err_msg=name)
        assert found[name].shape == (2800, NUMBER)
    before, after = features["input_ids"].numpy(), found["input_ids"].numpy()
    drawn = after[(after != before) & (after != MASK)]
    counts = np.bincount(drawn, minlength=len(VOCAB))
    assert not counts[list(never)].any()
    # An id that stands in the text is seen less often: a replacement by itself is not counted.
    assert (counts[FIRST:-1] > 0.7 * len(drawn) / (len(VOCAB) - len(never))).all() and counts[1]


def test_a_byte_level_bpe_never_draws_its_special_tokens(tmp_path):
    tokenizer = load_tokenizer(write_vocabulary(tmp_path, []), do_lower_case=False)
    masks = Masks(tokenizer, settings(mask=True), random.Random())
    special = [tokenizer.vocab[token] for token in SPECIAL]
    assert sorted([*masks.replacement_ids, *special]) == list(range(len(tokenizer.vocab)))
    assert sorted(tokenizer.never_drawn) == sorted(special)
    masks = Masks(TOKENIZER, settings(mask=True), random.Random())
    assert masks.replacement_ids == list(VOCAB.values())
