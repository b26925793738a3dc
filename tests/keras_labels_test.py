"""Tests of labels, weights and arguments of Keras's fit, evaluate, predict and export."""

import re

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from bert_tf.model.heads import OutputLayer
from bert_tf.model.layers import dropout
from bert_tf.modeling import BertConfig, BertModel
from bert_tf.runs.training.watch import set_modes
from bert_tf.seeds import fold_in
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.sentences.model import SentenceModel
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.tagging.model import TaggingModel
from bert_tf.tasks.task_model import TaskModel, array_arguments
from tests.keras_test import eager, results, small_config
from tests.support.refusals import refusal, refuses
from tests.tasks.every_task_test import make, make_features, new_model

LABELS = {**dict.fromkeys(["classification", "regression", "multiple_choice"], "label_ids")}
LABELS |= {"sentences": "label_ids", "squad": "end_positions", "tagging": "label_ids"}
LABELS |= {"pretraining": "masked_lm_ids"}


def compiled(name, size=4):
    """Returns the model of a task, which all tests share, and features as arrays."""
    return eager(make(name)), arrays(name, size)


def labelled():
    """Returns the classifier, features and their labels."""
    model, features = compiled("classification")
    labels = features.pop("label_ids")
    return model, features, labels


def arrays(name, size=4):
    features = {key: x.numpy() for key, x in make_features(name, size).items()}
    if name == "tagging":
        features["label_mask"][:] = 1
    return features


# --- shapes and ranges of labels ------------------------------------------------------------------


@pytest.mark.parametrize("name", LABELS)
def test_shapes_of_labels(name):
    """A column counts like a row; all else is refused."""
    model, features = compiled(name)
    label, found = LABELS[name], []
    column = {**features, label: features[label][..., np.newaxis].astype(np.float64)}
    for given in (features, column):
        model.reset_metrics()
        found.append(model.test_on_batch(given, return_dict=True))
    assert found[0] == found[1]
    for shape in ((4, 2), (3,), (), (1, 4), (4, 1, 1)):
        if name in ("tagging", "pretraining") and len(shape) == 2:
            shape = (4, 1)
        features[label] = np.zeros(shape, int)
        told = refusal(model.test_on_batch, features)
        assert re.search(rf"{label} must have .*; received \[", told) and str(list(shape)) in told


@pytest.mark.parametrize("name", LABELS)
def test_labels_out_of_range_are_refused(name):
    model, features = compiled(name)
    label = LABELS[name]
    if name in ("regression", "sentences"):
        for wrong in (np.nan, np.inf):
            features["label_ids"] = np.float32([1.0, wrong, 0.0, 0.0])
            message = rf"label_ids must be finite.*; received {wrong} at .*\[1\]"
            refuses(message, model.test_on_batch, features)
        return
    if name == "pretraining":
        features["masked_lm_weights"][:] = 1.0
    place = (2, 1) if features[label].ndim == 2 else (2,)
    for wrong in (-1, -100, 99, 0.5):
        labels = features[label].astype(np.float64)
        labels[place] = wrong
        told = refusal(model.test_on_batch, {**features, label: labels})
        message = rf"{label} must be from 0 to \d+ \(.*\); received {float(wrong)} at position"
        assert re.search(message, told) and str(list(place)) in told


def test_scores_have_a_scale_pairs_two_texts_and_in_batch_negatives_no_labels():
    model = eager(SentenceModel(small_config(), score_scale=5.0))
    for wrong in (5.5, -6.0):
        labels = np.float32([5.0, wrong, -5.0, 0.0])
        message = rf"finite, at least -5 and at most 5 \(score_scale\); received {wrong} at"
        features = {**arrays("sentences"), "label_ids": labels}
        refuses(message, model.test_on_batch, features)
    ids = np.random.default_rng(0).integers(3, 53, (4, 5, 7))
    model = eager(SentenceModel(small_config(), "in_batch_negatives"))
    assert results(model, {"input_ids": ids[:, :2]}).keys() == {"loss", "accuracy"}
    message = r"pairs or \[B, 3, S\]: triplets; received 5 texts"
    refuses(message, model.test_on_batch, {"input_ids": ids})
    message = "loss must be one of 'cosine', .*; received 'mse'"
    refuses(message, SentenceModel, small_config(), "mse")


def test_labels_that_do_not_count_may_be_any():
    model, features = compiled("tagging")
    features["label_mask"][:, 3:] = 0
    expected = results(model, features)
    features["label_ids"][:, 3:] = -100
    assert results(model, features) == expected
    features["label_ids"][1, 1] = -100
    refuses(r"received -100 at position \[1, 1\]", model.test_on_batch, features)
    model, features, labels = labelled()
    labels[1] = -1
    assert results(model, features, labels, sample_weight=np.array([1, 0, 1, 1]))["loss"] > 0.5


