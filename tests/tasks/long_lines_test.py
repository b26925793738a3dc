"""Tests of long lines in bert_tf.tasks.extraction: their windows, and the joined vectors."""

import re

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.extraction.data import read_examples
from bert_tf.tasks.extraction.run import join_lines
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS

VOCAB = "[PAD] [UNK] [CLS] [SEP] a b c d".split()
TOKENIZER = FastTokenizer({x: i for i, x in enumerate(VOCAB)}, True, SEQUENCE_TOKENS)


def windows(tmp_path, text, length, stride):
    (tmp_path / "lines").write_text(text)
    examples = read_examples(str(tmp_path / "lines"), TOKENIZER, length, stride)
    return [(example.linex_index, " ".join(example.tokens)) for example in examples]


def test_each_window_of_a_line_is_an_example(tmp_path, warnings):
    assert windows(tmp_path, "a b c d\nb\na ||| b c d\n", 5, 2) == [
        (0, "[CLS] a b c [SEP]"),
        (0, "[CLS] c d [SEP]"),
        (1, "[CLS] b [SEP]"),
        (2, "[CLS] a [SEP] b [SEP]"),
        (2, "[CLS] a [SEP] c [SEP]"),
        (2, "[CLS] a [SEP] d [SEP]"),
    ]
    assert windows(tmp_path, "a b c d\nb\n", 6, 1) == [
        (0, "[CLS] a b c d [SEP]"),
        (1, "[CLS] b [SEP]"),
    ]
    assert warnings == []


def test_a_pair_without_room_is_refused_by_its_line(tmp_path):
    message = f"--input_file={tmp_path}/lines, line 2: the shorter text of a pair is whole in every"
    with pytest.raises(UserError, match=re.escape(message)):
        windows(tmp_path, "a\na b c ||| d c b a\n", 6, 2)


@pytest.mark.parametrize(("long_text", "vector"), [("mean", [2.0, 3.0]), ("max", [3.0, 4.0])])
def test_lines_get_the_joined_vectors_and_all_tokens(long_text, vector):
    def row(index, token, *vector):
        return index, [token], {"mean_vector": np.array([vector], np.float32)}

    rows = [row(0, "a", 5, 6), row(1, "b", 1, 4), row(1, "c", 3, 2), row(2, "d", 7, 8)]
    found = [(i, tokens, x["mean_vector"].tolist()) for i, tokens, x in join_lines(rows, long_text)]
    expected = [(0, ["a"], [[5, 6]]), (1, ["b", "c"], [vector]), (2, ["d"], [[7, 8]])]
    assert found == expected
