"""Tests of labels, weights and arguments of Keras's fit, evaluate, predict and export."""

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
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
from tests.keras_test import eager, results, small_config
from tests.support.refusals import refuses
from tests.tasks.every_task_test import make, make_features, new_model

LABELS = {
    "classification": "label_ids",
    "regression": "label_ids",
    "multiple_choice": "label_ids",
    "sentences": "label_ids",
    "squad": "end_positions",
    "tagging": "label_ids",
    "pretraining": "masked_lm_ids",
}


def arrays(name, size=4):
    features = {key: x.numpy() for key, x in make_features(name, size).items()}
    if name == "tagging":
        features["label_mask"][:] = 1
    return features


def changed(features, name, value):
    return {**features, name: value}


# --- shapes and ranges of labels ------------------------------------------------------------------


@pytest.mark.parametrize("name", LABELS)
def test_a_column_of_labels_counts_like_a_row(name):
    model, features, label = eager(make(name)), arrays(name), LABELS[name]
    expected = results(model, features)
    column = changed(features, label, features[label][..., np.newaxis].astype(np.float64))
    assert results(model, column) == expected


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("shape", [(4, 2), (3,), (), (1, 4), (4, 1, 1)])
def test_labels_of_another_shape_are_refused(name, shape):
    if name in ("tagging", "pretraining") and len(shape) == 2:
        shape = (4, 1)
    model, features = eager(make(name)), arrays(name)
    features[LABELS[name]] = np.zeros(shape, int)
    with pytest.raises(UserError, match=rf"{LABELS[name]} must have .*; received \[") as info:
        model.test_on_batch(features)
    assert str(list(shape)) in str(info.value)


@pytest.mark.parametrize("name", [x for x in LABELS if x not in ("regression", "sentences")])
@pytest.mark.parametrize("wrong", [-1, -100, 99, 0.5])
def test_labels_out_of_range_are_refused(name, wrong):
    model, features, label = eager(make(name)), arrays(name), LABELS[name]
    labels = features[label].astype(np.float64)
    place = (2, 1) if labels.ndim == 2 else (2,)
    labels[place] = wrong
    if name == "pretraining":
        features["masked_lm_weights"][:] = 1.0
    message = rf"{label} must be from 0 to \d+ \(.*\); received {float(wrong)} at position"
    with pytest.raises(UserError, match=message) as info:
        model.test_on_batch(changed(features, label, labels))
    assert str(list(place)) in str(info.value)


