"""Tests of run_distillation: a student from its teacher to a checkpoint, and wrong input."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.files import checkpoints
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import config_from_dict
from bert_tf.runs.folder import reporting
from bert_tf.tasks.pretraining.schema import UNMASKED
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.pretraining.training.run_distillation import run_distillation
from bert_tf.tasks.pretraining.training.settings import DistillationSettings
from tests.support.objectives import set_random_weights
from tests.support.pretraining_runs import (
    CONFIG,
    WORDS,
    assert_same_variables,
    run,
    settings_of_flags,
    variables,
    write_config,
    write_records,
)
from tests.support.refusals import refusal, refuses

pytestmark = pytest.mark.usefixtures("eager_if_quick")

LAYERS = 3


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Records, a teacher of three layers with its files, the configuration of a student of two."""
    folder = tmp_path_factory.mktemp("inputs")
    write_records(folder / "train.tfrecord", 60, 12, 2, seed=1)
    write_records(folder / "dev.tfrecord", 13, 12, 2, seed=2)
    write_teacher(folder / "teacher")
    write_config(folder / "bert_config.json", num_hidden_layers=2)
    return folder


def write_teacher(folder, without=(), **changes):
    """Writes a checkpoint with random weights, its configuration and vocabulary."""
    folder.mkdir()
    changes = {"num_hidden_layers": LAYERS, **changes}
    write_config(folder / "bert_config.json", **changes)
    weights = set_random_weights(PretrainingModel(config_from_dict({**CONFIG, **changes})), 4)
    values = {n: value for n, value in weights.items() if not n.startswith(tuple(without))}
    checkpoints.write(str(folder / "bert_model.ckpt"), values)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return str(folder / "bert_model.ckpt")


def distil(inputs, output_dir, student=None, **changes):
    """Returns the results of the call that the program makes with these flags."""
    flags = {
        "input_file": f"{inputs}/train.tfrecord",
        "teacher_checkpoint": f"{inputs}/teacher/bert_model.ckpt",
        **{"output_dir": str(output_dir), "do_train": True, "learning_rate": 1e-2},
        **{"num_warmup_steps": 2, "num_train_steps": 6, "train_batch_size": 8},
        **{"max_seq_length": 12, "max_predictions_per_seq": 2, **changes},
    }
    settings = settings_of_flags(DistillationSettings, **flags)
    config = config_from_dict({**CONFIG, "num_hidden_layers": 2, **(student or {})})
    return run_distillation(config, tf.distribute.get_strategy(), settings)


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """The output directory of a run that trains and evaluates."""
    output_dir = tmp_path_factory.mktemp("trained")
    flags = {"do_eval": True, "eval_input_file": f"{inputs}/dev.tfrecord", "eval_batch_size": 5}
    distil(inputs, output_dir, **flags, max_eval_steps=0, save_checkpoints_steps=3, alpha_mse=0.001)
    return output_dir


def test_the_student_is_a_bert_like_any_other(trained, inputs):
    config = BertConfig.from_json_file(str(trained / "bert_config.json"))
    assert config.num_hidden_layers == 2
    names = {v.path for v in PretrainingModel(config).variables}
    slots = {f"{name}/adam_{x}" for name in names for x in "mv"}
    assert set(variables(trained / "model.ckpt-6")) == names | slots | {"global_step"}
    assert (trained / "vocab.txt").read_text() == "\n".join(WORDS) + "\n"
    model = bert_tf.load(str(trained))
    assert len(model.fill_mask("w3 [MASK] w7", top_k=4)) >= 1
    results = reporting.read_results(f"{trained}/eval_results.txt")
    alphas = {"ce_loss": 5, "masked_lm_loss": 2, "cos_loss": 1, "mse_loss": 0.001}
    assert results.keys() == alphas.keys() | {"global_step", "loss", "masked_lm_accuracy"}
    # Not equal, because each batch has its own mean over positions.
    total = sum(results[name] * alpha for name, alpha in alphas.items())
    assert results["loss"] == pytest.approx(total, rel=0.02)


