"""Tests of bert_tf.datasets.documents, and of the random numbers drawn from documents."""

import random
import time

import numpy as np
import pytest

from bert_tf.datasets import documents
from bert_tf.tasks.pretraining.records.shuffling import shuffle
from tests.support.memory import peak_memory


def test_shuffle_is_that_of_random():
    for count in (*range(20), 63, 64, 65, 127, 128, 129, 1000):
        rng, same_rng = random.Random(count), random.Random(count)
        values, same_values = list(range(count)), list(range(count))
        for _ in range(3):
            shuffle(values, rng)
            same_rng.shuffle(same_values)
        assert values == same_values
        assert rng.getstate() == same_rng.getstate()


def _fake_encode(texts):
    """Numbers in words of text are the ids."""
    ids = [[int(word) for word in text.split()] for text in texts]
    flat = [id for row in ids for id in row]
    return np.array(flat, np.int32), np.cumsum([0, *map(len, ids)], dtype=np.int64)


def _as_lists(read):
    return [
        [read[d].ids(read[d].edge(s), read[d].edge(s + 1)) for s in range(read[d].num_sentences)]
        for d in range(len(read))
    ]


def test_documents_hold_ids_of_any_vocabulary(monkeypatch):
    for vocab_size in (30, 65536, 65537, 1 << 20):
        last = vocab_size - 1
        batches = [["", f"1 {last} 2"], ["3"], ["", "", f"{last}"], ["4 5", "", "6"]]
        read = documents.read_documents(batches, _fake_encode, vocab_size)
        assert _as_lists(read) == [[[1, last, 2], [3]], [[last], [4, 5]], [[6]]]
        assert read.num_tokens == 8
    monkeypatch.setattr(documents, "_BYTES_TO_COUNT", 3)
    for vocab_size in (30, 1 << 20):
        ids = [vocab_size - 1, 1, vocab_size - 2, 1, vocab_size - 1, 3, vocab_size - 1]
        lines = [[" ".join(map(str, ids[:4])), "", " ".join(map(str, ids[4:]))]]
        read = documents.read_documents(lines, _fake_encode, vocab_size)
        assert [read.count(token) for token in (vocab_size - 1, 1, 3, 2)] == [3, 2, 1, 0]


@pytest.mark.parametrize("seed", range(3))
def test_used_tokens_are_counted_once_also_by_a_document_from_before_a_count(seed):
    rng = random.Random(seed)
    lines = ["1 2 3 4 5 6 7 8 9 10 11", "12 13", "14 " * 40, "", "15 16 17", "18 " * 30, ""]
    read = documents.read_documents([lines], _fake_encode, 30)
    first_tokens, kept, used = (0, 53), list(read), set()
    for number in range(40):
        which = rng.randrange(2)
        start = rng.randrange(30)
        end = rng.randrange(start, 33)
        (kept[which] if rng.random() < 0.5 else read[which]).ids(start, end)
        used.update(range(first_tokens[which] + start, first_tokens[which] + end))
        if number % 7 == 0:
            assert read.num_used == len(used)
    assert read.num_used == len(used) < read.num_tokens


def test_a_line_without_tokens_ends_a_document_only_if_nothing_is_left_when_cleaned():
    def encode(texts):
        return _fake_encode([text.replace("x", "").replace("y", "") for text in texts])

    read = documents.read_documents([["x", "1", "x", "2", "", "x", "", "3"]], encode, 30)
    assert _as_lists(read) == [[[1], [2]], [[3]]]
    assert read.num_without_tokens == 1
    batches = [["1", "y", "2", "x", "3", "yy", "y", "4"]]
    read = documents.read_documents(batches, encode, 30, lambda line: line.replace("y", ""))
    assert _as_lists(read) == [[[1]], [[2], [3]], [[4]]]
    assert read.num_without_tokens == 0
    batches = [["x", "y", "", "", "x"], ["x", "1", "", "y"], ["", "1", "x"], ["", "x", "x"]]
    read = documents.read_documents(batches, encode, 30)
    assert (len(read), read.num_without_tokens) == (2, 3)


def test_shuffled_documents_are_in_the_order_of_a_shuffled_list():
    batches = [[str(number), ""] for number in range(50)]
    read = documents.read_documents(batches, _fake_encode, 60)
    read.shuffle(random.Random(7))
    expected = [[[number]] for number in range(50)]
    random.Random(7).shuffle(expected)
    assert _as_lists(read) == expected


def test_split_sentences():
    for sentences in (
        "no end",
        "One.| Two!| Three?| Four…| Five",
        'Wait...| What?!| (Yes.)| "No."| So',
        "first line|\nsecond line.| ",
        "It costs 3.5 e.g. today.| In 1990.| 5 men",
        "Mr. Smith of the U.S. Army met J. K. Prof. X",
        '"Really?" she asked.| Été.| Да.| Нет',
        "今日は。|元気？|「はい！」|x",
        " \n \n",
        "",
    ):
        expected = [sentence.strip() for sentence in sentences.split("|") if sentence.strip()]
        assert documents.split_sentences(sentences.replace("|", "")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("vocab_size, most", [(30522, 3.0), (119547, 4.0)])
def test_memory_of_documents_is_bounded_by_bytes_a_token(vocab_size, most):
    program = """
import sys
import numpy as np
from bert_tf.datasets import documents

vocab_size, num_batches = int(sys.argv[1]), int(sys.argv[2])
lines = ["x"] * 4999 + [""]
ids = np.arange(4999 * 10, dtype=np.int32) % vocab_size
splits = np.append(np.arange(5000) * 10, 49990)
batches = (lines for _ in range(num_batches))
read = documents.read_documents(batches, lambda texts: (ids, splits), vocab_size)
assert read.num_tokens == 49990 * num_batches
"""
    small, large = 20, 520
    growth = peak_memory(program, vocab_size, large) - peak_memory(program, vocab_size, small)
    assert growth / ((large - small) * 49990) < most


@pytest.mark.parametrize("unit", [".", "?!", "…", ".)", '"', "。", "a.", " "])
def test_a_long_run_of_marks_takes_no_time(unit):
    text = unit * (200_000 // len(unit))
    began = time.process_time()
    sentences = documents.split_sentences(f"{text}x\nThe next one.")
    assert time.process_time() - began < 2.0  # a square took minutes
    assert "".join(sentences).endswith("xThe next one.")