@pytest.mark.parametrize("name", ["regression", "sentences"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(name, wrong):
    features = arrays(name)
    features["label_ids"] = np.float32([1.0, wrong, 0.0, 0.0])
    with pytest.raises(
        UserError, match=rf"label_ids must be finite.*; received {wrong} at .*\[1\]"
    ):
        eager(make(name)).test_on_batch(features)


def test_labels_that_do_not_count_may_be_any():
    model, features = eager(make("tagging")), arrays("tagging")
    features["label_mask"][:, 3:] = 0
    expected = results(model, features)
    features["label_ids"][:, 3:] = -100
    assert results(model, features) == expected
    features["label_ids"][1, 1] = -100
    refuses(r"received -100 at position \[1, 1\]", model.test_on_batch, features)
    model, features = eager(make("classification")), arrays("classification")
    labels = features.pop("label_ids")
    labels[1] = -1
    assert results(model, features, labels, sample_weight=np.array([1, 0, 1, 1]))["loss"] > 0.5


def test_a_graph_refuses_labels_out_of_range():
    model = make("classification")
    model.compile(keras.optimizers.SGD(0.0))
    features = arrays("classification")
    labels = features.pop("label_ids")
    assert model.test_on_batch(features, labels[:, np.newaxis])[0] > 0.5
    message = r"label_ids must be from 0 to\] \[\d+\] \[\(num_labels\); received\] \[9\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        model.test_on_batch(features, np.array([[0], [9], [1], [1]]))


def test_pairs_need_two_texts_and_in_batch_negatives_no_labels():
    ids = np.random.default_rng(0).integers(3, 53, (4, 5, 7))
    model = eager(SentenceModel(small_config(), "in_batch_negatives"))
    assert results(model, {"input_ids": ids[:, :2]}).keys() == {"loss", "accuracy"}
    with pytest.raises(UserError, match=r"pairs or \[B, 3, S\]: triplets; received 5 texts"):
        model.test_on_batch({"input_ids": ids})
    with pytest.raises(UserError, match="loss must be one of 'cosine', .*; received 'mse'"):
        SentenceModel(small_config(), "mse")


def test_a_text_can_have_several_classes():
    """The model's own loss is Keras's binary cross entropy; labels are [B, num_labels]."""
    config = small_config(problem_type="multi_label_classification")
    model, ids = ClassificationModel(config, 3), np.ones((2, 5), int)
    labels = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    expected = results(eager(model, loss), ids, labels)["loss"]
    found = results(eager(model), ids, labels)
    assert found.keys() == {"loss", "accuracy"} and 0.4 < expected < 1.0
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
    for wrong in (np.array([1, 2]), np.ones((2, 2), int)):
        with pytest.raises(
            UserError, match=r"must have a 0 or 1 for each class .*, \[2, 3\]; receiv"
        ):
            eager(model).test_on_batch(ids, wrong)
    with pytest.raises(
        UserError, match=r"label_ids must be from 0 to 1 \(1 for each class that the"
    ):
        eager(model).test_on_batch(ids, labels * 2)


# --- weights --------------------------------------------------------------------------------------


def test_weights_in_a_column_count_like_a_row():
    model, features = eager(make("classification")), arrays("classification")
    labels, weights = features.pop("label_ids"), np.array([1.0, 0.0, 0.5, 2.0])
    expected = results(model, features, labels, sample_weight=weights)
    column = weights[:, np.newaxis]
    assert results(model, features, labels, sample_weight=column) == expected
    assert results(model, {**features, "example_weight": column}, labels) == expected
    halves = {**features, "example_weight": weights / 4}
    found = results(model, halves, labels, sample_weight=np.full(4, 4.0))
    assert found["loss"] == pytest.approx(expected["loss"])
    for wrong in (np.ones((4, 2)), np.ones(3)):
        with pytest.raises(UserError, match=r"weights must have one number for each example, \[4"):
            model.test_on_batch({**features, "example_weight": wrong}, labels)


def test_class_weight_finds_the_labels():
    model, features = eager(ClassificationModel(small_config(), 3)), arrays("classification", 6)
    features["label_ids"] = np.array([0, 1, 2, 0, 1, 2])
    weights = {0: 1.0, 1: 2.0, 2: 0.0}
    losses = []
    for given in (features, {**features, "label": features["label_ids"], "label_ids": None}):
        keras.utils.set_random_seed(1)  # dropout
        history = model.fit(given, class_weight=weights, verbose=0, shuffle=False).history
        losses.append(history["loss"])
    labels = features.pop("label_ids")
    keras.utils.set_random_seed(1)
    history = model.fit(features, labels, class_weight=weights, verbose=0, shuffle=False).history
    assert losses == [history["loss"]] * 2
    with pytest.raises(UserError, match="class_weight needs the labels as y, or as 'label_ids'"):
        model.fit(features, class_weight=weights, verbose=0)
    data = tf.data.Dataset.from_tensors({**features, "label_ids": labels})
    refuses("class_weight needs the labels as y", model.fit, data, class_weight=weights, verbose=0)
    with pytest.raises(UserError, match="one class for each example; .*'start_positions', 'end_po"):
        eager(make("squad")).fit(arrays("squad"), class_weight=weights, verbose=0)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_weights_are_finite_and_not_negative(wrong):
    model, features = eager(make("classification")), arrays("classification")
    message = rf"weights must be finite, at least 0 \(1 counts .*; received {wrong} at position \[1"
    with pytest.raises(UserError, match=message):
        model.test_on_batch({**features, "example_weight": np.array([1.0, wrong, 1.0, 1.0])})
    model, features = eager(make("pretraining")), arrays("pretraining")
    features["masked_lm_weights"][1, 0] = wrong
    refuses(r"masked_lm_weights must be .* at position \[1, 0\]", model.test_on_batch, features)


@pytest.mark.parametrize(
    "weights,message",
    [
        ([1.0, 2.0, 3.0], r" must be a dictionary from the numbers .*; received \[1.0, 2"),
        ({7: 1.0}, r" must be .* of classes, from 0 to 2, .*; received {7: 1.0}"),
        ({"0": 1.0}, r" must be .*; received {'0': 1.0}"),
        ({0: 1.0, 1: -2.0}, r"\[1\] must be a finite number, at least 0; received -2.0"),
        ({0: np.nan}, r"\[0\] must be a finite number"),
        ({0: "2"}, r"\[0\] must be a finite number, at least 0; received '2'"),
    ],
)
def test_other_class_weights_are_refused(weights, message):
    model, features = eager(ClassificationModel(small_config(), 3)), arrays("classification")
    refuses("^class_weight" + message, model.fit, features, class_weight=weights, verbose=0)


@pytest.mark.parametrize("name", ["regression", "sentences"])
def test_numbers_to_predict_have_no_class_weights(name):
    with pytest.raises(UserError, match="class_weight needs a model with one class for each"):
        eager(make(name)).fit(arrays(name), class_weight={0: 2.0}, verbose=0)


def test_a_score_beyond_the_scale_is_refused():
    model = eager(SentenceModel(small_config(), score_scale=5.0))
    for wrong in (5.5, -6.0):
        labels = np.float32([5.0, wrong, -5.0, 0.0])
        features = changed(arrays("sentences"), "label_ids", labels)
        message = rf"finite, at least -5 and at most 5 \(score_scale\); received {wrong} at"
        refuses(message, model.test_on_batch, features)


# --- arguments ------------------------------------------------------------------------------------


def test_lists_of_numbers_are_arrays_and_texts_are_refused():
    model, features = eager(make("classification")), arrays("classification")
    expected = results(model, features)
    lists = {name: x.tolist() for name, x in features.items()}
    assert results(model, {**lists, "guid": ["a", "b", "c", "d"]}) == expected
    given = ({**lists, "guid": ["a", "b", "c", "d"]},)
    history = model.fit(features, validation_data=given, verbose=0).history
    assert history["val_loss"] == [pytest.approx(expected["loss"])]
    labels = lists.pop("label_ids")
    assert results(model, lists, labels) == expected
    predicted = model.predict({name: lists[name] for name in ("input_ids",)}, verbose=0)
    assert predicted.shape == (4, model.num_labels)
    for wrong in (["yes", "no", "yes", "no"], np.array(["yes", "no", "no", "no"])):
        message = r"must be numbers; received array\(\['yes'.* numbered from 0"
        refuses(f"y {message}", model.evaluate, lists, wrong, verbose=0)
        refuses(f"input_ids {message}", model.predict, {"input_ids": wrong}, verbose=0)
    with pytest.raises(UserError, match="a list must have rows of one length"):
        model.predict({"input_ids": [[1, 2], [3]]}, verbose=0)


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "int8", "object"])
def test_columns_of_pandas_are_labels_and_weights(dtype):
    model, features = eager(make("classification")), arrays("classification")
    labels = features.pop("label_ids")
    expected = results(model, features, labels, sample_weight=np.array([1, 0, 1, 1]))
    for column in (pd.Series(labels, dtype=dtype), pd.DataFrame({"y": labels}, dtype=dtype)):
        weights = pd.Series([1, 0, 1, 1], dtype=dtype)
        given = {"x": features, "y": column, "sample_weight": weights}
        assert model.evaluate(**given, verbose=0, return_dict=True) == pytest.approx(expected)
    times = pd.Series(labels).astype("timedelta64[s]")
    for wrong in (times, times + pd.Timestamp("2020"), pd.Series([*labels[:3], pd.NA])):
        refuses("y must be numbers; received", model.evaluate, features, wrong, verbose=0)
        with pytest.raises(UserError, match="sample_weight must be numbers; received"):
            model.evaluate(features, labels, sample_weight=wrong, verbose=0)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False, True, True]),
        pa.array([[1.0], [0.0], [1.0], [1.0]]),
        pa.chunked_array([[1, 0], [1, 1]]),
        pd.Series([[1], [0], [1], [1]]),
        [1, 0, 1, 1],
    ],
)
def test_columns_of_arrow_and_lists_are_weights(column):
    model, features = eager(make("classification")), arrays("classification")
    labels = features.pop("label_ids")
    expected = results(model, features, labels, sample_weight=np.array([1, 0, 1, 1]))
    given = (features, labels, column)
    history = model.fit(features, labels, validation_data=given, verbose=0, epochs=1).history
    assert history["val_loss"] == [pytest.approx(expected["loss"])]


