"""Tests of bert_tf.datasets.retrieval: BEIR's files, and lines that are refused."""

import pytest

from bert_tf.datasets.retrieval import RetrievalSet, read_retrieval_set
from bert_tf.errors import UserError

FILES = {
    "queries.jsonl": '{"_id": "q1", "text": "who?"}\n{"_id": "q2", "text": "why?"}\n',
    "corpus.jsonl": (
        '{"_id": "a", "title": "One", "text": "text", "metadata": {}}\n\n'
        '{"_id": "b", "text": "plain"}\n{"_id": "7", "title": "only a title", "text": ""}\n'
    ),
    "qrels.tsv": "query-id\tcorpus-id\tscore\nq2\t7\t1\nq2\ta\t2\nq2\tb\t0\nq1\tb\t0\n",
}


def read(folder, **changes):
    for name, text in {**FILES, **changes}.items():
        if text is not None:
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return read_retrieval_set(str(folder), "retrieval_dir")


def test_queries_with_a_relevant_text_are_read(tmp_path):
    """Scores of 0 say that a text was judged, and is not relevant."""
    found = read(tmp_path)
    texts = ["One text", "plain", "only a title"]
    assert found == RetrievalSet(["why?"], texts, [{2: 1.0, 0: 2.0}], [-1])


def test_relevant_texts_may_be_in_beirs_folder_and_without_a_header(tmp_path):
    test = {"qrels.tsv": None, "qrels/test.tsv": "q1\tb\t1\r\n"}
    assert read(tmp_path, **test).relevant == [{1: 1.0}]


# File -> its lines, with | between them and single spaces for tabs, and the message.
REFUSED = {
    "qrels.tsv": [
        ("q1 b 1|q1 z 1", "qrels.tsv, line 2: 'z' must be the _id of a line of corpus.jsonl"),
        ("q1 z 1", "line 1: 'z' must be the _id of a line of corpus.jsonl, which has 'a', 'b',"),
        ("q3 b 1", "line 1: 'q3' must be the _id of a line of queries.jsonl, whic"),
        ("q1 b 0", "qrels.tsv must name a relevant text, with a score above 0"),
        ("q1 b 1|q1 a x", "line 2, must have a query's _id, a text's _id and"),
        ("q1 b -1", "line 1, must have a query's _id, .*; it is 'q1.tb.t-1'"),
        ("q1 b 1_0", "qrels.tsv must name a relevant text"),
        ("q1 b inf", "line 1, must have a query's _id"),
        ("q1 a 1|q1 b 1|q1 a 2", "line 3: .* 'a' have 1 in an earlier line and 2"),
        ("q1 b 0|q1 b 1", "line 2: a query and a text must have one score; 'q1' "),
        ("q1~0~b~1", "line 1, must have .* separated by tabs; it is 'q1 0 b 1'"),
        (None, "qrels.tsv cannot be read .*; the folder must hold queries.jsonl, co"),
    ],
    "corpus.jsonl": [
        ("{'_id':~1}", "corpus.jsonl, line 1, is not JSON"),
        ('{"_id":"a","text":"t"}|{"_id":7,"text":"t"}', "line 2, must be an"),
        ('["a"]', "line 1, must be an object with the strings _id, text and,"),
        ('{"_id":"a","text":null}', "line 1, must be an object with the strings"),
    ],
    "queries.jsonl": [
        ('{"_id":"a","text":"~"}', "line 1: 'a' must have a text; fill it in"),
        ('{"_id":"q1","text":"w"}|{"_id":"q1","text":"v"}', "line 2: the _id 'q1' must be unique;"),
    ],
}


@pytest.mark.parametrize(
    "name, text, message", [(name, *row) for name, rows in REFUSED.items() for row in rows]
)
def test_what_is_refused(tmp_path, name, text, message):
    if text is not None:
        text = text.replace("|", "\n").replace(" ", "\t").replace("~", " ")
    with pytest.raises(UserError, match=f"^--retrieval_dir: .*{message}") as error:
        read(tmp_path, **{name: text})
    assert len(str(error.value)) < 600
