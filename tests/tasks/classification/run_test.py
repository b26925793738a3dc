"""Tests of bert_tf.tasks.classification.task in this process. Whole runs: run_classifier_test."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.runs.results.tables import KeptRows
from bert_tf.tasks.classification import examples as of_examples
from bert_tf.tasks.classification.examples import DataProcessor, InputExample, in_both_orders
from bert_tf.tasks.classification.files import ClassificationFiles, run_classifier
from bert_tf.tasks.classification.processors import StsbProcessor
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.fine_tuner import FineTuner
from bert_tf.tasks.task import ExampleSet
from tests.support.pretraining_runs import assert_same_variables
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import write_reviews


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
    with pytest.raises(UserError, match=message):
        task.read_sets("predict")


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


@pytest.mark.slow
def test_weights_of_classes_are_weights_of_their_examples(reviews):
    """Two ways to the same steps; only the column counts in the evaluation."""
    flags = {**REVIEWS, "do_train": True, "do_eval": True, "num_train_epochs": 1.0}
    flags |= {"max_seq_length": 24, "train_batch_size": 15, "label_smoothing": 0.1}
    flags["learning_rate"] = 5e-3
    by_class = run_in(reviews, "classification", class_weights=["bad:0.5", "good:3"], **flags)
    for name in ("train", "dev"):
        header, *rows = (reviews / f"{name}.csv").read_text().splitlines()
        rows = [f"{row},{0.5 if row.endswith('bad') else 3}" for row in rows]
        (reviews / f"{name}.csv").write_text("\n".join([f"{header},trust", *rows]) + "\n")
    out = {"output_dir": f"{reviews}/out2"}
    by_column = run_in(reviews, "classification", weight_column="trust", **flags, **out)
    assert_same_variables(reviews / "out", reviews / "out2")
    assert by_column["eval_loss"] != pytest.approx(by_class["eval_loss"], rel=1e-3)
    evaluated = run_in(
        *(reviews, "classification"),
        **{**REVIEWS, "do_eval": True, "max_seq_length": 24, "init_checkpoint": f"{reviews}/out"},
        output_dir=f"{reviews}/out4",
    )
    assert evaluated["eval_loss"] == pytest.approx(by_class["eval_loss"], rel=1e-6)


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
        with pytest.raises(UserError, match="--double_unordered needs pairs .*'train-3' has one"):
            in_both_orders(examples)


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
        with pytest.raises(
            UserError, match=f"--label_scale={scale} is for numbers; .* 'no', 'yes'"
        ):
            task.check(None, None)
