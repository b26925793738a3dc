"""Tests of long texts: settings, records of windows, and runs that join their answers."""

import re

import numpy as np
import pytest
from absl import logging

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files.model_notes import ModelInput, read_model_input
from bert_tf.tasks.classification.examples import ClassificationEncoder, DataProcessor, InputExample
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.long_text import join_windows, text_columns, windows
from bert_tf.tasks.tagging.settings import TaggingSettings
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS
from tests.support.record_files import read_records
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import SIZES, write_reviews

pytestmark = pytest.mark.usefixtures("uncompiled")

PROBABILITIES = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]], np.float32)


def settings(**values):
    return ClassifierSettings(output_dir="x", vocab_file="x", **values)


def test_mean_and_maximum_of_windows():
    mean = join_windows(PROBABILITIES, [2, 1, 1], "mean")
    np.testing.assert_allclose(mean, [[0.6, 0.4], [0.2, 0.8], [0.6, 0.4]], rtol=1e-6)
    found = join_windows(PROBABILITIES, [1, 3], "max")  # of several labels
    np.testing.assert_allclose(found, [[0.9, 0.1], [0.6, 0.8]], rtol=1e-6)
    found = join_windows(PROBABILITIES, [1, 3], "max", add_up=True)
    np.testing.assert_allclose(found, [[0.9, 0.1], [0.6 / 1.4, 0.8 / 1.4]], rtol=1e-6)
    numbers = np.array([1.5, -2.0, 4.0], np.float32)  # of a regression
    assert join_windows(numbers, [1, 2], "mean").tolist() == [1.5, 1.0]
    assert join_windows(numbers, [2, 1], "max").tolist() == [1.5, 4.0]
    vectors = np.arange(12, dtype=np.float64).reshape(3, 2, 2)
    assert join_windows(vectors, [3], "mean").tolist() == [[[4, 5], [6, 7]]]


