"""Tests of bert_tf.tasks.squad.examples: SQuAD's JSON, words, answers as words, bad files."""

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.squad.examples import SquadExample, read_squad_examples
from bert_tf.tasks.squad.words import split_words
from tests.support.refusals import refuses
from tests.support.squad_files import question, write_squad

CONTEXT = "\n The leader\u202fwas\tJohn Smith (1895-1943).  Caf\u00e9\u00a0one "


def read(path, is_training=True, version_2=False):
    flag = "train_file" if is_training else "predict_file"
    return read_squad_examples(str(path), flag, is_training, version_2)


def read_questions(folder, qas, **options):
    """Returns questions about CONTEXT, written to x.json and read."""
    return read(write_squad(folder / "x.json", (CONTEXT, qas)), **options)


def words_of_original(text):
    """Returns the words by the original's loop over characters, and each character's word."""
    words, word_of_char, after_space = [], [], True
    for char in text:
        if char in " \t\r\n" or ord(char) == 0x202F:
            after_space = True
        elif after_space:
            words.append(char)
            after_space = False
        else:
            words[-1] += char
        word_of_char.append(len(words) - 1)
    return words, word_of_char


@pytest.mark.parametrize("text", [CONTEXT, "", " ", "one", "a\u3000b\u2003c d\x0be\x85f"])
def test_words(text):
    assert split_words(text) == words_of_original(text)[0]


def test_answers_become_words(tmp_path):
    answers = ["John Smith", "1895", "was\tJohn", "leader was", "\u00e9", "ohn", "The l"]
    starts = [CONTEXT.find(answer.replace("leader was", "leader\u202f")) for answer in answers]
    pairs = list(zip(answers, starts, strict=True))
    qas = [question(f"q{i}", f"question {i}", [pair]) for i, pair in enumerate(pairs)]
    data = read(write_squad(tmp_path / "x.json", ("Another.", []), (CONTEXT, qas)))
    assert data.contexts == [CONTEXT]  # the one with questions
    word_of_char = words_of_original(CONTEXT)[1]
    assert data.examples == [
        SquadExample(
            *(f"q{i}", f"question {i}", 0, (text,)),
            start_position=word_of_char[start],
            end_position=word_of_char[start + len(text) - 1],
            answer_start=start,
        )
        for i, (text, start) in enumerate(pairs)
    ]


def test_an_answer_that_is_not_at_its_start_is_skipped(tmp_path, warnings):
    qas = [
        question("moved", "q", [("John", 0)]),
        question("empty", "q", [("", 3)]),
        question("blank", "q", [(" ", 0)]),
        # str.split, which the original tidies answers with, splits at a space that words keep.
        question("space", "q", [("\u00e9\u00a0one", CONTEXT.index("\u00e9"))]),
        question("good", "q", [("John", CONTEXT.index("John"))]),
    ]
    data = read_questions(tmp_path, qas)
    assert [example.qas_id for example in data.examples] == ["good"]
    assert len(warnings) == 4
    assert "qas[0] (id 'moved'): Could not find answer: '" in warnings[0]
    assert warnings[0].endswith("vs. 'John'")
    rule = "answers must be found at their answer_start, .*; none of the 2 answers is"
    refuses(rule, read_questions, tmp_path, qas[:2])


def test_impossible(tmp_path):
    start = CONTEXT.index("John")
    qas = [
        question("none", "q", [], is_impossible=True, plausible_answers=[{"text": "x"}]),
        question("some", "q", [("John", start)], is_impossible=False),
        question("of 1.1", "q", [("John", start)]),
    ]
    first, *others = read_questions(tmp_path, qas, version_2=True).examples
    assert first.is_impossible and first.answers == ()
    assert (first.start_position, first.end_position) == (-1, -1)
    assert [(e.is_impossible, e.start_position) for e in others] == [(False, 3), (False, 3)]
    refuses(r"qas\[0\] \(id 'none'\) has 0: .* add --version_2_w", read_questions, tmp_path, qas)
    # A question with an answer is trained on: the original does not look at is_impossible.
    qas[0] = question("none", "q", [("John", start)], is_impossible=True)
    first = read_questions(tmp_path, qas).examples[0]
    assert not first.is_impossible and first.start_position == 3


def test_prediction(tmp_path, warnings):
    qas = [
        question("several", "q", [("John", 900), ("Smith", -7)]),
        question("none", "q", [], is_impossible=True),
        question("unknown", "q"),
    ]
    data = read_questions(tmp_path, qas, is_training=False, version_2=True)
    assert [e.answers for e in data.examples] == [("John", "Smith"), (), None]
    assert not warnings
    assert read_questions(tmp_path, qas, is_training=False) == data
    assert "1 questions have no answer (is_impossible), but without --version_2_w" in warnings[0]


