"""Tests of tools/triviaqa_to_squad.py."""

import json
import re
from pathlib import Path

import pytest

from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.squad.examples import read_squad_examples
from bert_tf.tasks.squad.features import SquadEncoder
from tests.support.pretraining_runs import run
from tests.support.refusals import refusal, refuses
from tests.support.squad_files import make_tokenizer, settings_of_lengths
from tools import triviaqa_to_squad
from tools.triviaqa_to_squad import find_answer, first_tokens


def item(question_id, value, wikipedia=(), web=(), aliases=()) -> dict:
    names = [value, *aliases]
    lowered = [name.lower() for name in names]
    return {
        **{"QuestionId": question_id, "Question": f"Which is {question_id}?"},
        "Answer": {"Value": value, "Aliases": names, "NormalizedAliases": lowered},
        "EntityPages": [{"Filename": name, "Title": name} for name in wikipedia],
        "SearchResults": [{"Filename": name, "Rank": 1} for name in web],
    }


CAFE = "Caf\u00e9.txt"
DOCUMENTS = {
    "wikipedia/River.txt": "The Thames, or\nRiver  Thames, runs.\n" + "x " * 40 + "Isis",
    f"wikipedia/{CAFE}": "A caf\u00e9 in London; a Cafeteria is no CAF\u00c9.",
    "web/7/7_1.txt": "Isis is the Thames at Oxford.",
}
ANSWER = ("Value", "Aliases", "NormalizedAliases")
ITEMS = [
    item("q1", "River Thames", ["River.txt", CAFE, "River.txt"], ["7/7_1.txt"], ["Thames"]),
    item("q2", "Isis", ["River.txt"], ["7/7_1.txt"]),
    item("q3", "London", [CAFE, "gone.txt"]),
]


@pytest.fixture
def source(tmp_path):
    for name, text in DOCUMENTS.items():
        path = tmp_path / "evidence" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "qa.json").write_text(json.dumps({"Data": ITEMS, "Domain": "Wikipedia"}))
    return tmp_path


def convert(source, output_file="out.json", **settings) -> dict[str, tuple[str, dict]]:
    """Returns the context and the answer of each question written."""
    files = [str(source / name) for name in ("qa.json", "evidence", output_file)]
    count = triviaqa_to_squad.triviaqa_to_squad(*files, **settings)
    written = {}
    for article in json.loads(Path(files[2]).read_text())["data"]:
        (paragraph,) = article["paragraphs"]
        for question in paragraph["qas"]:
            (answer,) = question["answers"]
            written[question["id"]] = paragraph["context"], answer
            start = answer["answer_start"]
            assert paragraph["context"][start : start + len(answer["text"])] == answer["text"]
    assert len(written) == count
    return written


def test_first_tokens_and_find_answer():
    text = "One, two\n(three) four\u2026 "
    for most, found in ((3, "One, two"), (6, "One, two\n(three)"), (400, text.rstrip())):
        assert first_tokens(text, most) == found
    assert first_tokens(text, 8) == text.rstrip()
    assert first_tokens("", 3) == first_tokens(" \n", 3) == ""
    context = "The Thames, that is the River\n Thames, has A+B (c)."
    for answers, expected in (
        (["thames"], "Thames"),
        (["River Thames"], "River\n Thames"),
        (["Thames", "the thames"], "The Thames"),  # the longer of two at one place
        (["at", "Ham"], None),  # parts of words
        (["a+b (c)"], "A+B (c)"),
        (["", " "], None),
        (["nowhere", "river thames", "a+b (c)"], "River\n Thames"),
    ):
        found = find_answer(context, answers)
        assert (found and found["text"]) == expected
        assert not found or context[found["answer_start"] :].startswith(expected)


def test_program_and_its_output_in_training(source):
    printed = run(
        *(f"--triviaqa_file={source}/qa.json", f"--evidence_dir={source}/evidence"),
        *(f"--output_file={source}/made.json", "--max_tokens=30"),
        program="tools.triviaqa_to_squad",
    )
    assert "1 of 3 documents are missing, such as 'wikipedia/gone.txt'" in printed
    assert "2 questions from 3 documents" in printed
    data = read_squad_examples(str(source / "made.json"), "train_file", True, False)
    answers = {example.qas_id: example.answers for example in data.examples}
    assert answers == {"q1--wikipedia/River.txt": ("Thames",), f"q3--wikipedia/{CAFE}": ("London",)}
    assert data.contexts[0] == "The Thames, or\nRiver  Thames, runs.\n" + "x " * 20 + "x"
    tokenizer = make_tokenizer(source)
    encoder = SquadEncoder(data, tokenizer, settings_of_lengths(), is_training=True)
    assert write_records(str(source / "x.tf_record"), data.examples, encoder) == 2


