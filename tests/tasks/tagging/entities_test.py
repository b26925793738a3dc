"""Tests of entity scores, by fixed figures and conlleval's algorithm; tables and report of them."""

import json
import random
from collections import Counter

import pytest

from bert_tf.runs.results.tables import read_table
from bert_tf.tasks.tagging.data import Sentence
from bert_tf.tasks.tagging.entities import bioes_tags, entities, entity_counts, entity_metrics
from bert_tf.tasks.tagging.files import write_tables


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("O O", []),
        ("B-A I-A O B-A", [("A", 0, 2), ("A", 3, 4)]),
        # IOB1: B- only where two entities of one type meet.
        ("I-A I-A B-A I-A", [("A", 0, 2), ("A", 2, 4)]),
        ("I-A I-B I-B", [("A", 0, 1), ("B", 1, 3)]),
        ("B-A I-B O I-A", [("A", 0, 1), ("B", 1, 2), ("A", 3, 4)]),
        ("B-A B-A B-A", [("A", 0, 1), ("A", 1, 2), ("A", 2, 3)]),
        # A type may have a hyphen in it.
        ("B-A-1 I-A-1 I-A", [("A-1", 0, 2), ("A", 2, 3)]),
        # BILOU and IOBES: U- and S- are an entity, L- and E- end one.
        ("U-A U-A B-A L-A I-A", [("A", 0, 1), ("A", 1, 2), ("A", 2, 4), ("A", 4, 5)]),
        ("S-A I-A E-A O E-A E-A", [("A", 0, 1), ("A", 1, 3), ("A", 4, 5), ("A", 5, 6)]),
        ("B-A L-B U-B", [("A", 0, 1), ("B", 1, 2), ("B", 2, 3)]),
    ],
)
def test_entities(tags, expected):
    assert entities(tags.split()) == expected


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("O", "O"),
        ("B-A O B-A I-A O I-A", "S-A O B-A E-A O S-A"),
        ("B-NP I-NP I-NP B-NP B-VP I-NP", "B-NP I-NP E-NP S-NP S-VP S-NP"),
        ("I-A I-A B-A I-A I-A I-A", "B-A E-A B-A I-A I-A E-A"),  # IOB1
    ],
)
def test_bioes(tags, expected):
    found = bioes_tags(tags.split())
    assert found == expected.split()
    assert entities(found) == entities(tags.split())  # so the scores are the same
    assert bioes_tags(found) == found


def test_fixed_figures():
    """In percent, as conlleval prints them; seqeval 1.2.2 gives the same."""
    gold = ["B-PER I-PER O B-LOC", "B-ORG O B-LOC I-LOC O", "B-PER O B-MISC"]
    predicted = ["B-PER I-PER O B-ORG", "B-ORG O B-LOC I-LOC B-LOC", "B-PER I-PER O"]
    results = entity_metrics([s.split() for s in gold], [s.split() for s in predicted])
    halves = dict.fromkeys(("", "_LOC", "_PER"), (50.0, 50.0, 50.0))
    others = {"_MISC": (0.0, 0.0, 0.0), "_ORG": (50.0, 100.0, 66.67)}
    for suffix, figures in {**halves, **others}.items():
        names = (f"{name}{suffix}" for name in ("precision", "recall", "f1"))
        assert tuple(round(100 * results[name], 2) for name in names) == figures


def conlleval(gold, predicted):
    """Returns counters (correct, predicted, gold) of entities by type, by conlleval's algorithm.

    For each word it asks whether an entity ends before it and whether one begins with it, given the
    last tag of both sides. The end of a sentence counts as a word with O.
    """

    def split(tag):
        return (tag, "") if tag == "O" else tuple(tag.split("-", 1))

    def ends(last, now):
        pairs = ("BB", "BO", "IB", "IO")
        return last[0] + now[0] in pairs or (last[0] != "O" and last[1] != now[1])

    def begins(last, now):
        return last[0] + now[0] in ("BB", "IB", "OB", "OI") or (now[0] != "O" and last[1] != now[1])

    counts = Counter(), Counter(), Counter()
    last_gold = last_predicted = ("O", "")
    inside = False
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        for pair in zip([*gold_tags, "O"], [*predicted_tags, "O"], strict=True):
            now_gold, now_predicted = map(split, pair)
            gold_ends = ends(last_gold, now_gold)
            predicted_ends = ends(last_predicted, now_predicted)
            if inside:
                if gold_ends and predicted_ends and last_gold[1] == last_predicted[1]:
                    inside = False
                    counts[0][last_gold[1]] += 1
                elif gold_ends != predicted_ends or now_gold[1] != now_predicted[1]:
                    inside = False
            gold_begins = begins(last_gold, now_gold)
            predicted_begins = begins(last_predicted, now_predicted)
            if gold_begins and predicted_begins and now_gold[1] == now_predicted[1]:
                inside = True
            counts[2][now_gold[1]] += gold_begins
            counts[1][now_predicted[1]] += predicted_begins
            last_gold, last_predicted = now_gold, now_predicted
    return counts