def test_a_graph_refuses_labels_out_of_range():
    model, features, labels = labelled()
    model.compile(keras.optimizers.SGD(0.0))
    assert model.test_on_batch(features, labels[:, np.newaxis])[0] > 0.5
    message = r"label_ids must be from 0 to\] \[\d+\] \[\(num_labels\); received\] \[9\]"
    wrong, kind = np.array([[0], [9], [1], [1]]), tf.errors.InvalidArgumentError
    refuses(message, model.test_on_batch, features, wrong, kind=kind)


def test_a_text_can_have_several_classes():
    """Labels are [B, num_labels]."""
    config = small_config(problem_type="multi_label_classification")
    model, ids = eager(ClassificationModel(config, 3)), np.ones((2, 5), int)
    labels = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    assert results(model, ids, labels).keys() == {"loss", "accuracy"}
    for wrong in (np.array([1, 2]), np.ones((2, 2), int)):
        message = r"must have a 0 or 1 for each class .*, \[2, 3\]; receiv"
        refuses(message, model.test_on_batch, ids, wrong)
    message = r"label_ids must be from 0 to 1 \(1 for each class that the"
    refuses(message, model.test_on_batch, ids, labels * 2)


# --- weights --------------------------------------------------------------------------------------


def test_weights_in_a_column_count_like_a_row():
    model, features, labels = labelled()
    weights = np.array([1.0, 0.0, 0.5, 2.0])
    expected = results(model, features, labels, sample_weight=weights)
    column = weights[:, np.newaxis]
    assert results(model, features, labels, sample_weight=column) == expected
    assert results(model, {**features, "example_weight": column}, labels) == expected
    halves = {**features, "example_weight": weights / 4}
    found = results(model, halves, labels, sample_weight=np.full(4, 4.0))
    assert found["loss"] == pytest.approx(expected["loss"])
    for wrong in (np.ones((4, 2)), np.ones(3)):
        message = r"weights must have one number for each example, \[4"
        refuses(message, model.test_on_batch, {**features, "example_weight": wrong}, labels)


def test_class_weight_finds_the_labels():
    model, features = eager(ClassificationModel(small_config(), 3)), arrays("classification", 6)
    labels = np.array([0, 1, 2, 0, 1, 2])
    features.pop("label_ids")
    options = {"class_weight": {0: 1.0, 1: 2.0, 2: 0.0}, "verbose": 0}
    losses = []
    for more in ({"label_ids": labels}, {"label": labels, "label_ids": None}, {}):
        keras.utils.set_random_seed(1)  # dropout
        y = () if more else (labels,)
        history = model.fit({**features, **more}, *y, shuffle=False, **options).history
        losses.append(history["loss"])
    assert losses == [losses[0]] * 3
    message = "class_weight needs the labels as y, or as 'label_ids'"
    refuses(message, model.fit, features, **options)
    data = tf.data.Dataset.from_tensors({**features, "label_ids": labels})
    refuses("class_weight needs the labels as y", model.fit, data, **options)
    squad, features = compiled("squad")
    message = "one class for each example; .*'start_positions', 'end_po"
    refuses(message, squad.fit, features, **options)
    for name in ("regression", "sentences"):
        numbers, features = compiled(name)
        message = "class_weight needs a model with one class for each"
        refuses(message, numbers.fit, features, **options)
    for weights, message in (
        ([1.0, 2.0, 3.0], r" must be a dictionary from the numbers .*; received \[1.0, 2"),
        ({7: 1.0}, r" must be .* of classes, from 0 to 2, .*; received {7: 1.0}"),
        ({"0": 1.0}, r" must be .*; received {'0': 1.0}"),
        ({0: 1.0, 1: -2.0}, r"\[1\] must be a finite number, at least 0; received -2.0"),
        ({0: np.nan}, r"\[0\] must be a finite number"),
        ({0: "2"}, r"\[0\] must be a finite number, at least 0; received '2'"),
    ):
        features = arrays("classification")
        refuses("^class_weight" + message, model.fit, features, class_weight=weights, verbose=0)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_weights_are_finite_and_not_negative(wrong):
    model, features = compiled("classification")
    features["example_weight"] = np.array([1.0, wrong, 1.0, 1.0])
    message = rf"weights must be finite, at least 0 \(1 counts .*; received {wrong} at position \[1"
    refuses(message, model.test_on_batch, features)
    model, features = compiled("pretraining")
    features["masked_lm_weights"][1, 0] = wrong
    refuses(r"masked_lm_weights must be .* at position \[1, 0\]", model.test_on_batch, features)
    model, features = compiled("tagging")
    features["label_weights"] = np.ones(4, np.float32)
    refuses("label_weights must have a number for each token", model.test_on_batch, features)
    features["label_weights"] = np.ones(features["label_ids"].shape, np.float32)
    features["label_weights"][1, 2] = wrong
    message = r"label_weights must be finite, at least 0 .*; received .* at position \[1, 2\]"
    refuses(message, model.test_on_batch, features)