def test_folders_and_length(source):
    river, cafe, web = "wikipedia/River.txt", f"wikipedia/{CAFE}", "web/7/7_1.txt"
    assert convert(source).keys() == {f"q1--{river}", f"q2--{river}", f"q3--{cafe}"}
    both = convert(source, folders=["wikipedia", "web"], max_tokens=8)
    assert both.keys() == {f"q1--{river}", f"q1--{web}", f"q2--{web}", f"q3--{cafe}"}
    assert both[f"q2--{web}"] == (DOCUMENTS[web], {"text": "Isis", "answer_start": 0})
    # Links within the folder are followed.
    (source / "evidence" / "wikipedia" / "link.txt").symlink_to("River.txt")
    (source / "qa.json").write_text(json.dumps({"Data": [item("q7", "Thames", ["link.txt"])]}))
    assert convert(source).keys() == {"q7--wikipedia/link.txt"}


def test_bad_input(source):
    for content, message in (
        ("", r"--triviaqa_file=.* is not JSON \(.*\); it must be a JSON file in TriviaQA's format"),
        ("[" * 100_000, "maximum recursion depth"),
        ("[]", "must have `Data`, a list of objects with `QuestionId`.*TypeError"),
        ('{"data": []}', "KeyError: 'Data'"),
        ('{"Data": [{"QuestionId": "q", "Question": "x"}]}', "KeyError: 'Answer'"),
        ('{"Data": []}', "no question has a document in its EntityPages"),
        ({**item("q", "x", ["y"]), "Question": 7}, "`Question`.*; TypeError: a text is 7"),
        ({**item("q", "x", ["y"]), "Answer": dict.fromkeys(ANSWER, [5])}, r"a text is \[5\]"),
        (item("q", "x", ["y" * 200]), "has none of the 1 documents of .*, such as 'wikipedia/yyy"),
        (item("q", "Rome", ["River.txt"]), "has an answer in its first 400"),
    ):
        text = content if isinstance(content, str) else json.dumps({"Data": [content]})
        (source / "qa.json").write_text(text)
        told = refusal(convert, source)
        assert re.search(message, told) and len(told) < 500
        assert not list(source.glob("out.json*"))


@pytest.mark.parametrize(
    "name",
    [
        *("../../secret.txt", "x/../../../secret.txt", "{source}/secret.txt"),
        *("..\\..\\secret.txt", "c:\\secret.txt", "link.txt", "linked/secret.txt"),
        *("", ".", "a\0b", "\ud800"),
    ],
)
def test_documents_outside_the_folder_are_refused(source, name):
    """They would be copied into the output."""
    (source / "secret.txt").write_text("The river Thames.")
    (source / "evidence" / "wikipedia" / "link.txt").symlink_to(source / "secret.txt")
    (source / "evidence" / "wikipedia" / "linked").symlink_to(source)
    name = name.format(source=source)
    (source / "qa.json").write_text(json.dumps({"Data": [item("q7", "Thames", [name])]}))
    told = refusal(convert, source)
    assert re.search(r"question 'q7': .* must be .* below --evidence_dir=", told)
    assert repr(name)[1:-1].replace("\\\\", "") in told.replace("\\\\", "")
    assert not list(source.glob("out.json*"))


def test_files_that_cannot_be_read_or_written(source):
    refuses("--output_file=.*/gone/x.json cannot be written", convert, source, "gone/x.json")
    document = source / "evidence" / "wikipedia" / "River.txt"
    (source / "out.json").symlink_to(document)
    refuses("must not be a file of --evidence_dir, which it would rep", convert, source)
    assert document.read_text() == DOCUMENTS["wikipedia/River.txt"]
    (source / "out.json").unlink()
    document.unlink()
    document.mkdir()
    message = f"--evidence_dir=.*: .*{document.name}' cannot be read: "
    refuses(message, convert, source, kind=OSError)
    assert not list(source.glob("out.json*"))
