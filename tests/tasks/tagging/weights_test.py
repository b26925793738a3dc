"""Tests of weights of tags and sentences: from settings to records and scores."""

import re

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from bert_tf.engine.prediction import Columns
from bert_tf.errors import UserError
from bert_tf.tasks.class_weights import entries_of
from bert_tf.tasks.multiple_choice.data import MultipleChoiceRows
from bert_tf.tasks.sentences.data import SentenceRows
from bert_tf.tasks.squad.examples import SquadRows
from bert_tf.tasks.tagging import data
from bert_tf.tasks.tagging.data import Sentence, TaggingRows
from bert_tf.tasks.tagging.entities import entity_metrics
from bert_tf.tasks.tagging.task import SentenceSet
from tests.support.encoded import tokenizer_of
from tests.support.refusals import refuses
from tests.support.registered_tasks import make_task

LABELS = ["B-LOC", "I-LOC", "O"]
TOKENIZER = tokenizer_of("[PAD] [UNK] [CLS] [SEP] a ##b".split(), do_lower_case=False)
TAGS = [["O", "O", "B-LOC"], ["O", "O"], ["B-LOC", "I-LOC", "O", "O"]]


def sentence_set(name, weights=(None, None, None), tags=TAGS):
    rows = enumerate(zip(tags, weights, strict=True))
    sentences = [Sentence(["ab"] * len(own), own, i, weight) for i, (own, weight) in rows]
    return SentenceSet(name, data.documents(sentences), sentences=sentences)


def label_weights(given, weights=(None, None, None), length=32, name="train", **flags):
    """Returns the weights of the words of all records of a set; None if records have none."""
    task = make_task("tagging", max_seq_length=length, class_weights=given, **flags)
    sets = {"train": [sentence_set("train", weights)], "eval": [sentence_set("eval", weights)]}
    task.prepare(sets, LABELS)
    encoder = task.encoder(sets[name][0], TOKENIZER, LABELS)
    found = []
    for example in sets[name][0].examples:
        ids = [TOKENIZER.encode([text])[0].tolist() for text in encoder.texts(example)]
        for record in encoder.records(example, ids):
            assert record.keys() == encoder.schema.keys()
            if "label_weights" not in record:
                return None
            pairs = zip(record["label_mask"], record["label_weights"], strict=True)
            assert all(mask or not weight for mask, weight in pairs)
            found += [record["label_weights"][i] for i in np.flatnonzero(record["label_mask"])]
    return found


def test_without_weights_records_are_as_before():
    for given, weights in ((["1", "2", "3"], (None,) * 3), (None, (2.0, 1.0, 0.5))):
        assert label_weights(given, weights, name="eval") is None
    assert label_weights(None) is None


@pytest.mark.parametrize("length", [32, 8])  # of 8, the longest sentence has several windows
def test_the_weights_of_words(length):
    expected = [1, 1, 3, 1, 1, 3, 2, 1, 1]
    for given in (["3", "2", "1"], ["I-LOC:2", "B-LOC:3"]):
        assert label_weights(given, length=length) == expected
    weights = (2.0, None, 0.5)
    expected = [2, 2, 6, 1, 1, 1.5, 1, 0.5, 0.5]
    assert label_weights(["3", "2", "1"], weights, length) == expected
    expected = [2, 2, 2, 1, 1, 0.5, 0.5, 0.5, 0.5]
    assert label_weights(None, weights, length) == expected


@pytest.mark.parametrize("context", [True, False])
def test_balanced_weights_count_words(context):
    words = [tag for tags in TAGS for tag in tags]
    by_tag = compute_class_weight("balanced", classes=np.array(LABELS), y=np.array(words))
    by_tag = dict(zip(LABELS, by_tag, strict=True))
    found = label_weights(["balanced"], document_context=context)
    assert found == pytest.approx([by_tag[tag] for tag in words])


def test_weights_of_tags_that_cannot_be():
    task = make_task("tagging", class_weights=["PER:2"])
    with pytest.raises(UserError, match="^--class_weights must be balanced, or a number for each"):
        task.prepare({"eval": [sentence_set("eval")]}, LABELS)
    message = "weights of the words to train on must have a sum above 0"
    for weights, given in (((0.0,) * 3, None), ((0.0, 1.0, 0.0), ["O:0"]), ((0, 0, 0), ["O:2"])):
        task = make_task("tagging", class_weights=given)
        refuses(message, task.prepare, {"train": [sentence_set("train", weights)]}, LABELS)


