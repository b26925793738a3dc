"""Test of what `fit` shows of its progress: Keras's bar, a line for each epoch, or nothing."""

import re

import keras
import numpy as np
import pytest

from bert_tf.runs.training.watch import CallbackWatch

EPOCHS = ["Epoch 1/2", "2/2", "Epoch 2/2", "3/3"]


@pytest.mark.parametrize("verbose,lines", [(0, []), (2, EPOCHS), (1, EPOCHS), ("auto", EPOCHS)])
def test_progress_is_shown_as_by_keras(capsys, verbose, lines):
    watch = CallbackWatch(verbose=verbose)
    watch.begin(keras.Model(), 0, 5, 2.5, None)
    watch.progress(5, 0)
    for step in (1, 2, 3, 4, 5):
        watch.after(step, {"loss": (np.array([step / 2]), np.array([1.0]))})
    watch.end()
    out, err = capsys.readouterr()
    is_bar = verbose in (1, "auto")
    assert err == "" and ("━" in out) == ("\b" in out) == is_bar
    plain = re.sub(r"\x1b\[\d+m", "", out)
    shown = [line.split("\r")[-1] for line in plain.split("\n")[:-1]]
    assert [re.match(r"(Epoch )?\d/\d", line)[0] for line in shown] == lines
    assert re.findall(r"loss: (\d\.\d+) *\n", out) == ["0.7500", "2.0000"][: len(lines) // 2]
