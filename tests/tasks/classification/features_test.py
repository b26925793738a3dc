"""Tests of bert_tf.tasks.classification.examples: records, also by the original's steps."""

import os
import random

import pytest

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.tasks.classification.examples import ClassificationEncoder, InputExample
from bert_tf.tasks.example_records import write_records
from bert_tf.text import fast_tokenization
from tests.support.original_features import original_features
from tests.support.record_files import read_records

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] a b c d e ##x ##y .".split()


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY))
    return str(path)


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return fast_tokenization.FastTokenizer(vocab_file, True, ("[CLS]", "[SEP]"))


def write(path, examples, label_list, max_seq_length, tokenizer):
    encoder = ClassificationEncoder(tokenizer, max_seq_length, label_list)
    return write_records(str(path), examples, encoder)


def test_a_pair_and_a_single_text(tmp_path, tokenizer):
    examples = [
        InputExample("train-1", "A bx.", "dy", "yes"),
        InputExample("train-2", "e", None, "no"),
    ]
    path = tmp_path / "train.tf_record"
    assert write(path, examples, ["no", "yes"], 9, tokenizer) == 2
    assert read_records(path) == [
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


def test_weights_are_in_records_only_if_asked_for(tmp_path, tokenizer):
    examples = [InputExample("g", "a", "b", "x", weight=0.25)]
    examples.append(InputExample("h", "a", None, "y", weight=1.0))
    labels, found = ["x", "y"], []
    encoders = [ClassificationEncoder(tokenizer, 6, labels, weighted=x) for x in (False, True)]
    for encoder in encoders:
        write_records(str(tmp_path / "f"), examples, encoder)
        found.append(read_records(tmp_path / "f"))
    plain, weighted = found
    assert [record.pop("example_weight") for record in weighted] == [[0.25], [1.0]]
    assert plain == weighted and "example_weight" not in encoders[0].schema


def test_numbers_are_labels_of_regression(tmp_path, tokenizer):
    path = tmp_path / "train.tf_record"
    examples = [InputExample("g", "a", "b", 3.75), InputExample("h", "a", "b", 0.0)]
    write(path, examples, None, 5, tokenizer)
    assert [record["label_ids"] for record in read_records(path)] == [[3.75], [0.0]]


@pytest.mark.parametrize("max_seq_length, count", [(4, 200), (5, 200), (12, 2100), (30, 200)])
def test_random_texts_give_what_the_original_gives(
    tmp_path, vocab_file, tokenizer, max_seq_length, count
):
    reference = tokenization.FullTokenizer(vocab_file, True)
    rng = random.Random(max_seq_length)

    def text():
        # An accent has no token, so some texts are not empty but have no tokens.
        words = ["ax", "b.", "É", "q", "\u0301"]
        return " ".join(rng.choices(words, k=rng.choice((0, 1, 2, 9))))

    labels = ["x", "y", "z"]
    examples = [
        InputExample(f"g{i}", text(), rng.choice([None, text()]), rng.choice(labels))
        for i in range(count)  # 2100: more than one batch of the tokenizer, the last one not full
    ]
    path = tmp_path / "eval.tf_record"
    assert write(path, examples, labels, max_seq_length, tokenizer) == count
    for record, example in zip(read_records(path), examples, strict=True):
        texts = example.text_a, example.text_b
        _, features = original_features(reference, *texts, max_seq_length)
        label_ids = [labels.index(example.label)]
        assert record == {**features, "label_ids": label_ids, "is_real_example": [1]}


def test_the_first_five_are_logged(tmp_path, tokenizer, caplog):
    caplog.set_level("DEBUG", logger="absl")
    examples = [InputExample(f"dev-{i}", "a", "bx", "1") for i in range(7)]
    write(tmp_path / "f", examples, ["0", "1"], 8, tokenizer)
    lines = caplog.messages
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
    with pytest.raises(UserError, match="--max_seq_length must be at least 4, .*; received 3"):
        write(path, [], ["0"], 3, tokenizer)
    examples = [InputExample("g1", "a", None, "0"), InputExample("g2", "a", None, "maybe")]
    message = "Example 'g2': label 'maybe' must be one of '0'; .* what get_labels"
    with pytest.raises(UserError, match=message):
        write(path, examples, ["0"], 8, tokenizer)
    # The earlier file is unchanged, and no temporary file is left.
    assert path.read_text() == "as it was" and len(os.listdir(tmp_path)) == 1