def test_random_tags_have_conllevals_figures():
    rng = random.Random(12345)
    choices = ["O", "O", "B-A", "I-A", "B-B", "I-B", "B-C-D", "I-C-D"]
    for _ in range(3000):
        gold = [rng.choices(choices, k=rng.randint(1, 12)) for _ in range(rng.randint(1, 4))]
        predicted = [
            [tag if rng.random() < 0.6 else rng.choice(choices) for tag in tags] for tags in gold
        ]
        counts = conlleval(gold, predicted)
        results = entity_metrics(gold, predicted)
        types = {t for count in counts for t, n in count.items() if n}
        assert {name[3:] for name in results if name.startswith("f1_")} == types
        for suffix, (right, found, there) in {
            "": [count.total() for count in counts],
            **{f"_{t}": [count[t] for count in counts] for t in types},
        }.items():
            assert results[f"precision{suffix}"] == pytest.approx(right / found if found else 0)
            assert results[f"recall{suffix}"] == pytest.approx(right / there if there else 0)
            f1 = 2 * right / (found + there) if found + there else 0
            assert results[f"f1{suffix}"] == pytest.approx(f1)


def test_words_and_sides_that_are_empty_or_differ():
    results = entity_metrics([["B-A", "O", "O"], ["O"]], [["I-A", "O", "B-B"], ["O"]])
    assert results["accuracy"] == 2 / 4  # counts words
    assert entity_counts([["O"]], [["O"]]) == ({}, 1.0)
    assert entity_metrics([["O"]], [["O"]])["f1"] == 0.0
    for predicted in ([["O", "O"]], [["O"], ["O"]]):
        with pytest.raises(ValueError, match="argument 2 is longer"):
            entity_metrics([["O"]], predicted)


SENTENCES = [
    Sentence(["Ann", "is", "here"], ["B-PER", "O", "O"], 0),
    Sentence(["-", "Rome"], ["O", "B-LOC"], 0),
    Sentence(["New", "York"], ["B-LOC", "I-LOC"], 1),
]
PREDICTED = [["B-PER", "O", "O"], ["B-PER", "B-LOC"], ["B-LOC", "O"]]
LOSSES = [0.1, 0.0, 0.0, 0.7, 0.2, 0.0, 2.5]


def test_wrong_sentences_begin_with_the_surest_mistake(tmp_path):
    write_tables(f"{tmp_path}", "eval_predictions", SENTENCES, PREDICTED, LOSSES)
    assert read_table(f"{tmp_path}/errors.tsv") == {
        "id": ["sentence-2", "sentence-1"],
        "text": ["New York", "'- Rome"],
        "label": ["B-LOC I-LOC", "O B-LOC"],
        "prediction": ["B-LOC O", "B-PER B-LOC"],
        "wrong": ["York: O should be I-LOC", "'-: B-PER should be O"],
        "loss": ["2.5", "0.7"],
    }
    every = read_table(f"{tmp_path}/eval_predictions.tsv")
    assert len(every["id"]) == 3 and every["wrong"][0] == ""
    report = json.loads((tmp_path / "eval_report.json").read_text())
    expected = entity_metrics([s.tags for s in SENTENCES], PREDICTED)
    assert report["micro"]["f1"] == pytest.approx(expected["f1"])
    assert report["accuracy"] == expected["accuracy"]
    assert report["types"]["LOC"]["recall"] == expected["recall_LOC"] == 0.5
    assert report["types"]["LOC"]["support"] == 2


def test_test_files_with_and_without_tags(tmp_path):
    write_tables(f"{tmp_path}", "predictions", SENTENCES, PREDICTED, LOSSES)
    names = {"predictions.tsv", "test_errors.tsv", "test_report.txt", "test_report.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    untagged = [Sentence(sentence.words, None, 0) for sentence in SENTENCES]
    write_tables(f"{tmp_path}", "predictions", untagged, PREDICTED, LOSSES)
    found = read_table(f"{tmp_path}/predictions.tsv")
    assert list(found) == ["id", "text", "prediction"] and found["prediction"][2] == "B-LOC O"
