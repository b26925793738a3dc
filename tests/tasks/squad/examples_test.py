"""Tests of bert_tf.tasks.squad.examples: SQuAD's JSON, words, answers as words, bad files."""

import json

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.squad.examples import read_squad_examples, split_words
from tests.support.squad_files import question, write_squad

CONTEXT = "\n The leader\u202fwas\tJohn Smith (1895-1943).  Caf\u00e9\u00a0one "


def read(path, is_training=True, version_2=False, flag="train_file"):
    return read_squad_examples(str(path), flag, is_training, version_2)


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
    qas = [
        question(f"q{i}", f"question {i}", [pair])
        for i, pair in enumerate(zip(answers, starts, strict=True))
    ]
    data = read(write_squad(tmp_path / "x.json", ("Another.", []), (CONTEXT, qas)))
    assert data.contexts == [CONTEXT]  # the one with questions
    word_of_char = words_of_original(CONTEXT)[1]
    for i, (example, text, start) in enumerate(zip(data.examples, answers, starts, strict=True)):
        assert example.qas_id == f"q{i}" and example.question_text == f"question {i}"
        assert example.context_index == 0 and example.answers == (text,)
        assert example.start_position == word_of_char[start]
        assert example.end_position == word_of_char[start + len(text) - 1]
        assert not example.is_impossible


def test_answer_not_at_its_start_is_left_out(tmp_path, warnings):
    qas = [
        question("moved", "q", [("John", 0)]),
        question("empty", "q", [("", 3)]),
        question("blank", "q", [(" ", 0)]),
        # str.split, which the original tidies answers with, splits at a space that words keep.
        question("space", "q", [("\u00e9\u00a0one", CONTEXT.index("\u00e9"))]),
        question("good", "q", [("John", CONTEXT.index("John"))]),
    ]
    data = read(write_squad(tmp_path / "x.json", (CONTEXT, qas)))
    assert [example.qas_id for example in data.examples] == ["good"]
    assert len(warnings) == 4
    assert "qas[0] (id 'moved'): Could not find answer: '" in warnings[0]
    assert warnings[0].endswith("vs. 'John'")
    with pytest.raises(
        UserError, match="answers must be found at their answer_start, .*; none of the 2 answers is"
    ):
        read(write_squad(tmp_path / "y.json", (CONTEXT, qas[:2])))


def test_impossible(tmp_path):
    start = CONTEXT.index("John")
    qas = [
        question("none", "q", [], is_impossible=True, plausible_answers=[{"text": "x"}]),
        question("some", "q", [("John", start)], is_impossible=False),
        question("of 1.1", "q", [("John", start)]),
    ]
    path = write_squad(tmp_path / "x.json", (CONTEXT, qas))
    first, *others = read(path, version_2=True).examples
    assert first.is_impossible and first.answers == ()
    assert (first.start_position, first.end_position) == (-1, -1)
    assert [(e.is_impossible, e.start_position) for e in others] == [(False, 3), (False, 3)]
    with pytest.raises(UserError, match=r"qas\[0\] \(id 'none'\) has 0: .* add --version_2_w"):
        read(path)
    # What has an answer is trained on, as in the original, which does not look at is_impossible.
    qas[0] = question("none", "q", [("John", start)], is_impossible=True)
    first = read(write_squad(tmp_path / "x.json", (CONTEXT, qas))).examples[0]
    assert not first.is_impossible and first.start_position == 3


def test_prediction(tmp_path, warnings):
    qas = [
        question("several", "q", [("John", 900), ("Smith", -7)]),
        question("none", "q", [], is_impossible=True),
        question("unknown", "q"),
    ]
    path = write_squad(tmp_path / "x.json", (CONTEXT, qas))
    data = read(path, is_training=False, version_2=True, flag="predict_file")
    assert [e.answers for e in data.examples] == [("John", "Smith"), (), None]
    assert not warnings
    assert read(path, is_training=False, flag="predict_file") == data
    assert "1 questions have no answer (is_impossible), but without --version_2_w" in warnings[0]


def test_duplicate_ids(tmp_path, warnings):
    qas = [question(name, "q", [("The", 2)]) for name in ("a", "b", "a", "a")]
    path = write_squad(tmp_path / "x.json", (CONTEXT, qas))
    message = "every question must have a unique id; 2 repeat one of the 2 ids: 'a', 'a'"
    with pytest.raises(UserError, match=f"--predict_file={path}: {message}. Rename or remove"):
        read(path, is_training=False, flag="predict_file")
    assert len(read(path).examples) == 4  # ids do nothing there
    assert warnings == [f"--train_file={path}: {message}"]


