"""Tests of bert_tf.files.checkpoints."""

import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.files import checkpoints
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from tests.support.arrays import assert_same_arrays
from tests.support.refusals import refusal, refuses


def _variables(start=0.0):
    """Returns variables by name as a small model and its optimizer have them."""

    def variable(shape, dtype, offset):
        values = np.arange(np.prod(shape, dtype=int)).reshape(shape) + start + offset
        return tf.Variable(values.astype(dtype))

    return {
        "bert/embeddings/word_embeddings": variable((5, 3), np.float32, 0.5),
        "bert/embeddings/word_embeddings/adam_m": variable((5, 3), np.float32, 0.25),
        "bert/embeddings/word_embeddings/adam_v": variable((5, 3), np.float32, 0.125),
        "output_bias": variable((2,), np.float32, 0.75),
        "output_bias/adam_m": variable((2,), np.float32, 7.0),
        "output_bias/adam_v": variable((2,), np.float32, 8.0),
        "global_step": variable((), np.int64, 12),
    }


def _weights(variables):
    return {n: v for n, v in variables.items() if not checkpoints.SLOT_PATTERN.match(n)}


def _values(variables):
    return {name: variable.numpy() for name, variable in variables.items()}


def _write(path, variables=None):
    checkpoints.write(str(path), variables or _variables())
    return str(path)


def test_a_tf1_program_loads_it(tmp_path):
    variables = _variables()
    prefix = _write(tmp_path / "model.ckpt-12", variables)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = {
            name: tf.compat.v1.get_variable(name, v.shape, v.dtype) for name, v in variables.items()
        }
        tf.compat.v1.train.Saver().restore(session, prefix)
        values = session.run(loaded)
    assert_same_arrays(values, variables)


def _save_as_tf1(prefix, variables, partitions=None, **saver_arguments):
    values = _values(variables)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in values.items():
            split = partitions if value.ndim == 2 else None

            def initializer(shape, dtype, partition_info=None, value=value):
                offsets = partition_info.var_offset if partition_info else [0] * value.ndim
                return value[tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))]

            tf.compat.v1.get_variable(
                name,
                value.shape,
                value.dtype,
                initializer,
                partitioner=split and tf.compat.v1.fixed_size_partitioner(split),
            )
        session.run(tf.compat.v1.global_variables_initializer())
        return tf.compat.v1.train.Saver(**saver_arguments).save(session, str(prefix))


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("sharded", [False, True])
def test_the_checkpoint_of_a_tf1_program_is_read(tmp_path, partitions, sharded):
    prefix = _save_as_tf1(tmp_path / "model.ckpt-12", _variables(), partitions, sharded=sharded)
    assert os.path.exists(prefix + ".meta")
    for path in (prefix, str(tmp_path), prefix + ".meta"):
        variables = _variables(100.0)
        checkpoints.restore(variables, path)
        assert_same_arrays(variables, _variables())


def test_every_way_to_name_a_checkpoint(tmp_path):
    directory = CheckpointDirectory(str(tmp_path))
    directory.save(_variables(), 5)
    prefix = directory.save(_variables(), 12)
    of_files = [prefix + suffix for suffix in ("", ".index", ".data-00000-of-00001")]
    for path in (*of_files, str(tmp_path), f"{tmp_path}/"):
        assert os.path.normpath(checkpoints.find_prefix(path)) == prefix


