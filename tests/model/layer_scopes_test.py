"""Tests of bert_tf.model.layer_scopes."""

import pytest

from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig
from bert_tf.model.layer_scopes import layerwise_lr_factors, parse_frozen_layers
from bert_tf.optimization import AdamOptions
from tests.support.refusals import refusal

SCOPES = [f"bert/encoder/layer_{i}/" for i in range(12)]
NAMES = [
    "bert/embeddings/word_embeddings",
    "bert/encoder/embedding_hidden_mapping_in/kernel",
    "bert/encoder/layer_1/output/dense/kernel",
    "bert/encoder/layer_2/output/dense/kernel",
    "bert/encoder/layer_11/output/dense/kernel",
    "bert/pooler/dense/kernel",
    "output_weights",
]


def test_what_is_frozen():
    for text, frozen in (
        ("", []),
        ("all", NAMES[:6]),
        ("embeddings", NAMES[:2]),
        ("embeddings,1", NAMES[:3]),
        ("0-2", NAMES[2:4]),
        ("pooler,11-11", NAMES[4:6]),
    ):
        is_frozen = parse_frozen_layers(text, SCOPES)
        assert [name for name in NAMES if is_frozen(name)] == frozen


def test_other_words_are_refused():
    message = "encoder layers from 0 to 11 and ranges of them such as 0-2, separated by commas; not"
    for text in ("12", "3-12", "5-3", "encoder", "1,two", "-1", "0-" + "9" * 5000):
        assert message in refusal(parse_frozen_layers, text, SCOPES)


def test_electra_has_no_pooler():
    scopes = [f"electra/encoder/layer_{i}/" for i in range(12)]
    for text in ("pooler", "0-2,pooler"):
        told = refusal(parse_frozen_layers, text, scopes, has_pooler=False)
        assert f"--freeze_layers={text} names the pooler, which an ELEC" in told
    is_frozen = parse_frozen_layers("embeddings,1", scopes, has_pooler=False)
    names = [name.replace("bert/", "electra/") for name in NAMES]
    names[1] = "electra/embeddings_project/kernel"
    assert [name for name in names if is_frozen(name)] == names[:3]


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
    names = "embeddings encoder/embedding_hidden_mapping_in encoder/transformer/group_0"
    names = [*names.split(), "encoder/transformer/group_1", "pooler"]
    depths = dict(zip(names, (4, 4, 3, 2, 1), strict=True))
    found = layerwise_lr_factors(0.5, config.layer_scopes)
    found = {name: factor for name, factor in found.items() if name.startswith("bert/")}
    assert found == {f"bert/{name}/": 0.5**depth for name, depth in depths.items()}
