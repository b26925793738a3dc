"""Tests of bert_tf.tasks.classification.task and files in this process, and of temperatures."""

import json
import re
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.writer import write_config
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.runs.results.tables import KeptRows
from bert_tf.tasks.classification import decision
from bert_tf.tasks.classification import examples as of_examples
from bert_tf.tasks.classification.examples import DataProcessor, InputExample, in_both_orders
from bert_tf.tasks.classification.files import ClassificationFiles, run_classifier
from bert_tf.tasks.classification.processors import StsbProcessor
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.fine_tuner import FineTuner
from bert_tf.tasks.task import ExampleSet
from tests.support.pretraining_runs import variables
from tests.support.refusals import refuses
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import write_reviews
from tests.support.small_pretraining import SMALL


@pytest.fixture
def reviews(tmp_path):
    return write_reviews(tmp_path)


class OwnProcessor(DataProcessor):
    """A processor with the four methods of the original's."""

    def get_train_examples(self, data_dir):
        return [InputExample(guid="t", text_a=f"train in {data_dir}", text_b=None, label="no")]

    def get_dev_examples(self, data_dir):
        return [InputExample(guid="d", text_a=f"dev in {data_dir}", text_b=None, label="no")]

    def get_test_examples(self, data_dir):
        return []

    def get_labels(self):
        return ["no", "yes"]


def test_the_sets_of_a_user_s_processor():
    settings = ClassifierSettings(data_dir="a/b", output_dir="unused", vocab_file="unused")
    task = ClassificationFiles(settings, OwnProcessor())
    for purpose, split in (("train", "train"), ("eval", "dev")):
        (example_set,) = task.read_sets(purpose)
        assert example_set.name == purpose
        assert [e.text_a for e in example_set.examples] == [f"{split} in a/b"]
    message = "The test set must have at least one example; get_test_examples of OwnProcessor"
    refuses(message, task.read_sets, "predict")


def test_a_user_s_processor_is_evaluated(reviews):
    config = BertConfig.from_json_file(f"{reviews}/bert_config.json")
    files = {"output_dir": f"{reviews}/out", "vocab_file": f"{reviews}/vocab.txt"}
    settings = ClassifierSettings(**files, do_eval=True, max_seq_length=12, length_buckets="none")
    results = run_classifier(config, OwnProcessor(), tf.distribute.get_strategy(), settings)
    assert results.keys() == {"eval_accuracy", "eval_loss", "global_step", "loss"}


def write_mnli(path, classes, first):
    """Writes pairs of texts with these classes; `first` is the word that they begin with."""
    names = "contradiction entailment neutral".split()
    lines = ["\t".join(["index", *"abcdefg", "sentence1", "sentence2", "gold_label"])]
    for i, label in enumerate(classes):
        texts = [f"{first} film", "very " * i + "dull"]
        lines.append("\t".join([str(i), *"abcdefg", *texts, names[label]]))
    path.write_text("\n".join(lines) + "\n")


