"""Tests of tagging records: which word pieces have labels, which words are context."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.files import records
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.tagging import data
from bert_tf.tasks.tagging.data import Sentence, tagging_schema
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS

VOCAB = "[PAD] [UNK] [CLS] [SEP] un ##want ##ed London is big , The ##x".split()
LABELS = ["O", "B-LOC", "I-LOC"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n")
    return FastTokenizer(str(path), False, SEQUENCE_TOKENS)


def written(tmp_path, sentences, tokenizer, length, document_context=False, stride=None):
    """Returns the pieces and the labels of each record, X for a piece without a label."""
    path = str(tmp_path / "file.tf_record")
    encoder = data.TaggingEncoder(tokenizer, length, LABELS, document_context, stride)
    count = write_records(path, data.documents(sentences), encoder)
    found = []
    for record in tf.data.TFRecordDataset(path):
        parsed = records.parse(record[tf.newaxis], tagging_schema(length))
        row = {name: value[0].numpy() for name, value in parsed.items()}
        size = sum(row["input_mask"])
        assert row["input_mask"].tolist() == [1] * size + [0] * (length - size)
        assert not (row["input_ids"][size:].any() or row["segment_ids"].any())
        labels = np.where(row["label_mask"], np.array(LABELS)[row["label_ids"]], "X")
        assert set(labels[size:]) <= {"X"}
        found.append((" ".join(VOCAB[i] for i in row["input_ids"][:size]), " ".join(labels[:size])))
    assert count == len(found)
    return found


def test_the_first_piece_carries_the_label(tmp_path, tokenizer):
    # A word in two by the tokenizer's rules, and one of a control character, which leaves nothing.
    sentence = Sentence(["unwanted", "London,", "\u200b", "is"], ["O", "B-LOC", "I-LOC", "O"], 0)
    rows = written(tmp_path, [sentence], tokenizer, 12)
    assert rows == [("[CLS] un ##want ##ed London , [UNK] is [SEP]", "X O X X B-LOC X I-LOC O X")]


DOCUMENTS = [
    Sentence(["London", "is", "big"], ["B-LOC", "O", "O"], 0),
    Sentence(["The", "unwanted"], ["I-LOC", "O"], 0),
    Sentence(["big", ",", "big"], ["O", "O", "O"], 0),
    Sentence(["is"], ["O"], 1),
]


def test_context_is_of_the_document_and_whole_words(tmp_path, tokenizer):
    # Room for 8 pieces, whole words only; the first document's records have none of the second's.
    assert written(tmp_path, DOCUMENTS, tokenizer, 10, document_context=True) == [
        ("[CLS] London is big The un ##want ##ed big [SEP]", "X B-LOC O O X X X X X X"),
        ("[CLS] is big The un ##want ##ed big , [SEP]", "X X X I-LOC O X X X X X"),
        ("[CLS] big The un ##want ##ed big , big [SEP]", "X X X X X X O O O X"),
        ("[CLS] is [SEP]", "X O X"),
    ]
    # Without the context of documents.
    texts = [text for text, _ in written(tmp_path, DOCUMENTS, tokenizer, 10)]
    assert texts == [
        "[CLS] London is big [SEP]",
        "[CLS] The un ##want ##ed [SEP]",
        "[CLS] big , big [SEP]",
        "[CLS] is [SEP]",
    ]


def test_long_sentences_are_split_and_keep_the_words_around_the_parts(tmp_path, tokenizer):
    words = ["London", "is", "big", ",", "The", "big", "big"]
    sentence = Sentence(words, ["B-LOC", *"OOOOO", "I-LOC"], 0)
    # Room for 6: parts of 3 with the words around them.
    assert written(tmp_path, [sentence], tokenizer, 8) == [
        ("[CLS] London is big , The big [SEP]", "X B-LOC O O X X X X"),
        ("[CLS] is big , The big big [SEP]", "X X X O O O X X"),
        ("[CLS] is big , The big big [SEP]", "X X X X X X I-LOC X"),
    ]
    # A long word is cut to half the room.
    sentence = Sentence(["un" + "x" * 20, "big"], ["B-LOC", "O"], 0)
    rows = written(tmp_path, [sentence], tokenizer, 8)
    assert rows == [("[CLS] un ##x ##x big [SEP]", "X B-LOC X X O X")]
    # Words without tags can be written.
    rows = written(tmp_path, [Sentence(["London", "is"], None, 0)], tokenizer, 7)
    assert rows == [("[CLS] London is [SEP]", "X O O X")]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("document_context", [True, False])
def test_every_word_is_tagged_once_in_order_with_all_the_context_there_is_room_for(
    seed, document_context
):
    rng = random.Random(seed)
    room = rng.randint(2, 30)
    lengths = [rng.randint(1, max(1, room // 2)) for _ in range(rng.randint(1, 60))]
    ends = sorted({rng.randint(1, len(lengths)) for _ in range(5)} | {len(lengths)})
    stride = rng.choice([None, 1, room // 2, room, room + 1])
    windows = list(data.make_windows(lengths, ends, room, document_context, stride))
    tagged = [word for w in windows for word in range(w.first, w.last)]
    assert tagged == list(range(len(lengths)))
    starts = [0, *ends[:-1]]
    for window in windows:
        assert window.begin <= window.first < window.last <= window.end
        size = sum(lengths[window.begin : window.end])
        assert size <= room
        (sentence,) = [(a, b) for a, b in zip(starts, ends, strict=True) if a <= window.first < b]
        low, high = (0, len(lengths)) if document_context else sentence
        assert low <= window.begin and window.end <= high
        if window.begin > low:
            assert size + lengths[window.begin - 1] > room
        if window.end < high:
            assert size + lengths[window.end] > room
        if sum(lengths[slice(*sentence)]) <= room:
            assert (window.first, window.last) == sentence
        elif window.first + 1 < window.last:
            assert sum(lengths[window.first : window.last]) <= (stride or room // 2)


@pytest.mark.parametrize(("room", "stride", "count"), [(10, 4, 40), (9, 1, 30), (20, 6, 66)])
def test_a_part_of_a_long_sentence_is_in_the_middle_of_its_window(room, stride, count):
    windows = list(data.make_windows([1] * count, [count], room, False, stride))
    assert [window.first for window in windows] == list(range(0, count, stride))
    for window in windows:
        left, right = window.first - window.begin, window.end - window.last
        if window.begin > 0 and window.end < count:
            assert abs(left - right) <= 1  # in all windows but those at the ends


def test_a_smaller_stride_gives_a_word_more_context(tmp_path, tokenizer):
    """The shortest sequence has a word and one beside it."""
    words = ["London", "is", "big", ",", "The", "big", "big"]
    sentence = Sentence(words, ["B-LOC", *"OOOOO", "I-LOC"], 0)
    assert written(tmp_path, [sentence], tokenizer, 8, stride=2) == [
        ("[CLS] London is big , The big [SEP]", "X B-LOC O X X X X X"),
        ("[CLS] London is big , The big [SEP]", "X X X O O X X X"),
        ("[CLS] is big , The big big [SEP]", "X X X X O O X X"),
        ("[CLS] is big , The big big [SEP]", "X X X X X X I-LOC X"),
    ]
    assert written(tmp_path, DOCUMENTS[:1], tokenizer, 4) == [
        ("[CLS] London is [SEP]", "X B-LOC X X"),
        ("[CLS] London is [SEP]", "X X O X"),
        ("[CLS] is big [SEP]", "X X O X"),
    ]
