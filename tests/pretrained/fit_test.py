"""Tests of training from Python: the program's weights, its figures, and what is refused."""

import copy
import csv
import json
import pickle
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.files import checkpoints
from bert_tf.pretrained.folder import read_folder
from bert_tf.runs.folder.reporting import read_results
from bert_tf.runs.training.watch import CallbackWatch
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.rows import ClassificationRows
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.course import make_task
from tests.pretrained.fit_examples_test import CLASSES, NAMES, TEXTS
from tests.support.arrays import assert_same_arrays
from tests.support.pretraining_runs import run_forked
from tests.support.refusals import refusal
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import write_reviews

pytestmark = pytest.mark.usefixtures("uncompiled")

FLAGS = {"max_seq_length": 24, "train_batch_size": 32, "num_train_epochs": 2.0}
FLAGS |= {"learning_rate": 5e-3, "do_train": True, "length_buckets": "none"}
OPTIONS = {name: FLAGS[name] for name in FLAGS if name != "do_train"} | {"verbose": 0}
FOLDS = ClassifierSettings(vocab_file="v", output_dir="o", do_train=True, do_eval=True, folds=3)


def table(folder, name):
    with open(folder / f"{name}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["review"] for row in rows], [row["stars"] for row in rows]


def assert_same_weights(*paths):
    one, other = (checkpoints.CheckpointReader(str(path)).read_weights() for path in paths)
    assert_same_arrays(one, other)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """The tables of reviews, and a model that was only pre-trained."""
    folder = write_reviews(tmp_path_factory.mktemp("reviews"))
    config = bert_tf.BertConfig.from_json_file(f"{folder}/bert_config.json")
    bert = [v for v in ClassificationModel(config, 2).variables if v.path.startswith("bert/")]
    checkpoints.write(f"{folder}/bert_model.ckpt", {v.path: v.numpy() for v in bert})
    return folder


@pytest.fixture(scope="module")
def untrained(reviews):
    return bert_tf.load(reviews)


class Events(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_begin(self, epoch, logs=None):
        self.seen.append(f"epoch {epoch} of {self.params['epochs']}: {self.params['steps']} steps")

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(batch)

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append("end")


@pytest.fixture(scope="module")
def trained(reviews):
    """Returns the model that `fit` trained, its history, and the events of its callbacks."""
    model = bert_tf.load(reviews).for_classification()
    settings = ClassifierSettings(output_dir="/unused", vocab_file="/unused", **FLAGS)
    events = Events()
    history = model.fit(
        *table(reviews, "train"),
        validation_data=table(reviews, "dev"),
        settings=settings,
        output_dir=reviews / "fitted",
        callbacks=[events],
        verbose=0,
    )
    return model, history.history, events.seen


def test_fit_ends_with_the_program_s_weights_bit_for_bit(reviews, trained):
    """Also if it evaluates after each epoch and the program does not."""
    flags = {**REVIEWS, **FLAGS, "init_checkpoint": f"{reviews}/bert_model.ckpt", "do_eval": True}
    run_in(reviews, "classification", output_dir=reviews / "program", **flags)
    assert_same_weights(reviews / "program", reviews / "fitted")
    names = ("train.tf_record", "labels.txt", "vocab.txt", "bert_config.json", "model_input.json")
    for name in names:
        both = [(reviews / folder / name).read_bytes() for folder in ("program", "fitted")]
        assert both[0] == both[1], name
    figures = read_results(f"{reviews}/program/eval_results.txt")
    for name in ("loss", "accuracy", "f1"):
        assert trained[1][f"val_{name}"][-1] == pytest.approx(figures[f"eval_{name}"], rel=1e-6)


def test_callbacks_are_called_as_by_keras(trained):
    """90 examples in batches of 32 are 5 steps in 2 epochs, the first of 2 steps."""
    _, history, seen = trained
    assert seen == ["epoch 0 of 2: 2 steps", 0, 1, "end", "epoch 1 of 2: 3 steps", 0, 1, 2, "end"]
    assert {"loss", "accuracy", "learning_rate", "val_loss", "val_accuracy"} <= {*history}
    assert {len(values) for values in history.values()} == {2}
    assert history["learning_rate"] == pytest.approx([4e-3, 1e-3])  # of 5e-3, linear to 0


def test_the_trained_model_answers_and_is_saved(reviews, trained, tmp_path):
    model, history, _ = trained
    texts, labels = table(reviews, "dev")
    assert (model.heads, model.labels) == (("classification",), ("bad", "good"))
    assert model.max_seq_length == 24
    found = model.evaluate(texts, labels)
    assert found["loss"] == pytest.approx(history["val_loss"][-1], rel=1e-6)
    assert found["accuracy"] == found.report["accuracy"] == history["val_accuracy"][-1]
    assert {*found.report["classes"]} == {"bad", "good"}
    assert re.search(r"accuracy: [01]\.\d{4}\n(.|\n)*\nconfusion matrix: ", str(found))
    answers = model.classify(texts)
    right = [x.label == y for x, y in zip(answers, labels, strict=True)]
    assert np.mean(right) == found["accuracy"]
    rows = [[*answer.probabilities.values()] for answer in answers]
    np.testing.assert_array_equal(model.predict(texts), rows)
    for _ in range(2):  # it may be saved over an earlier save
        model.save(tmp_path / "saved")
    again = bert_tf.load(tmp_path / "saved")
    assert again.classify(texts) == answers
    assert (again.labels, again.max_seq_length) == (model.labels, 24)
    assert json.loads((tmp_path / "saved/model_input.json").read_text())["reads"] == "texts"
    assert pickle.loads(pickle.dumps(again)).labels == again.labels
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # with its weights
        assert copied.classify(texts) == answers and copied.max_seq_length == 24
    assert copied.evaluate(texts, labels) == found
    assert copy.copy(copied).classify(texts) == answers
    copied.save(tmp_path / "copied")  # its files are gone, its weights are not
    assert_same_weights(tmp_path / "copied", tmp_path / "saved")
    told = refusal(model.save, reviews)
    assert re.search("folder=.* must be .* or one that save wrote", told)


def test_an_untrained_model_for_a_task_is_not_saved(untrained, trained, tmp_path):
    """It has no head: an encoder alone would be written."""
    for model in (
        *(untrained.for_classification(["bad", "good"]), untrained.for_regression()),
        *(untrained.for_tagging(), untrained.for_answers(), trained[0].for_multiple_choice()),
    ):
        told = refusal(model.save, tmp_path / "saved")
        assert told == "save needs a trained model; call fit first"
    assert not (tmp_path / "saved").exists()
    trained[0].for_classification(["bad", "good"]).save(tmp_path / "head")  # has its head
    untrained.for_sentences().save(tmp_path / "vectors")  # needs none
    assert read_folder(str(tmp_path / "head")).heads == ("classification",)
    assert read_folder(str(tmp_path / "vectors")).heads == ()


@pytest.mark.slow
def test_training_resumes_and_stops(reviews, tmp_path):
    """A callback stops after the first epoch; fit goes on from there, to the same weights."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    data = table(reviews, "train")
    options = {**OPTIONS, "output_dir": tmp_path}
    model = bert_tf.load(reviews).for_classification(["bad", "good"])
    history = model.fit(*data, callbacks=Stop(), **options)
    assert len(history.history["loss"]) == 1
    resumed = bert_tf.load(reviews).for_classification(["bad", "good"])
    assert len(resumed.fit(*data, **options).history["loss"]) == 1
    whole = bert_tf.load(reviews).for_classification(["bad", "good"])
    whole.fit(*data, **{**options, "output_dir": None})
    for one, two in zip(resumed.model.variables, whole.model.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy(), one.path)
    assert resumed.fit(*data, **options).history == {}  # nothing is left to train


@pytest.mark.slow
def test_early_stopping_keeps_the_best_weights_in_the_folder(reviews, tmp_path):
    """Also if it does not stop; and the same call again trains nothing more."""
    data, dev = table(reviews, "train"), table(reviews, "dev")
    options = dict(OPTIONS)

    class Worse(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["got_worse"] = float(epoch)

    for name, patience, epochs in (("stops", 1, 4.0), ("whole", 9, 3.0)):
        early = keras.callbacks.EarlyStopping("got_worse", patience=patience, mode="min")
        early.restore_best_weights = True
        options |= {"output_dir": tmp_path / name, "num_train_epochs": epochs}
        options |= {"callbacks": [Worse(), early], "validation_data": dev}
        model = bert_tf.load(reviews).for_classification(["bad", "good"])
        history = model.fit(*data, **options).history["loss"]
        assert len(history) == {"stops": 2, "whole": 3}[name]
        weights = {v.path: v.numpy() for v in model.model.variables}
        best = {v.path: w for v, w in zip(early.model.variables, early.best_weights, strict=True)}
        again = bert_tf.load(reviews).for_classification(["bad", "good"])
        assert again.fit(*data, **options).history == {}
        loaded = bert_tf.load(tmp_path / name)
        for path, weight in weights.items():
            for found in (*(again.model, loaded.model),):
                (value,) = (v.numpy() for v in found.variables if v.path == path)
                np.testing.assert_array_equal(value, weight, path)
            np.testing.assert_array_equal(best[path], weight, path)
    texts = dev[0][:3]
    assert again.classify(texts) == loaded.classify(texts) == model.classify(texts)
    stopped = {**options, "output_dir": tmp_path / "stops", "num_train_epochs": 4.0}
    resumed = bert_tf.load(reviews).for_classification(["bad", "good"])
    assert len(resumed.fit(*data, **{**stopped, "callbacks": ()}).history["loss"]) == 2


@pytest.mark.slow
def test_weights_are_those_of_the_program(untrained, reviews, tmp_path):
    """Of classes by name or number as by --class_weights, of examples as by --weight_column."""
    texts, labels = table(reviews, "train")
    options = OPTIONS
    weights = np.array([3.0 if label == "good" else 1.0 for label in labels])
    found = []
    for chosen in (
        {"class_weight": {1: 3, "bad": 1}},
        {"class_weights": ["1", "3"]},
        {"sample_weight": weights},
        {},
    ):
        model = untrained.for_classification()
        model.fit(texts, labels, **options, **chosen)
        found.append({v.path: v.numpy() for v in model.model.variables})
    for name, value in found[0].items():
        for other in found[1:3]:
            np.testing.assert_array_equal(other[name], value, name)
    assert not np.array_equal(found[3]["output_bias"], found[0]["output_bias"])
    weighted = model.evaluate(texts, labels, sample_weight=weights)
    assert weighted["loss"] != model.evaluate(texts, labels)["loss"]


def check_two_replicas(strategy, reviews, folder):
    """The program and `fit` under the same strategy, in a process whose CPU is two devices."""
    reviews, folder = Path(reviews), Path(folder)
    flags = {**REVIEWS, **FLAGS, "init_checkpoint": f"{reviews}/bert_model.ckpt"}
    run_in(reviews, "classification", strategy=strategy, output_dir=folder / "program", **flags)
    model = bert_tf.load(reviews).for_classification()
    options = dict(OPTIONS)
    early = keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)
    data = table(reviews, "train")
    model.fit(*data, strategy=strategy, output_dir=folder / "fitted", **options)
    assert_same_weights(folder / "program", folder / "fitted")
    found = model.evaluate(*table(reviews, "dev"), strategy=strategy)
    assert found["loss"] == pytest.approx(model.evaluate(*table(reviews, "dev"))["loss"], rel=1e-5)
    with strategy.scope():  # the current strategy; and callbacks see a model on two devices
        options |= {"callbacks": early, "output_dir": folder / "scope"}
        model = bert_tf.load(reviews).for_classification()
        model.fit(*data, validation_data=table(reviews, "dev"), **options)
    loaded = {v.path: v.numpy() for v in bert_tf.load(folder / "scope").model.variables}
    for variable in model.model.variables:
        np.testing.assert_array_equal(variable.numpy(), loaded[variable.path], variable.path)


@pytest.mark.slow
def test_weights_on_two_replicas_are_the_program_s(reviews, tmp_path):
    code = (
        "import sys; from bert_tf.engine import distribution;"
        " strategy = distribution.get_strategy('mirrored', num_cpu_devices=2);"
        " from tests.pretrained.fit_test import check_two_replicas;"
        " check_two_replicas(strategy, *sys.argv[1:])"
    )
    run_forked(code, reviews, tmp_path)


def test_predict_ignores_nothing(trained):
    model, *_ = trained
    for options, message in (
        ({"bogus": 3}, "bogus must be an option of predict: one of 'long_text'"),
        ({"long_text": "nonsense"}, "long_text must be one of cut, mean, max; received 'nonsense'"),
        ({"strategy": "no"}, "strategy must be left out: this task's predict runs on one device"),
    ):
        assert message in refusal(model.predict, ["a fine film"], **options)
    texts = ["a fine film", "a bad film"]
    found = model.predict(tf.data.Dataset.from_tensor_slices(texts))
    np.testing.assert_array_equal(found, model.predict(texts))
    assert model.predict([]).shape == (0, 2)


def starts_with_head(model, rows):
    """Returns whether a run starts with the weights of the model's head."""
    bias = tf.Variable([0.0, 0.0])
    model._start(rows).initialize({"output_bias": bias})
    return bool(bias.numpy().any())


def test_a_head_is_kept_only_for_the_same_task(trained):
    model, *_ = trained
    same = model.for_classification(["bad", "good"])
    assert starts_with_head(same, same._rows("fit"))
    for other in (model.for_classification(["good", "bad"]), model.for_regression()):
        assert not other.heads and not starts_with_head(other, other._rows("fit"))
        told = refusal(other.classify, "a text")
        assert re.search(r"classify needs a model .* has no head\. .*, and call fit first$", told)
        told = refusal(other.evaluate, ["a"], ["good"])
        assert "evaluate needs a trained model; call fit first" in told


def test_classes_that_no_one_names_are_the_model_s_until_it_is_trained(reviews, trained):
    model = trained[0].for_classification()
    texts, labels = table(reviews, "dev")
    for _ in range(2):
        told = refusal(model.evaluate, TEXTS[:2], ["x", "y"])
        assert "labels[0] must be one of 'bad', 'good', the classes of the" in told
    good = [text for text, label in zip(texts, labels, strict=True) if label == "good"]
    found = model.evaluate(good, ["good"] * len(good))["accuracy"]
    assert found == np.mean([x.label == "good" for x in trained[0].classify(good)])
    for names, keeps_head in ((NAMES, True), (["x", "y", "x"], False), (["x", "y", "z"], False)):
        kind = model._rows("fit")
        kind.examples("train", TEXTS, names)
        assert starts_with_head(model, kind) == keeps_head, names


def test_a_fit_that_fails_leaves_no_classes_behind(untrained):
    model = untrained.for_classification()
    for names in (["x", "y", "x"], NAMES):
        told = refusal(model.fit, TEXTS, names, learning_rat=1)
        assert "learning_rat must be a setting of ClassifierSettings" in told
        assert model._rows("fit").labels is None
    several = untrained.for_classification(multi_label=True)
    told = refusal(several.fit, TEXTS, [["x"], ["y"], []], batch_size=0)
    assert "batch_size=0 must be between 1 and" in told
    assert several._rows("fit").labels is None


LEARNING_RAT = "learning_rat must be a setting of ClassifierSettings, such as 'learning_rate'"
CLASS_WEIGHT = "class_weight must be 'balanced' or a dictionary of weights; received"
TWICE = "batch_size and train_batch_size name the same setting; give one of them"
NO_STEP = "3 examples, batch_size=64 and epochs=3.0 make"
REFUSED = [
    ({"learning_rat": 1}, LEARNING_RAT),
    ({"init_checkpoint": "x"}, "init_checkpoint must be left out: the model and the exam"),
    ({"max_seq_length": 41}, "The length 41 of max_seq_length must be at most"),
    ({"batch_size": 0}, "batch_size=0 must be between 1 and"),
    ({"batch_size": "8"}, "batch_size must be a whole number (int); received '8' (str)"),
    ({"learning_rate": "high"}, "learning_rate must be a number; received 'high' (str)"),
    ({"batch_size": 4, "train_batch_size": 8}, TWICE),
    ({"class_weight": np.array([1.0, 2.0])}, CLASS_WEIGHT),
    ({"epochs": -1}, "epochs=-1.0 must be a finite number above 0"),
    ({"batch_size": 64, "gradient_accumulation_steps": 4}, NO_STEP),
    ({"evaluate_every_steps": 1}, "evaluate_every_steps needs validation_data or validation_split"),
    ({"validation_split": 0.5, "validation_data": (TEXTS, NAMES)}, "there is validation_data."),
    ({"validation_data": 3}, "validation_data[1] must be given: one for each of validation_da"),
    ({"callbacks": ["x"]}, "callbacks must be Keras callbacks; received str"),
    ({"output_dir": 3}, "output_dir must be a path; received"),
    ({"profile_steps": "1:2"}, "profile_steps needs output_dir: without it the run's files"),
    ({"hang_minutes": 2}, "hang_minutes needs output_dir: without"),
    ({"folds": 3}, "folds must be left out: in Python use scikit-learn's cross_validate"),
    ({"settings": FOLDS, "epochs": 1}, "folds must be left out: in Python use scikit-learn's"),
    ({"settings": 3}, "settings must be a ClassifierSettings; received a int"),
]


def test_wrong_settings_are_refused(untrained):
    model = untrained.for_classification(CLASSES)
    for options, message in REFUSED:
        assert message in refusal(model.fit, TEXTS, NAMES, **options)
    for method in (untrained.fit, untrained.evaluate, untrained.predict):
        assert f"{method.__name__} needs a task. Choose it first" in refusal(method, ["a"])


def test_settings_become_python_s_own_numbers(untrained):
    given = {"seed": np.int64(4), "max_seq_length": np.array(16), "epochs": np.float32(2)}
    made = make_task(ClassificationRows(CLASSES), None, given, "train", (), 40, True).settings
    values = made.random_seed, made.max_seq_length, made.num_train_epochs
    assert values == (4, 16, 2.0) and [*map(type, values)] == [int, int, float]


def test_stop_training_ends_the_loop():
    model, stop = keras.Model(), Events()
    stop.on_train_batch_end = lambda batch, logs: setattr(model, "stop_training", batch == 1)
    watch = CallbackWatch([stop])
    watch.begin(model, None, 0, 5, 2.5, None)
    watch.progress(5, 0)
    assert watch.stops() == (2, 5)
    assert watch.after(1, {"loss": (np.array([3.0]), np.array([1.0]))})
    assert not watch.after(2, {"loss": (np.array([1.0]), np.array([3.0]))})
    watch.end()
    assert watch.history.history == {"loss": [1.0]}  # weighted by the examples
    assert stop.seen == ["epoch 0 of 2: 2 steps", "end"]