def test_it_begins_with_the_teachers_first_and_last_layer(trained, inputs):
    teacher = variables(inputs / "teacher" / "bert_model.ckpt")
    student = variables(trained / "model.ckpt-0")
    name = "bert/encoder/layer_{}/attention/self/query/kernel"
    for layer, source in ((0, 0), (1, LAYERS - 1)):
        np.testing.assert_array_equal(student[name.format(layer)], teacher[name.format(source)])
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        np.testing.assert_array_equal(student[name], teacher[name])
        assert (variables(trained / "model.ckpt-6")[name] != teacher[name]).any()


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits(trained, inputs, tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    output_dir = tmp_path / "out"
    shutil.copytree(trained, output_dir)
    os.truncate(output_dir / "model.ckpt-6.data-00000-of-00001", 1000)
    distil(inputs, output_dir, save_checkpoints_steps=3, alpha_mse=0.001)
    assert "The student begins with" not in caplog.text and "Resumed from" in caplog.text
    assert_same_variables(output_dir / "model.ckpt-6", trained / "model.ckpt-6")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind,teacher_layers,scope",
    [
        ({"model_type": "roberta"}, {}, "bert/encoder/layer_{}"),
        (
            {"embedding_size": 6, "num_hidden_groups": 2, "num_hidden_layers": 4},
            {"num_hidden_groups": 3, "num_hidden_layers": 6},
            "bert/encoder/transformer/group_{}/inner_group_0",
        ),
    ],
    ids=["roberta", "albert"],
)
def test_a_student_of_another_kind(inputs, tmp_path, kind, teacher_layers, scope):
    """It begins with the first and the last of its teacher's three layers, or groups of weights."""
    path = write_teacher(tmp_path / "teacher", **{**kind, **teacher_layers})
    os.remove(tmp_path / "teacher" / "vocab.txt")  # their vocabularies are other files
    distil(inputs, tmp_path / "out", kind, teacher_checkpoint=path)
    teacher = variables(path)
    begun, ended = (variables(tmp_path / "out" / f"model.ckpt-{step}") for step in (0, 6))
    found = [name for name in begun if name.startswith(scope.format(1))]
    assert len([name for name in found if "adam" not in name]) == 16
    for name, value in teacher.items():
        if name.startswith(scope.format(2)):
            name = name.replace(scope.format(2), scope.format(1))
        elif name.startswith(scope.format(1)):
            continue  # the layer in the middle
        if name in begun:
            np.testing.assert_array_equal(begun[name], value, err_msg=name)
    for part in (scope.format(0), scope.format(1), "bert/embeddings/word", "cls/predictions"):
        assert any((ended[name] != begun[name]).any() for name in begun if name.startswith(part))


@pytest.mark.slow
def test_masks_drawn_while_training_with_the_teachers_vocabulary(inputs, tmp_path):
    plain = tf.data.TFRecordDataset(f"{inputs}/train.tfrecord")
    with tf.io.TFRecordWriter(str(tmp_path / "unmasked.tfrecord")) as writer:
        for record in plain.as_numpy_iterator():
            example = tf.train.Example.FromString(record)
            for name in ("positions", "ids", "weights"):
                del example.features.feature[f"masked_lm_{name}"]
            starts = example.features.feature[UNMASKED].int64_list.value
            starts.extend(range(12))
            writer.write(example.SerializeToString())
    changes = {"input_file": f"{tmp_path}/unmasked.tfrecord", "dynamic_masking": True}
    distil(inputs, tmp_path / "out", **changes)
    assert variables(tmp_path / "out" / "model.ckpt-6")["global_step"] == 6


OTHER_WORDS = [*WORDS[:9], "other", *WORDS[10:]]
# Flags, and changes of the configurations of `student` and `teacher`; and part of the message.
WRONG = [
    (
        {"student": {"vocab_size": 39}},
        "The student and its teacher must have the same vocabulary: vocab_size of"
        " --bert_config_file is 39, and of the teacher (",
    ),
    (
        {"teacher": {"max_position_embeddings": 11}},
        "Sequences must not be longer than the teacher can read: they have 12 tokens, and"
        " max_position_embeddings of the teacher (",
    ),
    (
        {"teacher": {"type_vocab_size": 1}},
        "The teacher must know the segments of the student's records: type_vocab_size of"
        " --bert_config_file is 2, and of the teacher (",
    ),
    (
        {"student_layers": "0,3"},
        "must be none, or 2 of the teacher's layers, from 0 to 2",
    ),
    (
        {"student": {"hidden_size": 6}},
        "The loss compares vectors, which must have the same size: hidden_size of"
        " --bert_config_file is 6, and the teacher's is 8. Give --alpha_cos=0, or change"
        " --bert_config_file",
    ),
    (
        {"student": {"hidden_size": 6}, "alpha_cos": 0.0},
        "bert/embeddings/word_embeddings is [37, 6] by --bert_config_file, and [37, 8] in the"
        " teacher",
    ),
    (
        {"student": {"num_attention_heads": 4}},
        "num_attention_heads of --bert_config_file is 4, and the teacher's is 2",
    ),
    (
        {"student": {"model_type": "roberta"}},
        "only if both are models of the same kind (a DistilBERT counts as BERT):"
        " --bert_config_file describes RoBERTa, and the teacher is BERT. Change --bert_config_file,"
        " or give --student_layers=none for random initial weights, or --init_checkpoint",
    ),
    (
        {"student": {"num_hidden_groups": 1, "num_hidden_layers": 4}, "alpha_cos": 0.0},
        "describes ALBERT, and the teacher is BERT",
    ),
    (
        {"teacher_checkpoint": "no/such.ckpt"},
        "--teacher_checkpoint=no/such.ckpt: there is no such folder, and no checkpoint",
    ),
    (
        {"teacher_config_file": "no/such.json"},
        "The BERT configuration no/such.json cannot be read (no/such.json; No such file or"
        " directory); check --teacher_config_file.",
    ),
    (
        dict.fromkeys(("alpha_ce", "alpha_mlm", "alpha_cos"), 0.0),
        "At least one of --alpha_ce, --alpha_mlm, --alpha_cos and --alpha_mse must be above 0",
    ),
    ({"temperature": 0.0}, "--temperature=0.0 must be a finite number above 0"),
    (
        {"vocab_file": "other.txt"},
        "every token in the same line as the vocabulary of --teacher_checkpoint: 'w4'",
    ),
]


