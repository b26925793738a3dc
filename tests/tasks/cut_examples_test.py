"""Tests of text that is too long: the warning that it is cut, and windows of extract_features."""

import re

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.classification.examples import ClassificationEncoder, InputExample
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.extraction.lines import read_examples
from bert_tf.tasks.extraction.run import join_lines
from bert_tf.tasks.multiple_choice.data import Question, QuestionEncoder
from bert_tf.tasks.sentences.data import SentenceEncoder, Sentences
from bert_tf.tasks.squad.examples import SquadData, SquadExample
from bert_tf.tasks.squad.features import SquadEncoder
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.tagging.data import Sentence, TaggingEncoder
from bert_tf.tasks.task import ExampleSet
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS

VOCAB = "[PAD] [UNK] [CLS] [SEP] a b c d ##d .".split()
TOKENIZER = FastTokenizer({x: i for i, x in enumerate(VOCAB)}, True, SEQUENCE_TOKENS)


def classifier(length, *texts):
    encoder = ClassificationEncoder(TOKENIZER, length, None)
    return encoder, [InputExample("x", a, b, "1") for a, b in texts]


def sentences(length, *texts):
    return SentenceEncoder(TOKENIZER, length, len(texts[0])), [Sentences(row) for row in texts]


def multiple_choice(length, *texts):
    questions = [Question(context, "a", [ending, "b", "c", "a"], 0) for context, ending in texts]
    return QuestionEncoder(TOKENIZER, length, 4), questions


def tagger(length, *documents):
    examples = [[Sentence(text.split(), None, 0)] for text in documents]
    return TaggingEncoder(TOKENIZER, length, ["O"], False), examples


def squad(length, *questions):
    lengths = {"max_query_length": length, "max_seq_length": length + 5}
    settings = SquadSettings(output_dir="x", vocab_file="x", **lengths)
    examples = [SquadExample(str(i), text, 0, None) for i, text in enumerate(questions)]
    return SquadEncoder(SquadData(["a b c " * 50], examples), TOKENIZER, settings, False), examples


@pytest.mark.parametrize(
    ("make", "texts", "longest", "words"),
    [
        (classifier, [("a b c", None), ("a b", "c ."), ("a", "")], 7, "examples"),
        (classifier, [("a " * 9, None), ("a", None)], 11, "examples"),
        (sentences, [("a", "b cd c ."), ("a", "b")], 7, "examples"),
        (sentences, [("a b c a b",), ("",)], 7, "examples"),
        (multiple_choice, [("a b c", "b c a"), ("a", "b")], 10, "questions"),
        (multiple_choice, [("a", "b c a ."), ("a", "b")], 9, "questions"),
        (tagger, ["a cddd b", "a b c"], 10, "documents"),
        (tagger, ["a b c a b c a b c " * 9 + "cdd", "a"], 8, "documents"),
        (squad, ["a b c a", "b c"], 4, "questions"),
        (squad, ["a", "cdddd ."], 6, "questions"),
    ],
)
def test_the_share_of_examples_that_are_cut_is_said_once(
    tmp_path, warnings, make, texts, longest, words
):
    path = str(tmp_path / "eval.tf_record")
    encoder, examples = make(longest, *texts)
    write_records(path, examples, encoder)
    assert warnings == []
    encoder, examples = make(longest - 1, *texts)
    write_records(path, examples, encoder)
    share = {2: "50", 3: "33"}[len(texts)]
    flag = "max_query_length" if make is squad else "max_seq_length"
    cut = f"1 of {len(texts)} {words} ({share}%) are cut"
    (warning,) = warnings
    assert warning.startswith(
        f"eval.tf_record: {cut} to fit --{flag}={longest - 1}. Uncut, the longest needs {longest}"
    )
    assert ("--long_text" in warning) == (make is classifier)


@pytest.mark.parametrize(
    ("length", "texts", "end"),
    [
        (6, [("a b c a b c a b", None), ("a b", None)], "40% of all word pieces are lost"),
        (8, [("a b c", "cd a"), ("a b c", "b b")], "9.1% of all word pieces are lost"),
    ],
)
def test_a_classifier_says_how_much_text_is_lost_and_how_to_keep_it(
    tmp_path, warnings, length, texts, end
):
    encoder, examples = classifier(length, *texts)
    write_records(str(tmp_path / "eval.tf_record"), examples, encoder)
    assert warnings[0].endswith(f". {end}; --long_text=mean reads all of them")
    windows = ClassificationEncoder(TOKENIZER, length, None, stride=2)
    write_records(str(tmp_path / "eval.tf_record"), examples, windows)
    assert len(warnings) == 1  # nothing is lost


def test_the_name_and_the_share_in_the_warning(tmp_path, warnings):
    """The name that the file gets at the end; a small share is not rounded to nothing."""
    for name in ("eval", "predict_mismatched"):
        encoder, examples = classifier(6, ("a b c a b c", None))
        ExampleSet(name, examples, encoder=encoder).write_records(str(tmp_path / "1234.working"))
        assert warnings.pop().startswith(f"{name}.tf_record: 1 of 1 examples")
    encoder, examples = classifier(6, *[("a", None)] * 2999, ("a b c a b c", None))
    write_records(str(tmp_path / "train.tf_record"), examples, encoder)
    assert "train.tf_record: 1 of 3000 examples (0.033%) are cut" in warnings[0]


@pytest.mark.parametrize(
    ("lines", "length", "message"),
    [
        (["a b c a b", "a"], 7, None),
        (["a b c a b", "a"], 6, "1 of 2 lines (50%) are cut to fit --max_seq_length=6"),
        (["a b ||| c a", "a b c a a", ""], 7, None),
        (
            *(["a b ||| c a", "a b c a b", ""], 6),
            "2 of 3 lines (67%) are cut to fit --max_seq_length=6",
        ),
    ],
)
def test_lines_that_extract_features_cuts(tmp_path, warnings, lines, length, message):
    path = tmp_path / "input.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    assert len(list(read_examples(str(path), TOKENIZER, length))) == len(lines)
    end = "; --long_text=mean makes mean_vector and pooled_vector of all of a line"
    assert warnings == [f"{message}{end}"] * bool(message)


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
    found = windows(tmp_path, "a b c d\nb\n", 6, 1)
    assert found == [(0, "[CLS] a b c d [SEP]"), (1, "[CLS] b [SEP]")]
    assert warnings == []
    # A pair without room is refused by its line.
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
