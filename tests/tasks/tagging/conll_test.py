"""Tests of bert_tf.tasks.tagging.conll: reading, refusing and writing CoNLL files."""

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.tagging.conll import Sentence, read_sentences, write_predictions

LONG = "x" * 10_000


@pytest.fixture
def write(tmp_path):
    def write_file(text):
        path = tmp_path / "file.txt"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write_file


def test_four_columns_documents_and_line_ends(write):
    path = write(
        "-DOCSTART- -X- -X- O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n\r\n\r\n"
        "Peter NNP I-NP I-PER\r\n\r\n-DOCSTART- -X- -X- O\r\n\r\nLondon\tNNP\tI-NP\tI-LOC"
    )
    assert read_sentences(path, "train_file") == [
        Sentence(["EU", "rejects"], ["I-ORG", "O"], 1),
        Sentence(["Peter"], ["I-PER"], 1),
        Sentence(["London"], ["I-LOC"], 2),
    ]


def test_what_is_before_the_first_document_line_is_a_document(write):
    path = write("EU B-ORG\n\nPeter B-PER\n\n-DOCSTART- O\n\nLondon B-LOC\n")
    assert [s.document for s in read_sentences(path, "train_file")] == [0, 0, 1]


def test_without_document_lines_each_sentence_is_alone(write):
    path = write("\n\nEU B-ORG\n\nPeter B-PER\n")
    assert [s.document for s in read_sentences(path, "train_file")] == [0, 1]


def test_only_blanks_and_tabs_part_columns(write):
    # A no-break space, a line separator and a form feed are characters of a word.
    path = write("5\u00a0000 O\na\u2028b\x0cc O\n")
    assert read_sentences(path, "train_file")[0].words == ["5\u00a0000", "a\u2028b\x0cc"]


def test_words_alone_where_tags_are_not_required(write):
    path = write("-DOCSTART-\n\nEU\nrejects\n")
    assert read_sentences(path, "predict_file", tags_required=False) == [
        Sentence(["EU", "rejects"], None, 1)
    ]


@pytest.mark.parametrize(
    "text, message",
    [
        ("EU B-ORG\nrejects\n", r"--eval_file: .*, line 2: a line must have a word and, in its "),
        ("EU\nrejects\n", r"line 1: .* this one has only 'EU'. Add the tag"),
        ("EU S-ORG\n", r"line 1: a tag must be O, B-TYPE or I-TYPE; the last column has 'S-ORG'"),
        ("EU O\nin B-A\u2028B\n", r"line 2: the class 'B-A\\u2028B' must be text on one line"),
        ("EU B-X\u00a0\n", r"line 1: the class 'B-X\\xa0' must be text on one line"),
        (f"EU {LONG}\n", "the last column has 'xxx"),
        (f"EU B-{LONG}\x85B\n", "line 1: the class 'B-xxx"),
        (f"EU O\n{LONG}\n", "this one has only 'xxx"),
        ("EU B-\n", r"the last column has 'B-'"),
        ("", r"has no sentence; it must have a word and its tag on each line"),
        ("-DOCSTART- O\n\n", r"has no sentence"),
        (b"EU B-ORG\nK\xf6ln B-LOC\n", "line 2: not UTF-8"),
        (None, "--eval_file: .*file.txt cannot be read"),
    ],
)
def test_what_is_refused(write, tmp_path, text, message):
    path = f"{tmp_path}/file.txt" if text is None else write(text)
    with pytest.raises(UserError, match=message) as error:
        read_sentences(path, "eval_file")
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    "text, message",
    [
        ("EU B-ORG\nrejects\n", "line 2: .*has only 'rejects'"),
        ("EU\n\nrejects O\n", "line 3: either all words of a file must have tags, .* 2 col"),
    ],
)
def test_tags_are_for_all_words_or_none(write, text, message):
    with pytest.raises(UserError, match=message):
        read_sentences(write(text), "predict_file", tags_required=False)


def test_predictions_are_what_conlleval_reads(tmp_path):
    path = tmp_path / "predictions.txt"
    sentences = [Sentence(["EU", "rejects"], ["B-ORG", "O"], 0), Sentence(["Peter"], ["B-PER"], 0)]
    write_predictions(str(path), sentences, [["B-ORG", "B-LOC"], ["O"]])
    assert path.read_text() == "EU B-ORG B-ORG\nrejects O B-LOC\n\nPeter B-PER O\n\n"
    write_predictions(str(path), [Sentence(["EU"], None, 0)], [["O"]])
    assert path.read_text() == "EU O\n\n"
    assert [p.name for p in tmp_path.iterdir()] == ["predictions.txt"]