@pytest.mark.parametrize(
    "answers, message",
    [
        (
            [],
            r"exactly 1 answer; .*data\[0\].paragraphs\[0\].qas\[0\] \(id 'q'\) has 0: for SQuAD 2",
        ),
        ([("The", 2), ("The", 2)], "has 2: keep one answer"),
        ([("The", 400)], "within its context of 51 characters; this one has answer_start 400 and"),
        ([("one ....", 44)], "has answer_start 44 and 8 characters: 'one ....'"),
        ([("", 51)], "has answer_start 51 and 0 characters"),
        ([("The", -1)], "has answer_start -1"),
        (
            None,
            r"qas\[0\] \(id 'q'\) must have `answers`, as in SQuAD's .* has 'id', 'question'",
        ),
    ],
)
def test_bad_answers(tmp_path, answers, message):
    path = write_squad(tmp_path / "x.json", (CONTEXT, [question("q", "q", answers)]))
    with pytest.raises(UserError, match=message):
        read(path)


BAD_FILES = {
    "": r"is not JSON \(Expecting value: .*\); it must be a JSON file in SQuAD's format",
    "{": r"is not JSON \(Expecting property name",
    b"\xff\xfe\xff": "line 1: not UTF-8",
    "[" * 100_000: "nested too deeply",
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
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=BAD_FILES[content]) as error:
        read(path)
    assert str(error.value).startswith(f"--train_file={path}")


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="--train_file=.*x.json cannot be read .*No such file"):
        read(tmp_path / "x.json")


def test_byte_order_mark(tmp_path):
    path = tmp_path / "x.json"
    content = {"data": [{"paragraphs": [{"context": "a", "qas": [question("1", "q")]}]}]}
    path.write_text(json.dumps(content), encoding="utf-8-sig")
    assert read(path, is_training=False).contexts == ["a"]


def test_whole_numbers_are_ids_like_their_texts(tmp_path):
    """JSON has only texts as keys, so predictions.json would have one id twice."""
    path = write_squad(tmp_path / "x.json", (CONTEXT, [question(7, "q"), question("8", "q")]))
    assert [e.qas_id for e in read(path, is_training=False).examples] == ["7", "8"]
    path = write_squad(tmp_path / "x.json", (CONTEXT, [question(1, "q"), question("1", "q")]))
    with pytest.raises(UserError, match="1 repeat one of the 1 ids: '1'. Rename or remove"):
        read(path, is_training=False)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"id": True}, "`id` must be a string or a whole number; it is True"),
        ({"id": 1.5}, "`id` must be a string or a whole number; it is 1.5"),
        ({"answers": [{"text": "The", "answer_start": True}]}, "`answer_start` must be a whole nu"),
        ({"is_impossible": "false"}, "`is_impossible` must be true or false; it is a string"),
        ({"is_impossible": []}, "`is_impossible` must be true or false; it is a list"),
    ],
)
def test_values_of_another_type(tmp_path, changes, message):
    made = {**question("q", "q", [("The", 2)]), **changes}
    path = write_squad(tmp_path / "x.json", (CONTEXT, [made]))
    with pytest.raises(UserError, match=message):
        read(path)


LONG = "x" * 10_000


@pytest.mark.parametrize(
    "made, is_training",
    [
        (question(LONG, "q"), True),
        (question("q", "q", [(LONG, 2)]), True),
        (question("q", "q", [("The", 10**2000)]), True),
        ({LONG: 1, **dict.fromkeys(map(str, range(1000)))}, False),
    ],
)
def test_messages_are_short(tmp_path, made, is_training):
    path = write_squad(tmp_path / "x.json", (CONTEXT, [made]))
    with pytest.raises(UserError) as error:
        read(path, is_training)
    assert len(str(error.value)) < 500


def test_messages_on_ids_and_words_are_short(tmp_path, warnings):
    qas = [question(LONG, "q", [("The", 2)])] * 9 + [question(LONG, "q", [(LONG + "y", 3)])]
    path = write_squad(tmp_path / "x.json", (CONTEXT + LONG * 2, qas))
    read(path)
    with pytest.raises(UserError) as error:
        read(path, is_training=False)
    assert [len(text) < 500 for text in (str(error.value), *warnings)] == [True] * 3
