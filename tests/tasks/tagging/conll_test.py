"""Tests of bert_tf.tasks.tagging.data: reading, refusing and writing CoNLL files."""

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.tagging.data import Sentence, read_sentences, write_predictions


def read(folder, text, tags_required=True):
    """Returns the sentences of a file with this content; None for a file that is missing."""
    path = folder / "file.txt"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_sentences(str(path), "eval_file", tags_required)


def test_four_columns_documents_and_line_ends(tmp_path):
    text = (
        "-DOCSTART- -X- -X- O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n\r\n\r\n"
        "Peter NNP I-NP I-PER\r\n\r\n-DOCSTART- -X- -X- O\r\n\r\nLondon\tNNP\tI-NP\tI-LOC"
    )
    assert read(tmp_path, text) == [
        Sentence(["EU", "rejects"], ["I-ORG", "O"], 1),
        Sentence(["Peter"], ["I-PER"], 1),
        Sentence(["London"], ["I-LOC"], 2),
    ]


def test_documents_columns_and_marks(tmp_path):
    # The words before the first line are a document; without such lines every sentence is.
    for text, documents in (
        ("EU B-ORG\n\nPeter B-PER\n\n-DOCSTART- O\n\nLondon B-LOC\n", [0, 0, 1]),
        ("\n\nEU B-ORG\n\nPeter B-PER\n", [0, 1]),
    ):
        assert [s.document for s in read(tmp_path, text)] == documents
    # A no-break space, a line separator and a form feed are characters of a word.
    (sentence,) = read(tmp_path, "5\u00a0000 O\na\u2028b\x0cc O\n")
    assert sentence.words == ["5\u00a0000", "a\u2028b\x0cc"]
    # A byte-order mark is not part of a word.
    assert read(tmp_path, "\ufeffEU B-ORG\n\nPeter B-PER\n")[0].words == ["EU"]
    assert read(tmp_path, "\ufeff-DOCSTART- O\n\nEU O\n") == [Sentence(["EU"], ["O"], 1)]


def test_all_words_have_tags_or_none(tmp_path):
    found = read(tmp_path, "-DOCSTART-\n\nEU\nrejects\n", tags_required=False)
    assert found == [Sentence(["EU", "rejects"], None, 1)]
    message = "line 3: either all words of a file must have tags, .* 2 c"
    for text, told in (
        ("EU B-ORG\nrejects\n", "line 2: .*has only 'rejects'"),
        ("EU\n\nrejects O\n", message),
    ):
        with pytest.raises(UserError, match=told):
            read(tmp_path, text, tags_required=False)


@pytest.mark.parametrize(
    "text, message",
    [
        ("EU B-ORG\nrejects\n", r"--eval_file: .*, line 2: a line must have a word and, in its "),
        ("EU\nrejects\n", r"line 1: .* this one has only 'EU'. Add the tag"),
        ("EU S-ORG\n", r"line 1: a tag must be O, B-TYPE or I-TYPE; the last column has 'S-ORG'"),
        ("EU B-A\nof E-A\n", r"line 2: .*'E-A'.* with --tag_scheme=bioes, run_tagging makes E-"),
        ("EU O\nin B-A\u2028B\n", r"line 2: the class 'B-A\\u2028B' must be text on one line"),
        ("EU B-X\u00a0\n", r"line 1: the class 'B-X\\xa0' must be text on one line"),
        # "York" would be lost.
        (
            "EU B-X\nNew York B-LOC\n",
            "line 2: the line has 3 columns, but the first word's has 2, ",
        ),
        (
            "EU NNP B-ORG\n\nrejects O\n",
            "line 3: the line has 2 columns, but the first word's has 3",
        ),
        ("EU\tB-X\na b\tO\n", "line 2: .*A word with a space in it becomes several lines"),
        ("EU B-\n", r"the last column has 'B-'"),
        ("", r"has no sentence; it must have a word and its tag on each line"),
        ("-DOCSTART- O\n\n", r"has no sentence"),
        (b"EU B-ORG\nK\xf6ln B-LOC\n", "line 2, is not UTF-8"),
        (None, "--eval_file: .*file.txt cannot be read"),
    ],
)
def test_what_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def test_predictions_are_what_conlleval_reads(tmp_path):
    path = tmp_path / "predictions.txt"
    sentences = [Sentence(["EU", "rejects"], ["B-ORG", "O"], 0), Sentence(["Peter"], ["B-PER"], 0)]
    write_predictions(str(path), sentences, [["B-ORG", "B-LOC"], ["O"]])
    assert path.read_text() == "EU B-ORG B-ORG\nrejects O B-LOC\n\nPeter B-PER O\n\n"
    write_predictions(str(path), [Sentence(["EU"], None, 0)], [["O"]])
    assert path.read_text() == "EU O\n\n"
    assert [p.name for p in tmp_path.iterdir()] == ["predictions.txt"]
