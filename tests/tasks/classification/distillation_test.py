"""Tests of fine-tuning by a teacher: the loss against numpy, a run, wrong input."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.teacher import DistilledClassification
from tests.support.numpy_bert import log_softmax
from tests.support.objectives import compute, set_random_weights
from tests.support.pretraining_runs import CONFIG, assert_same_variables, variables
from tests.support.refusals import refuses
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import SIZES, write_reviews
from tests.support.small_pretraining import SMALL, make_inputs

pytestmark = pytest.mark.usefixtures("uncompiled")

BATCH = 5


def make_features(kind):
    rng = np.random.default_rng(0)
    labels = {
        "classes": rng.integers(0, 3, BATCH, np.int32),
        "regression": rng.normal(size=BATCH).astype("f"),
        "several": rng.integers(0, 2, (BATCH, 3), np.int32),
    }
    weights = np.array([1, 0, 1, 0.5, 1], np.float32)
    more = {"label_ids": labels[kind], "example_weight": weights}
    return {**make_inputs(batch_size=BATCH), **more}


def models(num_labels, **teacher):
    """Returns a student and a teacher with other sizes, with large random weights."""
    made = []
    for seed, changes in enumerate(({}, teacher)):
        model = ClassificationModel(BertConfig.from_dict({**SMALL, **changes}), num_labels)
        set_random_weights(model, seed)
        made.append(model)
    return made


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


@pytest.mark.parametrize("kind", ["classes", "regression", "several"])
def test_loss_against_numpy(kind):
    student, teacher = models(1 if kind == "regression" else 3, hidden_size=12, num_hidden_layers=1)
    for model in (student, teacher):
        model.is_multi_label = kind == "several"
    features = make_features(kind)
    alphas = {"ce": 0.7, "labels": 0.2, "cos": 0.0}
    objective = DistilledClassification(student, teacher, alphas, 3.0)
    tensors = {name: tf.constant(x) for name, x in features.items()}
    variables = [v.value for v in (*student.variables, *teacher.variables)]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        loss, sums = compute(objective, tensors)
    inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
    logits, targets = (np.asarray(model(*inputs), np.float64) for model in (student, teacher))
    labels, weights = features["label_ids"], features["example_weight"]
    if kind == "regression":
        soft = (logits - targets)[:, 0] ** 2
        hard = (logits[:, 0] - labels) ** 2
    elif kind == "classes":
        p, q = log_softmax(targets / 3.0), log_softmax(logits / 3.0)
        soft = 9.0 * (np.exp(p) * (p - q)).sum(-1)
        hard = -log_softmax(logits)[np.arange(BATCH), labels]
    else:
        pairs = [(x / 3.0, y / 3.0) for x, y in ((targets, logits), (-targets, -logits))]
        each = (np.exp(log_sigmoid(x)) * (log_sigmoid(x) - log_sigmoid(y)) for x, y in pairs)
        soft = 9.0 * sum(each).mean(-1)
        hard = -log_sigmoid(np.where(labels, logits, -logits)).mean(-1)
    expected = {"ce_loss": (weights * soft).sum(), "label_loss": (weights * hard).sum()}
    total = (0.7 * expected["ce_loss"] + 0.2 * expected["label_loss"]) / weights.sum()
    np.testing.assert_allclose(loss, total, rtol=1e-5)
    for name, value in expected.items():
        np.testing.assert_allclose(sums[name], (value, weights.sum()), rtol=1e-5)
    assert ("accuracy" in sums) == (kind != "regression")
    gradients = tape.gradient(loss, variables)
    count = len(student.variables)
    assert all(gradient is not None for gradient in gradients[:count])
    assert all(gradient is None for gradient in gradients[count:])


def test_the_vectors_of_all_tokens_against_numpy():
    """The student has two layers, the teacher one; the last layer counts, or both."""
    student, teacher = models(3, num_hidden_layers=1, intermediate_size=9)
    features = make_features("classes")
    inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
    *mine, theirs = (
        np.asarray(layer, np.float64)
        for model in (student, teacher)
        for layer in model.bert(*inputs).all_encoder_layers
    )
    weights = features["input_mask"] * features["example_weight"][:, None]
    sums = []
    for layer in mine:
        norms = np.linalg.norm(layer, axis=-1) * np.linalg.norm(theirs, axis=-1)
        sums.append((weights * (1 - (layer * theirs).sum(-1) / norms)).sum())
    features = {name: tf.constant(x) for name, x in features.items()}

    def outcome(alpha, all_layers):
        alphas = {"ce": 0.7, "labels": 0.2, "cos": alpha}
        options = {"cos_all_layers": all_layers}
        return compute(DistilledClassification(student, teacher, alphas, 3.0, **options), features)

    without, metrics = outcome(0.0, True)
    assert "cos_loss" not in metrics
    for all_layers, expected in ((False, sums[1]), (True, np.mean(sums))):
        loss, metrics = outcome(1.7, all_layers)
        np.testing.assert_allclose(metrics["cos_loss"], (expected, weights.sum()), rtol=1e-5)
        np.testing.assert_allclose(loss - without, 1.7 * expected / weights.sum(), rtol=1e-5)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """The table of reviews, and a teacher in a folder of its own."""
    folder = write_reviews(tmp_path_factory.mktemp("reviews"))
    run(folder, folder / "teacher", num_train_epochs=8.0)
    return folder


def run(folder, output_dir, student=None, **changes):
    """Returns the results of run_classifier.py with these flags."""
    flags = {**REVIEWS, "output_dir": output_dir, "max_seq_length": 28, "do_train": True}
    flags |= {"learning_rate": 5e-3, "train_batch_size": 8}
    return run_in(folder, "classification", student, **{**flags, **changes})


def test_a_student_learns_only_from_the_teacher_and_resumes(reviews, tmp_path):
    output_dir = tmp_path / "out"
    changes = {"teacher_checkpoint": f"{reviews}/teacher", "alpha_labels": 0.0, "alpha_ce": 1.0}
    changes |= {"num_train_epochs": 8.0, "save_checkpoints_steps": 60}
    changes["student"] = {"hidden_size": 12}
    results = run(reviews, output_dir, do_eval=True, **changes)
    assert results["eval_accuracy"] > 0.9
    names = {v.path for v in ClassificationModel(BertConfig(**{**CONFIG, **SIZES}), 2).variables}
    found = variables(output_dir / "model.ckpt-90")
    assert {name for name in found if "/adam_" not in name} == names | {"global_step"}
    shutil.copytree(output_dir, tmp_path / "before")
    os.truncate(output_dir / "model.ckpt-90.data-00000-of-00001", 1000)
    run(reviews, output_dir, **changes)
    assert_same_variables(output_dir, tmp_path / "before")


def test_a_student_begins_with_the_teacher_s_head(reviews, tmp_path):
    """Even if --init_checkpoint has a head; but a resumed run keeps its own."""
    sizes = {"intermediate_size": 9}
    other = ClassificationModel(BertConfig.from_dict({**CONFIG, **SIZES, **sizes}), 2)
    other = set_random_weights(other)
    checkpoints.write(f"{tmp_path}/other.ckpt", other)
    changes = {"teacher_checkpoint": f"{reviews}/teacher", "copy_teacher_head": True}
    changes |= {"init_checkpoint": f"{tmp_path}/other.ckpt", "student": sizes}
    run(reviews, tmp_path / "out", num_train_epochs=0.2, **changes)
    teacher, begun, ended = (
        variables(path)
        for path in (reviews / "teacher", tmp_path / "out/model.ckpt-0", tmp_path / "out")
    )
    head = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias", "output_weights", "output_bias"}
    for name in other:
        expected = teacher if name in head else other
        np.testing.assert_array_equal(begun[name], expected[name], err_msg=name)
        assert name not in head or (teacher[name] != ended[name]).any()
    run(reviews, tmp_path / "out", num_train_epochs=0.4, learning_rate=0.0, **changes)
    again = variables(tmp_path / "out")
    assert again["global_step"] > ended["global_step"]
    for name in head:
        np.testing.assert_array_equal(again[name], ended[name], err_msg=name)


WRONG = [
    (
        {"labels": ["good", "bad"]},
        "must have the classes of the task in the same order: its labels.txt has 'bad' and 1 more,"
        " and the task has 'good', 'bad'. Fine-tune the teacher for this task, or set --labels",
    ),
    (
        {"student": {"vocab_size": SIZES["vocab_size"] + 1}},
        "The student and its teacher must have the same vocabulary: vocab_size of",
    ),
    (
        {"teacher_checkpoint": "no/such.ckpt"},
        "--teacher_checkpoint=no/such.ckpt: there is no such folder, and no checkpoint",
    ),
    (
        {"alpha_ce": 0.0, "alpha_labels": 0.0},
        "At least one of --alpha_ce, --alpha_labels and --alpha_cos must be above 0",
    ),
    (
        {"alpha_cos": 1.0, "student": {"hidden_size": 12}},
        "The loss compares vectors, which must have the same size: hidden_size of"
        " --bert_config_file is 12",
    ),
    (
        {"copy_teacher_head": True, "student": {"hidden_size": 12}},
        "--copy_teacher_head needs a student and a teacher with the same hidden_size: the"
        " student's is 12, the teacher's 16. Change --bert_config_file",
    ),
    (
        {"do_lower_case": False},
        "/teacher must use the student's casing: do_lower_case in its tokenizer_config.json is"
        " true, but --do_lower_case=False. Choose another teacher",
    ),
]


@pytest.mark.parametrize("changes, message", WRONG, ids=range(len(WRONG)))
def test_wrong_input(reviews, tmp_path, changes, message):
    with pytest.raises(UserError, match=re.escape(message)):
        run(reviews, tmp_path / "out", **{"teacher_checkpoint": f"{reviews}/teacher", **changes})


def test_a_teacher_with_other_classes(reviews, tmp_path):
    """The teacher's folder does not name its classes; their number differs."""
    config = BertConfig.from_dict({**CONFIG, **SIZES})
    values = {v.path: v.value for v in ClassificationModel(config, 3).variables}
    checkpoints.write(str(tmp_path / "x.ckpt"), values)
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    message = r"(?s)check --teacher_config_file .* of classes .*output_bias: float32 \[3\] in the"
    refuses(message, run, reviews, tmp_path / "out", teacher_checkpoint=f"{tmp_path}/x.ckpt")


