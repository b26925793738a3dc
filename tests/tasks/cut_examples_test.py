"""Tests of the warning about examples that are cut, in every task and in extract_features."""

import pytest

from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.features import ClassificationEncoder
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.extraction.data import read_examples
from bert_tf.tasks.multiple_choice.data import QuestionEncoder
from bert_tf.tasks.multiple_choice.swag import Question
from bert_tf.tasks.sentences.data import SentenceEncoder, Sentences
from bert_tf.tasks.squad.examples import SquadData, SquadExample
from bert_tf.tasks.squad.features import SquadEncoder
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.tagging.conll import Sentence
from bert_tf.tasks.tagging.data import TaggingEncoder
from bert_tf.tasks.task import ExampleSet
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS

VOCAB = "[PAD] [UNK] [CLS] [SEP] a b c ##d .".split()
TOKENIZER = FastTokenizer({x: i for i, x in enumerate(VOCAB)}, True, SEQUENCE_TOKENS)


def classifier(length, *texts):
    encoder = ClassificationEncoder(TOKENIZER, length, None)
    return encoder, [InputExample("x", a, b, "1") for a, b in texts]


def sentences(length, *texts):
    return SentenceEncoder(TOKENIZER, length, len(texts[0])), [Sentences(row) for row in texts]


def multiple_choice(length, *texts):
    questions = [Question(context, "a", [ending, "b", "c", "a"], 0) for context, ending in texts]
    return QuestionEncoder(TOKENIZER, length), questions


def tagger(length, *documents):
    examples = [[Sentence(text.split(), None, 0)] for text in documents]
    return TaggingEncoder(TOKENIZER, length, ["O"], False), examples


def squad(length, *questions):
    settings = SquadSettings(
        output_dir="x", vocab_file="x", max_query_length=length, max_seq_length=length + 5
    )
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


@pytest.mark.parametrize("name", ["eval", "predict_mismatched"])
def test_the_warning_has_the_name_that_the_file_gets_at_the_end(tmp_path, warnings, name):
    encoder, examples = classifier(6, ("a b c a b c", None))
    ExampleSet(name, examples, encoder=encoder).write_records(str(tmp_path / "1234.working"))
    assert warnings[0].startswith(f"{name}.tf_record: 1 of 1 examples")


def test_a_small_share_is_not_rounded_to_nothing(tmp_path, warnings):
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
            ["a b ||| c a", "a b c a b", ""],
            6,
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