def test_second_sets_are_evaluated_and_predicted_if_they_exist(reviews, monkeypatch):
    # The shares of the three classes differ, so that no accuracy can pass for the other.
    matched, mismatched = [0, 1, 1, 2, 2, 2], [0, 0, 0, 1, 1, 1, 1, 2]
    write_mnli(reviews / "dev_matched.tsv", matched, "fine")
    write_mnli(reviews / "dev_mismatched.tsv", mismatched, "awful")
    write_mnli(reviews / "test_matched.tsv", mismatched, "awful")
    out = reviews / "out"
    flags = {"task_name": "MNLI", "max_seq_length": 12, "do_eval": True, "do_predict": True}
    write_records = FineTuner.write_records

    def write_with_another_program(tuner, row):
        write_records(tuner, row)
        for name in ("eval", "eval_mismatched", "predict"):  # it evaluates other examples
            (out / f"{name}.tf_record").write_bytes(b"of another program")

    monkeypatch.setattr(FineTuner, "write_records", write_with_another_program)
    results = run_in(reviews, "classification", **flags)
    names = ["eval_accuracy", "eval_loss", "loss"]
    assert results.keys() == {*names, *(f"{name}_mismatched" for name in names), "global_step"}
    assert reporting.read_results(str(out / "eval_results.txt")).keys() == results.keys()
    # The test file has the texts of the mismatched dev file.
    outputs = np.loadtxt(out / "test_results.tsv", delimiter="\t")
    assert outputs.shape == (8, 3)
    right = np.argmax(outputs, -1) == mismatched
    assert results["eval_accuracy_mismatched"] == np.mean(right) != results["eval_accuracy"]
    losses = -np.log(outputs[np.arange(8), mismatched])
    np.testing.assert_allclose(results["eval_loss_mismatched"], np.mean(losses), rtol=1e-5)
    names = {"eval", "eval.tf_record", "eval_mismatched.tf_record", "eval_results.txt"}
    names |= {"predict.tf_record", "predictions.tsv", "test_results.tsv", "MNLI-m.tsv"}
    for name in ("errors.tsv", "eval_predictions.tsv", "eval_report.json", "eval_report.txt"):
        names |= {name, name.replace(".", "_mismatched.")}
    assert {path.name for path in out.iterdir()} == names
    found = tables.read_table(f"{out}/eval_predictions_mismatched.tsv")
    classes = "contradiction entailment neutral".split()
    assert found["label"] == [classes[i] for i in mismatched]
    assert "label" not in tables.read_table(f"{out}/predictions.tsv")  # GLUE's test files have none
    for path in out.glob("*.tf_record"):  # the run's own, as the original leaves them
        assert path.read_bytes() != b"of another program"


def test_a_head_with_other_classes_is_refused(reviews):
    checkpoints.write(f"{reviews}/two", {"output_weights": np.zeros([2, 16], np.float32)})
    flags = {**REVIEWS, "labels": ["bad", "good", "odd"], "init_checkpoint": f"{reviews}/two"}
    message = "output_weights: float32 [2, 16] in the checkpoint, float32 [3, 16] in the model"
    with pytest.raises(UserError, match=re.escape(message)):
        run_in(reviews, "classification", max_seq_length=12, do_train=True, **flags)


def test_the_settings_of_weights_reach_records_and_model():
    files = {"output_dir": "unused", "vocab_file": "unused"}
    settings = ClassifierSettings(**files, class_weights=["yes:3"], label_smoothing=0.25)
    task = ClassificationFiles(settings, OwnProcessor())
    config = BertConfig(53, hidden_size=4, num_hidden_layers=1, num_attention_heads=1)
    task.check(config, None)
    examples = [InputExample(str(i), "a", label=label) for i, label in enumerate(["no", "yes"])]
    sets = {"train": [ExampleSet("train", examples)]}
    task.prepare(sets, ["no", "yes"])
    assert [example.weight for example in sets["train"][0].examples] == [1.0, 3.0]
    assert task.build(config, ["no", "yes"]).label_smoothing == 0.25
    settings = ClassifierSettings(**files, class_weights=["maybe:3"])
    with pytest.raises(UserError, match="classes in the order 'no', 'yes', .*; got 'maybe:3'"):
        ClassificationFiles(settings, OwnProcessor()).check(config, None)


def settings(**given):
    given = {"output_dir": "unused", **given}
    return ClassifierSettings(vocab_file="", data_dir="d", **given)


def test_both_orders_of_training_examples():
    pairs = [
        InputExample("train-1", "a b", "c", label="1", weight=0.5),
        InputExample("train-2", "d", "e f", label="0"),
    ]
    found = [(x.guid, x.text_a, x.text_b, x.label, x.weight) for x in in_both_orders(pairs)]
    assert found == [
        ("train-1", "a b", "c", "1", 0.5),
        ("train-2", "d", "e f", "0", None),
        ("train-1-swapped", "c", "a b", "1", 0.5),
        ("train-2-swapped", "e f", "d", "0", None),
    ]
    task = ClassificationFiles(settings(double_unordered=True), StsbProcessor())
    sets = {name: [ExampleSet(name, pairs[1:])] for name in ("train", "eval")}
    task.prepare(sets, [])
    assert {name: len(x.examples) for name, (x,) in sets.items()} == {"train": 2, "eval": 1}
    for text in (None, ""):
        examples = [*pairs, InputExample("train-3", "g", text, label="1")]
        refuses("--double_unordered needs pairs .*'train-3' has one", in_both_orders, examples)