# --- arguments ------------------------------------------------------------------------------------


def test_lists_of_numbers_are_arrays_and_texts_are_refused():
    model, features = compiled("classification")
    expected = results(model, features)
    lists = {name: x.tolist() for name, x in features.items()}
    given = ({**lists, "guid": ["a", "b", "c", "d"]},)
    assert results(model, *given) == expected
    history = model.fit(features, validation_data=given, verbose=0).history
    assert history["val_loss"] == [pytest.approx(expected["loss"])]
    labels = lists.pop("label_ids")
    assert results(model, lists, labels) == expected
    predicted = model.predict({"input_ids": lists["input_ids"]}, verbose=0)
    assert predicted.shape == (4, model.num_labels)
    for wrong in (["yes", "no", "yes", "no"], np.array(["yes", "no", "no", "no"])):
        message = r"must be numbers; received array\(\['yes'.* numbered from 0"
        refuses(f"y {message}", model.evaluate, lists, wrong, verbose=0)
        refuses(f"input_ids {message}", model.predict, {"input_ids": wrong}, verbose=0)


COLUMNS = [
    *(pd.Series([1, 0, 1, 1], dtype=x) for x in ("Int64", "Float64", "int8", "object")),
    *(pd.DataFrame({"y": [1, 0, 1, 1]}, dtype=x) for x in ("Int64", "Float64", "int8", "object")),
    *(pa.array([True, False, True, True]), pa.array([[1.0], [0.0], [1.0], [1.0]])),
    *(pa.chunked_array([[1, 0], [1, 1]]), pd.Series([[1], [0], [1], [1]]), [1, 0, 1, 1]),
]


def test_columns_of_tables_and_lists_are_labels_and_weights():
    model, features, labels = labelled()
    expected = results(model, features, labels, sample_weight=np.array([1, 0, 1, 1]))
    y, weights = pd.DataFrame({"y": labels}, dtype="Int64"), COLUMNS[0]
    found = results(model, features, y, sample_weight=weights)
    assert found == pytest.approx(expected)
    given = (features, labels, weights)
    history = model.fit(features, labels, validation_data=given, verbose=0, epochs=1).history
    assert history["val_loss"] == [pytest.approx(expected["loss"])]
    fit = super(TaskModel, model).fit
    for column in COLUMNS:
        options = {"sample_weight": column, "validation_data": (features, column, column)}
        given = array_arguments(fit, (features, column), options, model)
        for array in (given["y"], given["sample_weight"], *given["validation_data"][1:]):
            assert array.dtype.kind in "biuf" and array.ravel().tolist() == [1, 0, 1, 1]


def test_columns_without_numbers_are_refused():
    model, features, labels = labelled()
    times = pd.Series(labels).astype("timedelta64[s]")
    numbers = "must be numbers; received"
    for wrong, message in (
        (pa.array(["a", "b", "c", "d"]), rf"y {numbers} array\(\['a'"),
        (np.array(["2020-01-01"] * 4, "datetime64[ns]"), f"y {numbers} array.*2020-01-01"),
        (np.array([], "U1"), rf"y {numbers} array\(\[\]"),
        *((x, f"y {numbers}") for x in (times, times + pd.Timestamp("2020"))),
        (pd.Series([*labels[:3], pd.NA]), f"y {numbers}"),
    ):
        refuses(message, model.evaluate, features, wrong, verbose=0)
        message = message.replace("y ", "sample_weight ", 1)
        refuses(message, model.evaluate, features, labels, sample_weight=wrong, verbose=0)


def test_own_losses_and_metrics_find_the_labels_among_the_features():
    model, features = new_model("classification"), arrays("classification")  # keeps the metrics
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = ["sparse_categorical_accuracy"]
    found = results(eager(model, loss, metrics=metrics), features)
    expected = results(eager(model, metrics=metrics), features)
    assert found.keys() == {"loss", *metrics} and expected.keys() == {"accuracy", *found}
    labels = features.pop("label_ids")
    assert results(eager(model, loss, metrics=metrics), features, labels) == found
    assert expected["loss"] == pytest.approx(found["loss"], rel=1e-5)
    assert expected["accuracy"] == expected["sparse_categorical_accuracy"]


