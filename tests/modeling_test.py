"""Tests of bert_tf.modeling; tests/tasks/pretraining/training/model_test.py has golden figures."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import modeling
from bert_tf.model import attention, embeddings, encoder
from bert_tf.model.layers import dropout
from bert_tf.seeds import fold_in
from tests.support import numpy_bert
from tests.support.numpy_bert import assert_near
from tests.support.objectives import set_random_weights
from tests.support.refusals import refusal, refuses
from tests.support.small_pretraining import SMALL

B, S, H, N, V, T = 2, 7, 24, 3, 53, 4


def _config(**changes):
    return modeling.BertConfig.from_dict({**SMALL, **changes})


def _model(arguments=None, **changes):
    """Returns a model and the numpy model of the same random weights; tests share them."""
    return _made(tuple((arguments or {}).items()), tuple(changes.items()))


@functools.cache
def _made(arguments, changes):
    model = modeling.BertModel(_config(**dict(changes)), **dict(arguments))
    return model, numpy_bert.NumpyBert({**SMALL, **dict(changes)}, set_random_weights(model))


def _inputs(seed=0, batch_size=B, seq_length=S):
    """Returns ids, mask and segment ids; the first row has no padding, the last has some."""
    rng = np.random.default_rng(seed)
    shape = (batch_size, seq_length)
    lengths = np.linspace(seq_length, seq_length - 3, batch_size).astype(int)
    return (
        rng.integers(0, V, shape, dtype=np.int32),
        (np.arange(seq_length) < lengths[:, None]).astype(np.int32),
        rng.integers(0, T, shape, dtype=np.int32),
    )


# --- the forward pass against numpy ---------------------------------------------------------------


@pytest.mark.parametrize("act", ["gelu", "gelu_erf", "relu", "tanh"])
def test_every_output_against_numpy(act):
    model, reference = _model(hidden_act=act)
    output = model(*_inputs(1))
    expected = reference.forward(*_inputs(1))
    assert len(output.all_encoder_layers) == len(output.attention_probs) == 2
    for name, value in expected.items():
        assert_near(tf.stack(getattr(output, name)), value, 1e-5, name)


def test_a_hidden_act_may_be_a_function_or_linear():
    def outputs(act):
        model = modeling.BertModel(_config(hidden_act=act))
        set_random_weights(model)
        return model(*_inputs(2)).sequence_output

    relu, linear = outputs("ReLU"), outputs("linear")
    np.testing.assert_array_equal(outputs(tf.nn.relu), relu)
    np.testing.assert_array_equal(outputs(tf.identity), linear)
    np.testing.assert_array_equal(outputs(None), linear)
    assert np.abs(linear - relu).max() > 0.1


def test_padding_changes_nothing_for_tokens():
    model, _ = _model()
    ids, input_mask, segment_ids = _inputs(7)
    other_ids = np.where(input_mask == 1, ids, (ids + 9) % V)
    assert (other_ids != ids).any()
    first = model(ids, input_mask, segment_ids).sequence_output.numpy()
    other = model(other_ids, input_mask, segment_ids).sequence_output.numpy()
    np.testing.assert_array_equal(other[input_mask == 1], first[input_mask == 1])
    shorter = model(*(x[:, :6] for x in (ids, input_mask, segment_ids))).sequence_output.numpy()
    np.testing.assert_allclose(shorter[1, :4], first[1, :4], rtol=1e-4, atol=1e-5)


# --- the interface --------------------------------------------------------------------------------


def test_mask_and_segment_ids_are_optional():
    model, _ = _model()
    ids, _, _ = _inputs(8)
    expected = model(ids, np.ones((B, S), np.int32), np.zeros((B, S), np.int32))
    np.testing.assert_array_equal(model(ids).sequence_output, expected.sequence_output)
    by_name = model(input_ids=ids, token_type_ids=np.zeros((B, S), np.int32))
    np.testing.assert_array_equal(by_name.pooled_output, expected.pooled_output)
    # Outputs have the original's getters.
    output = model(*_inputs(8))
    assert output.get_embedding_output() is output.embedding_output
    assert output.get_all_encoder_layers() is output.all_encoder_layers
    assert output.get_sequence_output() is output.sequence_output is output.all_encoder_layers[-1]
    assert output.get_pooled_output() is output.pooled_output
    assert output.get_embedding_table() is output.embedding_table
    assert output.embedding_output.shape == output.sequence_output.shape == (B, S, H)
    assert output.pooled_output.shape == (B, H)
    np.testing.assert_array_equal(output.embedding_table, model.embeddings.word_embeddings.numpy())
    for probs in output.attention_probs:
        assert probs.shape == (B, N, S, S)
        np.testing.assert_allclose(tf.reduce_sum(probs, axis=-1), 1.0, rtol=1e-5)
        assert not probs.numpy()[1, :, :, S - 3 :].any()


def test_one_hot_embeddings_equal_gathered_ones():
    ids, input_mask, segment_ids = _inputs(10)
    words = "bert/embeddings/word_embeddings"
    ids[0, :3] = 5  # a row of the table that is used more than once
    results = []
    for one_hot in (False, True):
        model, _ = _model({"use_one_hot_embeddings": one_hot})
        variables = [v.value for v in model.trainable_variables]
        with tf.GradientTape() as tape:
            output = model(ids, input_mask, segment_ids)
            loss = tf.reduce_sum(output.pooled_output**3)
        gradients = tape.gradient(loss, variables)
        table_gradient = gradients[[v.path for v in model.variables].index(words)]
        assert isinstance(table_gradient, tf.Tensor if one_hot else tf.IndexedSlices)
        results.append([output.sequence_output, *map(tf.convert_to_tensor, gradients)])
    for gathered, multiplied in zip(*results, strict=True):
        np.testing.assert_allclose(multiplied, gathered, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [False, True])
def test_recomputing_activations_changes_nothing(training):
    """Neither outputs nor gradients; with dropout, both passes must draw the same masks."""
    results = []
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    for recompute in (False, True):
        model, _ = _model({"recompute_activations": recompute}, **rates)
        variables = [v.value for v in model.trainable_variables]
        with tf.GradientTape() as tape:
            output = model(*_inputs(11), training=training, dropout_seed=tf.constant([1, 2]))
            loss = tf.reduce_sum(output.sequence_output**3)
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        results.append([loss, *map(tf.convert_to_tensor, gradients)])
    for kept, recomputed in zip(*results, strict=True):
        np.testing.assert_allclose(recomputed, kept, rtol=1e-4, atol=1e-3)


def test_later_changes_of_the_callers_config_have_no_effect():
    config = _config()
    model = modeling.BertModel(config)
    config.hidden_size = 99
    assert model.config.hidden_size == H
    assert model(_inputs()[0]).pooled_output.shape == (B, H)


def test_batch_and_length_may_be_dynamic():
    model, reference = _model()
    compute = tf.function(
        lambda *x: model(*x).sequence_output,
        input_signature=[tf.TensorSpec([None, None], "int32")] * 3,
    )
    for batch_size, seq_length in ((B, S), (5, 9), (1, 4)):
        inputs = _inputs(12, batch_size, seq_length)
        assert_near(compute(*inputs), reference.forward(*inputs)["sequence_output"], 1e-5)
    message = r"sequence length must be at most max_position_embeddings \(11\)"
    refuses(message, compute, *_inputs(12, B, 13), kind=tf.errors.InvalidArgumentError)


def test_too_long_a_sequence_or_a_wrong_rank_is_refused():
    model, _ = _model()
    model(_inputs(0, B, 11)[0])
    told = refusal(model, _inputs(0, B, 12)[0])
    assert (
        "The sequence length (12) must be at most max_position_embeddings (11) of the"
        " configuration; lower --max_seq_length or change --bert_config_file."
    ) in told
    message = r"input_ids must have rank 2, not 1 \(shape \(7,\)\)"
    refuses(message, model, np.zeros(S, np.int32), kind=ValueError)


# --- bfloat16 -------------------------------------------------------------------------------------


def test_bfloat16_is_near_float32():
    model, reference = _model({"dtype": "bfloat16"})
    assert {v.dtype for v in model.variables} == {"float32"}
    output = model(*_inputs(13))
    expected = reference.forward(*_inputs(13))
    assert output.sequence_output.dtype == output.pooled_output.dtype == tf.bfloat16
    assert output.embedding_table.dtype == output.attention_probs[0].dtype == tf.float32
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert_near(tf.cast(getattr(output, name), "float32"), expected[name], 0.08, name)
    for actual, probs in zip(output.attention_probs, expected["attention_probs"], strict=True):
        np.testing.assert_allclose(actual, probs, atol=0.1)
        np.testing.assert_allclose(tf.reduce_sum(actual, axis=-1), 1.0, rtol=1e-5)


def test_layer_norm_has_float32_statistics_of_bfloat16_inputs():
    model, _ = _model({"dtype": "bfloat16"})
    norm = model.encoder.encoder_layers[1].residual_output.layer_norm
    rng = np.random.default_rng(20)
    x = tf.cast(rng.normal(3.0, 0.2, size=(B * S, H)), tf.bfloat16)
    expected = numpy_bert.layer_norm(
        tf.cast(x, tf.float64).numpy(), norm.gamma.numpy(), norm.beta.numpy()
    )
    assert norm(x).dtype == tf.float32
    # One rounding to the 8 bits of bfloat16; its sum of 24 numbers would be far worse.
    np.testing.assert_allclose(norm(x), expected, rtol=2**-8, atol=1e-4)


# --- dropout --------------------------------------------------------------------------------------


def _record_masks(monkeypatch):
    """Returns a list to which each call that drops appends its rate, shape and mask."""
    calls = []

    def recorded(x, rate, seed):
        if seed is not None:
            mask = dropout(tf.ones([16, 16]), 0.5, seed).numpy()  # one rate, to compare seeds
            calls.append((rate, tuple(x.shape), mask))
        return dropout(x, rate, seed)

    for module in (attention, embeddings, encoder):
        monkeypatch.setattr(module, "dropout", recorded)
    return calls


def test_every_site_of_dropout_has_its_rate_and_its_own_numbers_folded_into_the_seed(monkeypatch):
    """As in the table of bert_tf/model/layers.py. Others would change every run's figures."""
    calls = _record_masks(monkeypatch)
    model, _ = _model(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2)
    model(*_inputs(14), training=False)
    assert not calls
    seed = tf.constant([1, 2])
    model(*_inputs(14), training=True, dropout_seed=seed)
    probs, output = (0.2, (B, N, S, S)), (0.3, (B * S, H))
    sites = {(0,): (0.3, (B, S, H))}
    sites |= {(1, i, j): site for i in range(2) for j, site in enumerate((probs, output, output))}
    for (rate, shape, mask), (numbers, site) in zip(calls, sites.items(), strict=True):
        assert (rate, shape) == site
        expected = dropout(tf.ones([16, 16]), 0.5, functools.reduce(fold_in, numbers, seed))
        np.testing.assert_array_equal(mask, expected)
    assert len({mask.tobytes() for _, _, mask in calls}) == len(calls)


