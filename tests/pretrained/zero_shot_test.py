"""Tests of classify(labels=...): classes by entailment, against numpy, and what is refused."""

import re

import numpy as np
import pytest

import bert_tf
from bert_tf.pretrained.forward import softmax
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.support.model_folders import CONFIG, VOCAB, random_weights, write_model
from tests.support.numpy_bert import NumpyBert, assert_near
from tests.support.refusals import refusal

pytestmark = pytest.mark.usefixtures("eager")

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


def test_the_template_is_that_of_the_pipeline(model):
    given = model.classify("a dog", LABELS, hypothesis_template="This example is {}.")
    assert model.classify("a dog", LABELS) == given
    assert model.classify([], LABELS) == []


LONG = "a cat " * 14
REFUSED = [
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
    ({"hypothesis_template": "{0}"}, "must have {} once"),
    ({"hypothesis_template": "It is {{}}."}, "and no other braces"),
    ({"hypothesis_template": "{} or {name}"}, "and no other braces"),
    ({"hypothesis_template": "It is {!r}."}, "must have {} once"),
    ({"hypothesis_template": "{} }} {{"}, "and no other braces"),
    ({"hypothesis_template": 5}, "hypothesis_template must be a string"),
    ({"multi_label": 1}, "multi_label must be True or False; received 1"),
    (
        {"labels": [LONG]},
        f"The hypothesis '{TEMPLATE.format(LONG)}' has 30 word pieces; it must have"
        " fewer than 29, so that the model's longest input, 32, has room for a text. Shorten",
    ),
    ({"texts": ["a", ("a", "b")]}, "texts[1] must be one text, not a pair"),
]


def test_what_is_refused(model):
    for arguments, message in REFUSED:
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
