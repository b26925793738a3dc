"""bert_tf.load against transformers' pipelines and google-research/bert's programs."""

import functools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.text.base_tokenizer import pieces_with_offsets

if not os.environ.get("BERT_TF_GOLDEN"):
    pytest.skip("BERT_TF_GOLDEN names no golden folder", allow_module_level=True)
GOLDEN = Path(os.environ["BERT_TF_GOLDEN"])
PIPELINES, PROGRAMS = GOLDEN / "pipelines", GOLDEN / "programs"


@functools.cache
def pipeline(name):
    """Returns the model of a pipeline, and its inputs with their answers."""
    lines = (PIPELINES / name / "answers.jsonl").read_text().splitlines()
    return bert_tf.load(PIPELINES / name), [json.loads(line) for line in lines]


def assert_scores(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_fill_mask():
    model, rows = pipeline("fill_mask")
    for found, row in zip(model.fill_mask([row["text"] for row in rows]), rows, strict=True):
        answers = [answer for mask in row["masks"] for answer in mask]
        fillings = [filling for mask in found for filling in mask]
        assert [*map(len, found)] == [*map(len, row["masks"])]
        assert [filling.token_id for filling in fillings] == [x["token"] for x in answers]
        assert_scores([x.probability for x in fillings], [x["score"] for x in answers])


def test_classify():
    model, rows = pipeline("text_classification")
    texts = [(row["text"], row["text_pair"]) if "text_pair" in row else row["text"] for row in rows]
    for found, row in zip(model.classify(texts), rows, strict=True):
        ranked = sorted(found.probabilities.items(), key=lambda item: -item[1])
        assert [label for label, _ in ranked] == [answer["label"] for answer in row["labels"]]
        assert_scores([p for _, p in ranked], [answer["score"] for answer in row["labels"]])


@pytest.mark.parametrize("strategy", ["none", "simple", "first"])
def test_tag(strategy):
    model, rows = pipeline("token_classification")
    key = "entity" if strategy == "none" else "entity_group"
    texts = [row["text"] for row in rows]
    for found, row in zip(model.tag(texts, strategy), rows, strict=True):
        assert [(e.label, e.start, e.end) for e in found] == [
            (answer[key], answer["start"], answer["end"]) for answer in row[strategy]
        ]
        assert_scores([e.probability for e in found], [answer["score"] for answer in row[strategy]])


def test_answer_as_the_pipeline():
    model, rows = pipeline("question_answering")
    for row in rows:
        given = row["parameters"]
        options = {"max_seq_length": given["max_seq_len"], "top_k": given["top_k"]}
        options |= {"doc_stride": given["doc_stride"], "method": "transformers"}
        options["max_answer_length"] = given.get("max_answer_len", 15)
        options["null_score_diff_threshold"] = (
            0.0 if given.get("handle_impossible_answer") else None
        )
        found = model.answer(row["question"], row["context"], **options)
        expected = [(x["start"], x["end"], x["answer"]) for x in row["answers"]]
        assert [(a.start, a.end, a.text) for a in found] == expected
        assert_scores([a.score for a in found], [answer["score"] for answer in row["answers"]])


@pytest.fixture(scope="module")
def programs_model(tmp_path_factory):
    """The programs' model, in a folder with its vocabulary."""
    folder = tmp_path_factory.mktemp("model")
    for path in [PROGRAMS / "bert_config.json", *PROGRAMS.glob("bert_model.ckpt*")]:
        shutil.copy(path, folder)
    shutil.copy(GOLDEN.parent / "released" / "vocab_uncased.txt", folder / "vocab.txt")
    return bert_tf.load(folder)


def flags_of(program, output=""):
    cases = json.loads((PROGRAMS / "golden.json").read_text())
    cases = [case["flags"] for case in cases if case["program"] == program]
    return next(flags for flags in cases if output in flags.get("file", ""))


def test_classify_as_run_classifier(programs_model):
    lines = (PROGRAMS / "MRPC" / "test.tsv").read_text().splitlines()[1:]
    texts = [tuple(line.split("\t")[3:5]) for line in lines]
    length = int(flags_of("run_classifier")["max_seq_length"])
    model = bert_tf.load(programs_model._folder.path, max_seq_length=length)
    found = [list(result.probabilities.values()) for result in model.classify(texts)]
    assert_scores(found, np.loadtxt(PROGRAMS / "mrpc_test_results.tsv"))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_answer_as_run_squad(programs_model, version):
    flags = flags_of("run_squad", f"squad_{version}")
    articles = json.loads((PROGRAMS / f"squad_{version}.json").read_text())["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    asked = [(question, p["context"]) for p in paragraphs for question in p["qas"]]
    found = programs_model.answer(
        [question["question"] for question, _ in asked],
        [context for _, context in asked],
        top_k=3,
        max_seq_length=flags["max_seq_length"],
        doc_stride=flags["doc_stride"],
        max_answer_length=flags.get("max_answer_length", 30),
        null_score_diff_threshold=0.0 if version == "v2" else None,
    )
    predictions = json.loads((PROGRAMS / f"squad_{version}_predictions.json").read_text())
    nbest = json.loads((PROGRAMS / f"squad_{version}_nbest_predictions.json").read_text())
    for answers, (question, context) in zip(found, asked, strict=True):
        key = question["id"]
        assert answers[0].text == predictions[key]
        for answer in answers:
            assert answer.text.split() == context[answer.start : answer.end].split()
            same = [entry for entry in nbest[key] if entry["text"] == answer.text]
            assert answer.score == pytest.approx(same[0]["probability"], rel=1e-3)


def test_encode_as_extract_features(programs_model):
    model = bert_tf.load(programs_model._folder.path)
    texts, lines = (
        (PROGRAMS / name).read_text().splitlines() for name in ("sentences.txt", "features.jsonl")
    )
    for text, line in zip(texts, lines, strict=True):
        tokens = json.loads(line)["features"]
        layer = np.array([t["layers"][0]["values"] for t in tokens])
        assert tokens[0]["layers"][0]["index"] == -1
        pair = tuple(text.strip().rsplit(" ||| ", 1)) if " ||| " in text else text.strip()
        model.max_seq_length = len(tokens)
        np.testing.assert_allclose(model.encode(pair), layer.mean(0), atol=2e-6)


@pytest.mark.parametrize("kind", ["uncased", "cased"])
def test_pieces_with_offsets_are_the_tokenizer_s(kind):
    vocab_file = str(GOLDEN.parent / "released" / "vocab_uncased.txt")
    tokenizer = bert_tf.tokenization.FullTokenizer(vocab_file, kind == "uncased")
    lines = [json.loads(line) for line in (GOLDEN / "text" / "lines.jsonl").open()]
    expected = [json.loads(line) for line in (GOLDEN / "text" / f"{kind}.jsonl").open()]
    for line, ids in zip(lines, expected, strict=True):
        pieces = pieces_with_offsets(line, tokenizer)
        assert [piece.token_id for piece in pieces] == ids
        for piece in pieces:
            assert 0 <= piece.start < piece.end <= len(line)