def test_duplicate_ids(tmp_path, warnings):
    qas = [question(name, "q", [("The", 2)]) for name in ("a", "b", "a", "a")]
    message = "every question must have a unique id; 2 repeat one of the 2 ids: 'a', 'a'"
    with pytest.raises(UserError, match=f"--predict_file=.*/x.json: {message}. Rename or rem"):
        read_questions(tmp_path, qas, is_training=False)
    assert len(read_questions(tmp_path, qas).examples) == 4  # training does not use ids
    assert warnings == [f"--train_file={tmp_path}/x.json: {message}"]


# What a question has, and the message.
BAD_QUESTIONS = [
    (
        question("q", "q", []),
        r"exactly 1 answer; .*data\[0\].paragraphs\[0\].qas\[0\] \(id 'q'\) has 0: for SQuAD 2",
    ),
    (question("q", "q", [("The", 2)] * 2), "has 2: keep one answer"),
    (question("q", "q", [("The", 400)]), "context of 51 characters; this one has answer_start 400"),
    (question("q", "q", [("one ....", 44)]), "has answer_start 44 and 8 characters: 'one ....'"),
    (question("q", "q", [("", 51)]), "has answer_start 51 and 0 characters"),
    (question("q", "q", [("The", -1)]), "has answer_start -1"),
    (question("q", "q"), r"\(id 'q'\) must have `answers`, as in SQuAD's .* has 'id', 'question'"),
    (question(True, "q"), "`id` must be a string or a whole number; it is True"),
    (question(1.5, "q"), "`id` must be a string or a whole number; it is 1.5"),
    (question("q", "q", [("The", True)]), "`answer_start` must be a whole number; it is True"),
    (question("q", "q", is_impossible="false"), "`is_impossible` must be true or false; .* string"),
    (question("q", "q", is_impossible=[]), "`is_impossible` must be true or false; it is a list"),
    ({"id": 1}, "must have `question`"),
]


@pytest.mark.parametrize("made, message", BAD_QUESTIONS)
def test_bad_question(tmp_path, made, message):
    refuses(message, read_questions, tmp_path, [made])


BAD_FILES = {
    None: "cannot be read .*no such file; .* holds nothing",
    "": r"is not JSON \(Expecting value: .*\); it must be a JSON file in SQuAD's format",
    '{"data": NaN}': "NaN is not a number in JSON",
    "[]": "the file must be an object with `data`, as in SQuAD's files; it is a list",
    "{}": "the file must have `data`, as in SQuAD's files; it has nothing",
    '{"rows": 1, "a": 2}': "it has 'a', 'rows'",
    '{"data": {}}': "the file: `data` must be a list; it is an object",
    '{"data": []}': "has no question; its paragraphs need `qas`",
    '{"data": [7]}': r"data\[0\] must be an object with `paragraphs`.*it is a whole number",
    '{"data": [{"title": "t"}]}': r"data\[0\] must have `paragraphs`",
    '{"data": [{"paragraphs": [{"qas": []}]}]}': r"paragraphs\[0\] must have `context`",
    '{"data": [{"paragraphs": [{"context": "x"}]}]}': r"paragraphs\[0\] must have `qas`",
    '{"data": [{"paragraphs": [{"context": "x", "qas": []}]}]}': "has no question",
    '{"data": [{"paragraphs": [{"context": "x", "qas": [{"id": "1"}]}]}]}': "must have `question`",
    '{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": "1"}]}]}]}': "must have `id`",
    '{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": null}]}]}]}': "it is None",
}


@pytest.mark.parametrize("content", BAD_FILES)
def test_bad_file(tmp_path, content):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=BAD_FILES[content]) as error:
        read(path)
    assert str(error.value).startswith(f"--train_file={path}")


def test_a_whole_number_is_the_id_of_its_digits(tmp_path):
    """The keys of predictions.json are strings, so 1 and "1" would be the same key twice."""
    data = read_questions(tmp_path, [question(7, "q"), question("8", "q")], is_training=False)
    assert [example.qas_id for example in data.examples] == ["7", "8"]
    path = tmp_path / "x.json"  # with a byte-order mark
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read(path, is_training=False) == data
    with pytest.raises(UserError, match="1 repeat one of the 1 ids: '1'. Rename or remove"):
        read_questions(tmp_path, [question(1, "q"), question("1", "q")], is_training=False)
