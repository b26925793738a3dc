"""Tests of pretraining/training/model.py, against numpy and the original's golden figures."""

import functools
import os
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.files import checkpoints
from bert_tf.model.heads import cross_entropy
from bert_tf.modeling import BertConfig
from bert_tf.tasks.pretraining.training import heads
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert
from tests.support.golden import needs_golden
from tests.support.golden_training import FEATURES, check_training
from tests.support.objectives import compute, set_random_weights
from tests.support.shapes import variables_without_values
from tests.support.small_pretraining import (
    SMALL,
    B,
    P,
    S,
    difference,
    make_features,
    small_model,
    tensors,
    weights_of,
)

GOLDEN = pathlib.Path(__file__).parents[3] / "golden"
MODELS = ("model_gelu", "model_relu")


def _golden(name, recompute_activations=False):
    """Returns a golden folder and its model with the weights of step 0."""
    folder = GOLDEN / name
    config = BertConfig.from_json_file(str(folder / "bert_config.json"))
    model = PretrainingModel(config, recompute_activations=recompute_activations)
    checkpoints.initialize(weights_of(model), str(folder / "model.ckpt-0"))
    return folder, model


def _outputs(model, features):
    """Returns the outputs of the original's pre-training graph, by the original's names."""
    bert = model.bert(features["input_ids"], features["input_mask"], features["segment_ids"])
    loss, sums = compute(model, features)
    next_sentence_loss = sums["next_sentence_loss"][0] / sums["next_sentence_loss"][1]
    inputs = (features[name] for name in FEATURES[:4])
    masked_lm_logits, next_sentence_logits = model(*inputs, training=False)
    masked_lm_ids = tf.reshape(features["masked_lm_ids"], [-1])
    return {
        "embedding_output": bert.get_embedding_output(),
        "sequence_output": bert.get_sequence_output(),
        "pooled_output": bert.get_pooled_output(),
        "all_encoder_layers": tf.stack(bert.get_all_encoder_layers()),
        "masked_lm_loss": loss - next_sentence_loss,
        "masked_lm_example_loss": cross_entropy(masked_lm_logits, masked_lm_ids),
        "masked_lm_log_probs": tf.nn.log_softmax(masked_lm_logits),
        "next_sentence_loss": next_sentence_loss,
        "next_sentence_log_probs": tf.nn.log_softmax(next_sentence_logits),
        "total_loss": loss,
    }


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_every_output_is_the_originals(name, jit_compile):
    folder, model = _golden(name)
    arrays = np.load(folder / "forward.npz")
    features = {key: tf.constant(arrays[key]) for key in FEATURES}
    compute = functools.partial(_outputs, model)
    if jit_compile:
        compute = tf.function(compute, jit_compile=True, autograph=False)
    outputs = compute(features)
    assert set(outputs) | set(FEATURES) == set(arrays)
    for key, output in outputs.items():
        assert difference(output, arrays[key]) < 2e-6, key


@pytest.mark.parametrize("name", MODELS)
def test_the_numpy_model_gives_the_originals_outputs_too(name):
    arrays = dict(np.load(GOLDEN / name / "forward.npz"))
    config = BertConfig.from_json_file(str(GOLDEN / name / "bert_config.json")).to_dict()
    reader = tf.train.load_checkpoint(str(GOLDEN / name / "model.ckpt-0"))
    weights = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    outputs = numpy_bert.NumpyBert(config, weights).losses(arrays)
    for key in set(arrays) - set(FEATURES):
        assert difference(outputs[key], arrays[key]) < 2e-6, key


@pytest.mark.parametrize(
    "name,parts,recompute_activations",
    [
        *(("model_gelu", 1, True), ("model_relu", 5, False)),
        pytest.param("model_gelu", 1, False, marks=pytest.mark.slow),
        pytest.param("model_relu", 1, False, marks=pytest.mark.slow),
        pytest.param("model_gelu", 2, False, marks=pytest.mark.slow),
        pytest.param("model_relu", 1, True, marks=pytest.mark.slow),
    ],
)
def test_training_is_the_originals(name, parts, recompute_activations, strategy=None):
    folder, model = _golden(name, recompute_activations)
    num_steps = len(np.load(folder / "train.npz")["losses"])
    check_training(model, folder / "model.ckpt-0", folder, num_steps, strategy, parts)


