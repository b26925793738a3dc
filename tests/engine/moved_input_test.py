"""A position in the input belongs to the content of the files, whatever they are called."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tests.engine.conftest import training_input, write
from tests.engine.input_pipeline_test import draw, save_place


@pytest.fixture(autouse=True)
def global_seed():
    tf.random.set_seed(3)


def moved(files, folder, names):
    """Moves files to a folder, under these names; returns their paths sorted, as a glob does."""
    folder.mkdir()
    for path, name in zip(files, names, strict=True):
        os.rename(path, folder / name)
    return sorted(str(folder / name) for name in names)


@pytest.mark.parametrize(
    "names",
    [["0", "1", "2", "3", "4"], ["e", "a", "d", "b", "c"], ["0 ä", "1,", "2*", "3[0]", "4\n"]],
    ids=str,
)
@pytest.mark.parametrize("augment", [None, lambda features, key: features | {"key": key}])
def test_a_place_is_one_in_the_content_whatever_the_files_are_called(
    files, tmp_path, names, augment
):
    """Twice moved, and saved again in between: as drawn by the run that stayed."""
    source = training_input(files, 67, augment=augment)
    prefix = save_place(source, tmp_path, 4)
    expected = [next(source.iterator) for _ in range(30)]  # over three epochs
    found = []
    for i in range(2):
        files = moved(files, tmp_path / f"moved{i}", names)
        resumed = training_input(files, 67, seed=9, augment=augment)
        assert resumed.restore(prefix)
        found += [next(resumed.iterator) for _ in range(15)]
        prefix = save_place(resumed, tmp_path)
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])


def test_other_content_under_the_moved_names_starts_over_with_the_names_that_are_there(
    files, tmp_path, caplog
):
    prefix = save_place(training_input(files), tmp_path, 20)
    files = moved(files, tmp_path / "moved", "43210")
    expected = draw(training_input(files, seed=8).iterator, 20)
    os.remove(tmp_path / "ckpt.input.index")
    resumed = training_input(files, seed=8)
    assert not resumed.restore(prefix) and "ckpt cannot be read" in caplog.text
    assert draw(resumed.iterator, 20) == expected
    write(files[2], range(10, 123))  # as many records, but shorter ones
    assert not training_input(files).restore(prefix)
    assert "ckpt belongs to other files" in caplog.text
