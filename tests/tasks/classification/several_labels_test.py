"""Tests of several labels for each text: run_classifier --multi_label."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder.reporting import read_results
from bert_tf.runs.results.tables import read_table
from bert_tf.tasks.classification import processors, scores
from bert_tf.tasks.classification.examples import (
    ClassificationEncoder,
    InputExample,
    classification_schema,
)
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.settings import TableColumns
from tests.support.encoded import tokenizer_of
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.refusals import refusal
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import VOCAB, WORDS, write_reviews
from tests.support.small_pretraining import SMALL

pytestmark = pytest.mark.usefixtures("uncompiled")

# Label -> the words of a text that has it.
MEANINGS = {"blame": {"dull", "awful"}, "praise": {"fine", "lovely"}, "sound": {"music"}}
COLUMNS = {"text_a_column": "text", "label_column": "labels", "multi_label": True}
FLAGS = {**REVIEWS, "multi_label": True}


def read(folder, split="train", **columns):
    table = TableColumns(**{**COLUMNS, **columns})
    task = processors.get_processor("table", str(folder), columns=table)
    return task, [example.label for example in task.read(split, str(folder))]


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("train.csv", "text,labels\nx,b|a\ny,\nz, a \n", {}),
        ("train.csv", 'text,labels\nx,"b, a"\ny,""\nz,a\n', {"label_separator": ","}),
        ("train.tsv", "text\tlabels\nx\tb;a\ny\t \nz\ta\n", {"label_separator": ";"}),
        ("train.tsv", "text\tlabels\nx\tb a\ny\t\nz\ta\n", {"label_separator": " "}),
    ],
)
def test_labels_in_a_cell(tmp_path, name, text, columns):
    (tmp_path / name).write_text(text)
    task, labels = read(tmp_path, **columns)
    assert task.get_labels() == ["a", "b"]
    assert labels == [("a", "b"), (), ("a",)]
    assert task.best_metric == "eval_micro_f1"
    _, labels = read(tmp_path, **columns, labels=["c", "b", "a"])
    assert labels == [("b", "a"), (), ("a",)]


@pytest.mark.parametrize(
    ("cell", "columns", "message"),
    [
        ("a||b", {}, "train.csv, line 2: 'a||b' has an empty label; --label_separator=| must st"),
        ("a|b|", {"labels": ["a", "b"]}, "line 2: 'a|b|' has an empty label"),
        ("b|a|b", {}, "train.csv, line 2: 'b|a|b' has the label 'b' twice. Correct or delete the"),
        ("a|d", {"labels": ["a", "b"]}, "line 2: label 'd' must be one of 'a', 'b', with --label"),
        ("a;b", {"labels": ["a", "b"]}, "with --label_separator=| between several; correct or del"),
        ("a,b", {"label_separator": ","}, "has 3 columns, but the header names 2. Put quotes arou"),
    ],
)
def test_wrong_cells_are_told_with_their_place(tmp_path, cell, columns, message):
    (tmp_path / "train.csv").write_text(f"text,labels\nx,{cell}\ny,a\nz,b\n")
    assert message in refusal(read, tmp_path, **columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"labels": ["a|b", "c"]}, "the label 'a|b' must not have --label_separator ('|') in it"),
        ({"labels": ["r&b", "c"], "label_separator": "&"}, "('&') in it, which separates labels"),
    ],
)
def test_columns_that_contradict_each_other(columns, message):
    assert message in refusal(TableColumns, **{**COLUMNS, **columns})


def test_a_column_for_each_label(tmp_path):
    (tmp_path / "train.csv").write_text("insult,text,toxic\n1,x,1\n0,y,0\n\n0,z, 1 \n")
    (tmp_path / "test.csv").write_text("text\nx\n")
    columns = {"label_column": None, "label_columns": ["toxic", "insult"]}
    task, labels = read(tmp_path, **columns)
    assert task.get_labels() == ["toxic", "insult"]
    assert labels == [("toxic", "insult"), (), ("toxic",)]
    assert read(tmp_path, "test", **columns)[1] == [()]
    for cells, known in (("1,0", ("toxic",)), ("0,0", ()), ("-1,-1", None)):
        (tmp_path / "test.csv").write_text(f"text,toxic,insult\nx,{cells}\n")
        (example,) = read(tmp_path, **columns)[0].get_test_examples(tmp_path)
        assert example.known_label == known


@pytest.mark.parametrize(
    ("cell", "columns", "message"),
    [
        ("2", {}, "train.csv, line 2: the column 'a' of --label_columns must have 1 for a text w"),
        ("", {}, "else 0; it has ''. Correct or delete the line"),
        ("1", {"label_columns": ["a", "c"]}, "--label_columns=c: "),
        ("1", {"label_columns": ["a"]}, "--label_columns must list at least two classes"),
        ("1", {"label_columns": ["a", "a|b"]}, "--label_columns: the label 'a|b' must not have"),
        ("1", {"label_column": "a"}, "excludes --label_column=a, since the names of the columns"),
        ("1", {"has_header": False}, "needs --has_header, since the names of the columns are the"),
        ("1", {"multi_label": False}, "--label_columns=a,b needs --multi_label"),
    ],
)
def test_wrong_columns_of_labels(tmp_path, cell, columns, message):
    (tmp_path / "train.csv").write_text(f"text,a,b\nx,{cell},0\ny,0,1\n")
    columns = {"label_column": None, "label_columns": ["a", "b"], **columns}
    assert message in refusal(read, tmp_path, **columns)


@pytest.mark.parametrize(
    ("label", "ids"),
    [(("b", "c"), [0, 1, 1]), (["c"], [0, 0, 1]), ("a", [1, 0, 0]), (None, [0] * 3)],
)
def test_a_record_has_a_number_for_each_label(label, ids):
    encoder = ClassificationEncoder(tokenizer_of(VOCAB), 8, ["a", "b", "c"], multi_label=True)
    example = InputExample("x", "fine film", label=label)
    (record,) = encoder.records(example, [[15, 6], []])
    assert record["label_ids"] == ids
    schema = classification_schema(8, regression=False, num_labels=3)
    assert records.serialize(record, schema) and encoder.schema["label_ids"].shape == [3]
    assert f"({ids})" in list(encoder.describe(example, record))[-1]


def small_model(num_labels, **changes):
    config = {**SMALL, "problem_type": "multi_label_classification", **changes}
    model = ClassificationModel(BertConfig.from_dict(config), num_labels)
    set_random_weights(model, 4)
    return model


def small_features(num_labels):
    rng = np.random.default_rng(2)
    return {
        "input_ids": rng.integers(0, 53, (6, 5), dtype=np.int32),
        "label_ids": rng.integers(0, 2, (6, num_labels), dtype=np.int32),
    }


@pytest.mark.parametrize(("num_labels", "threshold"), [(3, 0.5), (1, 0.25)])
def test_the_loss_is_the_mean_of_binary_cross_entropies(num_labels, threshold):
    model, features = small_model(num_labels, threshold=threshold), small_features(num_labels)
    logits = np.asarray(model(features["input_ids"]), np.float64)
    probabilities, labels = 1 / (1 + np.exp(-logits)), features["label_ids"]
    losses = -np.log(np.where(labels == 1, probabilities, 1 - probabilities)).mean(axis=1)
    rows = predict(model, features)
    np.testing.assert_allclose(rows["outputs"], probabilities, rtol=1e-5)
    np.testing.assert_allclose(rows["per_example_loss"], losses, rtol=1e-4)
    np.testing.assert_array_equal(rows["label_ids"], labels)
    weights = np.array([1, 0, 1, 2, 1, 1], np.float32)
    loss, sums = compute(model, {**features, "example_weight": weights})
    np.testing.assert_allclose(loss, np.average(losses, weights=weights), rtol=1e-4)
    right = ((probabilities >= threshold) == labels).all(axis=1)
    np.testing.assert_allclose(sums["accuracy"], [(right * weights).sum(), weights.sum()])
    model.label_smoothing = 0.2
    smoothed = tf.keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.2)
    np.testing.assert_allclose(compute(model, features)[0], smoothed(labels, logits), rtol=1e-4)


def test_metrics_are_scikit_learn_s():
    rng = np.random.default_rng(5)
    labels, probabilities = rng.integers(0, 2, (40, 3)), rng.uniform(size=(40, 3))
    predicted = probabilities >= 0.6
    found = scores.evaluate_labels(labels, probabilities, 0.6)
    assert found == {
        "eval_micro_f1": metrics.f1_score(labels, predicted, average="micro"),
        "eval_macro_f1": metrics.f1_score(labels, predicted, average="macro"),
        "eval_average_precision": metrics.average_precision_score(labels, probabilities),
        "eval_accuracy": metrics.accuracy_score(labels, predicted),
    }
    repeated = np.repeat(labels, 2, axis=0), np.repeat(probabilities, 2, axis=0)
    doubled = scores.evaluate_labels(labels, probabilities, 0.6, np.full(40, 2.0))
    assert doubled == pytest.approx(scores.evaluate_labels(*repeated, 0.6))
    labels[:, 1] = 0  # no example has it: it has no average precision
    found = scores.evaluate_labels(labels, probabilities, 0.6)
    kept = labels[:, [0, 2]], probabilities[:, [0, 2]]
    assert found["eval_average_precision"] == metrics.average_precision_score(*kept)
    assert set(scores.evaluate_labels(labels * 0, probabilities, 0.9999).values()) == {0.0, 1.0}


@pytest.mark.parametrize("seed", range(4))
def test_the_threshold_with_the_best_micro_f1(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (20, 2))
    probabilities = np.clip(labels * 0.3 + rng.uniform(0, 0.7, (20, 2)), 0, 1).astype(np.float32)
    threshold = scores.best_threshold(labels, probabilities)

    def micro_f1(threshold):
        predicted = probabilities >= threshold
        return 2 * (predicted & (labels == 1)).sum() / (predicted.sum() + labels.sum())

    tried = [micro_f1(one) for one in np.linspace(0.001, 0.999, 999)]
    assert 0 < threshold < 1 and micro_f1(threshold) >= max(tried)


def test_a_threshold_without_labels_or_at_the_ends():
    one = np.ones((2, 2), int)
    assert scores.best_threshold(one * 0, one * 0.3) == 0.5
    assert 0 < scores.best_threshold(one, one * 0.0) < 1
    assert scores.best_threshold(np.array([[1, 0]]), np.array([[1.0, 0.0]])) == 0.5
    nearly = np.array([[0.4, 0.4 + 1e-9], [0.4 - 1e-9, 0.4]])  # one number, but for rounding
    assert scores.best_threshold(np.array([[1, 0], [0, 1]]), nearly) == 0.2


def write_tables(folder):
    write_reviews(folder)
    rng = random.Random(1)
    for name, count in (("train", 120), ("dev", 40), ("test", 7)):
        lines = ["review,stars"]
        for _ in range(count):
            words = rng.choices(WORDS[:3] + WORDS[6:8], k=6)
            for label in rng.sample([*MEANINGS], rng.choice((0, 1, 2, 3))):
                words[rng.randrange(6)] = rng.choice([*MEANINGS[label]])
            labels = [label for label in MEANINGS if MEANINGS[label] & {*words}]
            lines.append(f"{' '.join(words)},{'|'.join(reversed(labels))}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = write_tables(tmp_path_factory.mktemp("several"))
    flags = {**FLAGS, "do_train": True, "do_eval": True, "do_predict": True}
    flags |= {"max_seq_length": 8, "learning_rate": 1e-2, "train_batch_size": 8}
    flags |= {"num_train_epochs": 8, "length_buckets": "none", "find_threshold": True}
    run_in(folder, "classification", output_dir=folder / "out", **flags)
    return folder


def test_a_run_learns_several_labels(trained):
    results = read_results(f"{trained}/out/eval_results.txt")
    assert results["eval_micro_f1"] > 0.8 and results["eval_average_precision"] > 0.6
    config = json.loads((trained / "out/bert_config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert config["threshold"] == pytest.approx(results["eval_threshold"])
    assert (trained / "out/labels.txt").read_text() == "blame\npraise\nsound\n"
    (example,) = tf.data.TFRecordDataset(f"{trained}/out/eval.tf_record").take(1)
    example = tf.train.Example.FromString(example.numpy())
    assert len(example.features.feature["label_ids"].int64_list.value) == 3
    report = json.loads((trained / "out/eval_report.json").read_text())
    assert report["micro"]["f1"] == pytest.approx(results["eval_micro_f1"])
    assert report["accuracy"] == pytest.approx(results["eval_accuracy"])


def test_predictions_and_classify_give_the_labels_above_the_threshold(trained):
    out = trained / "out"
    probabilities = np.loadtxt(out / "test_results.tsv")
    threshold = json.loads((out / "bert_config.json").read_text())["threshold"]
    table = read_table(f"{out}/predictions.tsv")
    names = ["blame", "praise", "sound"]
    expected = [
        [x for x, p in zip(names, row, strict=True) if p >= threshold] for row in probabilities
    ]
    assert [cell.split("|") if cell else [] for cell in table["prediction"]] == expected
    assert [float(x) for x in table["probability sound"]] == pytest.approx(probabilities[:, 2])
    found = bert_tf.load(out).classify(table["text_a"])
    assert [list(one.labels) for one in found] == expected
    for one, row in zip(found, probabilities, strict=True):
        assert list(one.probabilities.values()) == pytest.approx(row, abs=1e-5)
    errors = read_table(f"{out}/errors.tsv")
    assert all(a != b for a, b in zip(errors["label"], errors["prediction"], strict=True))


def test_the_model_s_folder_decides_how_it_is_evaluated(trained, tmp_path):
    """--bert_config_file of the pre-trained model does not say that texts have several labels."""
    start = {**FLAGS, "init_checkpoint": f"{trained}/out", "max_seq_length": 8}
    run_in(trained, "classification", output_dir=tmp_path / "a", **start, do_eval=True)
    found = read_results(f"{tmp_path}/a/eval_results.txt")
    expected = read_results(f"{trained}/out/eval_results.txt")
    assert found["eval_micro_f1"] == expected["eval_micro_f1"]
    flags = {**start, "multi_label": False, "do_predict": True, "threshold": 0.01}
    run_in(trained, "classification", output_dir=tmp_path / "b", **flags)
    results = "test_results.tsv"
    assert (tmp_path / "b" / results).read_text() == (trained / "out" / results).read_text()
    assert all(read_table(f"{tmp_path}/b/predictions.tsv")["prediction"])
    single = {**start, "multi_label": False}
    training, several = {**REVIEWS, "do_train": True}, {**FLAGS, "do_train": True, "do_eval": True}
    resumed, of_one = {"output_dir": trained / "out"}, "is for examples with one label; "
    for flags, message in (
        (single | {"do_eval": True}, "but the examples have one each. Set --multi_label"),
        (training | resumed, "trained with several labels for each text; to go on, set"),
        (several | {"class_weights": ["balanced"]}, f"--class_weights {of_one}"),
        (several | {"temperature_scaling": True}, f"--temperature_scaling {of_one}"),
        (
            several | {"find_threshold": True, "do_eval": False},
            "--find_threshold needs examples to",
        ),
        (
            training | {"labels": ["a", "b"], "threshold": 0.3},
            "--threshold is for texts with sever",
        ),
    ):
        flags = {"output_dir": tmp_path / "c", **flags}
        assert message in refusal(run_in, trained, "classification", **flags)


@pytest.mark.slow
@pytest.mark.parametrize("best", [False, True])
def test_the_threshold_is_that_of_the_final_weights(tmp_path, best):
    """Also without a final evaluation: evaluations in training find those of earlier weights."""
    folder = write_tables(tmp_path)
    flags = {**FLAGS, "do_train": True, "do_predict": True, "find_threshold": True}
    flags |= {"max_seq_length": 8, "learning_rate": 3e-2, "train_batch_size": 8}
    flags |= {"num_train_epochs": 2, "evaluate_every_steps": 25, "keep_best": best}
    run_in(folder, "classification", export_dir=folder / "export", **flags)
    model = bert_tf.load(folder / "export")
    dev = [line.split(",") for line in (folder / "dev.csv").read_text().splitlines()[1:]]
    wanted = [[int(label in cell.split("|")) for label in model.labels] for _, cell in dev]
    probabilities = model.predict([text for text, _ in dev])
    expected = scores.best_threshold(np.array(wanted), probabilities)
    assert model.config.threshold == pytest.approx(expected, rel=1e-4) != 0.5
    config = json.loads((folder / "out/bert_config.json").read_text())
    assert config["threshold"] == model.config.threshold
    predicted = np.loadtxt(folder / "out/test_results.tsv") >= config["threshold"]
    table = read_table(f"{folder}/out/predictions.tsv")
    assert [cell.count("|") + 1 if cell else 0 for cell in table["prediction"]] == list(
        predicted.sum(axis=1)
    )
    if best:
        message = (
            "--find_threshold needs --keep_best here: .*/out would be loaded from its best"
            " checkpoint"
        )
        with pytest.raises(UserError, match=message):
            again = {"do_eval": True, "find_threshold": True, "max_seq_length": 8}
            run_in(folder, "classification", **FLAGS, **again)


@pytest.mark.slow
def test_folds_of_texts_with_several_labels(tmp_path):
    folder = write_tables(tmp_path)
    flags = {**FLAGS, "do_train": True, "do_eval": True, "max_seq_length": 8, "folds": 2}
    with pytest.raises(UserError, match="--folds=2 excludes --find_threshold"):
        run_in(folder, "classification", find_threshold=True, **flags)
    results = run_in(folder, "classification", threshold=0.4, num_train_epochs=1, **flags)
    assert {"eval_micro_f1", "eval_micro_f1_std"} <= results.keys()
    report = json.loads((folder / "out/eval_report.json").read_text())
    assert report["examples"] == 120
    table = read_table(f"{folder}/out/eval_predictions.tsv")
    found = [float(x) >= 0.4 for x in table["probability sound"]]
    assert found == ["sound" in cell for cell in table["prediction"]]