class Predictions(list):
    global_step = 0


@pytest.mark.parametrize("seed", range(3))
def test_sentences_of_whole_weight_count_like_repeated_ones(seed):
    task = make_task("tagging")
    rng = np.random.default_rng(seed)
    weights = [2.0, 0.0, 3.0] if seed else [1.0, None, 1.0]

    def evaluate(weights, repeats):
        rows = [i for i, count in enumerate(repeats) for _ in range(count)]
        found = sentence_set("eval", [weights[i] for i in rows], [TAGS[i] for i in rows])
        found.encoder = data.TaggingEncoder.__new__(data.TaggingEncoder)
        found.encoder.labels = LABELS
        columns: Columns = {"predictions": predicted[rows], "losses": losses[rows]}
        return task.evaluate(found, Predictions([columns])).results

    predicted, losses = rng.integers(0, 3, (3, 5)), rng.uniform(size=(3, 5))
    for i, tags in enumerate(TAGS):
        predicted[i, len(tags) :], losses[i, len(tags) :] = -1, 0.0
    repeats = [1 if weight is None else int(weight) for weight in weights]
    found = evaluate(weights, [1, 1, 1])
    assert found == pytest.approx(evaluate([None] * 3, repeats))
    with pytest.raises(UserError, match="sentences to evaluate must have a sum above 0; all are 0"):
        evaluate([0.0] * 3, [1, 1, 1])


def test_entities_of_whole_weight_count_like_repeated_ones():
    predicted = [["O", "B-LOC", "B-LOC"], ["B-PER", "O"], ["B-LOC", "O", "O", "O"]]
    found = entity_metrics(TAGS, predicted, [1, 3, 2])
    rows = [0, 1, 1, 1, 2, 2]
    assert found == pytest.approx(
        entity_metrics([TAGS[i] for i in rows], [predicted[i] for i in rows])
    )


WORDS = [["a", "b"], ["c"]]
SOME = [["O", "B-LOC"], ["O"]]


def test_sentences_in_memory_have_their_weights():
    rows = [(words, tags, weight) for words, tags, weight in zip(WORDS, SOME, (2, 0), strict=True)]
    kind = TaggingRows()
    for given in ((WORDS, SOME, [2, 0]), (WORDS, SOME, np.array([[2.0], [0]])), (iter(rows), None)):
        found = kind.examples("train", *given)
        assert [sentence.weight for sentence in found] == [2.0, 0.0]
    assert [x.weight for x in kind.examples("eval", WORDS, SOME)] == [None, None]
    weights = {"O": 0.5, 0: 3}
    assert entries_of(weights, kind.labels) == [("O", 0.5), ("B-LOC", 3)]


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1, -1], "sample_weight[1] must be a number between 0 and 1e+16; got -1"),
        ([float("nan"), 1], "sample_weight[0] must be a number between 0 and 1e+16; got nan"),
        ([10**400, 1], "sample_weight[0] must be a number between 0 and"),
        (["x", 1], "sample_weight[0] must be a number between 0 and 1e+16; got 'x'"),
        ([1], "sample_weight must have one value for each of sentences: there are 2 sentences and"),
        ([[1, 1], [1]], "sample_weight[0] must be a number between 0 and 1e+16; got [1, 1]"),
        (3, "sample_weight must be a list, an array or a column; received 3"),
    ],
)
def test_weights_of_sentences_that_cannot_be(weights, message):
    refuses(re.escape(message), TaggingRows().examples, "train", WORDS, SOME, weights)


def test_other_tasks_take_no_weights_of_rows_either():
    for kind, x, y in (
        (MultipleChoiceRows, ("a", ["b", "c", "d", "e"]), 1),
        (SquadRows, ("a", "b c"), "c"),
        (SentenceRows, ("a", "b"), 0.5),
    ):
        for given in ((iter([(x, y, 2.0)]), None), ([x], [y], [2.0])):
            message = "sample_weight is for classification, regression an"
            refuses(message, kind().examples, "train", *given)
