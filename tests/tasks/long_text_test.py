"""Tests of long texts: windows and their joined answers, and warnings of what is cut."""

import functools
import re

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files.model_notes import ModelInput, read_model_input
from bert_tf.tasks.classification.examples import ClassificationEncoder, DataProcessor, InputExample
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.extraction.lines import read_examples
from bert_tf.tasks.long_text import join_windows, text_columns, windows
from bert_tf.tasks.multiple_choice.data import Question, QuestionEncoder
from bert_tf.tasks.sentences.data import SentenceEncoder, Sentences
from bert_tf.tasks.squad.examples import SquadData, SquadExample
from bert_tf.tasks.squad.features import SquadEncoder
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.tagging.data import Sentence, TaggingEncoder
from bert_tf.tasks.tagging.settings import TaggingSettings
from bert_tf.tasks.task import ExampleSet
from tests.support.encoded import tokenizer_of
from tests.support.record_files import read_records
from tests.support.refusals import refuses
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import SIZES, write_reviews

pytestmark = pytest.mark.usefixtures("uncompiled")

PROBABILITIES = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]], np.float32)


settings = functools.partial(ClassifierSettings, output_dir="x", vocab_file="x")


def test_mean_and_maximum_of_windows():
    found = join_windows(PROBABILITIES, [1, 3], "max")  # of several labels
    np.testing.assert_allclose(found, [[0.9, 0.1], [0.6, 0.8]], rtol=1e-6)
    found = join_windows(PROBABILITIES, [1, 3], "max", add_up=True)
    np.testing.assert_allclose(found, [[0.9, 0.1], [0.6 / 1.4, 0.8 / 1.4]], rtol=1e-6)
    numbers = np.array([1.5, -2.0, 4.0], np.float32)  # of a regression: they do not add up
    for long_text, joined in (("mean", [1.5, 1.0]), ("max", [1.5, 4.0])):
        found = text_columns({"outputs": numbers}, [1, 2], long_text, add_up=True)
        assert found["outputs"].tolist() == joined


TOO_LONG = (
    "--window_stride={} must be at most {}, the word pieces of a window (--max_seq_length={}"
    " without two special tokens), or pieces of the text would be in no window"
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"long_text": "mean", "window_stride": 0}, "--window_stride=0 must be at least 1"),
        ({"long_text": "max", "window_stride": -8}, "--window_stride=-8 must be at least 1"),
        ({"long_text": "mean", "window_stride": 127}, TOO_LONG.format(127, 126, 128)),
        (
            {"long_text": "max", "window_stride": 31, "max_seq_length": 32},
            TOO_LONG.format(31, 30, 32),
        ),
        ({"long_text": "median"}, "--long_text=median must be one of cut, mean, max"),
        ({"long_text": "Mean"}, "--long_text=Mean must be one of cut, mean, max"),
        (
            {"window_stride": 64},
            "--window_stride=64 needs --long_text=mean or max; received --long_text=cut. Change one"
            " of the two",
        ),
    ],
)
def test_settings_that_are_refused(values, message):
    refuses(f"^{re.escape(message)}$", settings, **values)
    if {"long_text", "window_stride"} <= values.keys():  # a tagger's window has the same room
        values = {name: value for name, value in values.items() if name != "long_text"}
        with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
            TaggingSettings(output_dir="x", vocab_file="x", **values)


def test_strides_what_a_folder_keeps_and_the_size_of_an_epoch():
    assert settings().stride is None
    assert settings(long_text="mean").stride == 0  # half of the room
    assert settings(long_text="max", window_stride=126).stride == 126
    assert settings(long_text="mean", max_seq_length=4, window_stride=1).stride == 1
    for values, kept in (
        ({}, (None, None)),
        ({"long_text": "max"}, ("max", None)),
        ({"long_text": "mean", "window_stride": 9}, ("mean", 9)),
    ):
        task = ClassificationTask(settings(**values), DataProcessor())
        assert windows(task.settings) == kept
        assert task.epoch_size(num_examples=90, num_records=130) == 130  # every window once


LENGTH, STRIDE = 14, 5
FLAGS = {**REVIEWS, "labels": ["bad", "good"]}


