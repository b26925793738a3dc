"""Tests of training from Python for the tasks beside classification."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.files import checkpoints
from bert_tf.files.model_notes import ModelInput
from bert_tf.tasks.classification import scores
from bert_tf.tasks.classification.rows import ClassificationRows
from bert_tf.tasks.fine_tuning import run_fine_tuning
from bert_tf.tasks.multiple_choice.data import MultipleChoiceRows
from bert_tf.tasks.sentences.data import SentenceRows
from bert_tf.tasks.squad.examples import SquadRows
from bert_tf.tasks.tagging.data import TaggingRows
from tests.support.exported_heads import write_head
from tests.support.model_folders import random_weights, write_model
from tests.support.refusals import refusal
from tests.support.registered_tasks import task_with

pytestmark = pytest.mark.usefixtures("eager_if_quick")

FLAGS = {"max_seq_length": 24, "train_batch_size": 2, "num_train_epochs": 1.0, "do_train": True}
FLAGS |= {"learning_rate": 1e-2, "length_buckets": "none"}
SENTENCES = [["the", "cat", "sat"], ["paris", "is", "in", "france"], ["a", "dog", "ran"]]
TAGS = [["O", "O", "O"], ["B-LOC", "O", "O", "B-LOC"], ["O", "O", "O"]]
CONTEXT = "the cat sat on a mat, paris is in france"
QUESTIONS = [("is paris in france", CONTEXT), ("the cat sat on", CONTEXT), ("dog", "a dog ran")]
ANSWERS = [("france", 34), ("a mat", 15), ("ran", 6)]
CHOICES = [
    ("the cat", ["sat", "ran", "is in france", "on a mat"]),
    ("a dog", ["sat", "a", "b", "ran"]),
]
PAIRS = [("the cat sat", "a cat sat"), ("a dog ran", "paris is in france"), ("a dog", "a cat")]
SCORES = [0.9, 0.1, 0.5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    weights = random_weights(seed=3)
    bert = {name: value for name, value in weights.items() if name.startswith("bert/")}
    write_model(folder, bert)
    rows = [zip(*row, strict=True) for row in zip(SENTENCES, TAGS, strict=True)]
    tagged = ["\n".join(f"{word} {tag}" for word, tag in row) for row in rows]
    (folder / "train.txt").write_text("\n\n".join(tagged))
    paragraphs = [
        {
            "context": context,
            "qas": [{"id": i, "question": q, "answers": [{"text": text, "answer_start": start}]}],
        }
        for i, ((q, context), (text, start)) in enumerate(zip(QUESTIONS, ANSWERS, strict=True))
    ]
    (folder / "squad.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    rows = [f"{text},,{','.join(choices)},{i}" for i, (text, choices) in enumerate(CHOICES)]
    header = "sent1,sent2,ending0,ending1,ending2,ending3,label"
    (folder / "train.csv").write_text("\n".join([header, *rows]))
    (folder / "pairs").mkdir()
    lines = [f"{a}\t{b}\t{score}" for (a, b), score in zip(PAIRS, SCORES, strict=True)]
    (folder / "pairs/train.tsv").write_text("\n".join(["a\tb\tscore", *lines]))
    return folder


@pytest.fixture(scope="module")
def base(folder):
    return bert_tf.load(folder)


# Task -> the method, its x and y, and the program's flags.
TASKS = {
    "tagging": ("for_tagging", SENTENCES, TAGS, {"class_weights": ["B-LOC:3"]}),
    "squad": ("for_answers", QUESTIONS, ANSWERS, {"max_query_length": 8, "doc_stride": 8}),
    "multiple_choice": ("for_multiple_choice", CHOICES, np.array([0, 1]), {}),
    "sentences": ("for_sentences", PAIRS, SCORES, {"loss": "cosine"}),
}
BFLOAT16 = {"dtype": "bfloat16"}
FILES = {"squad": {"train_file": "squad.json"}, "tagging": {"data_dir": ""}}
FILES |= {"multiple_choice": {"data_dir": ""}, "sentences": {"data_dir": "pairs"}}
FILES["sentences"] |= {"text_a_column": "a", "text_b_column": "b", "label_column": "score"}


@pytest.mark.slow
@pytest.mark.parametrize("name,more", [*((x, {}) for x in TASKS), ("sentences", BFLOAT16)])
def test_each_task_ends_with_the_program_s_weights(name, more, folder, base, tmp_path):
    method, x, y, flags = TASKS[name]
    flags = {**FLAGS, **flags, **more}
    model = getattr(base, method)()
    options = {key: value for key, value in flags.items() if key != "do_train"}
    history = model.fit(x, y, validation_data=(x, y), verbose=0, **options)
    files = dict(FILES[name])
    files |= {key: f"{folder}/{files[key]}" for key in files if key.endswith(("file", "dir"))}
    arguments = {**flags, "init_checkpoint": f"{folder}/bert_model.ckpt", **files}
    arguments |= {"output_dir": str(tmp_path), "vocab_file": f"{folder}/vocab.txt"}
    arguments["do_lower_case"] = base.tokenizer.do_lower_case
    run_fine_tuning(task_with(name, arguments), base.config, tf.distribute.get_strategy())
    weights = checkpoints.CheckpointReader(str(tmp_path)).read_weights()
    read = model._read
    for variable in weights:
        np.testing.assert_array_equal(read(variable), weights[variable], variable)
    validated = {
        key.removeprefix("val_"): v[-1] for key, v in history.history.items() if "val" in key
    }
    found = model.evaluate(
        x, y, **({"max_query_length": 8, "doc_stride": 8} if name == "squad" else more)
    )
    assert validated == pytest.approx({key: found[key] for key in validated}, rel=1e-5)
    model.save(tmp_path / "saved")
    again = bert_tf.load(tmp_path / "saved")
    if name == "sentences":
        again = again.for_sentences()
        vectors = [x.encode("a cat") for x in (model, again, bert_tf.load(tmp_path))]
        np.testing.assert_array_equal(vectors[0], vectors[1])
        np.testing.assert_array_equal(vectors[0], vectors[2])
        np.testing.assert_allclose(np.linalg.norm(vectors[0]), 1.0, rtol=1e-6)
    outputs = model.predict(x)
    assert len(outputs) == len(x)
    if name == "squad":
        is_right = [a == b for a, (b, _) in zip(outputs, y, strict=True)]
        assert found["exact_match"] == pytest.approx(100 * np.mean(is_right))
    same = again.predict(x)
    if name == "tagging":
        assert [len(tags) for tags in outputs] == [3, 4, 3] and outputs == same
        assert isinstance(again.tag("paris is in france"), list)
        unnamed = again.for_tagging()
        assert unnamed.evaluate(x, y) == found and unnamed.predict(x) == outputs
    else:
        np.testing.assert_array_equal(outputs, same)


def test_questions_without_answers_ask_for_squad_2():
    kind, unanswered = SquadRows(), [ANSWERS[0], None, ANSWERS[2]]
    kind.examples("train", QUESTIONS, [ANSWERS[0], None, {"text": ["ran"], "answer_start": [6]}])
    assert not kind.are_all_answered
    kind.examples("eval", QUESTIONS, ANSWERS)  # each evaluation asks by its own answers
    assert kind.are_all_answered
    kind.examples("eval", QUESTIONS, unanswered)
    assert not kind.are_all_answered
    kind = SquadRows()
    found = kind.examples("train", QUESTIONS, ["france", "a mat", ANSWERS[2]]).examples
    places = {"is paris in france": 34, "the cat sat on": 15, "dog": 6}
    assert {x.question_text: x.answer_start for x in found} == places
    assert kind.are_all_answered


def test_settings_of_an_evaluation_fit_the_model(base, monkeypatch):
    answers, texts = SquadRows(), ClassificationRows(["a", "b"])
    made = base._trained_task(answers, {"max_seq_length": 32}, "predict").settings
    assert made.max_query_length == 16
    trained_on = ModelInput(long_text="mean", window_stride=25)
    folder = dataclasses.replace(base._folder, trained_on=trained_on)
    monkeypatch.setattr(base, "_own_folder", folder)
    for options in ({}, {"long_text": "max"}):
        made = base._trained_task(texts, {"max_seq_length": 16, **options}, "eval").settings
        assert (made.long_text, made.window_stride) == (options.get("long_text", "mean"), 14)
    made = base._trained_task(texts, {"long_text": "cut"}, "eval").settings
    assert (made.long_text, made.window_stride) == ("cut", None)


class Recorder:
    """A model that has no answers and no classes, and keeps the options it was asked with."""

    def answer(self, questions, contexts, **options):
        self.options = options
        return []

    def classify(self, texts, **options):
        self.options = options
        return []


def test_predict_hands_its_options_on():
    model, kind = Recorder(), SquadRows()
    assert kind.predict(model, [], {}).shape == (0,)
    assert model.options == {"null_score_diff_threshold": None}
    kind.examples("train", QUESTIONS, [ANSWERS[0], None, ANSWERS[2]])
    kind.predict(model, [], {"doc_stride": 8})
    assert model.options == {"null_score_diff_threshold": 0.0, "doc_stride": 8}
    told = refusal(kind.predict, model, ["a"], {})
    assert "questions[0] must be a pair of texts, (question" in told
    kind = ClassificationRows(["a", "b", "c"])
    assert kind.predict(model, [], {"long_text": "max"}).shape == (0, 3)
    assert model.options == {"long_text": "max"}


RIGHT = "If it is right, name all tags: for_tagging(labels=[...])"
TEXT_START = "answers[0] must occur once in its context, and occurs 2 times: give (text, start)"
TWO_CHOICES = "questions[0] must be (text, [two choices or more])"
THREE_TEXTS = "pairs[1] must have three texts, the third different"
MIXED = "must be all pairs, all triplets or all single texts; pairs[1] differs"
THREE_AND_TWO = (
    "questions must all have the same number of choices; questions[0] has 3, and questions[1]"
)
NUMBER = "(int). For tags as numbers, name them: labels=[...]"
NAMED = functools.partial(TaggingRows, ["O", "B-X"])
WRONG = [
    (TaggingRows, ["the cat"], [["O"]], "sentences[0] must be a list of words, such as"),
    (TaggingRows, [["a b"]], [["O"]], "sentences[0][0] must be a word, without white"),
    (TaggingRows, SENTENCES[:1], [["O"]], "tags[0] must be a list of 3 tags, one for"),
    (TaggingRows, [["a"]], [["NOUN"]], "For classes of words, such as NOUN, write B-"),
    (NAMED, [["a"]], [["B-Y"]], f"received 'B-Y' (str). {RIGHT}"),
    (TaggingRows, [["a"]], [[1]], NUMBER),
    (TaggingRows, [["a"]], [[None]], "tags[0][0] is missing (None)"),
    (SquadRows, ["who"], ["x"], "questions[0] must be a pair of texts, (question, cont"),
    (SquadRows, [("who", "a a")], ["a"], TEXT_START),
    (SquadRows, [("who", "a b")], ["c"], "occurs 0 times; received 'c'"),
    (SquadRows, [("who", "a b")], [("b", 9)], "an answer must lie within its context of"),
    (SquadRows, [("who", "a b")], [3], "answers[0] must be (text, start), a text that occ"),
    (MultipleChoiceRows, [("a", list("bcd")), ("a", list("bc"))], [0, 0], THREE_AND_TWO),
    (MultipleChoiceRows, CHOICES, [0, 4], "labels[1] must be the number of the right choice, from"),
    (MultipleChoiceRows, CHOICES, [0, np.nan], "labels[1] is missing (nan)"),
    *[
        (MultipleChoiceRows, [row], [0], TWO_CHOICES)
        for row in (("a", ["b"]), ("a", "wxyz"), ("a", None), ["a"], (), "abcd")
    ],
    (SentenceRows, [("a", "b"), "a"], [1, 0], "pairs[1] differs"),
    (SentenceRows, PAIRS, [1, 2, "x"], "scores[2] must be a number from"),
    (SentenceRows, [("a", "b"), ("a", "b", "c")], [1, 2], MIXED),
    (SentenceRows, PAIRS, [1, 2], "scores must have one value for each of pairs: there are"),
    *[
        (SentenceRows, [("a", "b", "c"), row], None, THREE_TEXTS)
        for row in (("a cat", "a dog", "a cat"), ("a", " ", "b"), ("a", "b", "b"))
    ],
]


def test_wrong_examples_are_refused_with_their_place():
    for kind, x, y, message in WRONG:
        assert message in refusal(kind().examples, "train", x, y)


PAIRS_ALONE = {"loss": "in_batch_negatives", "validation_data": (PAIRS,)}
VALIDATION = {"validation_data": (PAIRS, [0.0, 5.0, 0.0])}
SCALE = "must be from -1 to 1 (score_scale); received"
REFUSED = [
    ("for_sentences", (PAIRS,), {}, "fit needs the scores of the pairs for loss='cosine'"),
    ("for_sentences", (PAIRS, [4.2, 1.0, 0.0]), {}, f"scores[0] {SCALE} 4.2. Give sco"),
    ("for_sentences", (PAIRS, [0.5, -1.5, 0.0]), {}, f"scores[1] {SCALE} -1.5"),
    ("for_sentences", (PAIRS, SCORES), VALIDATION, f"validation_data[1][1] {SCALE}"),
    (
        *("for_sentences", (PAIRS,), PAIRS_ALONE),
        "validation_data[1] must be given: one for each of validation_data[0]",
    ),
    (
        *("for_multiple_choice", (CHOICES, [0, 1]), {"sample_weight": [1, 1]}),
        "sample_weight is for classification, regression and",
    ),
    ("for_classification", (["a", "b"], ["x", "x"]), {}, "labels must list at least two classes"),
    ("for_tagging", (SENTENCES[:1], [["O"] * 3]), {}, "The training examples must have at least"),
    (
        *("for_tagging", (SENTENCES, TAGS), {"feature_based": True}),
        "feature_based must be left out: a model in memory has",
    ),
]


def test_what_fit_refuses(base, tmp_path):
    for method, data, options, message in REFUSED:
        assert refusal(getattr(base, method)().fit, *data, **options).startswith(message)
    told = refusal(base.for_tagging, "OB")
    assert "labels must be a list of the tags; received 'OB' (str" in told
    told = refusal(base.for_classification, ["one"])
    assert told.startswith("labels must list at least two classes")
    (tmp_path / "notes.txt").write_text("x")
    assert refusal(base.save, tmp_path).startswith("folder")


def test_any_number_of_choices(tmp_path):
    """Such as COPA's two; a prediction may have another number."""
    two, three = ([(text, choices[:n]) for text, choices in CHOICES] for n in (2, 3))
    base = bert_tf.load(write_head(tmp_path, "encoder", num_layers=1))
    model = base.for_multiple_choice()
    model.fit(three, [2, 0], max_seq_length=16, epochs=1, batch_size=2, verbose=0)
    for x, number in ((two, 2), (CHOICES, 4)):
        found = model.predict(x)
        assert found.shape == (2, number)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    assert 0.0 <= model.evaluate(three, [0, 1])["accuracy"] <= 1.0


