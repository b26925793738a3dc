"""Tests of bert_tf.tasks.classification.features: records, also by the original's steps."""

import os
import random

import pytest
import tensorflow as tf

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.features import ClassificationEncoder
from bert_tf.tasks.classification.schema import classification_schema
from bert_tf.tasks.example_records import write_records
from bert_tf.text import fast_tokenization

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] a b c d e ##x ##y .".split()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY))
    return fast_tokenization.FastTokenizer(str(path), True, ("[CLS]", "[SEP]"))


def write(path, examples, label_list, max_seq_length, tokenizer):
    encoder = ClassificationEncoder(tokenizer, max_seq_length, label_list)
    return write_records(str(path), examples, encoder)


def read(path):
    """Returns the features of each record: lists by name."""
    found = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        parsed = tf.train.Example.FromString(record).features.feature
        found.append({k: list(v.int64_list.value or v.float_list.value) for k, v in parsed.items()})
    return found


def test_a_pair_and_a_single_text(tmp_path, tokenizer):
    examples = [
        InputExample("train-1", "A bx.", "dy", "yes"),
        InputExample("train-2", "e", None, "no"),
    ]
    path = tmp_path / "train.tf_record"
    assert write(path, examples, ["no", "yes"], 9, tokenizer) == 2
    assert read(path) == [
        {
            "input_ids": [2, 4, 5, 9, 11, 3, 7, 10, 3],
            "input_mask": [1] * 9,
            "segment_ids": [0, 0, 0, 0, 0, 0, 1, 1, 1],
            "label_ids": [1],
            "is_real_example": [1],
        },
        {
            "input_ids": [2, 8, 3, 0, 0, 0, 0, 0, 0],
            "input_mask": [1, 1, 1, 0, 0, 0, 0, 0, 0],
            "segment_ids": [0] * 9,
            "label_ids": [0],
            "is_real_example": [1],
        },
    ]


def test_numbers_are_labels_of_regression(tmp_path, tokenizer):
    path = tmp_path / "train.tf_record"
    examples = [InputExample("g", "a", "b", 3.75), InputExample("h", "a", "b", 0.0)]
    write(path, examples, None, 5, tokenizer)
    parsed = [
        tf.io.parse_single_example(record, classification_schema(5, regression=True))
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert [float(p["label_ids"]) for p in parsed] == [3.75, 0.0]
    assert parsed[0]["label_ids"].dtype == tf.float32 and parsed[0]["label_ids"].shape == ()


def _original(example, label_list, max_seq_length, reference):
    """Returns the record by the steps of the original's convert_single_example."""
    tokens_a = reference.tokenize(example.text_a)
    tokens_b = reference.tokenize(example.text_b) if example.text_b else []
    if tokens_b:
        while len(tokens_a) + len(tokens_b) > max_seq_length - 3:
            (tokens_a if len(tokens_a) > len(tokens_b) else tokens_b).pop()
    else:
        del tokens_a[max_seq_length - 2 :]
    tokens = ["[CLS]", *tokens_a, "[SEP]"]
    segments = [0] * len(tokens)
    if tokens_b:
        tokens += [*tokens_b, "[SEP]"]
        segments += [1] * (len(tokens_b) + 1)
    padding = [0] * (max_seq_length - len(tokens))
    return {
        "input_ids": reference.convert_tokens_to_ids(tokens) + padding,
        "input_mask": [1] * len(tokens) + padding,
        "segment_ids": segments + padding,
        "label_ids": [label_list.index(example.label)],
        "is_real_example": [1],
    }


@pytest.mark.parametrize("max_seq_length", [4, 5, 12, 30])
def test_random_texts_give_what_the_original_gives(tmp_path, tokenizer, max_seq_length):
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text("\n".join(VOCABULARY))
    reference = tokenization.FullTokenizer(str(vocab_file), True)
    rng = random.Random(max_seq_length)

    def text():
        # An accent alone makes no token, so some texts are not empty but have no tokens.
        return " ".join(
            rng.choice(["ax", "b.", "É", "q", "\u0301"]) for _ in range(rng.choice((0, 1, 2, 9)))
        )

    labels = ["x", "y", "z"]
    examples = [
        InputExample(f"g{i}", text(), rng.choice([None, text()]), rng.choice(labels))
        for i in range(2100)  # more than one batch of the tokenizer, the last one not full
    ]
    path = tmp_path / "eval.tf_record"
    assert write(path, examples, labels, max_seq_length, tokenizer) == 2100
    expected = [_original(e, labels, max_seq_length, reference) for e in examples]
    assert read(path) == expected


def test_the_first_five_are_logged(tmp_path, tokenizer, caplog):
    caplog.set_level("DEBUG", logger="absl")
    examples = [InputExample(f"dev-{i}", "a", "bx", "1") for i in range(7)]
    write(tmp_path / "f", examples, ["0", "1"], 8, tokenizer)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:7] == [
        "*** Example ***",
        "guid: dev-0",
        "tokens: [CLS] a [SEP] b ##x [SEP]",
        "input_ids: 2 4 3 5 9 3 0 0",
        "input_mask: 1 1 1 1 1 1 0 0",
        "segment_ids: 0 0 0 1 1 1 0 0",
        "label: 1 (id = 1)",
    ]
    assert lines.count("*** Example ***") == 5


def test_errors(tmp_path, tokenizer):
    path = tmp_path / "f"
    path.write_text("as it was")
    with pytest.raises(UserError, match="--max_seq_length must be at least 4, .*; got 3"):
        write(path, [], ["0"], 3, tokenizer)
    examples = [InputExample("g1", "a", None, "0"), InputExample("g2", "a", None, "maybe")]
    with pytest.raises(
        UserError,
        match="Example 'g2': label 'maybe' must be one of '0'; .* what get_labels",
    ):
        write(path, examples, ["0"], 8, tokenizer)
    # The earlier file is unchanged, and no temporary file is left.
    assert path.read_text() == "as it was" and len(os.listdir(tmp_path)) == 1