@pytest.mark.parametrize("changes,message", WRONG, ids=range(len(WRONG)))
def test_wrong_input(inputs, tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").write_text("\n".join(OTHER_WORDS) + "\n")
    changes = dict(changes)
    if "teacher" in changes:
        teacher = write_teacher(tmp_path / "teacher", **changes.pop("teacher"))
        changes["teacher_checkpoint"] = teacher
    assert message in refusal(distil, inputs, tmp_path / "out", **changes)
    assert not tf.io.gfile.glob(f"{tmp_path}/out/model.ckpt*")


@pytest.mark.slow
def test_two_replicas_begin_with_the_same_weights_and_end_with_finite_ones(inputs, tmp_path):
    log = run(
        *(f"--input_file={inputs}/train.tfrecord", f"--bert_config_file={inputs}/bert_config.json"),
        *(f"--output_dir={tmp_path}/out", "--do_train", "--max_seq_length=12"),
        *(f"--teacher_checkpoint={inputs}/teacher", "--num_train_steps=5"),
        *("--train_batch_size=8", "--student_layers=2,1", "--distribution_strategy=mirrored"),
        *("--num_cpu_devices=2", "--max_predictions_per_seq=2"),
        program="run_distillation.py",
    )
    assert "The student begins with the teacher's layers [2, 1]" in log
    teacher = variables(inputs / "teacher" / "bert_model.ckpt")
    student = variables(tmp_path / "out" / "model.ckpt-0")
    name = "bert/encoder/layer_{}/output/dense/kernel"
    for layer, source in ((0, 2), (1, 1)):
        np.testing.assert_array_equal(student[name.format(layer)], teacher[name.format(source)])
    assert variables(tmp_path / "out" / "model.ckpt-5")["global_step"] == 5


def test_a_teacher_without_a_head_a_vocabulary_or_a_configuration(inputs, tmp_path):
    path = write_teacher(tmp_path / "teacher", without=["cls/predictions/"])
    given = {"teacher_checkpoint": path}
    assert (
        f"--teacher_checkpoint={path} must have every weight that the outputs of this model depend"
        " on; it lacks 'cls/predictions/output_bias', 'cls/predictions/transform/"
    ) in refusal(distil, inputs, tmp_path / "out", **given)
    os.remove(tmp_path / "teacher" / "vocab.txt")
    message = "--dynamic_masking needs --vocab_file, since there is no"
    refuses(message, distil, inputs, tmp_path / "out", dynamic_masking=True, **given)
    os.remove(tmp_path / "teacher" / "bert_config.json")
    told = refusal(distil, inputs, tmp_path / "out", **given)
    assert (
        f"--teacher_checkpoint={path} must have bert_config.json or albert_config.json, which the"
        f" model was trained with; {tmp_path}/teacher has none. Copy the file there, or give"
        " --teacher_config_file"
    ) == told


@pytest.mark.slow
def test_a_teacher_without_a_head_teaches_by_its_vectors(inputs, tmp_path):
    path = write_teacher(tmp_path / "teacher", without=["cls/predictions/"])
    distil(inputs, tmp_path / "out", teacher_checkpoint=path, alpha_ce=0.0, num_train_steps=1)
    student = variables(tmp_path / "out" / "model.ckpt-0")
    assert np.abs(student["cls/predictions/transform/dense/kernel"]).max() <= 0.04  # random


@pytest.mark.parametrize("flag", ["output_dir", "init_checkpoint"])
def test_another_vocabulary_than_the_student_s(inputs, tmp_path, flag):
    path = write_teacher(tmp_path / "teacher", num_hidden_layers=1)
    os.remove(tmp_path / "teacher" / "vocab.txt")
    student = tmp_path / "student"
    student.mkdir()
    checkpoints.write(f"{student}/model.ckpt-2", {"x": np.zeros(1, np.float32)})
    (student / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    (student / "vocab.txt").write_text("\n".join(OTHER_WORDS) + "\n")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    given = {"teacher_checkpoint": path, "vocab_file": f"{tmp_path}/vocab.txt", "alpha_cos": 0.0}
    if flag == "init_checkpoint":
        given |= {flag: str(student), "student_layers": None}
    else:
        given |= {"student_layers": "none"}
    message = f"every token in the same line as the vocabulary of --{flag}: 'other' is in line 10"
    refuses(message, distil, inputs, student if flag == "output_dir" else tmp_path / "out", **given)