@pytest.mark.parametrize("name", ["a]", "run*", "run?", "a\\b", "[!a] [a-c]", "x//y["])
def test_a_folder_whose_name_looks_like_a_pattern(tmp_path, name):
    for beside in ("lr=1", "run1", "b", "d b"):  # what the patterns match
        (tmp_path / beside).mkdir()
    folder = f"{tmp_path}/{name}"
    os.makedirs(folder)
    prefix = _write(f"{folder}/m[1].ckpt")
    for path in (folder, prefix, f"{prefix}.index"):
        assert checkpoints.find_prefix(path) == prefix
    for ending in ("index", "data-00000-of-00001"):  # of the input's place, in a run
        open(f"{prefix}.input.{ending}", "w").close()
    found = _weights(_variables(100.0))
    assert checkpoints.initialize(found, prefix) == [*found]
    assert_same_arrays(_values(found), _values(_weights(_variables())))
    reader = checkpoints.CheckpointReader(prefix)
    reader.prefix = "gs://bucket/[a]/model"
    begin = "--teacher_checkpoint=gs://bucket/[a]/model must not contain [, *, ?"
    assert refusal(reader._readable, "teacher_checkpoint").startswith(begin)
    os.remove(f"{prefix}.index")
    assert refusal(checkpoints.find_prefix, prefix).startswith(f"--init_checkpoint={prefix}: a che")


def test_a_checkpoint_that_is_not_there(tmp_path):
    path = str(tmp_path / "no" / "bert_model.ckpt")
    assert refusal(checkpoints.find_prefix, path) == (
        f"--init_checkpoint={path}: there is no such folder, and no checkpoint with that prefix"
    )
    (tmp_path / "minilm").mkdir()
    near = f" that prefix. Similar names: '{tmp_path}/minilm'"
    assert near in refusal(checkpoints.find_prefix, str(tmp_path / "minlm" / "bert_model.ckpt"))
    (tmp_path / "vocab.txt").touch()
    assert refusal(checkpoints.find_prefix, f"{tmp_path}/vocab.txt") == (
        f"--init_checkpoint={tmp_path}/vocab.txt is a file, not a checkpoint; give the folder that"
        " it is in, or name a prefix such as MODEL/bert_model.ckpt, or the directory of a run"
    )
    message = f"^--checkpoint={path}: there is no such folder"
    refuses(message, checkpoints.CheckpointReader, path, "checkpoint")
    message = "--init_checkpoint=nosuch://x: .* not support nosuch"
    refuses(message, checkpoints.find_prefix, "nosuch://x")
    for suffix in (".index", ".data-00000-of-00001"):
        os.remove(_write(tmp_path / "half.ckpt") + suffix)
        missing = f"not found: {tmp_path}/half.ckpt{suffix.replace('00001', '*')}. Name a prefix"
        assert missing in refusal(checkpoints.initialize, {}, f"{tmp_path}/half.ckpt")


def test_a_directory_without_the_file_checkpoint(tmp_path):
    message = (
        f"--init_checkpoint={tmp_path} is a directory without a file `checkpoint` that names the"
        " newest checkpoint; "
    )
    name_one = "name a prefix such as MODEL/bert_model.ckpt, or the directory of a run"
    assert refusal(checkpoints.find_prefix, str(tmp_path)) == message + name_one
    prefix = _write(tmp_path / "bert_model.ckpt")
    assert checkpoints.find_prefix(str(tmp_path)) == prefix
    _write(tmp_path / "other.ckpt")
    expected = message + "choose one of bert_model.ckpt, other.ckpt"
    assert refusal(checkpoints.find_prefix, str(tmp_path)) == expected


@pytest.mark.parametrize("config", [None, "bert_config.json", "albert_config.json"])
def test_a_run_s_directory_stands_for_its_best_checkpoint(tmp_path, caplog, config):
    """A folder of that name with a configuration is another model."""
    for step, folder in ((7, tmp_path), (4, tmp_path / "best")):
        folder.mkdir(exist_ok=True)
        checkpoints.write(f"{folder}/model.ckpt-{step}", {"x": np.zeros(1, np.float32)})
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    if config:
        (tmp_path / "best" / config).touch()
    expected = tmp_path / ("model.ckpt-7" if config else "best/model.ckpt-4")
    assert checkpoints.find_prefix(str(tmp_path)) == str(expected)
    assert checkpoints.find_prefix(f"{tmp_path}/model.ckpt-7") == f"{tmp_path}/model.ckpt-7"
    caplog.set_level("INFO", "absl")
    checkpoints.initialize({"x": tf.Variable([1.0])}, str(tmp_path))
    assert caplog.text.endswith(f"Initialised 1 variables from {expected}\n")


