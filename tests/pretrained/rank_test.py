"""Tests of rank, against classify; and of classify(labels=...), against numpy."""

import dataclasses
import json
import re

import numpy as np
import pytest

import bert_tf
from bert_tf.export.readme import readme
from bert_tf.model_folder.hugging_face.vector_settings import (
    IDENTITY,
    SIGMOID,
    VectorSettings,
    read_vector_settings,
    write_score_function,
    write_vector_settings,
)
from bert_tf.pretrained.folder import read_folder
from bert_tf.pretrained.forward import softmax
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.support import hugging_face_folders
from tests.support.hugging_face_folders import ENCODER, POOLER, with_biases
from tests.support.model_folders import CONFIG, VOCAB, random_weights, write_model
from tests.support.numpy_bert import NumpyBert, assert_near
from tests.support.refusals import refusal
from tools import convert_checkpoint

pytestmark = pytest.mark.usefixtures("eager")

QUERY = "is the cat in paris"
PASSAGES = ["a dog ran", "the cat sat on a mat", "paris is in france", "the cat sat on a mat"]


def sigmoid(x):
    return 1 / (1 + np.exp(-np.array(x)))


def check(found, scores):
    """The passages come by falling scores; equal ones in the given order."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    assert [passage.index for passage in found] == order
    assert [passage.text for passage in found] == [PASSAGES[i] for i in order]
    np.testing.assert_allclose([p.score for p in found], np.array(scores)[order], rtol=1e-6)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    return bert_tf.load(write_model(folder, random_weights("classifier", seed=2), ["a", "b", "c"]))


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    folder = tmp_path_factory.mktemp("number")
    return bert_tf.load(write_model(folder, random_weights("regressor", seed=2), []))


@pytest.mark.parametrize("long_text", ["mean", "max"])
@pytest.mark.parametrize("kind", ["classifier", "regression"])
def test_a_long_passage_has_the_score_of_its_windows(request, kind, long_text):
    model = request.getfixturevalue(kind)
    positive = "b" if kind == "classifier" else None
    long = "the cat sat on a mat . a dog ran in france , paris is un the cat".split() * 3
    room, stride = 32 - 3 - len(QUERY.split()), 11  # max_seq_length, special tokens, query
    starts = range(0, len(long) - room + stride, stride)
    parts = [" ".join(long[start : start + room]) for start in starts]
    windows = {x.index: x.score for x in model.rank(QUERY, parts, positive=positive)}
    values = np.array([windows[i] for i in range(len(parts))])
    if positive:
        values = np.log(values / (1 - values))
    value = values.mean() if long_text == "mean" else values.max()
    options = {"positive": positive, "long_text": long_text, "window_stride": stride}
    found = model.rank(QUERY, [" ".join(long), "a dog"], **options)
    score = {x.index: x.score for x in found}
    assert score[0] == pytest.approx(sigmoid(value) if positive else value, rel=1e-5)
    (alone,) = model.rank(QUERY, ["a dog"], positive=positive)
    assert score[1] == pytest.approx(alone.score, rel=1e-5)


def test_a_number_is_the_score(regression):
    scores = regression.classify([(QUERY, passage) for passage in PASSAGES])
    check(regression.rank(QUERY, PASSAGES), scores)
    assert len(set(scores)) == 3  # two passages are equal
    found = regression.rank(QUERY, (x for x in PASSAGES), top_k=2)
    assert found == regression.rank(QUERY, PASSAGES)[:2]
    assert regression.rank(QUERY, []) == []
    assert len(regression.rank(QUERY, PASSAGES, top_k=9)) == 4


def test_the_probability_of_a_class_is_the_score(classifier, tmp_path):
    """Also of independent classes, which have a sigmoid each."""
    write_model(tmp_path, random_weights("classifier", seed=2), ["a", "b", "c"])
    config = json.loads((tmp_path / "bert_config.json").read_text())
    config["problem_type"] = "multi_label_classification"
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    for model, *classes in ((classifier, "a", "b", "c"), (bert_tf.load(tmp_path), "b")):
        found = model.classify([(QUERY, passage) for passage in PASSAGES])
        for positive in classes:
            scores = [result.probabilities[positive] for result in found]
            check(model.rank(QUERY, PASSAGES, positive=positive), scores)


def test_probabilities_that_round_to_one_keep_their_order(tmp_path):
    weights = random_weights("classifier", seed=2)
    weights["output_bias"] = np.float32([0, 90, 0])
    model = bert_tf.load(write_model(tmp_path, weights, ["a", "b", "c"]))
    found = model.rank(QUERY, PASSAGES, positive="b")
    assert {passage.score for passage in found} == {1.0}
    assert [passage.index for passage in found] != [0, 1, 2, 3]


def write_cross_encoder(folder, settings=None, **config):
    head = with_biases({"classifier": (1, 6)})
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h".replace(" ", "\n")
    config = {"architectures": ["BertForSequenceClassification"], **config}
    tensors = hugging_face_folders.make_tensors({**ENCODER, **POOLER, **head}, "bert.")
    path = hugging_face_folders.write_folder(folder, tensors, words, **config)
    if settings:
        kind = "sentence_transformers.base.modules.transformer.Transformer"
        modules = [{"idx": 0, "name": "0", "path": "", "type": kind}]
        task = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "sentence_bert_config.json").write_text(json.dumps(task))
        content = json.dumps({"model_type": "CrossEncoder", "prompts": {}, **settings})
        (folder / "config_sentence_transformers.json").write_text(content)
    return path


KEY = "sbert_ce_default_activation_function"
FOLDERS = {
    "transformers": ({}, None, True),
    "version 3, identity": ({KEY: IDENTITY}, None, False),
    "version 3, sigmoid": ({KEY: SIGMOID}, None, True),
    "version 4, identity": ({"sentence_transformers": {"activation_fn": IDENTITY}}, None, False),
    "version 4, sigmoid": ({"sentence_transformers": {"activation_fn": SIGMOID}}, None, True),
    "version 6, identity": ({}, {"activation_fn": IDENTITY}, False),
    "version 6, sigmoid": ({}, {"activation_fn": SIGMOID}, True),
}


def test_a_cross_encoder_scores_and_cuts_texts_as_its_files_say(tmp_path):
    for name, (config, settings, has_sigmoid) in FOLDERS.items():
        write_cross_encoder(tmp_path / name, settings, **config)
        assert read_folder(tmp_path / name).has_sigmoid == has_sigmoid, name
    folder = tmp_path / "hf"
    write_cross_encoder(folder, {"activation_fn": IDENTITY})
    assert read_folder(folder).max_seq_length == 7
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 6}')
    assert read_folder(folder).max_seq_length == 6


@pytest.mark.parametrize(
    "name", ["transformers", pytest.param("version 6, identity", marks=pytest.mark.slow)]
)
def test_a_converted_cross_encoder_keeps_its_scores(tmp_path, name):
    config, settings, has_sigmoid = FOLDERS[name]
    folders = [tmp_path / name for name in ("hf", "tf", "back", "saved")]
    write_cross_encoder(folders[0], settings, **config)
    convert_checkpoint.convert(str(folders[0]), str(folders[1]), "checkpoint")
    convert_checkpoint.convert(str(folders[1]), str(folders[2]), "safetensors")
    bert_tf.load(folders[0]).save(folders[3])
    for folder in folders:
        model = bert_tf.load(folder)
        numbers = model.classify([("a b", "c"), ("a b", "d")])
        found = sorted(model.rank("a b", ["c", "d"]), key=lambda passage: passage.index)
        expected = sigmoid(numbers) if has_sigmoid else numbers
        np.testing.assert_allclose([x.score for x in found], expected, rtol=1e-6)
    written = json.loads((folders[2] / "config.json").read_text())["sentence_transformers"]
    assert written == {"activation_fn": SIGMOID if has_sigmoid else IDENTITY}


def test_settings_of_vectors_are_not_replaced(tmp_path):
    settings = VectorSettings(("cls",))
    write_vector_settings(str(tmp_path), settings, 6)
    write_score_function(str(tmp_path), SIGMOID)
    assert read_vector_settings(str(tmp_path)) == settings


def test_an_export_says_what_makes_a_score(tmp_path):
    write_cross_encoder(tmp_path / "hf", {"activation_fn": SIGMOID})
    folder = read_folder(tmp_path / "hf")
    description = {"head": "regression", "labels": [], "quantize": None, "dtype": "float32"}
    tensor = {"input_ids": {"dtype": "int32", "shape": [None, None]}}
    signatures = {"serving_default": {"inputs": tensor, "outputs": {"values": tensor["input_ids"]}}}
    description |= {"format": "onnx", "signatures": signatures, "trained_max_seq_length": None}
    text = "- `values`: the outputs of a cross-encoder. `rank` of bert_tf returns their sigmoids"
    assert text in readme(description, folder)
    assert text not in readme(description, dataclasses.replace(folder, has_sigmoid=False))


def test_settings_of_cross_encoders_that_are_refused(tmp_path):
    for number, (settings, message) in enumerate(
        [
            (
                {"activation_fn": "torch.nn.modules.activation.Tanh"},
                "rank knows only this function",
            ),
            ({"default_prompt_name": "query"}, "prompts of cross-encoders are not supported"),
            ({"truncate_dim": 3}, "truncate_dim is not known, so it may change"),
        ]
    ):
        folder = tmp_path / f"{number}"
        write_cross_encoder(folder, settings)
        told = refusal(bert_tf.load, folder)
        assert message in told and f"{folder}/config_sentence_transformers.json: " in told


def test_what_is_refused(classifier, regression, tmp_path):
    positive = "positive must be the class of relevant passages, one of 'a', 'b', 'c'"
    example = ": rank(query, passages, positive='c'); received None"
    for arguments, message in (
        ({"positive": None}, positive + example),
        ({"positive": "yes"}, positive),
        ({"positive": 2}, "positive must be a string, or None, for a model that gives a number"),
        ({"query": ["a"]}, "query must be a string; received"),
        ({"passages": ["a dog", None]}, "passages[1] must be a text (str); received None"),
        ({"passages": [("a", "b")]}, "passages[0] must be a text (str)"),
        ({"top_k": 0}, "top_k must be from 1 to 2147483647; received 0 (int)"),
        ({"top_k": 2.5}, "top_k must be a whole number (int), or None, for all passages"),
    ):
        given = {"query": QUERY, "passages": PASSAGES, "positive": "a", **arguments}
        assert message in refusal(classifier.rank, **given)
    told = refusal(regression.rank, QUERY, PASSAGES, positive="yes")
    assert "gives a number, not classes, so positive must be left" in told
    model = bert_tf.load(write_model(tmp_path, random_weights()))
    told = refusal(model.rank, QUERY, PASSAGES)
    assert "rank needs a model with the head that run_classifier.py" in told


TEXTS = ["the cat sat on a mat", "a dog ran", "the dogs " * 20]  # the last has 60 word pieces
LABELS = ["paris", "a cat", "(b)"]
TEMPLATE = "is {} ."
TOKENIZER = FastTokenizer({token: i for i, token in enumerate(VOCAB)})


@pytest.fixture(scope="module")
def weights():
    return random_weights("classifier", seed=7)


@pytest.fixture(scope="module")
def load(tmp_path_factory, weights):
    """Returns a function that loads the model with three given names of its classes."""

    def load(*names):
        return bert_tf.load(write_model(tmp_path_factory.mktemp("nli"), weights, names))

    return load


@pytest.fixture(scope="module")
def model(load):
    return load("contradiction", "neutral", "entailment")


@pytest.fixture(scope="module")
def logits(weights):
    """The logits [texts, labels, 3] of "text, is LABEL ."; only the text is truncated."""
    bert, rows = NumpyBert(CONFIG, weights), []
    for text in TEXTS:
        for label in LABELS:
            a, b = (TOKENIZER.encode([x])[0].tolist() for x in (text, TEMPLATE.format(label)))
            a = a[: 32 - 3 - len(b)]
            ids = np.array([[2, *a, 3, *b, 3]])
            segments = np.array([[0] * (len(a) + 2) + [1] * (len(b) + 1)])
            pooled = bert.forward(ids, np.ones_like(ids), segments)["pooled_output"]
            rows.append(pooled @ weights["output_weights"].T + weights["output_bias"])
    return np.reshape(rows, [len(TEXTS), len(LABELS), 3])


def test_one_label_of_several(model, logits, warnings):
    found = model.classify(TEXTS, LABELS, TEMPLATE)
    assert warnings == [
        "1 of 3 texts have more than 24 word pieces, and are truncated so that the model also reads"
        " a label's hypothesis. Later ones are not reported"
    ]
    for result, expected in zip(found, softmax(logits[..., 2]), strict=True):
        assert list(result.probabilities) == LABELS
        assert_near(list(result.probabilities.values()), expected, 1e-5)
        assert result.label == LABELS[expected.argmax()]
        assert result.probability == max(result.probabilities.values())
    given = model.classify("a dog", LABELS, hypothesis_template="This example is {}.")
    assert model.classify("a dog", LABELS) == given
    assert model.classify([], LABELS) == []


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("contradiction", "neutral", "entailment"), marks=pytest.mark.slow),
        pytest.param(("entailment", "neutral", "contradiction"), marks=pytest.mark.slow),
        ("Contradictory", "Entail", "other"),
        ("neutral", "contradiction", "entailment"),  # transformers compares with `neutral`
    ],
)
def test_several_labels_and_a_single_one(load, logits, names):
    columns = [[x.lower()[:6] for x in names].index(start) for start in ("contra", "entail")]
    expected, model = softmax(logits[..., columns])[..., 1], load(*names)
    found = model.classify(TEXTS, labels=LABELS, hypothesis_template=TEMPLATE, multi_label=True)
    assert_near([list(result.probabilities.values()) for result in found], expected, 1e-5)
    alone = model.classify(TEXTS[1], (x for x in LABELS[1:2]), TEMPLATE)
    assert alone.label == LABELS[1]
    assert_near(alone.probability, expected[1, 1], 1e-5)


def test_two_classes_are_enough(tmp_path, weights, logits):
    two = {**weights, "output_bias": weights["output_bias"][1:]}
    two["output_weights"] = weights["output_weights"][1:]
    model = bert_tf.load(write_model(tmp_path, two, ["not_entailment", "entailment"]))
    (found,) = model.classify(TEXTS[:1], ["paris"], TEMPLATE)
    assert_near(found.probability, softmax(logits[0, 0, 1:])[1], 1e-5)


LONG = "a cat " * 14
REFUSED_BY_LABELS = [
    ({"labels": []}, "labels must be a list of at least one class, such as"),
    ({"labels": "cat"}, "labels must be a list of at least one class, such as ['sports', 'po"),
    ({"labels": ["cat", " "]}, "labels[1] is blank: a class must be named by words"),
    ({"labels": ["cat", "dog", "cat"]}, "labels must differ from each other; given twice: 'cat'"),
    ({"labels": ["cat", None]}, "labels[1] must be a text (str); received None"),
    (
        {"hypothesis_template": "It is."},
        "hypothesis_template must have {} once, where the label goes, and no other braces, such"
        " as 'This example is {}.'; received 'It is.'",
    ),
    ({"hypothesis_template": "{} {}"}, "must have {} once"),
    ({"hypothesis_template": "It is {{}}."}, "and no other braces"),
    ({"hypothesis_template": "{} or {name}"}, "and no other braces"),
    ({"hypothesis_template": "It is {!r}."}, "must have {} once"),
    ({"hypothesis_template": 5}, "hypothesis_template must be a string"),
    ({"multi_label": 1}, "multi_label must be True or False; received 1"),
    (
        {"labels": [LONG]},
        f"The hypothesis '{TEMPLATE.format(LONG)}' has 30 word pieces; it must have"
        " fewer than 29, so that the model's longest input, 32, has room for a text. Shorten",
    ),
    ({"texts": ["a", ("a", "b")]}, "texts[1] must be one text, not a pair"),
]


def test_what_classify_with_labels_refuses(model):
    for arguments, message in REFUSED_BY_LABELS:
        given = {"texts": "a dog", "labels": ["cat"], "hypothesis_template": TEMPLATE, **arguments}
        assert message in refusal(model.classify, **given)
    for arguments in ({"multi_label": True}, {"hypothesis_template": "a {}"}):
        told = refusal(model.classify, "a dog", **arguments)
        assert "multi_label and hypothesis_template need labels" in told


def test_a_model_of_other_classes_is_refused(load, tmp_path):
    model = load("no", "maybe", "yes")
    assert (
        "natural language inference, trained on data such as MNLI or XNLI, with a class whose name"
        f" begins with 'entail'; {model._folder.path} has the classes 'no', 'maybe', 'yes'. If"
    ) in refusal(model.classify, "a dog", LABELS)
    model = load("entailment", "so-so", "not")
    model.classify("a dog", LABELS)
    told = refusal(model.classify, "a dog", LABELS, multi_label=True)
    assert re.search("begins with 'contradict'; .* 'entailment', 'so-so', 'not'", told)
    number = bert_tf.load(write_model(tmp_path, random_weights("regressor"), []))
    told = refusal(number.classify, "a dog", LABELS)
    assert re.search("MNLI or XNLI; .* has .*'regression'", told)