def _check_variables(model, prefix):
    expected = dict(tf.train.list_variables(prefix))
    expected = {name: x for name, x in expected.items() if "/adam_" not in name}
    expected.pop("global_step", None)
    assert {v.path: list(v.shape) for v in model.variables} == expected
    assert {v.dtype for v in model.variables} == {"float32"}
    assert [v.path for v in model.trainable_variables] == [v.path for v in model.variables]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_variables_are_those_of_the_originals_model(dtype):
    folder = GOLDEN / "model_gelu"
    config = BertConfig.from_json_file(str(folder / "bert_config.json"))
    _check_variables(PretrainingModel(config, dtype=dtype), str(folder / "model.ckpt-0"))


@needs_golden
@pytest.mark.slow
def test_variables_are_those_of_the_released_checkpoints():
    released = pathlib.Path(os.environ["BERT_TF_GOLDEN"]).parent / "released"
    indices = sorted(released.glob("*/*.index"))
    assert len(indices) == 2
    for index in indices:
        config = BertConfig.from_json_file(str(index.parent / "bert_config.json"))
        with variables_without_values():
            model = PretrainingModel(config)
        _check_variables(model, str(index).removesuffix(".index"))


def test_initial_values():
    def values_of(seed, **changes):
        keras.utils.set_random_seed(seed)
        model = PretrainingModel(BertConfig.from_dict({**SMALL, "vocab_size": 999, **changes}))
        return {v.path: v.numpy() for v in model.variables}

    values = values_of(7)
    by_shape = {}
    for name, value in values.items():
        if name.endswith("gamma"):
            assert (value == 1.0).all(), name
        elif name.endswith(("beta", "bias")):
            assert (value == 0.0).all(), name
        else:
            # Of a normal distribution of deviation 0.02 cut off at 2 deviations.
            assert np.abs(value).max() <= 0.04, name
            if value.size > 400:
                assert np.abs(value).max() > 0.036, name
                assert abs(value.std() - 0.0176) < 0.0015, name
                assert abs(value.mean()) < 0.003, name
            by_shape.setdefault(value.shape, []).append(value)
    assert len(by_shape[(24, 24)]) == 2 * 4 + 2
    for same_shape in by_shape.values():
        assert len({value.tobytes() for value in same_shape}) == len(same_shape)
    for name, value in values_of(7).items():
        np.testing.assert_array_equal(value, values[name])
    name = "bert/pooler/dense/kernel"
    others = values_of(8, initializer_range=0.5)
    assert (others[name] != values[name]).mean() > 0.99
    for name, value in others.items():
        if value.ndim == 2 and value.size > 500:
            assert 0.4 < value.std() < 0.48, name


@pytest.mark.parametrize("act", ["tanh", "linear"])  # the golden models have the others
def test_outputs_against_numpy(act):
    model, reference = small_model(1, hidden_act=act)
    features = make_features(1)
    outputs = _outputs(model, tensors(features))
    expected = reference.losses(features)
    for key, output in outputs.items():
        assert difference(output, expected[key]) < 2e-5, key


def test_gather_indexes():
    sequence = tf.constant(np.random.default_rng(1).normal(size=(B, S, 24)), tf.float32)
    positions = np.array([[3, 3, 0, 1, 5], [2, 4, 0, 1, S - 1]], np.int32)
    expected = np.concatenate([x[row] for x, row in zip(sequence.numpy(), positions, strict=True)])
    np.testing.assert_array_equal(heads.gather_indexes(sequence, positions), expected)
    signature = [tf.TensorSpec([None, None, 24]), tf.TensorSpec([None, None], tf.int32)]
    dynamic = tf.function(heads.gather_indexes, signature, autograph=False)
    np.testing.assert_array_equal(dynamic(sequence, positions), expected)
    with pytest.raises(ValueError, match="must have rank 3, not 2"):
        heads.gather_indexes(tf.zeros([3, 4]), positions)


