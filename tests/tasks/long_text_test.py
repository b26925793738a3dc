"""Tests of bert_tf.tasks.long_text: settings, and the answers of windows joined to a text's."""

import re

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.classification.examples import DataProcessor
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.long_text import join_windows, text_columns, windows

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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"long_text": "mean", "window_stride": 0},
            "--window_stride=0 must be at least 1",
        ),
        (
            {"long_text": "max", "window_stride": -8},
            "--window_stride=-8 must be at least 1",
        ),
        (
            {"long_text": "mean", "window_stride": 127},
            "--window_stride=127 must be at most 126, the word pieces of a window"
            " (--max_seq_length=128 without two special tokens), or pieces of the text would be in"
            " no window",
        ),
        (
            {"long_text": "max", "window_stride": 31, "max_seq_length": 32},
            "--window_stride=31 must be at most 30, the word pieces of a window"
            " (--max_seq_length=32 without two special tokens), or pieces of the text would be in"
            " no window",
        ),
        (
            {"long_text": "median"},
            "--long_text=median must be one of cut, mean, max",
        ),
        (
            {"long_text": "Mean"},
            "--long_text=Mean must be one of cut, mean, max",
        ),
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


def test_the_stride_of_settings():
    assert settings().stride is None
    assert settings(long_text="mean").stride == 0  # half of the room
    assert settings(long_text="max", window_stride=126).stride == 126
    assert settings(long_text="mean", max_seq_length=4, window_stride=1).stride == 1


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({}, (None, None)),
        ({"long_text": "max"}, ("max", None)),
        ({"long_text": "mean", "window_stride": 9}, ("mean", 9)),
    ],
)
def test_what_a_model_s_folder_keeps_and_the_size_of_an_epoch(values, kept):
    task = ClassificationTask(settings(**values), DataProcessor())
    assert windows(task.settings) == kept
    assert task.epoch_size(num_examples=90, num_records=130) == 130  # every window once
