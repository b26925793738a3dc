"""What the unit tests of google-research/bert and albert ask of their modules, in other figures.

What they ask of tokenization is in tokenization_test.py.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import modeling, optimization

KINDS = [
    (modeling.BertConfig, {}),
    (modeling.AlbertConfig, {"embedding_size": 24}),
    (modeling.AlbertConfig, {"embedding_size": 10, "inner_group_num": 2, "down_scale_factor": 1}),
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind, widths", KINDS)
def test_every_output_has_its_shape_and_needs_every_variable(kind, widths, training):
    sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 29, "max_position_embeddings": 40, "type_vocab_size": 5}
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    config = kind(hidden_act="gelu", initializer_range=0.05, **sizes, **rates, **widths)
    rng = np.random.default_rng(4)
    ids, mask, types = (rng.integers(0, limit, [11, 9]) for limit in (61, 2, 5))
    bert = modeling.BertModel(config)
    with tf.GradientTape() as tape:
        model = bert(ids, mask, types, training=training)
        outputs = [*model.get_all_encoder_layers(), model.get_pooled_output()]
        total = tf.add_n([tf.reduce_sum(tf.square(x)) for x in outputs])
    width = config.embedding_size if kind is modeling.AlbertConfig else 24
    assert model.get_embedding_output().shape == (11, 9, width)
    assert model.get_embedding_table().shape == (61, width)
    assert [x.shape for x in outputs[:-1]] == [(11, 9, 24)] * (3 * widths.get("inner_group_num", 1))
    assert outputs[-1].shape == (11, 24) and model.get_sequence_output() is outputs[-2]
    assert np.isfinite(total) and total > 0.0
    gradients = tape.gradient(total, [x.value for x in bert.trainable_variables])
    assert not [x.path for x, g in zip(bert.variables, gradients, strict=True) if g is None]


def test_a_configuration_as_json_whatever_the_heads():
    for kind in (modeling.BertConfig, modeling.AlbertConfig):
        found = json.loads(kind(vocab_size=61, hidden_size=41).to_json_string())
        assert (found["vocab_size"], found["hidden_size"]) == (61, 41)


def test_the_optimizer_finds_a_minimum():
    found, wanted = keras.Variable([0.3, -0.6]), tf.constant([-0.2, 0.7])
    optimizer = optimization.AdamWeightDecayOptimizer(learning_rate=0.1)
    for _ in range(150):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(wanted - found))
        optimizer.apply_gradients([(tape.gradient(loss, found.value), found)])
    np.testing.assert_allclose(found.numpy(), wanted, atol=0.01)
