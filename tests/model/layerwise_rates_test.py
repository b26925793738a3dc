"""Tests of bert_tf.model.layerwise_rates."""

import pytest

from bert_tf.model.albert_configuration import AlbertConfig
from bert_tf.model.configuration import BertConfig
from bert_tf.model.layerwise_rates import layerwise_lr_factors
from bert_tf.optimization import AdamOptions


def electra_rates(decay, n_layers):
    """The factors of google-research/electra: `_get_layer_lrs` for a rate of 1."""
    depths = {"/embeddings/": 0, "/embeddings_project/": 0, "task_specific/": n_layers + 2}
    depths |= {f"encoder/layer_{layer}/": layer + 1 for layer in range(n_layers)}
    return {key: decay ** (n_layers + 2 - depth) for key, depth in depths.items()}


@pytest.mark.parametrize("layers", [1, 3, 12])
@pytest.mark.parametrize("decay", [1.0, 0.8, 0.03])
def test_the_factors_are_electra_s(layers, decay):
    config = BertConfig(10, num_hidden_layers=layers)
    factors = layerwise_lr_factors(decay, config.layer_scopes)
    adam = AdamOptions(learning_rate_factors=tuple(factors.items()))
    for key, rate in electra_rates(decay, layers).items():
        name = f"bert/{key.strip('/')}/x/kernel"
        name = name.replace("embeddings_project", "encoder/embedding_hidden_mapping_in")
        assert adam.learning_rate_factor(name.replace("bert/task_specific/", "")) == rate, key
    assert adam.learning_rate_factor("bert/pooler/dense/kernel") == decay
    assert adam.learning_rate_factor("output_weights") == 1.0


def test_each_group_of_albert_counts_as_one_layer():
    config = AlbertConfig(10, num_hidden_layers=6, num_hidden_groups=2)
    expected = {
        "bert/embeddings/": 0.5**4,
        "bert/encoder/embedding_hidden_mapping_in/": 0.5**4,
        "bert/encoder/transformer/group_0/": 0.5**3,
        "bert/encoder/transformer/group_1/": 0.5**2,
        "bert/pooler/": 0.5,
    }
    found = layerwise_lr_factors(0.5, config.layer_scopes)
    assert {k: v for k, v in found.items() if k.startswith("bert/")} == expected