def test_several_classes_of_a_student_or_a_teacher(reviews, tmp_path):
    """`problem_type` in the configuration of a model whose examples have one class each."""
    config = {"problem_type": "multi_label_classification"}
    for flags in ({"do_train": True}, {"do_train": False, "do_eval": True}):
        with pytest.raises(UserError, match="a text can have several labels, but the examples hav"):
            run(reviews, tmp_path / "out", student=config, **flags)
    file = tmp_path / "multi.json"
    content = json.loads((reviews / "bert_config.json").read_text())
    file.write_text(json.dumps({**content, **config}))
    with pytest.raises(UserError, match="must have one class for each text, as the student does:"):
        teacher = {"teacher_checkpoint": f"{reviews}/teacher", "teacher_config_file": str(file)}
        run(reviews, tmp_path / "out", **teacher)

    # Predictions need no teacher, which is not read.
    shutil.copy(reviews / "dev.csv", reviews / "test.csv")
    flags = {"init_checkpoint": f"{reviews}/teacher", "teacher_checkpoint": "no/such"}
    found = []
    for name, student in (("one", {}), ("several", config)):
        more = {"student": student, "do_train": False, "do_predict": True}
        run(reviews, tmp_path / name, **flags, **more)
        found.append(np.loadtxt(tmp_path / name / "test_results.tsv"))
    one, several = found
    good = [line.endswith("good") for line in (reviews / "dev.csv").read_text().splitlines()[1:]]
    assert np.mean(one.argmax(axis=1) == good) > 0.9
    logits = np.log(several / (1 - several))
    np.testing.assert_allclose(np.exp(log_softmax(logits)), one, atol=1e-4)
    assert (abs(several.sum(axis=1) - 1) > 1e-3).any()