def test_callbacks_know_which_way_a_metric_improves():
    model, features = eager(make("tagging")), arrays("tagging")
    made = keras.callbacks.EarlyStopping("val_accuracy")
    model.fit(features, validation_data=(features, None), callbacks=[made], verbose=0)
    assert made.mode == "max"
    metrics = (*PretrainingModel.task_metrics, *SquadModel.task_metrics, "disc_recall")
    for monitor, mode, expected in (
        ("masked_lm_loss", "auto", "min"),
        ("val_masked_lm_accuracy", "auto", "max"),
        ("end_accuracy", "auto", "max"),
        ("end_accuracy", "min", "min"),
        ("val_loss", "auto", "auto"),  # Keras knows
        ("disc_recall", "auto", "max"),
    ):
        for kind in (keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau):
            made = kind(monitor, mode=mode)
            set_modes(keras.callbacks.CallbackList([made]), metrics)
            assert made.mode == expected


# --- outputs and exports --------------------------------------------------------------------------


def test_predict_gives_the_embedding_table_once():
    model = BertModel(small_config())
    ids = np.random.default_rng(1).integers(0, 53, (5, 7))
    model.compile(run_eagerly=True)
    expected = model(ids)
    for output in (model.predict(ids, batch_size=2, verbose=0), model.predict_on_batch(ids)):
        np.testing.assert_array_equal(output.get_embedding_table(), expected.embedding_table)
        np.testing.assert_allclose(output.pooled_output, expected.pooled_output, atol=1e-5)
        assert output.all_encoder_layers[0].shape == (5, 7, 24)


@pytest.mark.parametrize(
    "kind",
    [
        BertModel,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (MultipleChoiceModel, FeaturesModel)),
        SquadModel,
    ],
)
def test_a_model_that_was_never_called_is_exported(kind, tmp_path):
    model = kind(small_config())
    model.export(tmp_path, verbose=False)
    signature = tf.saved_model.load(tmp_path).signatures["serving_default"]
    shape = (2, 4, 7) if kind is MultipleChoiceModel else (2, 7)
    ids = tf.constant(np.random.default_rng(2).integers(0, 53, shape), tf.int32)
    given = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    found, expected = signature(**given), model(given)
    if hasattr(expected, "pooled_output"):
        np.testing.assert_allclose(found["pooled_output"], expected.pooled_output, atol=1e-5)
        assert found.keys() == {"pooled_output", "sequence_output"}
    else:
        outputs = [found[name] for name in sorted(found)]
        for ours, theirs in zip(outputs, tf.nest.flatten(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    given["segment_ids"] = tf.fill(shape, 9)
    kind = tf.errors.InvalidArgumentError
    refuses("_ids must be from 0 to", signature, **given, kind=kind)


@pytest.mark.slow
def test_an_own_loss_on_several_replicas():
    devices = tf.config.list_logical_devices("CPU")
    strategy = tf.distribute.MirroredStrategy(devices[:2])
    features = arrays("classification")
    with strategy.scope():
        model = ClassificationModel(small_config(), 3)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    labels = features.pop("label_ids") % 3
    history = model.fit(features, labels, batch_size=4, verbose=0).history
    assert history.keys() == {"loss", "accuracy"}


# --- the head's dropout ---------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, 0.6])
def test_the_dropout_before_the_head_is_an_argument(rate):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig.from_dict({**small_config().to_dict(), **rates})
    ids, seed = np.random.default_rng(3).integers(3, 53, (2, 7)), tf.constant([1, 2])
    for kind in (ClassificationModel, TaggingModel):
        model = kind(config, 3, output_dropout_prob=rate)
        model = type(model).from_config(model.get_config())
        output = model.bert(ids)
        hidden = output.pooled_output if kind is ClassificationModel else output.sequence_output
        expected = model.head(dropout(hidden, rate, fold_in(seed, 2)))
        found = model(ids, training=True, dropout_seed=seed)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    choices = MultipleChoiceModel(config, output_dropout_prob=rate)
    assert choices.get_config()["output_dropout_prob"] == rate


def test_other_rates_and_numbers_of_classes_are_refused():
    message = "output_dropout_prob must be at least 0 and below 1; rec"
    for rate in (-0.1, 1.0, "0.1", None):
        refuses(message, OutputLayer, 2, 24, dropout_prob=rate)
    for share in (-0.1, 1.0, float("nan")):
        message = "label_smoothing must be at least 0 and below 1; rec"
        refuses(message, ClassificationModel, small_config(), 2, label_smoothing=share)
    for wrong in (True, False, 0, -1, 1.0, "2", None, np.bool_(True)):
        refuses("num_labels must be a whole number of at least 1; received", OutputLayer, wrong, 24)
