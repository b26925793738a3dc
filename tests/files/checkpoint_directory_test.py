"""Tests of bert_tf.files.checkpoint_directory."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import checkpoints, storage
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from tests.support.arrays import assert_same_arrays
from tests.support.refusals import refusal, refuses


def _variables(step=12, start=None):
    start = step if start is None else start
    return {
        "output_bias": tf.Variable(np.float32([start + 0.75, start + 1.75])),
        "output_bias/adam_m": tf.Variable(np.float32([start, 7.0])),
        "global_step": tf.Variable(np.int64(step)),
    }


def _beside(prefix):
    with open(prefix + ".input", "w") as writer:
        writer.write("the position in the input")


def _steps(path):
    """Returns the steps whose files are there, after a look that none has a part missing."""
    steps = {}
    for name in os.listdir(path):
        if name.startswith("model.ckpt-"):
            step, suffix = name.removeprefix("model.ckpt-").split(".", 1)
            steps.setdefault(int(step), set()).add(suffix)
    for suffixes in steps.values():
        assert suffixes == {"index", "data-00000-of-00001", "input"}
    return sorted(steps)


def _saved(path, *steps, keep=5):
    """Returns a directory in which these steps have been saved, one after the other."""
    directory = CheckpointDirectory(str(path), keep)
    for step in steps:
        directory.save(_variables(step), step, _beside)
    return directory


def test_the_newest_few_are_kept(tmp_path):
    directory = CheckpointDirectory(str(tmp_path))
    assert directory.latest() is None
    steps = [0, 1, 5, 10, 50, 100, 105]
    for count, step in enumerate(steps, 1):
        prefix = directory.save(_variables(step), step, _beside)
        assert prefix == str(tmp_path / f"model.ckpt-{step}") == directory.latest()
        assert _steps(tmp_path) == steps[max(0, count - 5) : count]
        listed = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
        assert [int(path.rsplit("-", 1)[1]) for path in listed] == _steps(tmp_path)
        assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    assert sorted(os.listdir(tmp_path))[0] == "checkpoint" and len(os.listdir(tmp_path)) == 16
    variables = _variables(3)
    checkpoints.restore(variables, directory.latest())
    assert_same_arrays(variables, _variables(105))
    # 0 keeps all, and a lower number deletes more.
    _saved(tmp_path, *range(106, 110), keep=0)
    assert _steps(tmp_path) == [5, 10, 50, 100, 105, 106, 107, 108, 109]
    _saved(tmp_path, 110, keep=2)
    assert _steps(tmp_path) == [109, 110]


def test_the_same_step_again_replaces_its_checkpoint(tmp_path):
    directory = _saved(tmp_path, 1, 2, keep=2)
    directory.save(_variables(1, start=9), 1, _beside)
    assert _steps(tmp_path) == [1, 2]
    assert directory.latest().endswith("model.ckpt-1")
    reader = tf.train.load_checkpoint(directory.latest())
    np.testing.assert_array_equal(reader.get_tensor("output_bias"), [9.75, 10.75])


def test_a_directory_may_move(tmp_path):
    first, second = tmp_path / "first run", tmp_path / "{moved}"
    first.mkdir()
    _saved(first, 1, 2, 3, keep=2)
    assert (first / "checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt-3"\n'
        'all_model_checkpoint_paths: "model.ckpt-2"\n'
        'all_model_checkpoint_paths: "model.ckpt-3"\n'
    )
    shutil.move(first, second)
    directory = CheckpointDirectory(str(second), keep=2)
    assert directory.latest() == checkpoints.find_prefix(str(second)) == f"{second}/model.ckpt-3"
    checkpoints.restore(_variables(), directory.latest())
    _saved(second, 4, keep=2)
    assert _steps(second) == [3, 4]


@pytest.mark.parametrize("name", ["lr=[1e-4]", "run*", "run?", "a\\b"])
def test_a_path_that_tensorflow_would_take_for_a_pattern_is_refused(tmp_path, name):
    path = str(tmp_path / name)
    assert refusal(CheckpointDirectory, path) == (
        f"--output_dir={path} must not contain [, *, ? or a backslash: TensorFlow reads them as a"
        " pattern and does not find its files there; rename the directory"
    )


def test_files_of_other_names_are_left_alone(tmp_path):
    # A number of too many digits is no step.
    names = {"model.ckpt-10.index", "checkpoint.old", "model.ckpt-1-notes"}
    names.add(f"model.ckpt-{10**199}.index")
    for name in names:
        (tmp_path / name).write_text("mine")
    directory = _saved(tmp_path, 1, 2, keep=1)
    assert directory.latest().endswith("model.ckpt-2")
    assert names < set(os.listdir(tmp_path))
    assert not (tmp_path / "model.ckpt-1.index").exists()


def _truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _change_a_byte(path):
    content = bytearray(path.read_bytes())
    content[5] ^= 64
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [os.remove, _truncate, _change_a_byte])
@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_a_damaged_newest_falls_back_on_the_newest_whole_one(tmp_path, warnings, damage, suffix):
    directory = _saved(tmp_path, 1, 2, 3)
    damage(tmp_path / f"model.ckpt-3{suffix}")
    variables = _variables()
    assert directory.restore_latest(variables) == f"{tmp_path}/model.ckpt-2"
    assert_same_arrays(variables, _variables(2))
    assert len(warnings) == 1
    assert f"{tmp_path}/model.ckpt-3" in warnings[0]
    assert warnings[0].endswith(". Trying the checkpoint before it")
    # The step is made again, and its checkpoint is whole again.
    directory.save(_variables(3), 3)
    assert directory.restore_latest(variables) == f"{tmp_path}/model.ckpt-3"
    assert_same_arrays(variables, _variables(3))


def test_without_a_whole_checkpoint_there_is_no_start(tmp_path, warnings):
    assert CheckpointDirectory(str(tmp_path)).restore_latest(_variables()) is None
    directory = _saved(tmp_path, 1, 2)
    for step in (1, 2):
        _truncate(tmp_path / f"model.ckpt-{step}.data-00000-of-00001")
    assert refusal(directory.restore_latest, _variables()) == (
        f"--output_dir={tmp_path} must hold an undamaged checkpoint to resume from, or neither"
        " checkpoints nor a file `checkpoint`; all checkpoints are missing or damaged:"
        " 'model.ckpt-1, model.ckpt-2'. Copy one back, or choose a new --output_dir to start over"
    )
    assert len(warnings) == 2
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "checkpoint").write_text("garbage")
    with pytest.raises(UserError, match="must hold an undamaged checkpoint to resume from, or"):
        directory.restore_latest(_variables())


def _checkpoint_file(*names):
    lines = [f'all_model_checkpoint_paths: "{name}"' for name in names]
    return "\n".join([f'model_checkpoint_path: "{names[-1]}"', *lines, ""])


@pytest.mark.parametrize(
    "content",
    [
        *(None, "", "model.ckpt-1", 'model_checkpoint_path: ""\n', "\udcff"),
        *(_checkpoint_file("gone"), _checkpoint_file("model.ckpt-" + 5000 * "9")),
    ],
    ids=["no file", "empty", "no key", "no name", "no UTF-8", "no step", "many digits"],
)
def test_without_its_names_the_newest_whole_checkpoint_is_taken(tmp_path, warnings, content):
    _saved(tmp_path, 9, 10, 11, keep=2)
    _truncate(tmp_path / "model.ckpt-11.data-00000-of-00001")
    state = tmp_path / "checkpoint"
    state.unlink()
    if content is not None:
        state.write_bytes(content.encode(errors="surrogateescape"))
    directory = CheckpointDirectory(str(tmp_path), keep=2)
    assert directory.latest() == f"{tmp_path}/model.ckpt-11"
    variables = _variables()
    assert directory.restore_latest(variables) == f"{tmp_path}/model.ckpt-10"
    assert_same_arrays(variables, _variables(10))
    assert warnings[1:] == [
        f"{state} lists no undamaged checkpoint: resuming from {tmp_path}/model.ckpt-10, the"
        " undamaged one with the highest number"
    ]
    # The damaged one is replaced; the one that the run went on from is its own, and the oldest.
    for step in (11, 12):
        directory.save(_variables(step), step, _beside)
    assert state.read_text() == _checkpoint_file("model.ckpt-11", "model.ckpt-12")
    assert _steps(tmp_path) == [11, 12]


def test_paths_of_a_moved_run_count_by_their_names(tmp_path):
    directory = _saved(tmp_path, 1, 2, keep=2)
    state = tmp_path / "checkpoint"
    state.write_text(_checkpoint_file("/old/place/model.ckpt-1", "gs://bucket/model.ckpt-2"))
    assert directory.restore_latest(_variables()) == f"{tmp_path}/model.ckpt-2"
    directory.save(_variables(3), 3, _beside)
    assert _steps(tmp_path) == [2, 3]
    # One line is enough.
    state.write_text('model_checkpoint_path: "model.ckpt-2"\n')
    assert directory.latest() == f"{tmp_path}/model.ckpt-2"
    assert checkpoints.find_prefix(str(tmp_path)) == directory.latest()


def test_the_next_start_removes_what_a_killed_run_left(tmp_path):
    directory = _saved(tmp_path, 1, 2, 3, keep=2)
    good = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    # Killed after the new checkpoint was named, before the oldest was deleted as a whole.
    _saved(tmp_path, 4, keep=3)
    (tmp_path / "model.ckpt-2.index").unlink()
    # Killed while it wrote.
    (tmp_path / "model.ckpt-5.data-00000-of-00001.tempstate123").write_text("half")
    (tmp_path / "0123abcd-77-0123456789ab.unfinished").write_text("half")
    (tmp_path / "my.unfinished").write_text("mine")
    directory.remove_left_behind()
    assert _steps(tmp_path) == [3, 4]
    others = {"checkpoint", "my.unfinished"}
    assert {n for n in os.listdir(tmp_path) if not n.startswith("model.ckpt")} == others
    assert (tmp_path / "checkpoint").read_text() == _checkpoint_file("model.ckpt-3", "model.ckpt-4")
    assert (tmp_path / "model.ckpt-3.index").read_bytes() == good["model.ckpt-3.index"]


def test_an_old_checkpoint_is_named_until_it_is_deleted(tmp_path, monkeypatch):
    directory = _saved(tmp_path, 1, keep=1)
    state = tmp_path / "checkpoint"
    seen = []
    remove = tf.io.gfile.remove

    def look(path):
        seen.append((os.path.basename(path), state.read_text()))
        remove(path)

    monkeypatch.setattr(tf.io.gfile, "remove", look)
    directory.save(_variables(2), 2, _beside)
    both = _checkpoint_file("model.ckpt-1", "model.ckpt-2")
    deleted = [(name, text) for name, text in seen if name.startswith("model.ckpt-")]
    assert deleted[0] == ("model.ckpt-1.index", both)
    assert len(deleted) == 3 and {text for _, text in deleted} == {both}
    assert state.read_text() == _checkpoint_file("model.ckpt-2")


def _fail(*args, **kwargs):
    node = "{{function_node __wrapped__SaveV2_device_/job:localhost/device:CPU:0}} "
    text = f"{node}no space left on the device [Op:SaveV2] name: "
    raise tf.errors.ResourceExhaustedError(None, None, text)


def _fail_after_half(prefix, tensors):
    for suffix in (".index", ".data-00000-of-00001.tempstate123"):
        with open(prefix + suffix, "w") as writer:
            writer.write("half")
    _fail()


@pytest.mark.parametrize("where", ["write_beside", "an error of Python", "write", "checkpoint"])
@pytest.mark.parametrize("step", [3, 1])
def test_a_failed_save_leaves_the_earlier_ones(tmp_path, monkeypatch, where, step):
    directory = _saved(tmp_path, *range(1, step), keep=2)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if where == "write":
        monkeypatch.setattr(checkpoints, "write", _fail_after_half)
    elif where == "checkpoint":
        monkeypatch.setattr(tf.io.gfile, "rename", _fail)

    def beside(prefix):
        _beside(prefix)
        if where == "write_beside":
            _fail()
        if where == "an error of Python":
            raise OSError(28, "no space left on the device")

    then = f"resumes from {tmp_path}/model.ckpt-2"
    then = "starts over: there is no checkpoint yet" if step == 1 else then
    reason = "[Errno 28] " * (where == "an error of Python") + "no space left on the device"
    assert refusal(directory.save, _variables(step), step, beside, kind=OSError) == (
        f"The checkpoint of step {step} cannot be written to --output_dir={tmp_path} ({reason})."
        f" Make the directory writable and free some space; the same command then {then}."
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.undo()
    directory.save(_variables(step), step, _beside)
    assert _steps(tmp_path) == ([1] if step == 1 else [2, 3])


def test_a_file_that_cannot_be_deleted_is_named(tmp_path, monkeypatch, warnings):
    directory = _saved(tmp_path, 1, keep=1)
    monkeypatch.setattr(tf.io.gfile, "remove", _fail)
    directory.save(_variables(2), 2)
    assert len(warnings) == 3 and all("no space left" in text for text in warnings)
    assert warnings[0].startswith(f"{tmp_path}/model.ckpt-1.index cannot be deleted: ")
    assert directory.latest().endswith("model.ckpt-2")


@pytest.mark.parametrize("name", ["file", "file/below", "/dev/null", "/dev/full/x"])
def test_a_file_has_no_checkpoints_and_the_message_names_the_flag(tmp_path, name):
    (tmp_path / "file").write_text("text")
    folder = os.path.join(tmp_path, name)
    assert CheckpointDirectory(folder).latest() is None
    message = f"^--output_dir={folder} must be a writable directory with free space"
    refuses(message, storage.make_output_dir, folder)


def test_names_of_missing_checkpoints_beside_whole_ones(tmp_path, warnings):
    directory = _saved(tmp_path, 5)
    (tmp_path / "checkpoint").write_text(_checkpoint_file("model.ckpt-7", "model.ckpt-8"))
    assert directory.restore_latest(_variables()) == f"{tmp_path}/model.ckpt-5"
    assert len(warnings) == 3 and "model.ckpt-8: there is no such" in warnings[0]


def test_a_list_of_checkpoints_that_is_a_folder_is_refused(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    for look in (_saved(tmp_path).latest, lambda: _saved(tmp_path).restore_latest(_variables())):
        assert refusal(look).startswith(
            f"The file {tmp_path}/checkpoint names the checkpoints of this directory and must be"
            " readable: "
        )


@pytest.mark.parametrize("name", [b"\xe9", b"model.ckpt-1.\xff\xe8", b"model.ckpt-\xe9.index"])
def test_names_that_are_not_utf8_in_a_run_s_folder_do_no_harm(tmp_path, name):
    with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
        pass
    directory = _saved(tmp_path, 1, 3, 5, keep=2)
    directory.remove_left_behind()
    assert directory.latest() == f"{tmp_path}/model.ckpt-5"
    assert checkpoints.find_prefix(str(tmp_path)) == f"{tmp_path}/model.ckpt-5"
    left = os.listdir(os.fsencode(tmp_path))
    assert (name in left) == (not name.startswith(b"model.ckpt-1."))  # a file of that step
