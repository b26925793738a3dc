"""Fuzzes CoNLL files: words and tags as an oracle of a few lines has them, or refused."""

import random
from pathlib import Path

from bert_tf.files.model_notes import labels_in, write_labels
from bert_tf.tasks.tagging.data import read_sentences, write_predictions
from bert_tf.tasks.tagging.entities import entities, entity_metrics
from tests.fuzz.cases import attempt, damage

_WORDS = ("EU", "rejects", "5\u00a0000", "鶴", "\u2028", "é", "O", "B-PER", "#", "\0", "x" * 5000)
_TAGS = ("O", "O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC")
_ODD_TAGS = ("S-PER", "B-", "o", "", "B-A\x85", "I-\u00a0", "B-B-PER", "B-\ud7ff", "x" * 5000)


def _lines(random: random.Random, tagged: bool) -> list[str]:
    lines = []
    for _ in range(random.randrange(14)):
        columns = [random.choice(_WORDS)]
        columns += ["NNP"] * (tagged and random.random() < 0.5)
        if tagged:
            columns.append(random.choice(_TAGS if random.random() < 0.98 else _ODD_TAGS))
        lines.append(random.choice([" ", "\t", "  "]).join(columns))
        if random.random() < 0.3:
            lines.append(random.choice(["", "", " ", "-DOCSTART- -X- O", "-DOCSTART-"]))
    return lines


def fuzz_conll_files(random: random.Random, folder: Path) -> None:
    tagged = random.random() < 0.7
    lines = _lines(random, tagged)
    if random.random() < 0.1:
        lines.insert(random.randint(0, len(lines)), "word" if tagged else "word O")
    end = random.choice(["\n", "\r\n"])
    data = end.join(lines).encode() + random.choice([b"", end.encode()])
    if random.random() < 0.3:
        data = damage(random, data)
    path = folder / "x.txt"
    path.write_bytes(data)
    required = random.random() < 0.5
    message, read = attempt(
        lambda: read_sentences(str(path), "train_file", required), naming=f"--train_file: {path}"
    )
    if message is not None:
        return
    found = [
        [word, *([] if sentence.tags is None else [sentence.tags[i]])]
        for sentence in read
        for i, word in enumerate(sentence.words)
    ]
    wanted = []
    for line in data.decode("utf-8-sig").split("\n"):
        columns = line.replace("\t", " ").replace("\r", " ").strip(" ").split(" ")
        if columns != [""] and columns[0] != "-DOCSTART-":
            wanted.append(columns[:1] + columns[-1:] * (len(columns) > 1))
    assert found == wanted
    documents = [sentence.document for sentence in read]
    assert documents == sorted(documents) and all(sentence.words for sentence in read)

    tags = [sentence.tags or ["O"] * len(sentence.words) for sentence in read]
    labels = sorted({tag for sentence in tags for tag in sentence})
    write_labels(str(folder), labels)
    assert labels_in(str(folder)) == labels
    write_predictions(str(folder / "out.txt"), read, tags)
    again = read_sentences(str(folder / "out.txt"), "predict_file")
    assert [s.words for s in again] == [s.words for s in read]
    assert [s.tags for s in again] == tags


def fuzz_entities(random: random.Random, folder: Path) -> None:
    """Scores of random tags: bounds, symmetry, and all right for equal tags."""
    gold, predicted = ([random.choices(_TAGS, k=length) for length in (3, 1, 7)] for _ in range(2))
    scores, swapped = entity_metrics(gold, predicted), entity_metrics(predicted, gold)
    assert all(0.0 <= value <= 1.0 for value in scores.values())
    assert scores["precision"] == swapped["recall"] and scores["f1"] == swapped["f1"]
    same = entity_metrics(gold, gold)
    assert same["accuracy"] == 1.0 and same["f1"] == float(any(map(entities, gold)))
    for tags in gold:
        found = entities(tags)
        covered = [i for _, first, end in found for i in range(first, end)]
        assert covered == [i for i, tag in enumerate(tags) if tag != "O"]