@pytest.mark.parametrize("long_text", ["mean", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_text_of_one_window_keeps_its_bits(long_text, dtype):
    values = np.random.default_rng(0).dirichlet(np.ones(5), 40).astype(dtype)
    found = join_windows(values, [1] * 40, long_text, add_up=True)
    assert found.dtype == dtype
    assert found.tobytes() == values.tobytes()
    mixed = join_windows(np.concatenate([values, values]), [40, *[1] * 40], long_text, add_up=True)
    assert mixed[1:].tobytes() == values.tobytes()
    assert join_windows(values[:0], [], long_text).shape == (0, 5)


def test_columns_of_texts():
    columns = {
        "outputs": PROBABILITIES,
        "label_ids": np.array([1, 1, 0, 0]),
        "per_example_loss": np.array([2.0, 1.0, 0.5, 0.25], np.float32),
    }
    found = text_columns(columns, [2, 1, 1], "max", add_up=True)
    assert found["label_ids"].tolist() == [1, 0, 0]
    assert found["per_example_loss"].tolist() == [1.5, 0.5, 0.25]
    np.testing.assert_allclose(found["outputs"][0], [0.9 / 1.6, 0.7 / 1.6], rtol=1e-6)
    # A regression has numbers, which do not add up to anything.
    found = text_columns({"outputs": np.array([1.0, 3.0])}, [2], "max", add_up=True)
    assert found["outputs"].tolist() == [3.0]


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
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        settings(**values)
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


VOCAB = "[PAD] [UNK] [CLS] [SEP] a b c d e".split()
TOKENIZER = FastTokenizer({x: i for i, x in enumerate(VOCAB)}, True, SEQUENCE_TOKENS)
LENGTH, STRIDE = 14, 5
FLAGS = {**REVIEWS, "labels": ["bad", "good"]}


def test_records_of_windows_have_the_label_and_share_the_weight(tmp_path):
    encoder = ClassificationEncoder(TOKENIZER, 5, ["no", "yes"], stride=2)
    examples = [
        InputExample("x", "a b c d e", None, "yes"),
        InputExample("y", "a", None, "no"),
        InputExample("z", "d", "a b c", "yes"),
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
    weights = [record["example_weight"][0] for record in found]
    np.testing.assert_allclose(weights, [1 / 2, 1 / 2, 1, *[1 / 3] * 3])
    # A pair without room is refused by its name.
    encoder = ClassificationEncoder(TOKENIZER, 8, None, stride=2)
    for text_a, text_b, pieces in (("a b c d e", "a b c d e a", 5), ("a " * 9, "b " * 7, 7)):
        examples = [InputExample("dev-7", text_a, text_b, 1.0)]
        message = f"Example 'dev-7': the shorter text of a pair .* it has {pieces} word pieces, and"
        with pytest.raises(UserError, match=message):
            write_records(path, examples, encoder)


@pytest.fixture
def logs(monkeypatch):
    """A list that gets the text of each line of information."""
    texts = []
    monkeypatch.setattr(logging, "info", lambda text, *args: texts.append(text % args))
    return texts


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
def test_answers_for_long_texts_are_those_of_their_windows_joined(trained, logs, long_text):
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
    assert f"  Num texts = 12, in {sum(counts)} windows" in logs


@pytest.mark.slow
def test_an_epoch_is_a_pass_over_all_windows(trained):
    flags = {"long_text": "mean", "window_stride": STRIDE, "max_seq_length": LENGTH}
    flags |= {"do_train": True, "num_train_epochs": 1.0, "train_batch_size": 8}
    run_in(trained, "classification", **FLAGS, **flags, output_dir=trained / "trained")
    rows = (trained / "train.csv").read_text().splitlines()[1:]
    count = sum(len(windows_of(row.split(",")[0])) for row in rows)
    assert count > len(rows)
    (path,) = (trained / "trained").glob(f"model.ckpt-{count // 8}.index")
    assert path.exists()
    assert read_model_input(f"{trained}/trained") == ModelInput("texts", LENGTH, "mean", STRIDE)
    assert read_model_input(f"{trained}/out").long_text is None


def test_the_windows_of_a_text_share_its_weight():
    encoder = ClassificationEncoder(TOKENIZER, 5, ["no", "yes"], stride=2, weighted=True)
    example = InputExample("g", "a", None, "yes", weight=0.75)
    found = [
        record["example_weight"][0]
        for ids in ([[4] * 7, []], [[4], []])
        for record in encoder.records(example, ids)
    ]
    assert found == [0.25, 0.25, 0.25, 0.75]
    columns = {"example_weight": np.array(found, np.float32)}
    joined = text_columns(columns, encoder.num_windows, "mean", add_up=True)
    np.testing.assert_allclose(joined["example_weight"], [0.75, 0.75])


@pytest.mark.slow
@pytest.mark.parametrize("flags", [FLAGS, {**FLAGS, "multi_label": True}])
def test_a_loaded_model_gives_the_program_s_probabilities(trained, flags):
    several = "multi_label" in flags
    out = trained / f"loaded_{several}"
    flags = {**flags, "long_text": "max", "window_stride": STRIDE, "max_seq_length": LENGTH}
    flags |= {"do_train": True, "do_eval": True, "do_predict": True, "find_threshold": several}
    run_in(trained, "classification", **flags, num_train_epochs=1.0, output_dir=out)
    texts = [row.rpartition(",")[0] for row in (trained / "test.csv").read_text().split("\n")[1:-1]]
    assert max(len(windows_of(text)) for text in texts) > 1
    found = bert_tf.load(out).classify(texts)
    probabilities = [list(result.probabilities.values()) for result in found]
    np.testing.assert_allclose(np.loadtxt(out / "test_results.tsv"), probabilities, rtol=1e-4)
    assert np.allclose(np.sum(probabilities, axis=1), 1.0) != several