@pytest.mark.parametrize(
    "wrong, message",
    [
        (pd.Series([[1, 2], [3], [1], [0]]), "y must have rows of one length"),
        (pa.array(["a", "b", "c", "d"]), r"y must be numbers; received array\(\['a'"),
        (
            np.array(["2020-01-01"] * 4, "datetime64[ns]"),
            "y must be numbers; received array.*2020-01-01",
        ),
        (np.array([], "U1"), r"y must be numbers; received array\(\[\]"),
    ],
)
def test_columns_without_numbers_are_refused(wrong, message):
    model, features = eager(make("classification")), arrays("classification")
    features.pop("label_ids")
    refuses(message, model.evaluate, features, wrong, verbose=0)


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
        SquadModel,
        BertModel,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (MultipleChoiceModel, FeaturesModel)),
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
    with pytest.raises(tf.errors.InvalidArgumentError, match="_ids must be from 0 to"):
        signature(**{**given, "segment_ids": tf.fill(shape, 9)})


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


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.6])
def test_the_dropout_before_the_head_is_an_argument(rate, tmp_path):
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


@pytest.mark.parametrize("rate", [-0.1, 1.0, "0.1", None])
def test_other_rates_and_numbers_of_classes_are_refused(rate):
    with pytest.raises(UserError, match="output_dropout_prob must be at least 0 and below 1; rec"):
        OutputLayer(2, 24, dropout_prob=rate)
    for wrong in (0, -2, "3", 1.0, None):
        refuses("num_labels must be a number from 1; received", OutputLayer, wrong, 24)