def test_damaged_files_are_refused(tmp_path):
    prefix = _write(tmp_path / "bert_model.ckpt", {"a": np.arange(3000.0)})
    data = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    content = data.read_bytes()
    message = f"--init_checkpoint={prefix} is damaged, .*: "
    for damaged in (content[:1000], content[:1000] + b"x" + content[1001:]):
        data.write_bytes(damaged)
        variables = {"a": tf.Variable(np.zeros(3000))}
        refuses(f"{message}a cannot be read [(]", checkpoints.initialize, variables, prefix)
        refuses(f"--output_dir={prefix} is damaged", checkpoints.restore, variables, prefix)
        assert not variables["a"].numpy().any()
    for suffix in (".index", ".data-00000-of-00001"):
        (tmp_path / f"bert_model.ckpt{suffix}").write_bytes(b"garbage" * 99)
    refuses(f"{message}cannot be read ", checkpoints.CheckpointReader, prefix)


def test_initialize_takes_weights_and_lists_what_differs(tmp_path, warnings):
    saved = {**_variables(), "cls/squad/output_weights": tf.Variable([1.0])}
    prefix = _write(tmp_path / "bert_model.ckpt", saved)
    variables = _weights(_variables(100.0))
    variables |= {"output_weights": tf.Variable([3.0]), "classifier/bias": tf.Variable([4.0])}
    before = _values(variables)
    names = checkpoints.initialize(variables, prefix)
    assert names == ["bert/embeddings/word_embeddings", "output_bias"]
    assert_same_arrays(variables, {**before, **{name: saved[name] for name in names}})
    assert warnings == [  # slots and the step are not "unexpected"
        f"Not in --init_checkpoint={prefix}, so left at their initial values:"
        " \n  output_weights\n  classifier/bias",
        f"Only in --init_checkpoint={prefix}, so not used: \n  cls/squad/output_weights",
    ]


def test_initialize_refuses_another_model(tmp_path):
    names = ["bert/pooler/dense/bias", "bert/encoder/transformer/a", "bert/encoder/transformer/b"]
    prefix = _write(tmp_path / "x", {name: np.float32([1]) for name in names})
    variables = {name: tf.Variable([7.0]) for name in (names[0], "bert/encoder/layer_0/c")}
    assert refusal(checkpoints.initialize, variables, prefix) == (
        f"--init_checkpoint={prefix} must be the kind of model that --bert_config_file describes."
        " The model's encoder has bert/encoder/layer_0/c and 0 more; the checkpoint's encoder has"
        " none of these, but bert/encoder/transformer/a and 1 more"
    )
    assert variables[names[0]].numpy() == [7.0]
    # A checkpoint without an encoder, such as a head's, is taken.
    prefix = _write(tmp_path / "y", {names[0]: np.float32([1])})
    assert checkpoints.initialize(variables, prefix) == names[:1]
    prefix = _write(tmp_path / "x", {"a": np.float32([1]), "b/adam_m": np.float32([2])})
    variables = {"c": tf.Variable([0.0]), "d": tf.Variable([0.0])}
    assert refusal(checkpoints.initialize, variables, prefix) == (
        f"--init_checkpoint={prefix} has none of the model's variables.\n"
        "Missing: \n  c\n  d\nUnexpected: \n  a"
    )


DIFFERENT = (
    " does not fit the configuration; check --bert_config_file (vocab_size is the first dimension"
    " of embeddings/word_embeddings) and the number of classes (the first dimension of"
    " output_weights).\nDifferent: "
    "\n  bert/embeddings/word_embeddings: float32 [5, 3] in the checkpoint, float32 [3, 5] in the"
    " model\n  output_bias: float32 [2] in the checkpoint, float64 [2] in the model"
)


