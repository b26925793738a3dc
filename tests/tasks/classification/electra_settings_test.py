"""--double_unordered and --label_scale, ELECTRA's ways to train on MRPC and STS-B."""

import types

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.runs.results.kept_rows import KeptRows
from bert_tf.tasks.classification.examples import InputExample, in_both_orders, scaled
from bert_tf.tasks.classification.glue import StsbProcessor
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.task import ExampleSet, PredictionColumns


def settings(**given):
    given = {"output_dir": "unused", **given}
    return ClassifierSettings(vocab_file="", data_dir="d", **given)


def pairs():
    return [
        InputExample("train-1", "a b", "c", label="1", weight=0.5),
        InputExample("train-2", "d", "e f", label="0"),
    ]


def test_both_orders_come_one_after_the_other():
    found = [(x.guid, x.text_a, x.text_b, x.label, x.weight) for x in in_both_orders(pairs())]
    assert found == [
        ("train-1", "a b", "c", "1", 0.5),
        ("train-2", "d", "e f", "0", None),
        ("train-1-swapped", "c", "a b", "1", 0.5),
        ("train-2-swapped", "e f", "d", "0", None),
    ]


def test_only_training_examples_are_doubled():
    task = ClassificationTask(settings(double_unordered=True), StsbProcessor())
    sets = {name: [ExampleSet(name, pairs()[1:])] for name in ("train", "eval")}
    task.prepare(sets, [])
    assert {name: len(x.examples) for name, (x,) in sets.items()} == {"train": 2, "eval": 1}


@pytest.mark.parametrize("text", [None, ""])
def test_one_text_has_no_order(text):
    examples = [*pairs(), InputExample("train-3", "g", text, label="1")]
    with pytest.raises(UserError, match="--double_unordered needs pairs .*'train-3' has one"):
        in_both_orders(examples)


@pytest.mark.parametrize("scale", [5.0, 0.5])
def test_labels_are_divided(scale):
    examples = [
        InputExample("1", "a", label=2.5),
        InputExample("2", "b", label="4.0"),
        InputExample("3", "c", label=0.0, known_label=3.0),
    ]
    found = scaled(examples, scale)
    assert [(x.label, x.known_label) for x in found] == [
        (2.5 / scale, None),
        (4.0 / scale, None),
        (0.0, 3.0 / scale),
    ]
    assert examples[0].label == 2.5


@pytest.mark.parametrize("label, divided", [("2.5", 0.5), ("?", "?")])
def test_examples_of_the_original_s_processors_are_changed_too(label, divided):
    example = types.SimpleNamespace(guid="1", text_a="a", text_b="b", label=label)
    (found,) = scaled([example], 5.0)
    assert vars(found) == {**vars(example), "label": divided}
    _, swapped = in_both_orders([example])
    assert (swapped.text_a, swapped.text_b, swapped.guid) == ("b", "a", "1-swapped")


def test_the_submission_has_the_labels_of_the_task(tmp_path):
    given = settings(label_scale=5.0, output_dir=str(tmp_path))
    task = ClassificationTask(given, StsbProcessor())
    examples = [InputExample(f"test-{i}", "a", "b", 0.0) for i in range(3)]
    example_set = ExampleSet("test", examples, rows=KeptRows([{"text": "a"}] * 3))
    chunks = iter([{"outputs": np.array([0.31, 1.2, -0.1])}])
    task.write_predictions(example_set, PredictionColumns(chunks, lambda: 1))
    rows = (tmp_path / "STS-B.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in rows[1:]] == ["1.550", "5.000", "0.000"]


@pytest.mark.parametrize("given", [{"label_scale": 5.0}, {"label_scale": 0.25}])
def test_classes_have_no_scale(given):
    class Processor(StsbProcessor):
        labels = ("no", "yes")

    task = ClassificationTask(settings(**given), Processor())
    scale = given["label_scale"]
    with pytest.raises(UserError, match=f"--label_scale={scale} is for numbers; .* 'no', 'yes'"):
        task.check(None, None)