def test_weights_of_examples_and_classes():
    kind = ClassificationRows(["bad", "good"])
    found = kind.examples("train", ["a", "b"], [0, 1], np.array([0.5, 2]))
    assert [example.weight for example in found] == [0.5, 2.0]
    for weights, message in (
        ([1, -1], "sample_weight[1] must be a number between 0 and"),
        ([1], "sample_weight must have one value for each of texts: there are 2 texts and 1"),
        ([1, float("nan")], "sample_weight[1] must be a number between 0 and 1e+16; got nan"),
        ([10**400, 1], "sample_weight[0] must be a number between 0 and"),
        (["x", 1], "sample_weight[0] must be a number between 0 and 1e+16; got 'x'"),
        ([[1, 1], [1]], "sample_weight[0] must be a number between 0 and 1e+16; got [1, 1]"),
        (3, "sample_weight must be a list, an array or a column; received 3"),
    ):
        assert message in refusal(kind.examples, "train", ["a", "b"], [0, 1], weights)


@pytest.mark.slow
def test_several_labels_are_trained(base, tmp_path):
    texts, labels = ["the cat sat", "a dog ran", "the dog sat"], [["cat"], ["dog", "ran"], []]
    model = base.for_classification(multi_label=True)
    options = {key: value for key, value in FLAGS.items() if key != "do_train"}
    model.fit(texts, labels, validation_data=(texts, labels), verbose=0, **options)
    assert model.config.is_multi_label and model.labels == ("cat", "dog", "ran")
    assert "micro_f1" in model.evaluate(texts, labels)
    assert model.predict(texts).shape == (3, 3)
    model.save(tmp_path / "saved")
    again = bert_tf.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict(texts), model.predict(texts))
    options |= {"find_threshold": True, "keep_best": True, "evaluate_every_steps": 1}
    options |= {"num_train_epochs": 4.0, "output_dir": tmp_path / "out"}
    again.fit(texts, labels, validation_data=(texts, labels), verbose=0, **options)
    rows = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]])
    threshold = scores.best_threshold(rows, again.predict(texts), None)
    assert threshold != 0.5
    read = bert_tf.BertConfig.from_json_file(tmp_path / "out/bert_config.json")
    assert again.config.threshold == read.threshold == pytest.approx(threshold, rel=1e-4)
    kept = bert_tf.load(tmp_path / "out")
    np.testing.assert_array_equal(kept.predict(texts), again.predict(texts))
    other = again.for_classification(["a", "b"], multi_label=True)
    assert other.config.threshold == 0.5 and not other.heads
    single = again.for_classification(["a", "b"])
    assert not single.heads and not single.config.is_multi_label