def test_other_shapes_and_types_are_refused(tmp_path):
    for action, checkpoint in (
        (checkpoints.initialize, "--init_checkpoint={}"),
        (checkpoints.restore, "The checkpoint {} in --output_dir"),
    ):
        prefix = _write(tmp_path / "model.ckpt-12")
        variables = _variables(100.0)
        variables["bert/embeddings/word_embeddings"] = tf.Variable(np.zeros((3, 5), np.float32))
        variables["output_bias"] = tf.Variable(np.zeros(2, np.float64))
        before = _values(variables)
        assert refusal(action, variables, prefix) == checkpoint.format(prefix) + DIFFERENT
        assert_same_arrays(variables, before)


def test_a_copy_without_the_head_initialises_a_model_of_other_classes(tmp_path):
    # As docs/albert.md tells, to begin with a checkpoint of MNLI.
    path = _write(tmp_path / "tuned.ckpt")
    variables = {**_weights(_variables(100.0)), "output_bias": tf.Variable(np.zeros(3, "f"))}
    refuses("number of classes", checkpoints.initialize, variables, path)
    weights = checkpoints.CheckpointReader(path).read_weights()
    del weights["output_bias"]
    copy = _write(tmp_path / "copy.ckpt", weights)
    assert checkpoints.initialize(variables, copy) == ["bert/embeddings/word_embeddings"]
    np.testing.assert_array_equal(variables["output_bias"], [0, 0, 0])


def test_restore_needs_every_variable_and_names_what_it_leaves_aside(tmp_path, warnings):
    saved = _variables()
    del saved["output_bias/adam_m"], saved["global_step"]
    saved["extra"] = tf.Variable([1.0])
    prefix = _write(tmp_path / "model.ckpt-3", saved)
    variables = _variables(100.0)
    before = _values(variables)
    assert refusal(checkpoints.restore, variables, prefix).startswith(
        f"The checkpoint {prefix} in --output_dir must hold every variable of this run,"
        " which resumes from it.\nMissing: \n  output_bias/adam_m\n  global_step\n"
        "Unexpected: \n  extra\n"
    )
    assert_same_arrays(variables, before)
    prefix = _write(tmp_path / "model.ckpt-12", {**_variables(), "extra": np.float32([1])})
    variables = _variables(100.0)
    checkpoints.restore(variables, prefix)
    assert_same_arrays(variables, _variables())
    assert warnings == [f"Only in {prefix}, so not used: \n  extra"]


@pytest.mark.parametrize("name", ["generator/encoder/layer_0/x", "generator_predictions/bias"])
def test_restore_tells_where_a_generator_s_sizes_come_from(tmp_path, name):
    prefix = _write(tmp_path / "model.ckpt-3")
    variables = {**_variables(), name: tf.Variable([1.0])}
    assert (
        "which resumes from it. The generator's sizes are --generator_hidden_size and"
        f" --generator_layers.\nMissing: \n  {name}\n"
    ) in refusal(checkpoints.restore, variables, prefix)


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path):
    for value in (np.nan, np.inf):
        weights = {"b": np.float32([[1, value, 2], [value, 3, 4]]), "a": np.float32([1])}
        prefix = _write(tmp_path / "bert_model.ckpt", weights)
        variables = {"b": tf.Variable(np.zeros((2, 3), np.float32))}
        kind = checkpoints.DamagedCheckpointError
        assert refusal(checkpoints.initialize, variables, prefix, kind=kind) == (
            f"--init_checkpoint={prefix}: every weight must be a finite number, but 2 of 6 in b"
            " are not"
        )
        assert not variables["b"].numpy().any()


@pytest.mark.parametrize(
    ("name", "step", "rule"),
    [("bert_model.ckpt", -1, "at least 0"), ("model.ckpt-20", 10, "20, as the files' names say")],
)
def test_a_step_that_cannot_be_is_refused(tmp_path, name, step, rule):
    prefix = _write(tmp_path / name, {"global_step": np.int64(step)})
    message = f"global_step must be {rule}, and is {step}; these may be the files of"
    with pytest.raises(checkpoints.DamagedCheckpointError, match=message):
        checkpoints.restore({"global_step": tf.Variable(np.int64(0))}, prefix)