def test_masked_lm_denominator_has_its_1e_5():
    model, reference = small_model(2)
    features = make_features(2)
    example_loss = reference.losses(features)["masked_lm_example_loss"][P + 3]
    features["masked_lm_weights"] = np.zeros((B, P), np.float32)
    for weight in (1.0, 1e-3, 1e-5, 1e-6):
        features["masked_lm_weights"][1, 3] = weight
        loss, sums = compute(model, tensors(features))
        found = loss - sums["next_sentence_loss"][0] / sums["next_sentence_loss"][1]
        np.testing.assert_allclose(found, example_loss * weight / (weight + 1e-5), rtol=1e-5)
    # Without any prediction the loss is 0.
    features["masked_lm_weights"][1, 3] = 0.0
    features = tensors(features)
    with tf.GradientTape() as tape:
        loss, sums = compute(model, features)
    next_sentence_loss, weight = sums["next_sentence_loss"]
    assert loss.numpy() == next_sentence_loss.numpy() / weight.numpy()
    assert [x.numpy() for x in sums["masked_lm_loss"]] == [0.0, 0.0]
    assert not tape.gradient(loss, model.cls.predictions.output_bias.value).numpy().any()


def test_metrics_against_numpy():
    model, reference = small_model(4)
    features = make_features(4, batch_size=9)
    expected = reference.losses(features)
    # Every other label is what the model says, or accuracy would be 0.
    said = expected["masked_lm_log_probs"].argmax(-1).reshape(9, P)
    features["masked_lm_ids"][::2] = said[::2]
    features["next_sentence_labels"][::2, 0] = expected["next_sentence_log_probs"].argmax(-1)[::2]
    expected = reference.losses(features)
    batch = tensors(features)
    _, sums = model.loss_and_metrics(model(batch), batch, {"masked_lm": 3.0, "next_sentence": 4.0})
    weights = features["masked_lm_weights"].reshape(-1)
    right = expected["masked_lm_log_probs"].argmax(-1) == features["masked_lm_ids"].reshape(-1)
    next_labels = features["next_sentence_labels"].reshape(-1)
    next_right = expected["next_sentence_log_probs"].argmax(-1) == next_labels
    for name, (numerator, denominator) in {
        "masked_lm_loss": ((weights * expected["masked_lm_example_loss"]).sum(), weights.sum()),
        "masked_lm_accuracy": ((weights * right).sum(), weights.sum()),
        "next_sentence_loss": (expected["next_sentence_loss"] * 9, 9),
        "next_sentence_accuracy": (next_right.sum(), 9),
    }.items():
        np.testing.assert_allclose(sums[name][0], numerator, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(sums[name][1], denominator, rtol=1e-5, err_msg=name)
    assert 5 <= next_right.sum() < 9 and 25 <= right.sum() < 45


def test_losses_of_a_bfloat16_model_are_float32_and_near():
    model, reference = small_model(11)
    half = PretrainingModel(model.bert.config, dtype="bfloat16")
    set_random_weights(half, 11)
    features = make_features(11)
    outputs = _outputs(half, tensors(features))
    expected = reference.losses(features)
    for name in ("total_loss", "masked_lm_log_probs", "next_sentence_log_probs"):
        assert outputs[name].dtype == tf.float32
        assert difference(outputs[name], expected[name]) < 0.05, name
    features = tensors(features)
    optimizer = optimization.create_optimizer(half.trainable_variables, lambda step: 0.0)
    loss = steps.train_step(half, optimizer, features, tf.constant([0, 0]))["loss"]
    assert difference(loss, expected["total_loss"]) < 0.05
    slots = {n: v.dtype for n, v in optimizer.checkpoint_variables().items() if n != "global_step"}
    assert {*slots.values()} == {tf.float32}