def test_labels_are_divided():
    """Also those of examples of the original's processors, which are not of this class."""
    examples = [InputExample("1", "a", label=2.5), InputExample("2", "b", label="4.0")]
    examples.append(InputExample("3", "c", label=0.0, known_label=3.0))
    for scale in (5.0, 0.5):
        found = [(x.label, x.known_label) for x in of_examples.scaled(examples, scale)]
        assert found == [(2.5 / scale, None), (4.0 / scale, None), (0.0, 3.0 / scale)]
    assert examples[0].label == 2.5
    for label, divided in (("2.5", 0.5), ("?", "?")):
        example = types.SimpleNamespace(guid="1", text_a="a", text_b="b", label=label)
        (one,) = of_examples.scaled([example], 5.0)
        assert vars(one) == {**vars(example), "label": divided}
        _, swapped = in_both_orders([example])
        assert (swapped.text_a, swapped.text_b, swapped.guid) == ("b", "a", "1-swapped")


def test_the_submission_has_the_labels_of_the_task(tmp_path):
    given = settings(label_scale=5.0, output_dir=str(tmp_path))
    task = ClassificationFiles(given, StsbProcessor())
    examples = [InputExample(f"test-{i}", "a", "b", 0.0) for i in range(3)]
    example_set = ExampleSet("test", examples, rows=KeptRows([{"text": "a"}] * 3))
    task.write_predictions(example_set, np.array([0.31, 1.2, -0.1]), 1)
    rows = (tmp_path / "STS-B.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in rows[1:]] == ["1.550", "5.000", "0.000"]


def test_classes_have_no_scale():
    class Processor(StsbProcessor):
        labels = ("no", "yes")

    for scale in (5.0, 0.25):
        task = ClassificationFiles(settings(label_scale=scale), Processor())
        refuses(f"--label_scale={scale} is for numbers; .* 'no', 'yes'", task.check, None, None)


pytestmark = pytest.mark.usefixtures("uncompiled")

FLAGS = {**REVIEWS, "max_seq_length": 24, "do_eval": True, "do_predict": True}
SCALED = {"temperature_scaling": True}
TRAINING = {"do_train": True, "train_batch_size": 15, "num_train_epochs": 2.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which a model was trained, scaled and exported; its results in `trained`."""
    folder = write_reviews(tmp_path_factory.mktemp("reviews"))
    flags = {**TRAINING, "learning_rate": 0.02, "export_dir": f"{folder}/export"}
    results = run_in(folder, "classification", **FLAGS, **SCALED, **flags)
    (folder / "trained").write_text(json.dumps(results))
    return folder


def probabilities(folder: Path) -> np.ndarray:
    return np.loadtxt(folder / "test_results.tsv", delimiter="\t")


def log_odds(folder: Path) -> np.ndarray:
    return np.diff(np.log(probabilities(folder)), axis=1)


def test_the_export_is_scaled_and_the_checkpoint_is_not(folder):
    report = json.loads((folder / "out/eval_report.json").read_text())
    assert report["temperature"] != pytest.approx(1.0, abs=0.05)
    trained = variables(folder / "out")
    exported = variables(folder / "export/bert_model.ckpt")
    for name, value in exported.items():
        factor = report["temperature"] if name.startswith("output_") else 1.0
        np.testing.assert_allclose(value * factor, trained[name], rtol=1e-5, err_msg=name)
    text = (folder / "out/eval_report.txt").read_text()
    assert f"temperature: {report['temperature']:.4f}\ncalibration error before: " in text


@pytest.mark.slow
def test_the_results_are_those_of_the_scaled_model(folder):
    scaled = json.loads((folder / "trained").read_text())
    temperature = json.loads((folder / "out/eval_report.json").read_text())["temperature"]
    files = {"init_checkpoint": f"{folder}/out", "output_dir": f"{folder}/plain"}
    plain = run_in(folder, "classification", **FLAGS, **files)
    assert scaled["eval_accuracy"] == plain["eval_accuracy"]
    assert scaled["eval_loss"] < plain["eval_loss"]
    expected = log_odds(folder / "plain") / temperature
    np.testing.assert_allclose(log_odds(folder / "out"), expected, rtol=2e-3, atol=1e-4)
    assert "temperature" not in (folder / "plain/eval_report.json").read_text()
    # The export needs no flag, and a later run fits the same temperature again.
    files = {"init_checkpoint": f"{folder}/export/bert_model.ckpt", "output_dir": f"{folder}/later"}
    assert run_in(folder, "classification", **FLAGS, **files) == pytest.approx(
        {**scaled, "global_step": 0}, rel=1e-5
    )
    files = {"init_checkpoint": f"{folder}/out", "output_dir": f"{folder}/again"}
    run_in(folder, "classification", **FLAGS, **SCALED, **files)
    for name in ("later", "again"):
        found = probabilities(folder / name)
        np.testing.assert_allclose(found, probabilities(folder / "out"), rtol=1e-5)


def test_a_temperature_that_cannot_be(tmp_path):
    folder = write_reviews(tmp_path)
    for flags in ({}, {**TRAINING, "do_predict": False}):
        with pytest.raises(UserError, match="fitted on the dev set: add --do_eval, or leave"):
            run_in(folder, "classification", **{**FLAGS, **SCALED, "do_eval": False, **flags})
    with pytest.raises(UserError, match="is for classes: a regression has no probabilities. Leave"):
        run_in(folder, "classification", **FLAGS, **SCALED, regression=True)


@pytest.mark.slow
def test_fit_in_python_keeps_the_temperature(folder):
    texts, labels = ["fine lovely film", "dull awful plot", "so fine", "very dull"], [1, 0, 1, 0]
    pair = (texts * 2, [*labels, 0, 1, 1, 0])  # no temperature makes two labels of a text right
    models = []
    for scaled in (False, True):
        model = bert_tf.load(f"{folder}/export").for_classification(labels=["bad", "good"])
        options = {"epochs": 2, "batch_size": 2, "seed": 3, "verbose": 0}
        model.fit(texts, labels, validation_data=pair, temperature_scaling=scaled, **options)
        models.append(model)
    plain, scaled = (np.diff(np.log(model.predict(texts)), axis=1) for model in models)
    temperature = plain / scaled
    np.testing.assert_allclose(temperature[1:], temperature[:-1], rtol=1e-4)
    assert temperature[0] != pytest.approx(1.0, abs=0.05)
    with pytest.raises(UserError, match="fitted on the dev set: add"):
        models[0].fit(texts, labels, temperature_scaling=True, **options)


@pytest.mark.parametrize(
    ("changes", "warns", "threshold"),
    [
        ({}, True, 0.3),
        ({"find_threshold": True}, False, 0.3),
        ({"threshold": 0.3}, False, 0.3),
        ({"threshold": 0.9}, False, 0.9),
        ({"do_train": False}, False, 0.3),
    ],
)
def test_a_threshold_of_earlier_weights_is_told(
    tmp_path, caplog, monkeypatch, changes, warns, threshold
):
    config = BertConfig.from_dict(SMALL | {"problem_type": "multi_label_classification"})
    config.threshold = 0.3
    write_config(str(tmp_path), config)
    path = str(tmp_path / "bert_config.json")
    monkeypatch.setattr(decision, "_learned_config", lambda settings: path)
    given = {"threshold": None, "find_threshold": False, "do_train": True, "do_eval": True}
    settings = types.SimpleNamespace(**given | changes, class_weights=None, temperature_scaling=0)
    found = decision.configured(BertConfig.from_dict(SMALL), settings, multi_label=True)
    assert found.threshold == threshold and found.is_multi_label
    message = f"threshold is 0.3 in {path}, found or given for the weights that training continues"
    assert (message in caplog.text) == warns
