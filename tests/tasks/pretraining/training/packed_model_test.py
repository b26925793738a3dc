"""Packed rows give the loss, the metrics and every gradient of the same sequences unpacked."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.model.configuration import BertConfig
from bert_tf.model.encoder import attention_within_sequences
from bert_tf.modeling import BertModel
from bert_tf.tasks.pretraining.schema import MLM, MLM_NSP, MLM_SOP
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import objectives
from tests.support.packed_batches import PLACES, ROW_LENGTH, ROWS, both_batches
from tests.support.small_pretraining import SMALL, difference, tensors

SIZES = {"max_position_embeddings": ROW_LENGTH + 2}
SEQUENCES = sum(map(len, ROWS))


def make_model(seed=1, objective=MLM_NSP, **options):
    """Returns a model with random weights."""
    model = PretrainingModel(BertConfig.from_dict({**SMALL, **SIZES}), objective, **options)
    objectives.set_random_weights(model, seed)
    return model


def compute(model, features):
    """Returns loss, metrics and dense gradients of a batch without dropout."""
    features = tensors(features)
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss, sums = objectives.compute(model, features, True, tf.constant([1, 2]))
    gradients = tape.gradient(loss, variables)
    named = zip(model.trainable_variables, gradients, strict=True)
    dense = {v.path: tf.convert_to_tensor(g).numpy() for v, g in named if g is not None}
    return loss.numpy(), {name: np.array(pair) for name, pair in sums.items()}, dense


def assert_equal_gradients(actual, expected, bound=1e-6):
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        if "key/bias" in name:  # 0 but for rounding: softmax does not change by it
            assert np.abs(actual[name]).max() < bound and np.abs(gradient).max() < bound
        else:
            assert difference(actual[name], gradient) < bound, name


OPTIONS = {"recompute_activations": True}, {"use_one_hot_embeddings": True}


@pytest.mark.parametrize(
    "objective,options", [(MLM_NSP, {}), (MLM, {}), *((MLM_NSP, options) for options in OPTIONS)]
)
def test_loss_metrics_and_gradients_are_those_of_the_sequences_unpacked(objective, options):
    plain, packed = both_batches(objective=objective)
    assert len(plain["input_ids"]) == SEQUENCES and len(packed["input_ids"]) == len(ROWS)
    model = make_model(objective=objective, **options)
    loss, sums, gradients = compute(model, plain)
    packed_loss, packed_sums, packed_gradients = compute(model, packed)
    assert packed_loss == pytest.approx(loss, rel=1e-6)
    assert packed_sums.keys() == sums.keys() and len(sums) == 2 * len(objective.split("_n"))
    for name, pair in sums.items():
        np.testing.assert_allclose(packed_sums[name], pair, rtol=1e-6, err_msg=name)
    assert_equal_gradients(packed_gradients, gradients)


def test_each_vector_is_that_of_the_sequence_alone():
    plain, packed = both_batches()
    model = make_model()
    names = ("input_ids", "input_mask", "segment_ids")
    alone = model.bert(*(tf.constant(plain[name]) for name in names))
    together = model.bert(
        *(tf.constant(packed[name]) for name in names),
        position_ids=tf.constant(packed["position_ids"]),
        cls_positions=tf.constant(packed["cls_positions"]),
    )
    pooled = together.pooled_output.numpy().reshape(len(ROWS), PLACES, -1)
    number = 0
    for row, lengths in enumerate(ROWS):
        begin = 0
        for place, length in enumerate(lengths):
            end = begin + length
            layers = together.all_encoder_layers, alone.all_encoder_layers
            for ours, theirs in zip(*layers, strict=True):
                assert difference(ours[row, begin:end], theirs[number, :length]) < 1e-6
            assert difference(pooled[row, place], alone.pooled_output[number]) < 1e-6
            probs = together.attention_probs[0][row, :, begin:end].numpy()
            assert probs[:, :, begin:end].sum(-1) == pytest.approx(1.0, abs=1e-6)
            begin, number = end, number + 1


def test_a_token_attends_to_its_own_sequence():
    mask = attention_within_sequences(tf.constant([[1, 1, 2, 0], [1, 2, 2, 3]]))
    assert mask.dtype == tf.int32
    assert mask.numpy().tolist() == [
        [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]],
        [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]],
    ]


def test_a_row_with_one_sequence_is_the_model_of_old():
    """To the bit: the same operations, but for a mask and positions that are given."""
    bert = BertModel(BertConfig.from_dict({**SMALL, **SIZES}))
    ids = tf.constant(np.random.RandomState(4).randint(0, 53, (3, 9)), tf.int32)
    positions = tf.tile(tf.range(9)[tf.newaxis], [3, 1])
    packed = bert(ids, position_ids=positions, cls_positions=tf.zeros([3, 1], tf.int32))
    plain = bert(ids)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(getattr(packed, name), getattr(plain, name))


def test_a_training_step_is_that_of_the_sequences_unpacked():
    """The norm, too, by which gradients are clipped: every gradient is dense in both."""
    plain, packed = both_batches()
    results = []
    for features, parts in ((plain, 1), (packed, 1), (packed, 2)):
        model = make_model()
        optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 1e-3)
        metrics = steps.train_step(model, optimizer, tensors(features), tf.constant([3, 4]), parts)
        slots = optimizer.checkpoint_variables().items()
        moments = {name: x.numpy() for name, x in slots if name.endswith("adam_m")}
        results.append(({name: np.array(x) for name, x in metrics.items()}, moments))
    (metrics, moments), *of_packed = results
    for packed_metrics, packed_moments in of_packed:
        for name, value in metrics.items():
            np.testing.assert_allclose(packed_metrics[name], value, rtol=2e-6, err_msg=name)
        assert_equal_gradients(packed_moments, moments, bound=5e-6)


@pytest.mark.parametrize("objective", [MLM_NSP, MLM, MLM_SOP])
def test_an_evaluation_counts_sequences(objective):
    """Without the last row, which fills up the batch, and summed over two replicas."""
    plain, packed = both_batches(objective=objective)
    left_out = len(ROWS[-1])
    plain["example_weight"] = np.float32([1.0] * (SEQUENCES - left_out) + [0.0] * left_out)
    packed["example_weight"] = np.float32([1.0] * (len(ROWS) - 1) + [0.0])
    model = make_model(objective=objective)
    expected, found = (steps.evaluation_step(model, tensors(x)) for x in (plain, packed))
    assert found.keys() == expected.keys() and found["loss"][1] == SEQUENCES - left_out
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, err_msg=name)
    # One of two replicas with the same rows: what it has is half of the whole.
    two = steps.Replicas(2, lambda tensors: [2.0 * x for x in tensors])
    with steps.replicas_are(two):
        total, count = steps.evaluation_step(model, tensors(packed))["loss"]
    assert count == SEQUENCES - left_out
    expected_total, expected_count = expected["loss"]
    assert float(total / count) == pytest.approx(float(expected_total / expected_count), rel=1e-5)


def test_bfloat16_is_near():
    plain, packed = both_batches()
    model = make_model(dtype="bfloat16")
    loss, _, _ = compute(model, plain)
    packed_loss, sums, gradients = compute(model, packed)
    exact = compute(make_model(), plain)
    assert packed_loss == pytest.approx(loss, rel=0.02)
    assert packed_loss == pytest.approx(exact[0], rel=0.02)
    for name in ("bert/embeddings/position_embeddings", "bert/pooler/dense/kernel"):
        assert difference(gradients[name], exact[2][name]) < 0.1, name


@pytest.mark.slow
def test_keras_evaluates_packed_features():
    results = []
    for features in both_batches():
        model = make_model()
        model.compile()
        results.append(model.evaluate(features, batch_size=SEQUENCES, verbose=0, return_dict=True))
    assert results[1] == pytest.approx(results[0], rel=1e-5)


@pytest.mark.slow
def test_the_step_of_a_packed_batch_compiles_without_dynamic_shapes():
    _, packed = both_batches()
    model = make_model(use_one_hot_embeddings=True, dtype="bfloat16")
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 1e-3)

    @tf.function(jit_compile=True, autograph=False)
    def step(features):
        return steps.train_step(model, optimizer, features, tf.constant([0, 0]))["loss"]

    assert np.isfinite(step(tensors(packed)).numpy())