@pytest.mark.parametrize("weighted", [False, True])
def test_records_of_windows_have_the_label_and_share_the_weight(tmp_path, weighted):
    encoder = ClassificationEncoder(TOKENIZER, 5, ["no", "yes"], stride=2, weighted=weighted)
    weight = 0.75 if weighted else 1.0
    examples = [
        InputExample("x", "a b c d e", None, "yes", weight=weight),
        InputExample("y", "a", None, "no", weight=weight),
        InputExample("z", "d", "a b c", "yes", weight=weight),
    ]
    path = str(tmp_path / "train.tf_record")
    assert write_records(path, examples, encoder) == 6
    assert encoder.num_windows == [2, 1, 3]
    found = read_records(path)
    assert [record["input_ids"] for record in found] == [
        [2, 4, 5, 6, 3],
        [2, 6, 7, 8, 3],
        [2, 4, 3, 0, 0],
        [2, 7, 3, 4, 3],
        [2, 7, 3, 5, 3],
        [2, 7, 3, 6, 3],
    ]
    assert [record["label_ids"] for record in found] == [[1], [1], [0], [1], [1], [1]]
    columns = {"example_weight": np.array([x["example_weight"][0] for x in found])}
    expected = [weight * share for share in (1 / 2, 1 / 2, 1, *[1 / 3] * 3)]
    np.testing.assert_allclose(columns["example_weight"], expected)
    joined = text_columns(columns, encoder.num_windows, "mean", add_up=True)
    np.testing.assert_allclose(joined["example_weight"], [weight] * 3)
    # A pair without room is refused by its name.
    encoder = ClassificationEncoder(TOKENIZER, 8, None, stride=2)
    for text_a, text_b, pieces in (("a b c d e", "a b c d e a", 5), ("a " * 9, "b " * 7, 7)):
        examples = [InputExample("dev-7", text_a, text_b, 1.0)]
        message = f"Example 'dev-7': the shorter text of a pair .* it has {pieces} word pieces, and"
        refuses(message, write_records, path, examples, encoder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a folder with reviews, and in `out` a run in which long texts would be cut."""
    folder = write_reviews(tmp_path_factory.mktemp("reviews"))
    run_in(folder, "classification", **FLAGS, **TRAINING)
    return folder


TRAINING = {
    **{"do_train": True, "do_eval": True, "do_predict": True},
    **{"max_seq_length": SIZES["max_position_embeddings"], "learning_rate": 5e-3},
    **{"train_batch_size": 8, "num_train_epochs": 1.0},
}


def test_a_run_in_which_one_window_is_enough_is_the_plain_run_bit_for_bit(trained):
    out = trained / "windows"
    run_in(trained, "classification", **FLAGS, **TRAINING, long_text="max", output_dir=str(out))
    for name in ("eval_results.txt", "test_results.tsv"):
        assert (out / name).read_bytes() == (trained / "out" / name).read_bytes()
    data = "model.ckpt-11.data-00000-of-00001"
    assert (out / data).read_bytes() == (trained / "out" / data).read_bytes()


def write_table(folder, name, rows):
    """Writes a table of (review, stars); returns its folder, which has a copy of the model."""
    folder.mkdir(exist_ok=True)
    lines = [f"{text},{label}\n" for text, label in [("review", "stars"), *rows]]
    (folder / f"{name}.csv").write_text("".join(lines))
    for file in ("vocab.txt", "bert_config.json"):
        (folder / file).write_bytes((folder.parent / file).read_bytes())
    return folder


def windows_of(text):
    """Returns the windows of a text whose words are word pieces, by counting them."""
    words, found = text.split(), []
    for start in range(0, len(words), STRIDE):
        found.append(" ".join(words[start : start + LENGTH - 2]))
        if start + LENGTH - 2 >= len(words):
            return found


@pytest.mark.parametrize("long_text", ["mean", pytest.param("max", marks=pytest.mark.slow)])
def test_answers_for_long_texts_are_those_of_their_windows_joined(trained, caplog, long_text):
    caplog.set_level("INFO", "absl")
    rows = [line.split(",") for line in (trained / "dev.csv").read_text().splitlines()[1:]]
    reviews = [(text, label) for text, label in rows if len(text.split()) > 8][:12]
    parts = [windows_of(text) for text, _ in reviews]
    counts = [len(part) for part in parts]
    assert max(counts) > 2 and min(counts) == 1
    plain = write_table(trained / "parts", "test", [(x, "bad") for part in parts for x in part])
    flags = {**FLAGS, "init_checkpoint": trained / "out", "max_seq_length": LENGTH}
    flags["eval_batch_size"] = 5
    run_in(plain, "classification", **flags, do_predict=True)
    found = np.loadtxt(plain / "out" / "test_results.tsv")
    groups = np.split(found, np.cumsum(counts)[:-1])
    if long_text == "mean":
        joined = np.array([group.mean(axis=0) for group in groups])
    else:
        maxima = np.array([group.max(axis=0) for group in groups])
        joined = maxima / maxima.sum(axis=1, keepdims=True)

    long = write_table(trained / "long", "test", reviews)
    write_table(long, "dev", reviews)
    flags |= {"long_text": long_text, "window_stride": STRIDE, "output_dir": long / long_text}
    results = run_in(long, "classification", **flags, do_eval=True, do_predict=True)
    np.testing.assert_allclose(np.loadtxt(long / long_text / "test_results.tsv"), joined, rtol=1e-5)
    table = (long / long_text / "predictions.tsv").read_text().splitlines()
    assert len(table) == 13 and all(x[0] in row for x, row in zip(reviews, table[1:], strict=True))
    labels = np.array([label == "good" for _, label in reviews], int)
    assert results["eval_accuracy"] == np.mean(joined.argmax(axis=1) == labels)
    losses = [-np.log(g[:, label]).mean() for g, label in zip(groups, labels, strict=True)]
    np.testing.assert_allclose(results["eval_loss"], np.mean(losses), rtol=1e-5)
    assert f"  Num texts = 12, in {sum(counts)} windows" in caplog.messages


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_an_epoch_is_a_pass_over_all_windows_and_a_loaded_model_reads_them(trained, several):
    out = trained / f"loaded_{several}"
    flags = {**FLAGS, **TRAINING, "multi_label": several, "find_threshold": several}
    flags |= {"long_text": "max", "window_stride": STRIDE, "max_seq_length": LENGTH}
    run_in(trained, "classification", **flags, output_dir=out)
    train, test = (
        [row.rpartition(",")[0] for row in (trained / f"{x}.csv").read_text().splitlines()[1:]]
        for x in ("train", "test")
    )
    count = sum(len(windows_of(text)) for text in train)
    assert count > len(train) and (out / f"model.ckpt-{count // 8}.index").exists()
    assert read_model_input(str(out)) == ModelInput("texts", LENGTH, "max", STRIDE)
    assert read_model_input(f"{trained}/out").long_text is None
    assert max(len(windows_of(text)) for text in test) > 1
    found = bert_tf.load(out).classify(test)
    probabilities = [list(result.probabilities.values()) for result in found]
    np.testing.assert_allclose(np.loadtxt(out / "test_results.tsv"), probabilities, rtol=1e-4)
    assert np.allclose(np.sum(probabilities, axis=1), 1.0) != several


TOKENIZER = tokenizer_of("[PAD] [UNK] [CLS] [SEP] a b c d e ##d .".split())


def classifier(length, *texts):
    encoder = ClassificationEncoder(TOKENIZER, length, None)
    return encoder, [InputExample("x", a, b, "1") for a, b in texts]


def sentences(length, *texts):
    return SentenceEncoder(TOKENIZER, length, len(texts[0])), [Sentences(row) for row in texts]


def multiple_choice(length, *texts):
    questions = [Question(context, "a", [ending, "b", "c", "a"], 0) for context, ending in texts]
    return QuestionEncoder(TOKENIZER, length, 4), questions


def tagger(length, *documents):
    examples = [[Sentence(text.split(), None, 0)] for text in documents]
    return TaggingEncoder(TOKENIZER, length, ["O"], False), examples


def squad(length, *questions):
    lengths = {"max_query_length": length, "max_seq_length": length + 5}
    settings = SquadSettings(output_dir="x", vocab_file="x", **lengths)
    examples = [SquadExample(str(i), text, 0, None) for i, text in enumerate(questions)]
    return SquadEncoder(SquadData(["a b c " * 50], examples), TOKENIZER, settings, False), examples


@pytest.mark.parametrize(
    ("make", "texts", "longest", "words"),
    [
        (classifier, [("a b c", None), ("a b", "c ."), ("a", "")], 7, "examples"),
        (classifier, [("a " * 9, None), ("a", None)], 11, "examples"),
        (sentences, [("a", "b cd c ."), ("a", "b")], 7, "examples"),
        (sentences, [("a b c a b",), ("",)], 7, "examples"),
        (multiple_choice, [("a b c", "b c a"), ("a", "b")], 10, "questions"),
        (multiple_choice, [("a", "b c a ."), ("a", "b")], 9, "questions"),
        (tagger, ["a cddd b", "a b c"], 10, "documents"),
        (tagger, ["a b c a b c a b c " * 9 + "cdd", "a"], 8, "documents"),
        (squad, ["a b c a", "b c"], 4, "questions"),
        (squad, ["a", "cdddd ."], 6, "questions"),
    ],
)
def test_the_share_of_examples_that_are_cut_is_said_once(
    tmp_path, warnings, make, texts, longest, words
):
    path = str(tmp_path / "eval.tf_record")
    encoder, examples = make(longest, *texts)
    write_records(path, examples, encoder)
    assert warnings == []
    encoder, examples = make(longest - 1, *texts)
    write_records(path, examples, encoder)
    share = {2: "50", 3: "33"}[len(texts)]
    flag = "max_query_length" if make is squad else "max_seq_length"
    cut = f"1 of {len(texts)} {words} ({share}%) are cut"
    (warning,) = warnings
    assert warning.startswith(
        f"eval.tf_record: {cut} to fit --{flag}={longest - 1}. Uncut, the longest needs {longest}"
    )
    assert ("--long_text" in warning) == (make is classifier)


@pytest.mark.parametrize(
    ("length", "texts", "end"),
    [
        (6, [("a b c a b c a b", None), ("a b", None)], "40% of all word pieces are lost"),
        (8, [("a b c", "cd a"), ("a b c", "b b")], "9.1% of all word pieces are lost"),
    ],
)
def test_a_classifier_says_how_much_text_is_lost_and_how_to_keep_it(
    tmp_path, warnings, length, texts, end
):
    encoder, examples = classifier(length, *texts)
    write_records(str(tmp_path / "eval.tf_record"), examples, encoder)
    assert warnings[0].endswith(f". {end}; --long_text=mean reads all of them")
    windows = ClassificationEncoder(TOKENIZER, length, None, stride=2)
    write_records(str(tmp_path / "eval.tf_record"), examples, windows)
    assert len(warnings) == 1  # nothing is lost


def test_the_name_and_the_share_in_the_warning(tmp_path, warnings):
    """The name that the file gets at the end; a small share is not rounded to nothing."""
    for name in ("eval", "predict_mismatched"):
        encoder, examples = classifier(6, ("a b c a b c", None))
        ExampleSet(name, examples, encoder=encoder).write_records(str(tmp_path / "1234.working"))
        assert warnings.pop().startswith(f"{name}.tf_record: 1 of 1 examples")
    encoder, examples = classifier(6, *[("a", None)] * 2999, ("a b c a b c", None))
    write_records(str(tmp_path / "train.tf_record"), examples, encoder)
    assert "train.tf_record: 1 of 3000 examples (0.033%) are cut" in warnings[0]


@pytest.mark.parametrize(
    ("lines", "length", "message"),
    [
        (["a b c a b", "a"], 7, None),
        (["a b c a b", "a"], 6, "1 of 2 lines (50%) are cut to fit --max_seq_length=6"),
        (["a b ||| c a", "a b c a a", ""], 7, None),
        (
            *(["a b ||| c a", "a b c a b", ""], 6),
            "2 of 3 lines (67%) are cut to fit --max_seq_length=6",
        ),
    ],
)
def test_lines_that_extract_features_cuts(tmp_path, warnings, lines, length, message):
    path = tmp_path / "input.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    assert len(list(read_examples(str(path), TOKENIZER, length))) == len(lines)
    end = "; with --long_text=mean, mean_vector and pooled_vector use the whole line"
    assert warnings == [f"{message}{end}"] * bool(message)


def windows_in(tmp_path, text, length, stride):
    (tmp_path / "lines").write_text(text)
    examples = read_examples(str(tmp_path / "lines"), TOKENIZER, length, stride)
    return [(example.linex_index, " ".join(example.tokens)) for example in examples]


def test_each_window_of_a_line_is_an_example(tmp_path, warnings):
    assert windows_in(tmp_path, "a b c d\nb\na ||| b c d\n", 5, 2) == [
        (0, "[CLS] a b c [SEP]"),
        (0, "[CLS] c d [SEP]"),
        (1, "[CLS] b [SEP]"),
        (2, "[CLS] a [SEP] b [SEP]"),
        (2, "[CLS] a [SEP] c [SEP]"),
        (2, "[CLS] a [SEP] d [SEP]"),
    ]
    found = windows_in(tmp_path, "a b c d\nb\n", 6, 1)
    assert found == [(0, "[CLS] a b c d [SEP]"), (1, "[CLS] b [SEP]")]
    assert warnings == []
    # A pair without room is refused by its line.
    message = f"--input_file={tmp_path}/lines, line 2: the shorter text of a pair is whole in every"
    refuses(re.escape(message), windows_in, tmp_path, "a\na b c ||| d c b a\n", 6, 2)