def test_the_models_dropout_follows_from_its_seed_under_xla_too():
    rates = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}
    model, _ = _model(num_hidden_layers=1, **rates)
    inputs = _inputs(15)

    def run(seed):
        return model(*inputs, training=True, dropout_seed=seed).sequence_output

    first = run(tf.constant([1, 2])).numpy()
    np.testing.assert_array_equal(run(tf.constant([1, 2])), first)
    compiled = tf.function(run, jit_compile=True)(tf.constant([1, 2]))
    np.testing.assert_allclose(compiled, first, rtol=1e-4, atol=1e-4)
    assert np.abs(run(tf.constant([1, 3])) - first).max() > 0.1
    assert np.abs(model(*inputs).sequence_output - first).max() > 0.1


# --- a Keras user ---------------------------------------------------------------------------------


def test_training_switches_dropout_on_in_a_keras_model():
    bert = modeling.BertModel(_config(hidden_dropout_prob=0.5))
    input_ids = keras.Input((S,), dtype="int32")
    model = keras.Model(input_ids, bert(input_ids).sequence_output)
    ids, _, _ = _inputs(19)
    expected = bert(ids).sequence_output
    np.testing.assert_allclose(model(ids), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.predict(ids, verbose=0), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(model(ids, training=True) - expected).max() > 0.1


def test_the_name_of_the_model_comes_first_in_its_variables_paths():
    assert {v.path.split("/")[0] for v in modeling.BertModel(_config()).variables} == {"bert"}
    named = modeling.BertModel(_config(), name="teacher")
    assert {v.path.split("/")[0] for v in named.variables} == {"teacher"}
